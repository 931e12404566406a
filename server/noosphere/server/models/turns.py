"""Turns at something that serves one at a time: the smallest goes first, of equals whoever came first."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections.abc import AsyncIterator


class Turns:
    """Gives turns. ``len`` is how many have one or wait."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._came = 0
        self._taken = False
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @contextlib.asynccontextmanager
    async def turn(self, size: int) -> AsyncIterator[None]:
        """Waits for a turn and holds it.

        Args:
            size: how much there is to be done.
        """
        self._count += 1
        try:
            if self._taken:
                given: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._came += 1
                heapq.heappush(self._waiting, (size, self._came, given))
                try:
                    await given
                except asyncio.CancelledError:
                    if given.done() and not given.cancelled():
                        # It was given in the moment of the cancellation.
                        self._pass_on()
                    raise
            self._taken = True
            try:
                yield
            finally:
                self._pass_on()
        finally:
            self._count -= 1

    def _pass_on(self) -> None:
        # It stays taken while it goes from one to the next, so that nobody slips in between.
        while self._waiting:
            _, _, given = heapq.heappop(self._waiting)
            if not given.done():
                given.set_result(None)
                return
        self._taken = False
