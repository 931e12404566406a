"""Who is told that heads have moved."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from weakref import WeakSet

from noosphere.consistency import Reason, Refusal

from ..ports.store import FOLLOWED_MAX, HeadMoved, NamespaceRef


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


class Followed:
    """Counts who follows which namespace."""

    def __init__(self) -> None:
        self._counts: dict[bytes, int] = {}

    def __contains__(self, storage_id: bytes) -> bool:
        """Returns whether anybody follows it."""
        return storage_id in self._counts

    def add(self, ref: NamespaceRef) -> None:
        """Counts one more.

        Raises:
            Refusal: LIMIT_EXCEEDED.
        """
        count = self._counts.get(ref.storage_id, 0)
        if count == 0 and len(self._counts) >= FOLLOWED_MAX:
            message = f"{FOLLOWED_MAX} namespaces are watched or waited for in this process; no more at once"
            raise Refusal(Reason.LIMIT_EXCEEDED, message)
        self._counts[ref.storage_id] = count + 1

    def remove(self, ref: NamespaceRef) -> bool:
        """Counts one less; returns whether it was the last.

        Raises:
            ValueError: nobody follows it.
        """
        count = self._counts.get(ref.storage_id, 0)
        if count == 0:
            raise ValueError(f"{ref.name!r} is not followed")
        if count == 1:
            del self._counts[ref.storage_id]
        else:
            self._counts[ref.storage_id] = count - 1
        return count == 1
