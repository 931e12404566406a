"""Who is told that heads have moved."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from weakref import WeakSet

from ..ports.store import HeadMoved


class HeadFeed:
    """One consumer's stream. However slow it is, it costs one entry per namespace: only the newest head is kept."""

    def __init__(self) -> None:
        self._moved: dict[bytes, int] = {}
        self._wake = asyncio.Event()
        self._error: Exception | None = None
        self._closed = False

    def put(self, storage_id: bytes, head: int) -> None:
        """Adds or raises an entry."""
        self._moved[storage_id] = head
        self._wake.set()

    def close(self, error: Exception | None) -> None:
        """Ends the stream after what is in it, with ``error`` if there is one."""
        self._closed = True
        self._error = error
        self._wake.set()

    def __aiter__(self) -> AsyncIterator[HeadMoved]:
        """Returns itself."""
        return self

    async def __anext__(self) -> HeadMoved:
        """Waits for the next moved head, the one waiting longest first."""
        while not self._moved:
            if self._closed:
                if self._error is not None:
                    raise self._error
                raise StopAsyncIteration
            self._wake.clear()
            await self._wake.wait()
        storage_id = next(iter(self._moved))
        return HeadMoved(storage_id, self._moved.pop(storage_id))


class HeadFeeds:
    """All streams of a store. One that nobody holds any more is forgotten."""

    def __init__(self) -> None:
        self._feeds: WeakSet[HeadFeed] = WeakSet()
        self._closed = False
        self._error: Exception | None = None

    def open(self) -> HeadFeed:
        """Returns a stream of every head that moves from now on."""
        feed = HeadFeed()
        if self._closed:
            feed.close(self._error)
        self._feeds.add(feed)
        return feed

    def publish(self, storage_id: bytes, head: int) -> None:
        """Tells every consumer."""
        for feed in self._feeds:
            feed.put(storage_id, head)

    def close(self, error: Exception | None = None) -> None:
        """Ends every stream, also those that are opened later."""
        if not self._closed:
            self._closed, self._error = True, error
        for feed in list(self._feeds):
            feed.close(error)
