"""The coordinator's tables in its file."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any

from noosphere.consistency import exhausted

from ...ports.tables import Expected, Table, check_entry, check_expected, check_table_name

WRITING_MAX = 1_000
"""Changes of tables that are on their way at a time."""

# Not in the coordinator's schema: files from before there were tables have none.
_TABLE = """
CREATE TABLE IF NOT EXISTS entries(
    tbl TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, PRIMARY KEY(tbl, key)
) WITHOUT ROWID
"""

Write = Callable[[list[tuple[str, tuple[Any, ...]]]], Awaitable[None]]


def load_tables(db: sqlite3.Connection) -> dict[str, dict[str, bytes]]:
    """Returns what the file has, by name of the table."""
    db.execute(_TABLE)
    tables: dict[str, dict[str, bytes]] = {}
    for table, key, value in db.execute("SELECT tbl, key, CAST(value AS BLOB) FROM entries"):
        tables.setdefault(table, {})[key] = bytes(value)
    return tables


class EmbeddedTables:
    """Changes one entry at a time, and shows it once it is on disk.

    Args:
        loaded: what the file has.
        write: runs statements in one durable transaction.
    """

    def __init__(self, loaded: dict[str, dict[str, bytes]], write: Write) -> None:
        self._tables = {name: Table(entries) for name, entries in loaded.items()}
        self._write = write
        self._turn = asyncio.Lock()
        self._writing: set[asyncio.Task[None]] = set()

    def table(self, name: str) -> Table:
        """Returns a table.

        Raises:
            ValueError: not a table's name.
        """
        table = self._tables.get(name)
        if table is None:
            check_table_name(name)
            table = self._tables[name] = Table()
        return table

    async def put(self, name: str, key: str, value: bytes | None, expected: Expected) -> None:
        """Writes an entry or (None) removes it.

        Raises:
            Refusal: INVALID_FIELD, LIMIT_EXCEEDED, CONTENTION or ENGINE_UNAVAILABLE.
        """
        table = self.table(name)
        if len(self._writing) >= WRITING_MAX:
            raise exhausted(name, len(self._writing) + 1, WRITING_MAX, "too many changes at once")
        # What is on disk must be what shows, also if the caller has gone meanwhile: a token that is gone must not work.
        task = asyncio.create_task(self._put(table, name, key, value, expected))
        self._writing.add(task)
        task.add_done_callback(self._written)
        await asyncio.shield(task)

    async def _put(self, table: Table, name: str, key: str, value: bytes | None, expected: Expected) -> None:
        async with self._turn:
            check_entry(name, table, key, value)
            check_expected(name, table.get(key), expected)
            if value is None:
                await self._write([("DELETE FROM entries WHERE tbl = ? AND key = ?", (name, key))])
            else:
                await self._write([("INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", (name, key, value))])
            table.show(key, value)

    def _written(self, task: asyncio.Task[None]) -> None:
        self._writing.discard(task)
        if not task.cancelled():
            # Whoever asked has been told; if nobody waits any more there is nobody to tell.
            task.exception()
