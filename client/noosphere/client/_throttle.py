"""How fast a client calls after a server has asked it to slow down: pure, with time injected.

As long as no server does, calls are only counted. The first one that is refused with a delay has the calls of this
client go on at a bit less than the rate at which they came; after a long delay they are halted first. Answers raise
that rate: fast as long as it is below the one that was too much, a fifth a second beyond. Further refusals lower it, at
most once a second. After a while without any there is no limit any more.
"""

from __future__ import annotations

import math
from collections.abc import Callable

DECREASE = 0.8
GROWTH_PER_SECOND = 0.2
FAST_GROWTH_PER_SECOND = 1.0
"""Below the rate that was too much, and up to the second refusal: how fast calls had come tells little of that."""
CUT_SECONDS = 1.0
RATE_MIN = 1.0
"""Calls a second, however often the server refuses: one gets through sooner or later."""
CALM_SECONDS = 10.0
"""After so long without a refusal calls go as they come."""
WINDOW_SECONDS = 1.0
PAUSE_SECONDS = 1.0
"""A server that asks for so much has all calls wait; for less, only the refused one does."""
DELAY_SECONDS_MAX = 60.0
"""A server that asks for more is not believed."""


class Throttle:
    """See the module. One per client.

    Args:
        clock: monotonic seconds.

    Attributes:
        rate: calls a second at present; infinite as long as no server has asked to slow down.
    """

    __slots__ = ("_ceiling", "_clock", "_count", "_cut_at", "_earlier_rate", "_next_at", "_window_at", "rate")

    def __init__(self, clock: Callable[[], float]) -> None:
        self.rate = math.inf
        self._clock = clock
        self._next_at = -math.inf
        self._cut_at = -math.inf
        self._window_at = -math.inf
        self._count = 0
        self._earlier_rate = 0.0
        self._ceiling = math.inf

    def turn(self, within: float) -> float:
        """Takes the next turn to send a call; returns how long to wait for it, in seconds.

        Args:
            within: how long the caller can wait, in seconds. A turn that comes later is left to others.
        """
        now = self._clock()
        self._count += 1
        if now - self._window_at >= WINDOW_SECONDS:
            self._earlier_rate = self._count / (now - self._window_at)
            self._window_at, self._count = now, 0
        if self.rate == math.inf:
            return 0.0
        if now - self._cut_at >= CALM_SECONDS:
            self.rate = self._ceiling = math.inf
            return 0.0
        at = max(now, self._next_at)
        if at - now < within:
            self._next_at = at + 1 / self.rate
        return at - now

    def answered(self) -> None:
        """Hears that a call was answered otherwise than by being asked to slow down."""
        if self.rate != math.inf:
            # As many answers as there are in a second make the growth of a second.
            self.rate += FAST_GROWTH_PER_SECOND if self.rate < DECREASE * self._ceiling else GROWTH_PER_SECOND

    def slow_down(self, delay: float, sent: float) -> None:
        """Hears that a call was refused with a delay.

        Args:
            delay: what the server asks for, in seconds.
            sent: when the call was sent: one that left before the last decrease says nothing about the rate since.
        """
        now = self._clock()
        if delay >= PAUSE_SECONDS:
            self._next_at = max(self._next_at, now + min(delay, DELAY_SECONDS_MAX))
        if sent < self._cut_at or now - self._cut_at < CUT_SECONDS:
            return
        if self.rate == math.inf:
            self.rate = self._measured(now)
        else:
            # After several cuts in a row the way back is a fast one.
            self._ceiling = self.rate if self._ceiling == math.inf else max(self.rate, DECREASE * self._ceiling)
        self.rate = max(RATE_MIN, DECREASE * self.rate)
        self._cut_at = now

    def _measured(self, now: float) -> float:
        """Returns how many calls a second have been sent lately."""
        present = self._count / max(now - self._window_at, WINDOW_SECONDS / 2)
        return max(present, self._earlier_rate)
