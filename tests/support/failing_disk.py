"""``noosphere`` on a disk that fails when it is told to: the real program, with SQLite's own errors.

Run as ``python -m tests.support.failing_disk TRIGGER serve …``. Once the file ``TRIGGER`` exists, its content
says how the disk fails: ``sync`` (the device reports an error when a commit is synced) or ``read-only`` (the
file system was remounted after an error, so nothing can be written).
"""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path
from typing import Any

TRIGGER = Path()


class _Connection(sqlite3.Connection):
    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        match _fault():
            case "sync" if sql == "COMMIT":
                raise sqlite3.OperationalError("disk I/O error")
            case "read-only" if not sql.startswith(("SELECT", "PRAGMA synchronous", "BEGIN", "ROLLBACK")):
                raise sqlite3.OperationalError("attempt to write a readonly database")
        return super().execute(sql, *parameters)


def _fault() -> str:
    try:
        return TRIGGER.read_text()
    except FileNotFoundError:
        return ""


def _main() -> None:
    global TRIGGER
    TRIGGER = Path(sys.argv.pop(1))
    real_connect = sqlite3.connect

    def connect(*args: Any, **options: Any) -> sqlite3.Connection:
        return real_connect(*args, **options, factory=_Connection)

    sqlite3.connect = connect  # type: ignore[assignment] # the same signature, less explicit

    from noosphere.server.cli import main

    main()


if __name__ == "__main__":
    _main()
