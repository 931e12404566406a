"""Lets work that nobody waits for step back while there are calls that somebody does wait for."""

from __future__ import annotations

import asyncio
from types import TracebackType

YIELD_SECONDS_MAX = 0.05
"""Longest that a piece of background work steps back, so that it goes on under any load."""


class Foreground:
    """Counts the calls under way that go before background work: ``with foreground:`` around each."""

    def __init__(self) -> None:
        self._count = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def __enter__(self) -> None:
        self._count += 1
        self._idle.clear()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._count -= 1
        if not self._count:
            self._idle.set()

    async def idle(self) -> None:
        """Returns once no such call is under way, after 50 ms at the latest; at once if there is none."""
        if self._idle.is_set():
            return
        try:
            async with asyncio.timeout(YIELD_SECONDS_MAX):
                await self._idle.wait()
        except TimeoutError:
            return
