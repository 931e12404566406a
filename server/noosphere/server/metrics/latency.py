"""Durations in buckets, cheap to take on an event loop and readable from the exporter's thread."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

BOUNDS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Upper bounds of buckets, in seconds; above the last one is one more."""


class Latency:
    """Durations in seconds.

    Attributes:
        bounds: upper bounds of buckets, in seconds; above the last one is one more.
        sum_seconds: of all of them.
    """

    __slots__ = ("_counts", "bounds", "sum_seconds")

    def __init__(self, bounds: Sequence[float] = BOUNDS) -> None:
        self.bounds = tuple(bounds)
        self._counts = [0] * (len(self.bounds) + 1)
        self.sum_seconds = 0.0

    def add(self, seconds: float) -> None:
        """Takes one."""
        self._counts[bisect_left(self.bounds, seconds)] += 1
        self.sum_seconds += seconds

    @property
    def counts(self) -> tuple[int, ...]:
        """How many there were in each bucket, and above the last bound."""
        return tuple(self._counts)

    @property
    def count(self) -> int:
        """How many there were."""
        return sum(self._counts)

    def buckets(self) -> list[tuple[str, float]]:
        """Returns how many were at most as long as each bound, as Prometheus has it."""
        found, below = [], 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self._counts, strict=True):
            below += count
            found.append((bound, float(below)))
        return found
