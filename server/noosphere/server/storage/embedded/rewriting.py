"""Writing one of our SQLite files anew: a copy that holds what the tables hold and no byte more, put in its place.

``secure_delete`` overwrites a removed cell and a freed page. But cells that share a page are moved when it is balanced,
and of a moved cell an older copy may stay in the page's gap, which nothing overwrites when the cell is removed later.
``VACUUM`` in place would overwrite it, and hold up every commit for as long. So the copy is made from a snapshot,
beside commits. While it is made nothing is folded: the journal's rows are all that is added, they are caught up with,
and only the last of them, and the swap, hold commits up.

At every moment the file of the old name is whole: until its log is empty the copy means nothing, and from then on
both hold the same.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from .database import connect
from .folder import sync_folder

_CATCH_UP_ROWS = 64
"""Batches that are left for the swap; about what one sync takes."""

_CATCH_UPS_MAX = 8
_SPARE_BYTES = 64 * 1024 * 1024
"""What a copy leaves free: a commit that finds the disk full stops the store."""

_SUFFIXES = ("", "-wal", "-shm", "-journal")


def discard_copy(path: Path) -> None:
    """Removes what an interrupted copy of ``path`` has left."""
    for suffix in _SUFFIXES:
        _copy_of(path).with_name(f"{_copy_of(path).name}{suffix}").unlink(missing_ok=True)


def write_copy(path: Path) -> None:
    """Writes a copy of the file beside it, up to its newest rows but a few.

    Raises:
        sqlite3.Error: it cannot be written.
        OSError: likewise, or there is too little room.
    """
    discard_copy(path)
    _check_room(path)
    with closing(connect(path)) as old:
        old.execute("VACUUM INTO ?", (str(_copy_of(path)),))
        with closing(_open_copy(path)) as new:
            for _ in range(_CATCH_UPS_MAX):
                if _catch_up(old, new) <= _CATCH_UP_ROWS:
                    break
        _sync(_copy_of(path))
        # The old file's log has grown as long as the copy took: better now than while commits wait.
        old.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


def complete_copy(path: Path, old: sqlite3.Connection) -> None:
    """Brings the copy up to the newest row of ``old``; nothing may be written meanwhile.

    Raises:
        sqlite3.Error: it cannot be written.
        OSError: likewise.
    """
    with closing(_open_copy(path)) as new:
        _catch_up(old, new)
        new.execute("DELETE FROM store WHERE name = 'erasing'")
    _sync(_copy_of(path))


def put_in_place(path: Path) -> None:
    """Gives the copy the name of the file, which nobody may have open.

    Raises:
        OSError: it cannot be done, or somebody has it open: who closes it last would take the new file's log away.
    """
    if path.with_name(f"{path.name}-wal").exists():
        raise OSError("another program has it open")
    os.replace(_copy_of(path), path)
    sync_folder(path.parent)


def _copy_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.copy")


def _check_room(path: Path) -> None:
    needed = path.stat().st_size + _SPARE_BYTES
    free = shutil.disk_usage(path.parent).free
    if free < needed:
        raise OSError(f"{free} bytes are free, {needed} are needed")


def _open_copy(path: Path) -> sqlite3.Connection:
    db = connect(_copy_of(path))
    # Until it is in place a torn copy is thrown away, so neither rollback nor syncs are worth anything.
    db.execute("PRAGMA journal_mode = OFF")
    db.execute("PRAGMA synchronous = OFF")
    return db


def _catch_up(old: sqlite3.Connection, new: sqlite3.Connection) -> int:
    (last,) = new.execute("SELECT coalesce(max(batch), 0) FROM journal").fetchone()
    new.execute("BEGIN")
    rows = old.execute("SELECT batch, data FROM journal WHERE batch > ? ORDER BY batch", (last,))
    count: int = new.executemany("INSERT INTO journal VALUES (?, ?)", rows).rowcount
    new.execute("COMMIT")
    return count


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
