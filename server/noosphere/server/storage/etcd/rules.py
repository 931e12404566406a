"""Rules by name pattern on etcd: one version for all of them, counted up with each change."""

from __future__ import annotations

import msgspec

from noosphere.consistency import NamePattern, NamespacePolicy, Reason, Refusal, exhausted

from ...ports.coordinator import PolicyTable
from .client import EtcdClient
from .feed import Feed
from .keys import Layout, delete, put, unchanged
from .turns import Turns
from .view import View

PATTERNS_MAX = 10_000
TRIES_MAX = 16
"""How often another process may be faster."""


class Rules:
    """Changes rules; what this process knows of them comes by the watch."""

    def __init__(self, client: EtcdClient, layout: Layout, view: View, feed: Feed) -> None:
        self._client = client
        self._layout = layout
        self._view = view
        self._feed = feed
        self._turns = Turns()

    async def refresh(self) -> PolicyTable:
        """Returns the rules as they are in etcd now.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        config = await self._client.read(self._layout.config)
        if config is not None:
            await self._feed.reach(config.mod_revision)
        return self._view.table

    async def set(self, pattern: NamePattern, policy: NamespacePolicy | None) -> int:
        """Sets or (None) removes a pattern's rules; returns the new version.

        Raises:
            Refusal: LIMIT_EXCEEDED, CONTENTION or ENGINE_UNAVAILABLE.
        """
        key = self._layout.rule(pattern)
        change = delete(key) if policy is None else put(key, msgspec.json.encode(policy))
        async with self._turns.of("policy"):
            for _ in range(TRIES_MAX):
                config = await self._client.read(self._layout.config)
                seen, version = (config.mod_revision, int(config.value)) if config is not None else (0, 0)
                # The view then shows the rules of this version or of a later one, which the condition excludes.
                await self._feed.reach(seen)
                known = self._view.table.entries
                if policy is not None and pattern not in known and len(known) >= PATTERNS_MAX:
                    raise exhausted("pattern", len(known) + 1, PATTERNS_MAX, "too many patterns")
                written = await self._client.write(
                    [unchanged(self._layout.config, seen)],
                    [change, put(self._layout.config, str(version + 1).encode())],
                )
                if written.succeeded:
                    await self._feed.reach(written.revision)
                    return version + 1
        raise Refusal(Reason.CONTENTION, "the rules are being changed by others; try again")
