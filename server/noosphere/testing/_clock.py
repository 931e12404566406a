"""A clock that moves only when a test says so."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from typing import Any

START_MS = 1_800_000_000_000
"""Some moment in 2027; nothing may depend on it."""

REST_SECONDS = 3600.0
"""Whoever sleeps for as long as this never wakes: a test that wants background work runs it itself."""

_STALE_MIN = 256


class ManualClock:
    """A source of time for a server under test; see :class:`~noosphere.server.ports.runtime.Clock`.

    Whoever sleeps on it is woken by :meth:`advance`, in the order of the wake-up times. Lives on one event
    loop.

    Args:
        wall_ms: milliseconds since the Unix epoch, about.
    """

    def __init__(self, wall_ms: int = START_MS) -> None:
        self._wall_offset_ms = wall_ms
        self._monotonic_ms = 1_000_000
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = itertools.count()
        self._stale = 0

    def wall_ms(self) -> int:
        """Returns milliseconds since the Unix epoch."""
        return self._wall_offset_ms + self._monotonic_ms

    def monotonic_ms(self) -> int:
        """Returns milliseconds since some fixed moment."""
        return self._monotonic_ms

    async def sleep(self, seconds: float) -> None:
        """Suspends the caller until the clock has been moved so far; 0 yields to the event loop."""
        if seconds <= 0:
            await asyncio.sleep(0)
        elif seconds >= REST_SECONDS:
            await asyncio.Event().wait()
        else:
            await self._until(self._timer(seconds))

    async def wait(self, future: asyncio.Future[Any], seconds: float) -> None:
        """Suspends the caller until ``future`` is done or the clock has been moved so far."""
        await self._until(self._timer(seconds), future)

    def set_wall_back(self, by_ms: int) -> None:
        """Moves the wall clock alone, as a correction by NTP or an operator does."""
        self._wall_offset_ms -= by_ms

    def advance(self, by_ms: int) -> None:
        """Moves time on and wakes whoever waited for it; they run when the caller next awaits."""
        self._monotonic_ms += by_ms
        while self._sleepers and self._sleepers[0][0] <= self._monotonic_ms:
            _, _, timer = heapq.heappop(self._sleepers)
            if timer.done():
                self._stale -= 1
            else:
                timer.set_result(None)

    def due_ms(self, seconds: float) -> int:
        """Returns the monotonic time at which a wait of so many seconds that begins now ends."""
        return self._monotonic_ms + max(1, round(seconds * 1000))

    def _timer(self, seconds: float) -> asyncio.Future[None]:
        timer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.due_ms(seconds), next(self._order), timer))
        return timer

    async def _until(self, timer: asyncio.Future[None], *others: asyncio.Future[Any]) -> None:
        try:
            await asyncio.wait((timer, *others), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not timer.done():
                timer.cancel()
                self._forget()

    def _forget(self) -> None:
        """Drops timers that nobody waits for, once they are the greater part: watches make one per change."""
        self._stale += 1
        if self._stale >= _STALE_MIN and self._stale > len(self._sleepers) // 2:
            self._sleepers = [entry for entry in self._sleepers if not entry[2].done()]
            heapq.heapify(self._sleepers)
            self._stale = 0
