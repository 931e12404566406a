"""Of callers of this process that wait for the same thing, the first one looks out for it; the others wait behind.

Each look is a read, and each commit is a reason to look: were all of them to look, every step of whoever has the thing
would cost as many reads as there are who want it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from types import TracebackType
from typing import Any, Self

from ..ports.runtime import Clock


class Lookouts:
    """Lines of callers, by what they wait for; as long as calls that are under way.

    Args:
        clock: waits.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: dict[Hashable, asyncio.Future[None]] = {}

    def place(self, what: Hashable) -> Place:
        """Returns a place for one caller, to be used in a ``with`` block."""
        return Place(self._clock, self._last, what)


class Place:
    """Where a caller stands who may have to wait; taken with the first :meth:`wait`, left with the block."""

    def __init__(self, clock: Clock, last: dict[Hashable, asyncio.Future[None]], what: Hashable) -> None:
        self._clock = clock
        self._last = last
        self._what = what
        self._ahead: asyncio.Future[None] | None = None
        self._mine: asyncio.Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._mine is None:
            return
        self._mine.set_result(None)
        if self._last.get(self._what) is self._mine:
            del self._last[self._what]

    async def wait(self, moved: asyncio.Future[Any], seconds: float) -> None:
        """Waits at the front for ``moved``, else for the caller ahead to leave; at most for some time."""
        if self._mine is None:
            self._ahead = self._last.get(self._what)
            self._mine = self._last[self._what] = asyncio.get_running_loop().create_future()
        ahead = self._ahead
        await self._clock.wait(moved if ahead is None or ahead.done() else ahead, seconds)
