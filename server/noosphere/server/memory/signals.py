"""Wakes whoever waits for a namespace to move: watchers and waiting claimers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Self
from weakref import WeakValueDictionary

from ..ports.store import HeadMoved, NamespaceRef, WorkingStore


class HeadSignals:
    """Turns the store's stream of heads into futures by namespace.

    A future is shared by everybody who waits for the same namespace and lives as long as they hold it, so
    memory is bounded by the namespaces that are being waited for.
    """

    def __init__(self) -> None:
        self._waiting: WeakValueDictionary[bytes, asyncio.Future[None]] = WeakValueDictionary()
        self._on_drain: dict[Callable[[], None], None] = {}
        self.draining = False
        """Whether the process is shutting down, so that nobody should wait any longer."""

    def next_move(self, storage_id: bytes) -> asyncio.Future[None]:
        """Returns a future that is done once the namespace's head moves after this call.

        Only moves of followed namespaces are sure to be told: see :class:`Following`.
        """
        future = self._waiting.get(storage_id)
        if future is None:
            future = self._waiting[storage_id] = asyncio.get_running_loop().create_future()
        return future

    def fire(self, storage_id: bytes) -> None:
        """Wakes everybody who waits for this namespace."""
        future = self._waiting.pop(storage_id, None)
        if future is not None and not future.done():
            future.set_result(None)

    def on_drain(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Calls ``callback`` when the process begins to shut down, or at once; returns what unsubscribes it."""
        if self.draining:
            callback()
            return lambda: None
        self._on_drain[callback] = None
        return lambda: self._on_drain.pop(callback, None)

    def drain(self) -> None:
        """Wakes everybody for good."""
        self.draining = True
        for callback in list(self._on_drain):
            callback()
        for storage_id in list(self._waiting):
            self.fire(storage_id)

    async def run(self, heads: AsyncIterator[HeadMoved]) -> None:
        """Passes moved heads on until the store closes the stream."""
        async for moved in heads:
            self.fire(moved.storage_id)


class Following:
    """Has the store tell one waiter of one namespace at a time: a context manager, within which it is followed.

    Whoever waits follows first, then takes :meth:`HeadSignals.next_move`, then looks, then waits: so no move falls
    between looking and waiting.
    """

    def __init__(self, store: WorkingStore) -> None:
        self._store = store
        self._ref: NamespaceRef | None = None

    async def __aenter__(self) -> Self:
        """Follows nothing yet."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Follows nothing any more."""
        self._end()

    async def to(self, ref: NamespaceRef) -> bool:
        """Follows a namespace instead of the one before; returns False if it is that one already.

        Raises:
            Refusal: LIMIT_EXCEEDED, ENGINE_UNAVAILABLE.
        """
        if ref == self._ref:
            return False
        self._end()
        await self._store.follow(ref)
        self._ref = ref
        return True

    def _end(self) -> None:
        if self._ref is not None:
            self._store.unfollow(self._ref)
            self._ref = None
