"""How often something is sampled: until its figure stands still or its time is over, but not less than some times."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from .stats import spread

STEADY_SHARE = 0.03
"""A figure stands still when its middle half is not wider than this share of its median."""
STEADY_SAMPLES = 7
"""Fewer samples may lie close to each other by chance."""


class Rounds:
    """Counts rounds of samples: ``for number in rounds: …; rounds.note(ratio)``.

    It looks at the spread alone, never at the side on which a figure lies, so when it stops does not move a median.

    Args:
        most: rounds at most.
        least: rounds at least, if ``most`` allows them.
        seconds: no round begins later than this, but for the least ones.
        first: the number of the first; below 0 for rounds that warm up, which are added to both limits.
        clock: seconds that pass.

    Attributes:
        noted: the figures so far.
    """

    def __init__(
        self, most: int, *, least: int, seconds: float, first: int = 0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._numbers = range(first, most)
        self._least = min(least, most)
        self._seconds = seconds
        self._clock = clock
        self.noted: list[float] = []

    def __iter__(self) -> Iterator[int]:
        """Yields the number of each round."""
        end = self._clock() + self._seconds
        for number in self._numbers:
            if number >= self._least and (self._clock() >= end or self._steady()):
                return
            yield number

    def note(self, figure: float) -> None:
        """Takes the figure of a round, of which the median is the result."""
        self.noted.append(figure)

    def _steady(self) -> bool:
        if len(self.noted) < STEADY_SAMPLES:
            return False
        found = spread(self.noted)
        return found.high - found.low <= STEADY_SHARE * abs(found.median)
