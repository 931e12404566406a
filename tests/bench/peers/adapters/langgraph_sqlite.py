"""LangGraph's store in SQLite, used like the one in memory: see there. Each agent has a connection of its own.

Default: get, think, put. Best: an agent looks whether the item is still what it has seen before it puts; between
look and put another process may put.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from langgraph.store.sqlite import SqliteStore

from .langgraph_stores import MemoryBest, MemoryDefault


class Default(MemoryDefault):
    def open(self) -> None:
        file = Path(self.place.folder) / "store.db"
        # As ``from_conn_string`` opens it.
        self.store = SqliteStore(sqlite3.connect(file, check_same_thread=False, isolation_level=None))
        self.store.setup()


class Best(Default, MemoryBest):
    mode = "threads"
