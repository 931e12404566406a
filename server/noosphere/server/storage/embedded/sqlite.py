"""The journal on SQLite: one file in WAL mode, one row per batch."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from noosphere.consistency.revision import EPOCH_MAX

from .codec import (
    Cell,
    DamagedBlob,
    LogItem,
    decode_cuts,
    decode_log,
    decode_requests,
    encode_cuts,
    encode_log,
    encode_requests,
    shared_never,
)
from .database import connect, damaged, open_database, set_up
from .folder import DataFolderError, StoreFailed
from .journal import FoldChunk, Image, Mark, NamespaceRow, Recovered, RewriteFailed
from .rewriting import complete_copy, discard_copy, put_in_place, write_copy

FILE = "working.sqlite3"

_UPSERT = """
INSERT INTO records VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT(storage_id, key) DO UPDATE SET
    revision = excluded.revision, live_until_ms = excluded.live_until_ms, due_ms = excluded.due_ms, data = excluded.data
"""
_ROW_PLACES = ", ".join("?" * (len(NamespaceRow._fields) + 1))

_RELIEVE_BYTES = 8 * 1024 * 1024
_PURGE_ROWS = 256
_LOG_ROWS = 4
_TRIM_BYTES = 512 * 1024
_PAGE_BYTES = 4096

# Marks and log are tables of their own, not columns of namespaces: a fold writes what changed, not all.
# Records have a rowid: without one, a row above 1,002 bytes takes a page of its own, four times its size.
_SCHEMA = """
CREATE TABLE store(name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE journal(batch INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE namespaces(
    storage_id BLOB PRIMARY KEY, name TEXT NOT NULL, generation INTEGER NOT NULL, origin INTEGER NOT NULL,
    deleted INTEGER NOT NULL, head INTEGER NOT NULL, config_version INTEGER NOT NULL,
    floor_context INTEGER NOT NULL, floor INTEGER NOT NULL, stamps_floor INTEGER NOT NULL, cuts BLOB NOT NULL,
    folded INTEGER NOT NULL, record_count INTEGER NOT NULL, record_bytes INTEGER NOT NULL,
    next_due_ms INTEGER NOT NULL, requests BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE records(
    storage_id BLOB NOT NULL, key TEXT NOT NULL, revision INTEGER NOT NULL, live_until_ms INTEGER NOT NULL,
    due_ms INTEGER NOT NULL, data BLOB NOT NULL
);
CREATE UNIQUE INDEX record_keys ON records(storage_id, key);
CREATE TABLE marks(
    storage_id BLOB NOT NULL, is_fence INTEGER NOT NULL, name TEXT NOT NULL, first INTEGER NOT NULL,
    second INTEGER NOT NULL, PRIMARY KEY(storage_id, is_fence, name)
) WITHOUT ROWID;
CREATE TABLE log(
    storage_id BLOB NOT NULL, batch INTEGER NOT NULL, revision INTEGER NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY(storage_id, batch)
) WITHOUT ROWID;
"""


class SqliteJournal:
    """See :class:`~.journal.Journal`.

    Durability ``fsync`` syncs the file in every :meth:`sync`; ``os`` hands the data to the operating system,
    which survives the end of the process but not a loss of power.
    """

    def __init__(self, folder: Path, durability: Literal["fsync", "os"]) -> None:
        self._path = folder / FILE
        self._durable = "FULL" if durability == "fsync" else "NORMAL"
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        # The file is swapped by the writer's thread, and the other one must not be reading it then.
        self._reading = threading.Lock()
        self._sizes: dict[int, int] = {}
        self._held_bytes = 0
        self._unrelieved_bytes = 0

    @property
    def held_bytes(self) -> int:
        """Bytes of batches that are not trimmed."""
        return self._held_bytes

    @property
    def wants_relief(self) -> bool:
        """Whether the write-ahead log has grown enough to be moved into the database."""
        return self._unrelieved_bytes >= _RELIEVE_BYTES

    def recover(self) -> Recovered:
        """Opens the file, or creates it.

        Raises:
            DataFolderError: it is damaged, unreadable or of a newer format.
        """
        try:
            discard_copy(self._path)
        except OSError as error:
            raise DataFolderError(f"cannot remove {error.filename}: {error.strerror}") from None
        self._writer, fresh = open_database(self._path, _SCHEMA)
        try:
            return self._read_all(self._writer, fresh)
        except sqlite3.DatabaseError as error:
            raise damaged(self._path, error) from None
        except DamagedBlob as error:
            raise damaged(self._path, error) from None

    def _read_all(self, db: sqlite3.Connection, fresh: bool) -> Recovered:
        store: dict[str, int] = dict(db.execute("SELECT name, value FROM store"))
        for name, value in store.items():
            if not isinstance(value, int) or (name == "epoch" and not 0 <= value < EPOCH_MAX):
                raise DamagedBlob(f"{value!r} is not a value of {name}")
        rows = tuple(_row(values) for values in db.execute(f"SELECT {', '.join(NamespaceRow._fields)} FROM namespaces"))
        batches = tuple(db.execute("SELECT batch, data FROM journal ORDER BY batch"))
        for number, blob in batches:
            self._sizes[number] = len(blob)
        self._held_bytes = sum(self._sizes.values())
        last = max(store.get("last_batch", 0), max(self._sizes, default=0), max((r.folded for r in rows), default=0))
        return Recovered(
            fresh or "epoch" not in store,
            bool(store.get("clean", 0)),
            store.get("epoch", 0),
            store.get("time_ms", 0),
            store.get("asleep_ms", 0),
            last,
            bool(store.get("erasing", 0)),
            rows,
            batches,
        )

    def begin(self, epoch: int, time_ms: int, asleep_ms: int, last_batch: int) -> None:
        """Puts epoch and the mark of use into the database file itself, so that no torn WAL can hide them."""
        self._state(0, epoch, time_ms, last_batch, ("asleep_ms", asleep_ms))
        self._checkpoint("TRUNCATE")
        self._db.execute(f"PRAGMA synchronous = {self._durable}")
        # Now, while there are files to be opened: too many connections of clients must not stop the store later.
        self._open_reader()

    def append(self, number: int, blob: bytes) -> None:
        """Begins a transaction and inserts a row."""
        with self._failing("write to"):
            db = self._db
            if not db.in_transaction:
                db.execute("BEGIN IMMEDIATE")
            db.execute("INSERT INTO journal VALUES (?, ?)", (number, blob))
        size = len(blob)
        self._sizes[number] = size
        self._held_bytes += size
        self._unrelieved_bytes += size + 3 * _PAGE_BYTES

    def sync(self) -> None:
        """Commits the transaction."""
        with self._failing("sync"):
            self._db.execute("COMMIT")

    def load(self, storage_id: bytes, floor: int) -> Image:
        """Reads a namespace in one snapshot."""
        with self._failing("read"), self._reading:
            db = self._beside
            db.execute("BEGIN")
            try:
                return self._image(db, storage_id, floor)
            finally:
                db.execute("ROLLBACK")

    def _image(self, db: sqlite3.Connection, storage_id: bytes, floor: int) -> Image:
        of = (storage_id,)
        items: list[LogItem] = []
        logged = 0
        for batch, data in db.execute("SELECT batch, data FROM log WHERE storage_id = ? ORDER BY batch", of):
            items += (item for item in decode_log(data) if item.revision > floor)
            logged = batch
        # What the log holds anyway is not held twice.
        newest = {cell.key: cell for item in items for cell in item.cells}
        cells: list[Cell] = []
        for key, revision, live_until_ms, due_ms, data in db.execute(
            "SELECT key, revision, live_until_ms, due_ms, data FROM records WHERE storage_id = ? ORDER BY key", of
        ):
            cell = newest.get(key)
            if cell is None or cell.revision != revision:
                cell = Cell(key, revision, data, shared_never(live_until_ms), shared_never(due_ms))
            cells.append(cell)
        marks = tuple(
            Mark(bool(is_fence), *rest)
            for is_fence, *rest in db.execute(
                "SELECT is_fence, name, first, second FROM marks WHERE storage_id = ?", of
            )
        )
        found = db.execute("SELECT requests FROM namespaces WHERE storage_id = ?", of).fetchone()
        requests = decode_requests(found[0]) if found is not None else ()
        return Image(cells, marks, items, logged, requests)

    def fold(self, chunk: FoldChunk) -> None:
        """Stores a piece of a fold in one unsynced transaction."""
        kept = [
            (of, c.key, c.revision, c.live_until_ms, c.due_ms, c.data) for of, c in chunk.cells if c.data is not None
        ]
        gone = [(of, c.key) for of, c in chunk.cells if c.data is None]
        marks = [(of, *mark) for of, mark in chunk.marks]
        log = [(of, s.last_batch, s.items[-1].revision, encode_log(s.items)) for of, s in chunk.log]
        rows = [
            (*row._replace(cuts=encode_cuts(row.cuts)), encode_requests(requests))  # type: ignore[arg-type]
            for row, requests in chunk.rows
        ]
        with self._unsynced() as db:
            for sql, values in (
                (_UPSERT, kept),
                ("DELETE FROM records WHERE storage_id = ? AND key = ?", gone),
                ("INSERT OR REPLACE INTO marks VALUES (?, ?, ?, ?, ?)", marks),
                ("INSERT OR REPLACE INTO log VALUES (?, ?, ?, ?)", log),
                (f"INSERT OR REPLACE INTO namespaces VALUES ({_ROW_PLACES})", rows),
                ("DELETE FROM marks WHERE storage_id = ? AND NOT is_fence AND name = ?", chunk.forgotten),
            ):
                if values:
                    db.executemany(sql, values)
        self._unrelieved_bytes += 2 * chunk.weight

    def trim_log(self, storage_id: bytes, floor: int) -> bool:
        """Removes a few rows of a log."""
        with self._unsynced() as db:
            gone = db.execute(
                "DELETE FROM log WHERE storage_id = ? AND batch IN "
                f"(SELECT batch FROM log WHERE storage_id = ? AND revision <= ? ORDER BY batch LIMIT {_LOG_ROWS})",
                (storage_id, storage_id, floor),
            ).rowcount
        self._unrelieved_bytes += gone * _PAGE_BYTES
        return gone == _LOG_ROWS

    def purge(self, storage_id: bytes, whole: bool) -> bool:
        """Removes up to some hundred rows."""
        for table, key in (("records", "key"), ("marks", "(is_fence, name)"), ("log", "batch")):
            columns = key.strip("()")
            with self._unsynced() as db:
                gone = db.execute(
                    f"DELETE FROM {table} WHERE storage_id = ? AND {key} IN "
                    f"(SELECT {columns} FROM {table} WHERE storage_id = ? LIMIT {_PURGE_ROWS})",
                    (storage_id, storage_id),
                ).rowcount
            self._unrelieved_bytes += gone * _PAGE_BYTES // 4
            if gone == _PURGE_ROWS:
                return True
        if whole:
            with self._unsynced() as db:
                db.execute("DELETE FROM namespaces WHERE storage_id = ?", (storage_id,))
        return False

    def trim(self, through: int, time_ms: int) -> bool:
        """Removes about half a MiB of batches."""
        taken, freed = 0, 0
        for number, size in self._sizes.items():
            if number > through or freed >= _TRIM_BYTES:
                break
            taken, freed = number, freed + size
        if not taken:
            return False
        with self._unsynced() as db:
            db.execute("DELETE FROM journal WHERE batch <= ?", (taken,))
            # Time and number of a batch must not go with it.
            db.executemany(
                "UPDATE store SET value = max(value, ?) WHERE name = ?", [(time_ms, "time_ms"), (taken, "last_batch")]
            )
        while self._sizes and (first := next(iter(self._sizes))) <= taken:
            del self._sizes[first]
        self._held_bytes -= freed
        self._unrelieved_bytes += freed
        return bool(self._sizes) and next(iter(self._sizes)) <= through

    def relieve(self) -> None:
        """Copies most of the WAL into the database beside appends; see :meth:`restart`."""
        with self._failing("write to"), self._reading:
            self._beside.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def restart(self) -> None:
        """Copies the rest, which is short after :meth:`relieve`; the WAL then begins anew."""
        self._checkpoint("PASSIVE")

    def mark_erasing(self) -> None:
        """Notes it in the table of the store's own values."""
        with self._unsynced() as db:
            db.execute("INSERT OR REPLACE INTO store VALUES ('erasing', 1)")

    def copy(self) -> None:
        """Writes a copy of the file beside it."""
        with self._rewriting():
            write_copy(self._path)

    def swap(self) -> None:
        """Completes the copy and puts it in the file's place; opens it anew in any case."""
        with self._reading, self._rewriting():
            complete_copy(self._path, self._db)
            try:
                # Who closes the file last moves its log into it: from then on it may go at any moment.
                self._disconnect()
                put_in_place(self._path)
            finally:
                self._reopen()

    def finish(self, epoch: int, time_ms: int, last_batch: int) -> None:
        """Records that everything is folded and closed in order."""
        self._state(1, epoch, time_ms, last_batch)
        self._checkpoint("TRUNCATE")

    def close(self) -> None:
        """Closes the connections."""
        self._disconnect()

    def _disconnect(self) -> None:
        for db in (self._reader, self._writer):
            if db is not None:
                db.close()
        self._reader = self._writer = None

    def _reopen(self) -> None:
        self._disconnect()
        with self._failing("open"):
            self._writer = connect(self._path)
            set_up(self._writer)
            self._writer.execute(f"PRAGMA synchronous = {self._durable}")
        self._open_reader()
        self._unrelieved_bytes = 0

    def _open_reader(self) -> None:
        with self._failing("read"):
            self._reader = connect(self._path)
            self._reader.execute("SELECT count(*) FROM store").fetchall()

    @property
    def _db(self) -> sqlite3.Connection:
        if self._writer is None:
            raise StoreFailed(f"{self._path} is closed")
        return self._writer

    @property
    def _beside(self) -> sqlite3.Connection:
        if self._reader is None:
            raise StoreFailed(f"{self._path} is closed")
        return self._reader

    def _state(self, clean: int, epoch: int, time_ms: int, last_batch: int, *more: tuple[str, int]) -> None:
        state = [("clean", clean), ("epoch", epoch), ("time_ms", time_ms), ("last_batch", last_batch), *more]
        with self._failing("write to"):
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("INSERT OR REPLACE INTO store VALUES (?, ?)", state)
            self._db.execute("COMMIT")

    def _checkpoint(self, mode: str) -> None:
        with self._failing("sync"):
            self._db.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
        self._unrelieved_bytes = 0

    @contextmanager
    def _unsynced(self) -> Iterator[sqlite3.Connection]:
        """A transaction that becomes durable with the next synced one: WAL frames survive in order or not at all."""
        with self._failing("write to"):
            db = self._db
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute("BEGIN IMMEDIATE")
            yield db
            db.execute("COMMIT")
            db.execute(f"PRAGMA synchronous = {self._durable}")

    @contextmanager
    def _failing(self, what: str) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, DamagedBlob) as error:
            raise StoreFailed(f"cannot {what} {self._path}: {error}") from error

    @contextmanager
    def _rewriting(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            with suppress(OSError):
                discard_copy(self._path)
            raise RewriteFailed(f"cannot write {self._path} anew: {error}") from error


def _row(values: tuple[Any, ...]) -> NamespaceRow:
    row = NamespaceRow._make(values)
    return row._replace(
        deleted=bool(row.deleted), cuts=decode_cuts(values[10]), next_due_ms=shared_never(row.next_due_ms)
    )
