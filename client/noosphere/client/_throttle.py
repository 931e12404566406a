"""How fast a client calls after a server has asked it to slow down: pure, with time injected.

As long as no server does, calls are only counted. The first one that is refused with a delay halts the calls of this
client for that long, and has them go on at a bit less than the rate at which they came. Answers raise that rate by a
tenth a second, at first faster; every further refusal lowers it. After a while without refusals there is no limit any
more.
"""

from __future__ import annotations

import math
from collections.abc import Callable

DECREASE = 0.7
GROWTH_PER_SECOND = 0.1
FIRST_GROWTH_PER_SECOND = 1.0
"""Up to the second refusal: how fast calls had come says little of how fast they may come."""
RATE_MIN = 0.5
"""Calls a second, however often the server refuses: one gets through sooner or later."""
CALM_SECONDS = 30.0
"""After so long without a refusal calls go as they come."""
WINDOW_SECONDS = 1.0
DELAY_SECONDS_MAX = 60.0
"""A server that asks for more is not believed."""


class Throttle:
    """See the module. One per client.

    Args:
        clock: monotonic seconds.

    Attributes:
        rate: calls a second at present; infinite as long as no server has asked to slow down.
    """

    __slots__ = ("_clock", "_count", "_cut_at", "_earlier_rate", "_growth", "_next_at", "_window_at", "rate")

    def __init__(self, clock: Callable[[], float]) -> None:
        self.rate = math.inf
        self._clock = clock
        self._next_at = -math.inf
        self._cut_at = -math.inf
        self._window_at = -math.inf
        self._count = 0
        self._earlier_rate = 0.0
        self._growth = FIRST_GROWTH_PER_SECOND

    def turn(self) -> float:
        """Takes the next turn to send a call; returns how long to wait for it, in seconds."""
        now = self._clock()
        self._count += 1
        if now - self._window_at >= WINDOW_SECONDS:
            self._earlier_rate = self._count / (now - self._window_at)
            self._window_at, self._count = now, 0
        if self.rate == math.inf:
            return 0.0
        if now - self._cut_at >= CALM_SECONDS:
            self.rate = math.inf
            return 0.0
        at = max(now, self._next_at)
        self._next_at = at + 1 / self.rate
        return at - now

    def answered(self) -> None:
        """Hears that a call was answered otherwise than by being asked to slow down."""
        if self.rate != math.inf:
            # As many answers as there are in a second make the growth of a second.
            self.rate += self._growth

    def slow_down(self, delay: float, sent: float) -> None:
        """Hears that a call was refused with a delay.

        Args:
            delay: what the server asks for, in seconds.
            sent: when the call was sent: one that left before the last decrease says nothing about the rate since.
        """
        now = self._clock()
        self._next_at = max(self._next_at, now + min(delay, DELAY_SECONDS_MAX))
        if sent < self._cut_at:
            return
        first = self.rate == math.inf
        self.rate = max(RATE_MIN, DECREASE * (self._measured(now) if first else self.rate))
        self._growth = FIRST_GROWTH_PER_SECOND if first else GROWTH_PER_SECOND
        self._cut_at = now

    def _measured(self, now: float) -> float:
        """Returns how many calls a second have been sent lately."""
        present = self._count / max(now - self._window_at, WINDOW_SECONDS / 2)
        return max(present, self._earlier_rate)
