"""One SQLite file and the one thread that uses it: group commit, failures that are final, words overwritten."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, cast

from noosphere.consistency import Reason, Refusal

from ..embedded.database import damaged, open_database
from ..embedded.folder import StoreFailed
from ..embedded.worker import Worker, run

T = TypeVar("T")

_CHECKPOINT_PAGES = 1_000


class _Change(Generic[T]):
    """A change that waits for the next transaction, and what came of it."""

    __slots__ = ("applied", "call", "erases", "lasts", "refusal", "result", "rewrites")

    def __init__(
        self,
        call: Callable[[sqlite3.Connection], T],
        applied: Callable[[T], None] | None,
        erases: bool,
        rewrites: bool,
        lasts: bool,
    ) -> None:
        self.call = call
        self.applied = applied
        self.erases = erases
        self.rewrites = rewrites
        self.lasts = lasts
        self.result: Any = None
        self.refusal: Refusal | None = None


class FactFile:
    """A file and its thread. Whatever fails, fails for good: the process is told once and has to stop.

    Args:
        path: the file.
        db: its connection.
        worker: the thread.
        what: the name for messages, e.g. ``the fact store``.
        durability: what a change that lasts survives: ``fsync`` a loss of power, ``os`` the end of the process.
        on_fatal: is told of a failure of the disk.
    """

    def __init__(
        self,
        path: Path,
        db: sqlite3.Connection,
        worker: Worker,
        what: str,
        durability: Literal["fsync", "os"],
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self.path = path
        self._db = db
        self._worker = worker
        self._what = what
        self._syncs = durability == "fsync"
        self._on_fatal = on_fatal
        self._queued: deque[_Change[Any]] = deque()
        self._torn: BaseException | None = None
        self._failed = False
        self._closed = False
        self._loop = asyncio.get_running_loop()

    @classmethod
    async def open(
        cls,
        path: Path,
        schema: str,
        load: Callable[[sqlite3.Connection], T],
        *,
        durability: Literal["fsync", "os"],
        worker: Worker,
        what: str,
        on_fatal: Callable[[BaseException], None],
    ) -> tuple[FactFile, T]:
        """Opens or creates a file and reads what ``load`` wants of it, on its thread.

        Raises:
            DataFolderError: it is damaged, unreadable, somebody else's or of a newer format.
        """

        def opening() -> tuple[sqlite3.Connection, T]:
            db, _ = open_database(path, schema)
            try:
                found = load(db)
                # What was removed before a crash may still stand in the log.
                _cut_log(db)
                db.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
                db.execute(f"PRAGMA synchronous = {'FULL' if durability == 'fsync' else 'NORMAL'}")
                return db, found
            except sqlite3.DatabaseError as error:
                db.close()
                raise damaged(path, error) from None
            except BaseException:
                db.close()
                raise

        try:
            db, found = await run(worker, opening)
        except BaseException:
            worker.stop()
            raise
        return cls(path, db, worker, what, durability, on_fatal), found

    def check(self) -> None:
        """Checks that the file can be used.

        Raises:
            Refusal: ENGINE_UNAVAILABLE, if it was closed or has failed.
        """
        if self._failed:
            raise self._failure()
        if self._closed:
            raise Refusal(Reason.ENGINE_UNAVAILABLE, f"{self._what} is closed")

    async def read(self, call: Callable[[sqlite3.Connection], T]) -> T:
        """Runs a call that changes nothing."""
        self.check()
        return await self._run(lambda: call(self._db))

    async def write(
        self,
        call: Callable[[sqlite3.Connection], T],
        *,
        applied: Callable[[T], None] | None = None,
        erases: bool = False,
        rewrites: bool = False,
        lasts: bool = True,
    ) -> T:
        """Runs a change in a durable transaction, together with what others are waiting to write.

        It happens whole or not at all, and does so even if the caller is cancelled.

        Args:
            call: the change. It may raise ``Refusal`` before it has changed anything.
            applied: is called on the file's thread, in the order of changes, once the change is durable.
            erases: whether what was removed must be in no file when this returns.
            rewrites: whether the file has to be written anew for that: where contents share pages, copies of them are
                left behind when a page is balanced.
            lasts: whether it has to survive a loss of power by the time this returns. If not, it survives the end of
                the process, and a loss of power with the next change that lasts.
        """
        self.check()
        change = _Change(call, applied, erases, rewrites, lasts)
        self._queued.append(change)
        await self._run(self._write_queued)
        if change.refusal is not None:
            raise change.refusal
        return cast(T, change.result)

    async def close(self) -> None:
        """Closes the file after what was begun; may be called twice."""
        if self._closed:
            return
        self._closed = True
        await run(self._worker, self._db.close)
        self._worker.stop()

    def _write_queued(self) -> None:
        if self._torn is not None:
            raise self._torn
        changes: list[_Change[Any]] = []
        while self._queued:
            changes.append(self._queued.popleft())
        if not changes:
            # They went with an earlier caller's, and that has ended.
            return
        unsynced = self._syncs and not any(change.lasts for change in changes)
        try:
            if unsynced:
                self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.execute("BEGIN IMMEDIATE")
            for change in changes:
                try:
                    change.result = change.call(self._db)
                except Refusal as refusal:
                    change.refusal = refusal
            self._db.execute("COMMIT")
            if unsynced:
                self._db.execute("PRAGMA synchronous = FULL")
            for change in changes:
                if change.applied is not None and change.refusal is None:
                    change.applied(change.result)
            if any(change.rewrites for change in changes):
                self._db.execute("VACUUM")
            if any(change.erases for change in changes):
                _cut_log(self._db)
        except BaseException as error:
            # Memory and file may differ now, and a commit's outcome be unknown: nothing may go on from here.
            self._torn = error
            raise

    async def _run(self, call: Callable[[], T]) -> T:
        def watched() -> T:
            try:
                return call()
            except Refusal:
                raise
            except BaseException as error:
                # Told to the process even if the caller is gone by now.
                self._loop.call_soon_threadsafe(self._fail, StoreFailed(f"cannot use {self.path}: {error}"))
                raise

        try:
            return await run(self._worker, watched)
        except Refusal:
            raise
        except Exception as error:
            raise self._failure() from error

    def _failure(self) -> Refusal:
        # What has failed, and where, is for the server's log: callers may be anybody.
        return Refusal(Reason.ENGINE_UNAVAILABLE, f"{self._what} has failed, the outcome of this call is unknown")

    def _fail(self, failure: StoreFailed) -> None:
        if not self._failed:
            self._failed = True
            self._on_fatal(failure)


def _cut_log(db: sqlite3.Connection) -> None:
    """Empties the write-ahead log: its old frames still hold what was removed."""
    ((busy, *_),) = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    if busy:
        raise sqlite3.OperationalError("another program reads the file, so what was removed cannot be overwritten")
