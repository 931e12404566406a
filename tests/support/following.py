"""A store that tells of nothing but what is followed, as one does that others write to as well."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

from noosphere.server.ports.store import HeadMoved, NamespaceRef, WorkingStore


class FollowedOnly:
    """The real store, whose stream of heads leaves out whatever nobody follows.

    Args:
        store: the real one.

    Attributes:
        followed: how often each namespace is followed now.
        begun: set once anything was followed.
    """

    def __init__(self, store: WorkingStore) -> None:
        self._store = store
        self.followed: Counter[bytes] = Counter()
        self.begun = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def follow(self, namespace: NamespaceRef) -> None:
        """Counts."""
        self.followed[namespace.storage_id] += 1
        self.begun.set()

    def unfollow(self, namespace: NamespaceRef) -> None:
        """Counts one less."""
        self.followed[namespace.storage_id] -= 1
        assert self.followed[namespace.storage_id] >= 0

    def heads(self) -> AsyncIterator[HeadMoved]:
        """Streams moved heads of what is followed when they move."""
        return self._told(self._store.heads())

    async def _told(self, heads: AsyncIterator[HeadMoved]) -> AsyncIterator[HeadMoved]:
        async for moved in heads:
            if self.followed[moved.storage_id]:
                yield moved
