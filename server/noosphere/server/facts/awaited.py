"""What becomes of things, for those of this process who wait for it; what another process decides they look up."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

WAIT_SECONDS_MAX = 30.0
"""Longest wait; what is not decided then is reported as queued."""

POLL_SECONDS = 1.0
"""How long what another process has decided may go unnoticed."""

T = TypeVar("T")


class Awaited(Generic[T]):
    """Futures by id.

    One is shared by everybody who waits for the same and lives as long as they hold it, so memory is bounded by those
    who wait.
    """

    def __init__(self) -> None:
        self._futures: WeakValueDictionary[str, asyncio.Future[T]] = WeakValueDictionary()

    def future(self, id: str) -> asyncio.Future[T]:
        """Returns a future that is done once somebody tells what became of it after this call."""
        future = self._futures.get(id)
        if future is None or future.done():
            future = self._futures[id] = asyncio.get_running_loop().create_future()
        return future

    def tell(self, id: str, outcome: T) -> None:
        """Tells everybody who waits."""
        future = self._futures.pop(id, None)
        if future is not None and not future.done():
            future.set_result(outcome)
