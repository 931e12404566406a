"""LangGraph's store in SQLite, used like the one in memory: see there. The agents of a process share one store.

Default: get, think, put. Best: a write-ahead log, so that readers wait for no writer; an item per note; an agent looks
whether the item is still what it has seen before it puts. No agent of its process comes between look and put, but one
of another process may.
"""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Any, ClassVar

from langgraph.store.sqlite import SqliteStore

from .langgraph_stores import MemoryBest, MemoryDefault

_LOCK = threading.Lock()
_SHARED: dict[str, SqliteStore] = {}


class Default(MemoryDefault):
    wait_s: ClassVar[float] = 5.0
    journal: ClassVar[str] = "delete"

    def open(self) -> None:
        file = str(Path(self.place.folder) / "store.db")
        with _LOCK:
            if file not in _SHARED:
                # As ``from_conn_string`` opens it.
                database = sqlite3.connect(file, self.wait_s, check_same_thread=False, isolation_level=None)
                database.execute(f"PRAGMA journal_mode={self.journal}")
                _SHARED[file] = SqliteStore(database)
                _SHARED[file].setup()
        self.store = _SHARED[file]


class Best(Default, MemoryBest):
    mode = "threads"
    wait_s, journal = 30.0, "wal"

    def save(self, key: str, value: Any, version: Any) -> bool:
        with _LOCK:
            return MemoryBest.save(self, key, value, version)
