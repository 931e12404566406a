"""Turns: callers in this process that would change the same thing do so one after the other."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from noosphere.consistency import exhausted

WAITING_MAX = 1_000


class Turns:
    """One lock per name, for as long as somebody holds it or waits.

    Without it, callers of one process would make each other's transactions fail; between processes they still may.
    """

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    @contextlib.asynccontextmanager
    async def of(self, name: str) -> AsyncIterator[None]:
        """Waits for the turn; callers get it in the order in which they came.

        Raises:
            Refusal: LIMIT_EXCEEDED, if 1,000 wait already.
        """
        lock, users = self._locks.get(name, (asyncio.Lock(), 0))
        if users > WAITING_MAX:
            raise exhausted(name, users, WAITING_MAX, "too many calls at once")
        self._locks[name] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks.pop(name)
            if users > 1:
                self._locks[name] = (lock, users - 1)
