"""What a run finds: rows with the figure that is judged, its goal, and the figures beside it."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .children import LOG_FOLLOWS, Child
from .plan import Plan
from .profiling import Profile
from .rounds import Rounds
from .stats import Spread

_LOG_CHARS_MAX = 200


@dataclass(frozen=True, slots=True)
class Goal:
    """A limit: ``value`` must be at least, or else at most, ``limit``."""

    limit: float
    at_least: bool

    def met_by(self, value: float) -> bool:
        """Tells whether a value is on the right side."""
        return value >= self.limit if self.at_least else value <= self.limit


@dataclass(slots=True)
class Row:
    """One figure of the report.

    Attributes:
        name: stable, for programs.
        what: for people.
        value: the judged figure.
        goal: what it should be; None for a figure that is only told.
        figures: what stands beside it, by column.
        samples: everything measured, for the JSON file.
        profiles: where the time or the memory goes.
    """

    name: str
    what: str
    value: Spread
    goal: Goal | None
    figures: Mapping[str, float]
    samples: Any = None
    profiles: list[Profile] = field(default_factory=list)

    @property
    def met(self) -> bool | None:
        """Whether the median meets the goal; None without one."""
        return None if self.goal is None else self.goal.met_by(self.value.median)

    def as_json(self) -> dict[str, Any]:
        """Returns everything, by name."""
        return {**asdict(self), "met": self.met}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Row:
        """Returns what :meth:`as_json` was made from."""
        return cls(
            found["name"],
            found["what"],
            Spread(**found["value"]),
            None if found["goal"] is None else Goal(**found["goal"]),
            found["figures"],
            found.get("samples"),
            [Profile(**profile) for profile in found["profiles"]],
        )


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """A row that this machine cannot fill.

    Attributes:
        name: stable, for programs.
        what: for people.
        why: what is missing.
    """

    name: str
    what: str
    why: str

    def as_json(self) -> dict[str, Any]:
        """Returns everything, by name."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Bench:
    """What every part of a run needs.

    Attributes:
        plan: how much to measure.
        work: an empty folder on the disk that is measured.
        logs: where the children's standard error goes.
        load: the process that calls servers.
        kept: the rows that are complete: what is left of a part that takes too long.
    """

    plan: Plan
    work: Path
    logs: Path
    load: Child
    kept: list[Row] = field(default_factory=list)

    def keep(self, row: Row) -> Row:
        """Notes that a row is complete, but for its profiles; returns it."""
        self.kept.append(row)
        return row

    def rounds(self, most: int, *, warm: int = 0) -> Rounds:
        """Returns the rounds of one row, at most so many, after ``warm`` others that have numbers below 0."""
        plan = self.plan
        return Rounds(most, least=plan.rounds_least, seconds=plan.row_seconds, first=-warm)


async def profile_into(row: Row, profiles: Awaitable[list[Profile]]) -> None:
    """Adds profiles to a row. One that fails says so in its place: the row's figure stands without it."""
    try:
        row.profiles += await profiles
    except Exception as error:
        row.profiles.append(Profile(f"No profile of {row.what}", first_line(error), (), ()))


def first_line(error: BaseException) -> str:
    """Returns what an error says in one line; of a log that it ends with, the last line."""
    said, _, rest = str(error).partition("\n")
    if said.endswith(LOG_FOLLOWS) and (last := rest.strip().rpartition("\n")[2].strip()):
        said = f"{said} {last[:_LOG_CHARS_MAX]}"
    return said.replace("|", "/") or type(error).__name__
