"""Every goal of a run, with the figure that is held against it, whatever measured that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from . import engine_rows, floor_rows
from .results import Results
from .rows import Row

_BESIDE = {
    **{name: " / bare gRPC" for name in (*floor_rows.KINDS, *floor_rows.GUARDED, *floor_rows.ON_REDIS)},
    **{name: ", in process, many / few records" for name in engine_rows.KINDS},
}
"""What a row is compared with, where its table says so and the row does not."""


class Judged(NamedTuple):
    """A figure and its goal.

    Attributes:
        what: for people.
        value: the median.
        low: the first quartile; the value itself where there is one sample.
        high: the third quartile.
        goal: the limit.
        at_least: whether the value must be at least that, or else at most.
        met: whether it is.
    """

    what: str
    value: float
    low: float
    high: float
    goal: float
    at_least: bool
    met: bool

    @property
    def share(self) -> float:
        """How good it is: 1 is the goal, more is better."""
        return self._share(self.value)

    @property
    def shares(self) -> tuple[float, float]:
        """The same of its quartiles, the worse one first."""
        low, high = sorted((self._share(self.low), self._share(self.high)))
        return low, high

    def show(self, value: float) -> str:
        """Returns a value with as many digits as tell something."""
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"

    def _share(self, value: float) -> float:
        if self.at_least:
            return value / self.goal
        return self.goal / value if value else 1.0


def judged(results: Results) -> list[Judged]:
    """Returns all of them, in the order of the run."""
    rows = (row for row in results.rows.values() if isinstance(row, Row) and row.goal is not None)
    found = []
    for row in rows:
        goal = row.goal
        assert goal is not None
        value = row.value
        found.append(
            Judged(row.what, value.median, value.low, value.high, goal.limit, goal.at_least, goal.met_by(value.median))
        )
    return [*found, *_of_quality(results)]


def _of_quality(results: Results) -> Iterator[Judged]:
    at_most = ("stale_first", "false_supersessions")
    for name, label in (("recall", "Found again"), ("updates", "Kept up to date")):
        for key, value in _result(results, name).get("reached", {}).items():
            goal = _result(results, name)["goals"][key]
            least = key not in at_most
            yield Judged(
                f"{label}: {key}, %", value, value, value, goal, least, value >= goal if least else value <= goal
            )
    if found := _result(results, "compaction"):
        value, goal = found["methods"][-1]["percent"], found["goal_percent"]
        yield Judged("Compressed tool results: used values kept, %", value, value, value, goal, True, value >= goal)


def _result(results: Results, name: str) -> dict[str, Any]:
    found: dict[str, Any] = results.documents.get(name, {}).get("result", {})
    return found
