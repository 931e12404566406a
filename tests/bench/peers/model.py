"""The fake model: thoughts whose lengths a seed decides, and nothing else about them."""

from __future__ import annotations

import math
import random

SIGMA = 0.6
"""Of the logarithm of a thought's length: one in twenty takes 2.7 times the median or longer."""

TIMES_MAX = 5.0
"""No thought is longer than so many medians."""


class Thoughts:
    """How long an agent's model calls take, one after the other.

    Args:
        seed: of the whole comparison.
        scenario: what is played.
        agent: whose they are.
        median_ms: half of them are shorter.
    """

    def __init__(self, seed: int, scenario: str, agent: str, median_ms: float) -> None:
        self._chance = random.Random(f"{seed}/{scenario}/{agent}")
        self._median_ms = median_ms

    def next_s(self) -> float:
        """Returns the length of the next one, in seconds."""
        times = self._chance.lognormvariate(0.0, SIGMA)
        return min(times, TIMES_MAX) * self._median_ms / 1e3

    def starts(self, permille: int) -> bool:
        """Draws whether something happens that happens so often in a thousand."""
        return self._chance.randrange(1000) < permille


def mean_ms(median_ms: float) -> float:
    """Returns how long a thought is on average, cut off or not, nearly."""
    return median_ms * math.exp(SIGMA * SIGMA / 2)
