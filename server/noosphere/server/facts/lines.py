"""Lines: of those who come under one name, one has its turn after the other, in the order in which they came."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


class Lines:
    """Lines by name; one that nobody stands in takes no room."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}
        self._standing: dict[str, int] = {}

    @contextlib.asynccontextmanager
    async def turn(self, name: str) -> AsyncIterator[None]:
        """Waits for a turn, and has it for as long as the block runs."""
        lock = self._locks.setdefault(name, asyncio.Lock())
        self._standing[name] = self._standing.get(name, 0) + 1
        try:
            async with lock:
                yield
        finally:
            self._standing[name] -= 1
            if not self._standing[name]:
                del self._standing[name], self._locks[name]
