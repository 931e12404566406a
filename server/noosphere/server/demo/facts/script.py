"""What a demo of facts plays: sessions on different days, with what is said, seen, remembered, asked and forgotten."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ..scripts import read_as

SESSIONS_MAX = 100
STEPS_MAX = 200
DAYS_AGO_MAX = 3_650

Status = Literal["written", "merged", "superseded", "contested", "rejected", "quarantined", "suppressed"]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid")


class User(_Part):
    """The user says something.

    Attributes:
        text: what.
        name: by which later steps name it, in any session; empty for none.
    """

    do: Literal["user"]
    text: str = Field(min_length=1)
    name: str = ""


class Assistant(_Part):
    """The agent says something."""

    do: Literal["assistant"]
    text: str = Field(min_length=1)


class Page(_Part):
    """The agent reads a web page, by a tool.

    Attributes:
        url: where.
        text: what stands there.
        name: by which later steps name it, in any session; empty for none.
    """

    do: Literal["page"]
    url: str = Field(min_length=1)
    text: str = Field(min_length=1)
    name: str = ""


class Remember(_Part):
    """The agent proposes to remember a claim.

    Attributes:
        text: the claim in words.
        subject: what it is about; empty if it is not said.
        predicate: which property of it; empty if it is not said.
        object: the property's value; None if it is not said.
        said_by: how it came in, as the agent has it. The server assigns the trust.
        rests_on: the evidence: ``user`` for what the user said last in this session, ``page`` for the page that was
            read last, ``nothing``, or the name of a message or page.
        expect: what becomes of it.
        because: a reason that has to be among those of the decision; empty for any.
        supersedes: the text of the fact that it has to supersede; empty for none.
    """

    do: Literal["remember"]
    text: str = Field(min_length=1)
    subject: str = ""
    predicate: str = ""
    object: Any = None
    said_by: Literal["agent", "user", "external"] = "agent"
    rests_on: str = Field(default="user", min_length=1)
    expect: Status = "written"
    because: str = ""
    supersedes: str = ""


class Extract(_Part):
    """The server looks by itself for what is worth remembering in the session.

    Attributes:
        learns: texts that must be known facts afterwards.
        never: texts that must not.
    """

    do: Literal["extract"]
    learns: list[str] = []
    never: list[str] = []


class Ask(_Part):
    """The agent asks what is known.

    Attributes:
        query: the question.
        first: the text that must stand first; None if nothing must.
        never: texts that must not be found.
        why: whether the whole path of the first hit is told in the end.
    """

    do: Literal["ask"]
    query: str = Field(min_length=1)
    first: str | None = None
    never: list[str] = []
    why: bool = True


class Forget(_Part):
    """Something is forgotten, by exactly one of query, producer and everything.

    Attributes:
        query: what has all of these words.
        producer: what this producer, or agent, said.
        everything: all of the owner's facts.
        facts: how many facts that must be; None for any number.
        gone: words that must stand nowhere afterwards: in no fact, no candidate and no message.
    """

    do: Literal["forget"]
    query: str = ""
    producer: str = ""
    everything: bool = False
    facts: int | None = Field(default=None, ge=0)
    gone: list[str] = []

    @model_validator(mode="after")
    def _one_of_three(self) -> Forget:
        if (given := sum((bool(self.query), bool(self.producer), self.everything))) != 1:
            raise ValueError(f"{given} of query, producer and everything are given, not one")
        return self


Step = Annotated[User | Assistant | Page | Remember | Extract | Ask | Forget, Field(discriminator="do")]


class Day(_Part):
    """One session.

    Attributes:
        title: for people.
        days_ago: on which day it takes place. What is remembered in it is so since that day.
        steps: in order.
    """

    title: str = ""
    days_ago: int = Field(ge=0, le=DAYS_AGO_MAX)
    steps: list[Step] = Field(min_length=1, max_length=STEPS_MAX)


class Script(_Part):
    """A whole demo.

    Attributes:
        title: for people.
        owner: whose facts, e.g. ``user/ada``; empty for somebody new.
        sessions: in order.
    """

    title: str = "What is remembered"
    owner: str = ""
    sessions: list[Day] = Field(min_length=1, max_length=SESSIONS_MAX)

    @model_validator(mode="after")
    def _time_goes_on(self) -> Script:
        for number in range(1, len(self.sessions)):
            before, here = self.sessions[number - 1].days_ago, self.sessions[number].days_ago
            if here > before:
                raise ValueError(f"sessions.{number}.days_ago: {here} is before the session before it, {before}")
        return self

    @model_validator(mode="after")
    def _evidence_comes_first(self) -> Script:
        named: set[str] = set()
        for number, day in enumerate(self.sessions):
            here: set[str] = {"nothing"}
            for index, step in enumerate(day.steps):
                where = f"sessions.{number}.steps.{index}"
                if isinstance(step, (User, Page)):
                    here.add(step.do)
                    if step.name in named | {"user", "page", "nothing"}:
                        raise ValueError(f"{where}.name: {step.name!r} is taken")
                    named |= {step.name} - {""}
                elif isinstance(step, Remember) and step.rests_on not in here | named:
                    there = ", ".join(map(repr, sorted(here | named)))
                    raise ValueError(f"{where}.rests_on: there is no {step.rests_on!r} before; there are {there}")
        return self


def read_script(path: Path) -> Script:
    """Reads a script from a JSON file.

    Raises:
        ScriptError: it cannot be read, is no JSON or does not have this form.
    """
    return read_as(Script, path)


def default_script() -> Script:
    """Returns what is played without a script: three sessions with one user."""
    from .story import story

    return Script.model_validate(story())
