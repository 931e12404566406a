"""Opening the SQLite files of a data folder: stamps, pragmas and errors in one line."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from .folder import FORMAT, DataFolderError, check_format, sync_folder

APPLICATION_ID = 0x4E6F6F53
"""Marks our files in the SQLite header ("NooS")."""

WAL_BYTES_KEPT = 16 * 1024 * 1024
"""A write-ahead log that has grown beyond this is cut back when it begins anew."""


def connect(path: Path) -> sqlite3.Connection:
    """Returns a connection with explicit transactions, usable from whichever thread holds it."""
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5)
    db.execute("PRAGMA wal_autocheckpoint = 0")
    db.execute("PRAGMA temp_store = MEMORY")
    return db


def set_up(db: sqlite3.Connection) -> None:
    """Prepares a connection for writing: it syncs on every commit and overwrites what it removes."""
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("PRAGMA secure_delete = ON")
    db.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_KEPT}")


def open_database(path: Path, schema: str) -> tuple[sqlite3.Connection, bool]:
    """Opens one of our files, or creates it with ``schema``.

    No table of ours is STRICT: SQLite before 3.37, with which systems that are still in use run Python 3.11, cannot
    even open a file with such a table. Types are kept by the drivers, the only ones who write.

    Returns:
        The connection, syncing on every commit, and whether the file is new.

    Raises:
        DataFolderError: it is damaged, unreadable, somebody else's, or of a newer format.
    """
    try:
        db = connect(path)
    except sqlite3.DatabaseError as error:
        raise _unusable(path, error) from None
    try:
        fresh = _prepare(db, path, schema)
    except sqlite3.DatabaseError as error:
        db.close()
        raise _unusable(path, error) from None
    except BaseException:
        db.close()
        raise
    return db, fresh


def _prepare(db: sqlite3.Connection, path: Path, schema: str) -> bool:
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if (application or tables) and application != APPLICATION_ID:
        raise DataFolderError(f"{path} is a database of another program")
    check_format(version, path)
    set_up(db)
    if application:
        return False
    db.executescript(
        f"BEGIN IMMEDIATE; {schema} PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FORMAT}; COMMIT;"
    )
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    sync_folder(path.parent)
    return True


def damaged(path: Path, error: Exception) -> DataFolderError:
    """Returns the error of a file that cannot be understood."""
    return DataFolderError(f"{path} is damaged: {error}")


def _unusable(path: Path, error: sqlite3.DatabaseError) -> DataFolderError:
    if isinstance(error, sqlite3.OperationalError):
        return DataFolderError(f"cannot use {path}: {error}")
    return damaged(path, error)
