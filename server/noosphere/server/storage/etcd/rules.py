"""Rules and grants by name pattern on etcd: one version for all of them, counted up with each change."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from noosphere.consistency import NamePattern, NamespacePolicy, Reason, Refusal, exhausted

from ...ports.coordinator import PolicyTable
from ...ports.grants import GrantKey, Verb
from . import wire_pb2 as wire
from .client import EtcdClient
from .feed import Feed
from .keys import Layout, delete, put, unchanged
from .turns import Turns
from .view import View

PATTERNS_MAX = 10_000
GRANTS_MAX = 10_000
CHANGES_MAX = 100
"""Changes of one transaction; etcd takes 128 by default."""

TRIES_MAX = 16
"""How often another process may be faster."""


class Rules:
    """Changes rules and grants; what this process knows of them comes by the watch."""

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

        def check_room(table: PolicyTable) -> None:
            if policy is not None and pattern not in table.entries and len(table.entries) >= PATTERNS_MAX:
                raise exhausted("pattern", len(table.entries) + 1, PATTERNS_MAX, "too many patterns")

        return await self._change(delete(key) if policy is None else put(key, msgspec.json.encode(policy)), check_room)

    async def grant(self, grant: GrantKey, verbs: frozenset[Verb]) -> int:
        """Sets or (no verbs) removes a grant; returns the new version.

        Raises:
            Refusal: LIMIT_EXCEEDED, CONTENTION or ENGINE_UNAVAILABLE.
        """
        key = self._layout.grant(grant)

        def check_room(table: PolicyTable) -> None:
            if verbs and grant not in table.grants and len(table.grants) >= GRANTS_MAX:
                raise exhausted("grant", len(table.grants) + 1, GRANTS_MAX, "too many grants")

        return await self._change(put(key, msgspec.json.encode(sorted(verbs))) if verbs else delete(key), check_room)

    async def take_over(self, table: PolicyTable) -> None:
        """Has the rules and grants of ``table`` and no others, in several steps; see ``Coordinator.resume``.

        Raises:
            Refusal: CONTENTION or ENGINE_UNAVAILABLE.
        """
        layout = self._layout
        wanted = {layout.rule(pattern): msgspec.json.encode(policy) for pattern, policy in table.entries.items()}
        wanted |= {layout.grant(key): msgspec.json.encode(sorted(verbs)) for key, verbs in table.grants.items()}
        present: dict[bytes, bytes] = {}
        for prefix in (layout.rules, layout.grants):
            _, kvs = await self._client.read_all(prefix)
            present |= {kv.key: kv.value for kv in kvs}
        changes = [delete(key) for key in present if key not in wanted]
        changes += [put(key, value) for key, value in wanted.items() if present.get(key) != value]
        for first in range(0, len(changes), CHANGES_MAX):
            await self._client.write([], changes[first : first + CHANGES_MAX])
        # At last, so that nobody takes half of it for the whole.
        config = await self._client.read(layout.config)
        seen, version = (config.mod_revision, int(config.value)) if config is not None else (0, 0)
        version = max(version, table.config_version) + 1
        written = await self._client.write(
            [unchanged(layout.config, seen)], [put(layout.config, str(version).encode())]
        )
        if not written.succeeded:
            raise Refusal(Reason.CONTENTION, "the rules are being changed by others; try again")
        await self._feed.reach(written.revision)

    async def _change(self, change: wire.RequestOp, check_room: Callable[[PolicyTable], None]) -> int:
        async with self._turns.of("policy"):
            for _ in range(TRIES_MAX):
                config = await self._client.read(self._layout.config)
                seen, version = (config.mod_revision, int(config.value)) if config is not None else (0, 0)
                # The view then shows the rules of this version or of a later one, which the condition excludes.
                await self._feed.reach(seen)
                check_room(self._view.table)
                written = await self._client.write(
                    [unchanged(self._layout.config, seen)],
                    [change, put(self._layout.config, str(version + 1).encode())],
                )
                if written.succeeded:
                    await self._feed.reach(written.revision)
                    return version + 1
        raise Refusal(Reason.CONTENTION, "the rules are being changed by others; try again")
