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


class ManualClock:
    """A source of time for the server under test.

    Whoever sleeps on it is woken by :meth:`advance`, in the order of the wake-up times.
    """

    def __init__(self, wall_ms: int = START_MS) -> None:
        self._wall_offset_ms = wall_ms
        self._monotonic_ms = 1_000_000
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

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
            await self._timer(seconds)

    async def wait(self, future: asyncio.Future[Any], seconds: float) -> None:
        """Suspends the caller until ``future`` is done or the clock has been moved so far."""
        timer = self._timer(seconds)
        await asyncio.wait((future, timer), return_when=asyncio.FIRST_COMPLETED)
        timer.cancel()

    def set_wall_back(self, by_ms: int) -> None:
        """Moves the wall clock alone, as a correction by NTP or an operator does."""
        self._wall_offset_ms -= by_ms

    def advance(self, by_ms: int) -> None:
        """Moves time on and wakes whoever waited for it; they run when the caller next awaits."""
        self._monotonic_ms += by_ms
        while self._sleepers and self._sleepers[0][0] <= self._monotonic_ms:
            _, _, future = heapq.heappop(self._sleepers)
            if not future.done():
                future.set_result(None)

    def _timer(self, seconds: float) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        due_ms = self._monotonic_ms + max(1, round(seconds * 1000))
        heapq.heappush(self._sleepers, (due_ms, next(self._order), future))
        return future
