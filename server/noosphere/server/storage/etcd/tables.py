"""The coordinator's tables on etcd: one key for each entry, all of them watched."""

from __future__ import annotations

from noosphere.consistency import Reason, Refusal

from ...ports.tables import TRIES_MAX, Expected, check_entry, check_expected
from .client import EtcdClient
from .feed import Feed
from .keys import Layout, delete, put, unchanged
from .turns import Turns
from .view import View


class EtcdTables:
    """Changes entries; what this process knows of them comes by the watch."""

    def __init__(self, client: EtcdClient, layout: Layout, view: View, feed: Feed) -> None:
        self._client = client
        self._layout = layout
        self._view = view
        self._feed = feed
        self._turns = Turns()

    async def put(self, name: str, key: str, value: bytes | None, expected: Expected) -> None:
        """Writes an entry or (None) removes it.

        Raises:
            Refusal: INVALID_FIELD, LIMIT_EXCEEDED, CONTENTION or ENGINE_UNAVAILABLE.
            ValueError: not a table's name.
        """
        table = self._view.table_of(name)
        check_entry(name, table, key, value)
        at = self._layout.entry(name, key)
        change = delete(at) if value is None else put(at, value)
        async with self._turns.of(name):
            for _ in range(TRIES_MAX):
                present = await self._client.read(at)
                # The table then shows at least what is compared here, so its size is of that time or later.
                await self._feed.reach(present.mod_revision if present is not None else 0)
                check_entry(name, table, key, value)
                check_expected(name, present.value if present is not None else None, expected)
                seen = present.mod_revision if present is not None else 0
                written = await self._client.write([unchanged(at, seen)], [change])
                if written.succeeded:
                    # Removing what is not there changes nothing that a watch could tell.
                    if value is not None or present is not None:
                        await self._feed.reach(written.revision)
                    return
        raise Refusal(Reason.CONTENTION, f"the table of {name} is being changed by others; try again")
