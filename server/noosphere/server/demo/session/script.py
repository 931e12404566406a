"""What a session demo plays: turns with an input, steps, and what the model is to answer. No model is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ..scripts import read_as

TURNS_MAX = 1_000
STEPS_MAX = 50


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Put(_Part):
    """Writes an item of working memory."""

    do: Literal["put"]
    key: str
    value: Any
    attributes: dict[str, str | int | float | bool] = {}


class Get(_Part):
    """Reads an item by name, which counts as an access."""

    do: Literal["get"]
    key: str


class Goal(_Part):
    """Sets a goal."""

    do: Literal["goal"]
    name: str = "main"
    text: str
    status: str = "open"


class Tool(_Part):
    """Calls a tool.

    Attributes:
        name: the tool.
        args: its arguments.
        result: what it returns, any JSON value.
        keep: paths of the fields to keep if the result is too large.
        late: what happens to the result if an open goal has changed by then.
        goal_meanwhile: what the main goal becomes while the tool runs; None leaves it. That makes the result late
            only if the goal was open when the call was started.
        expect: where the call must stand in the end.
    """

    do: Literal["tool"]
    name: str
    args: dict[str, Any] = {}
    result: Any
    keep: list[str] = []
    late: Literal["apply", "apply_flagged", "park", "reject"] = "apply_flagged"
    goal_meanwhile: str | None = None
    expect: Literal["done", "parked", "rejected"] = "done"


class Checkpoint(_Part):
    """Makes a savepoint under a name."""

    do: Literal["checkpoint"]
    name: str


class Restore(_Part):
    """Goes back to a savepoint that was made in this script."""

    do: Literal["restore"]
    name: str


class Summarize(_Part):
    """Has what left the window summarised now."""

    do: Literal["summarize"]


Step = Annotated[Put | Get | Goal | Tool | Checkpoint | Restore | Summarize, Field(discriminator="do")]


class Turn(_Part):
    """One turn: what the user says, what is done, and what the model answers."""

    user: str = Field(min_length=1)
    steps: list[Step] = Field(default=[], max_length=STEPS_MAX)
    reply: str = Field(min_length=1)


class Script(_Part):
    """A whole session.

    Attributes:
        title: for people.
        system: instructions for the model.
        tokens: how large a context may be.
        grace_turns: how long a new item is left alone.
        turns: in order.
    """

    title: str = "A session"
    system: str = ""
    tokens: int = Field(default=2_000, ge=100, le=1_000_000)
    grace_turns: int = Field(default=3, ge=1, le=100)
    turns: list[Turn] = Field(min_length=1, max_length=TURNS_MAX)

    @model_validator(mode="after")
    def _savepoints_come_first(self) -> Script:
        made: set[str] = set()
        for number, turn in enumerate(self.turns):
            for index, step in enumerate(turn.steps):
                if isinstance(step, Checkpoint):
                    made.add(step.name)
                elif isinstance(step, Restore) and step.name not in made:
                    where = f"turns.{number}.steps.{index}.name"
                    there = f"there are {', '.join(map(repr, sorted(made)))}" if made else "none was"
                    raise ValueError(f"{where}: no checkpoint {step.name!r} was made before; {there}")
        return self


def read_script(path: Path) -> Script:
    """Reads a script from a JSON file.

    Raises:
        ScriptError: it cannot be read, is no JSON or does not have this form.
    """
    return read_as(Script, path)


def default_script() -> Script:
    """Returns the session that is played without a script: thirty turns about one journey."""
    from .journey import journey

    return Script.model_validate(journey())
