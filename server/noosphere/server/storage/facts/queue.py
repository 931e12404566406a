"""The embedded fact queue: jobs in SQLite, leases in store time."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from noosphere.consistency import exhausted, invalid

from ...ports.factqueue import (
    BATCH_MAX,
    PRIORITY_MAX,
    REASON_CHARS_MAX,
    DeadJob,
    Job,
    LeasedJob,
    QueuedJob,
    QueueStats,
)
from ...ports.runtime import Clock
from ..embedded.folder import log_failure
from ..embedded.storetime import StoreTime
from ..embedded.worker import ThreadWorker, Worker
from .attempts import GIVEN_BACK, STORED_MAX, attempt_of, returned_of
from .checks import check_jobs, check_limit, check_names, check_span, distinct
from .file import FactFile

FILE = "factqueue.sqlite3"

JOBS_MAX = 1_000_000
"""Most jobs, the dead too."""

_LEASE_DIGITS_MAX = 40

# `due_ms` is from when on a job may be taken: at once, when its next attempt is due, or when its lease ends.
# A number is never used twice, so number and attempt name a lease for ever.
_SCHEMA = """
CREATE TABLE jobs(
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, priority INTEGER NOT NULL, body BLOB NOT NULL,
    grp TEXT NOT NULL, put_ms INTEGER NOT NULL, due_ms INTEGER NOT NULL, attempts INTEGER NOT NULL,
    leased INTEGER NOT NULL
);
CREATE INDEX job_order ON jobs(priority, number, due_ms);
CREATE INDEX job_groups ON jobs(grp);
CREATE INDEX job_leased ON jobs(leased, put_ms);
CREATE TABLE dead(
    id TEXT PRIMARY KEY, priority INTEGER NOT NULL, body BLOB NOT NULL, grp TEXT NOT NULL, attempts INTEGER NOT NULL,
    reason TEXT NOT NULL, died_ms INTEGER NOT NULL
);
CREATE INDEX dead_groups ON dead(grp);
CREATE TABLE clock(time_ms INTEGER NOT NULL);
INSERT INTO clock VALUES (0);
"""


class EmbeddedFactQueue:
    """See :class:`~noosphere.server.ports.factqueue.FactQueue`. Lives on one event loop, with a thread of its own.

    Workers are of this process, so leases end with it: what was leased may be taken as soon as the queue is open again.
    """

    def __init__(self, file: FactFile, time: StoreTime, held: int, jobs_max: int) -> None:
        self._file = file
        self._time = time
        # Of the file's thread alone.
        self._held = held
        self._jobs_max = jobs_max

    @classmethod
    async def open(
        cls,
        folder: Path,
        *,
        clock: Clock,
        durability: Literal["fsync", "os"] = "fsync",
        jobs_max: int = JOBS_MAX,
        on_fatal: Callable[[BaseException], None] = log_failure,
        worker: Callable[[str], Worker] = ThreadWorker,
    ) -> EmbeddedFactQueue:
        """Opens the queue in a locked data folder, or creates it.

        Args:
            folder: the data folder.
            clock: where store time comes from.
            durability: what an acknowledged change survives: ``fsync`` a loss of power, ``os`` the end of the process.
            jobs_max: most jobs, the dead too.
            on_fatal: is told of a failure of the disk.
            worker: makes the thread.

        Raises:
            DataFolderError: it is damaged, unreadable, or of a newer format.
        """

        def load(db: sqlite3.Connection) -> tuple[int, int]:
            db.execute("UPDATE jobs SET leased = 0, due_ms = 0 WHERE leased")
            ((held,),) = db.execute("SELECT (SELECT count(*) FROM jobs) + (SELECT count(*) FROM dead)")
            ((time_ms,),) = db.execute("SELECT time_ms FROM clock")
            return held, time_ms

        file, (held, time_ms) = await FactFile.open(
            folder / FILE,
            _SCHEMA,
            load,
            durability=durability,
            worker=worker("noosphere-factqueue"),
            what="the fact queue",
            on_fatal=on_fatal,
        )
        return cls(file, StoreTime(clock, time_ms, clean=True), held, jobs_max)

    @property
    def may_lose(self) -> bool:
        """Never: what is acknowledged is in its file."""
        return False

    async def put(self, jobs: Sequence[Job]) -> None:
        """Queues jobs; see the port."""
        self._file.check()
        check_jobs(jobs)
        first: dict[str, Job] = {}
        for job in jobs:
            first.setdefault(job.id, job)
        now_ms = self._time.now_ms()

        def change(db: sqlite3.Connection) -> None:
            absent = [job for job in first.values() if not _exists(db, "jobs", job.id)]
            dead = [job.id for job in absent if _exists(db, "dead", job.id)]
            held = self._held + len(absent) - len(dead)
            if held > self._jobs_max and len(absent) > len(dead):
                raise exhausted("jobs", held, self._jobs_max, "the queue is full")
            self._held = held
            _note(db, now_ms, changed=bool(absent))
            db.executemany("DELETE FROM dead WHERE id = ?", [(id,) for id in dead])
            db.executemany(_INSERT, [(job.id, job.priority, job.body, job.group, now_ms) for job in absent])

        if first:
            await self._file.write(change)

    async def take(
        self, worker: str, limit: int, lease_ms: int, *, priority_min: int = 0, priority_max: int = PRIORITY_MAX
    ) -> tuple[LeasedJob, ...]:
        """Leases jobs; see the port."""
        self._file.check()
        check_names("worker", (worker,))
        check_limit(limit, BATCH_MAX)
        check_span("lease_ms", lease_ms, 1)
        now_ms = self._time.now_ms()

        def change(db: sqlite3.Connection) -> tuple[LeasedJob, ...]:
            found = db.execute(
                "SELECT number, id, priority, body, grp, attempts + 1 FROM jobs "
                "WHERE priority BETWEEN ? AND ? AND due_ms <= ? ORDER BY priority, number LIMIT ?",
                (priority_min, priority_max, now_ms, limit),
            ).fetchall()
            db.executemany(
                "UPDATE jobs SET leased = 1, attempts = attempts + 1, due_ms = ? WHERE number = ?",
                [(now_ms + lease_ms, number) for number, *_ in found],
            )
            _note(db, now_ms, changed=bool(found))
            return tuple(
                LeasedJob(Job(id, priority, body, group), attempt_of(stored), f"{number}.{stored}", returned_of(stored))
                for number, id, priority, body, group, stored in found
            )

        # Leases end with the process, so none has to survive more than that. Nor does it matter that a job is done:
        # otherwise it is done again, which changes nothing.
        return await self._file.write(change, lasts=False)

    async def extend(self, leases: Sequence[str], lease_ms: int) -> tuple[bool, ...]:
        """Extends leases; see the port."""
        check_span("lease_ms", lease_ms, 1)
        due_ms = self._time.now_ms() + lease_ms
        return await self._held_ones(leases, "UPDATE jobs SET due_ms = ?", (due_ms,))

    async def done(self, leases: Sequence[str]) -> tuple[bool, ...]:
        """Removes finished jobs; see the port."""
        return await self._held_ones(leases, "DELETE FROM jobs", (), removes=True)

    async def fail(self, lease: str, reason: str, *, retry_after_ms: int | None, counts: bool = True) -> bool:
        """Gives a job back or up; see the port."""
        self._file.check()
        holder = _holder(lease)
        now_ms = self._time.now_ms()
        if retry_after_ms is not None:
            check_span("retry_after_ms", retry_after_ms, 0)
            back = "UPDATE jobs SET leased = 0, due_ms = ?" + ("" if counts else _NOT_COUNTED)
            return (await self._held_ones((lease,), back, (now_ms + retry_after_ms,)))[0]
        cut = reason[:REASON_CHARS_MAX].encode("utf-8", "replace").decode()

        def change(db: sqlite3.Connection) -> bool:
            died = db.execute(
                "INSERT INTO dead SELECT id, priority, body, grp, attempts, ?, ? FROM jobs "
                "WHERE number = ? AND attempts = ? AND leased",
                (cut, now_ms, *holder),
            ).rowcount
            db.execute("DELETE FROM jobs WHERE number = ? AND attempts = ? AND leased", holder)
            _note(db, now_ms, changed=bool(died))
            return bool(died)

        return await self._file.write(change)

    async def find(self, ids: Sequence[str]) -> tuple[QueuedJob | None, ...]:
        """Returns jobs wherever they are; see the port."""
        self._file.check()
        check_names("ids", ids)

        def look(db: sqlite3.Connection) -> tuple[QueuedJob | None, ...]:
            found: list[QueuedJob | None] = []
            for id in ids:
                row = db.execute(f"{_ANYWHERE} WHERE id = ?", (id,)).fetchone()
                found.append(None if row is None else _queued(row))
            return tuple(found)

        return await self._file.read(look)

    async def members(self, group: str, after: str, limit: int) -> tuple[QueuedJob, ...]:
        """Lists the jobs of a group; see the port."""
        self._file.check()
        check_names("group", (group,))
        check_names("after", (after,), empty=True)
        check_limit(limit, BATCH_MAX)

        def look(db: sqlite3.Connection) -> tuple[QueuedJob, ...]:
            found = db.execute(f"{_ANYWHERE} WHERE grp = ? AND id > ? ORDER BY id LIMIT ?", (group, after, limit))
            return tuple(map(_queued, found))

        return await self._file.read(look)

    async def dead(self, after: str, limit: int) -> tuple[DeadJob, ...]:
        """Lists dead jobs; see the port."""
        self._file.check()
        check_names("after", (after,), empty=True)
        check_limit(limit, BATCH_MAX)

        def look(db: sqlite3.Connection) -> tuple[DeadJob, ...]:
            found = db.execute(
                "SELECT id, priority, body, grp, attempts, reason, died_ms FROM dead WHERE id > ? ORDER BY id LIMIT ?",
                (after, limit),
            )
            return tuple(
                DeadJob(Job(id, priority, body, group), attempt_of(stored), reason, died_ms)
                for id, priority, body, group, stored, reason, died_ms in found
            )

        return await self._file.read(look)

    async def everything(self) -> AsyncIterator[QueuedJob]:
        """Streams every job; see the port."""
        for table, key, rest, first in (
            ("dead", "id", "attempts, 1, reason", ""),
            ("jobs", "number", "attempts, 0, ''", -1),
        ):
            sql = (
                f"SELECT {key}, id, priority, body, grp, {rest} FROM {table} WHERE {key} > ? ORDER BY {key} "
                f"LIMIT {_PAGE_JOBS}"
            )
            after: str | int = first
            while page := await self._file.read(partial(_page, sql=sql, after=after)):
                after = page[-1][0]
                for _, *row in page:
                    yield _queued(tuple(row))

    async def revive(self, ids: Sequence[str]) -> int:
        """Queues dead jobs again; see the port."""
        self._file.check()
        check_names("ids", ids)
        wanted = distinct(ids)
        now_ms = self._time.now_ms()

        def change(db: sqlite3.Connection) -> int:
            revived = 0
            for id in wanted:
                # Under a new number: leases of its earlier life are not those of this one.
                row = db.execute("SELECT id, priority, body, grp FROM dead WHERE id = ?", (id,)).fetchone()
                if row is not None:
                    db.execute("DELETE FROM dead WHERE id = ?", (id,))
                    db.execute(_INSERT, (*row, now_ms))
                    revived += 1
            _note(db, now_ms, changed=bool(revived))
            return revived

        return await self._file.write(change)

    async def remove(self, *, ids: Sequence[str] = (), group: str = "") -> int:
        """Removes jobs for good; see the port. Rewrites the file, so it takes time in proportion to what is queued."""
        self._file.check()
        check_names("ids", ids)
        check_names("group", (group,), empty=True)
        if bool(ids) == bool(group):
            raise invalid("ids", "is needed or group, and not both")
        chosen, values = ("grp = ?", [(group,)]) if group else ("id = ?", [(id,) for id in distinct(ids)])

        def change(db: sqlite3.Connection) -> int:
            gone = sum(
                db.execute(f"DELETE FROM {table} WHERE {chosen}", value).rowcount
                for table in ("jobs", "dead")
                for value in values
            )
            self._held -= gone
            return gone

        return await self._file.write(change, erases=True, rewrites=True)

    async def stats(self) -> QueueStats:
        """Returns how much it holds; see the port."""

        def look(db: sqlite3.Connection) -> QueueStats:
            counts: dict[int, tuple[int, int]] = {
                leased: (count, oldest_ms)
                for leased, count, oldest_ms in db.execute(
                    "SELECT leased, count(*), min(put_ms) FROM jobs GROUP BY leased"
                )
            }
            ((dead,),) = db.execute("SELECT count(*) FROM dead")
            waiting, oldest_ms = counts.get(0, (0, 0))
            return QueueStats(waiting, counts.get(1, (0, 0))[0], dead, oldest_ms)

        return await self._file.read(look)

    async def close(self) -> None:
        """Ends the thread after what was begun; may be called twice."""
        await self._file.close()

    async def _held_ones(
        self, leases: Sequence[str], change_sql: str, values: tuple[Any, ...], *, removes: bool = False
    ) -> tuple[bool, ...]:
        """Changes the jobs of leases that still hold; tells which do."""
        self._file.check()
        check_names("leases", leases)
        holders = [_holder(lease) for lease in leases]
        now_ms = self._time.now_ms()

        def change(db: sqlite3.Connection) -> tuple[bool, ...]:
            sql = f"{change_sql} WHERE number = ? AND attempts = ? AND leased"
            held = tuple(bool(db.execute(sql, (*values, *holder)).rowcount) for holder in holders)
            _note(db, now_ms, changed=any(held))
            if removes:
                self._held -= sum(held)
            return held

        return await self._file.write(change, lasts=False) if holders else ()


_PAGE_JOBS = 64
"""Bodies may be large, and these are in memory at once."""


def _page(db: sqlite3.Connection, *, sql: str, after: str | int) -> list[tuple[Any, ...]]:
    return db.execute(sql, (after,)).fetchall()


_INSERT = "INSERT INTO jobs(id, priority, body, grp, put_ms, due_ms, attempts, leased) VALUES (?, ?, ?, ?, ?, 0, 0, 0)"


_NOT_COUNTED = f""", attempts = CASE
    WHEN attempts & {GIVEN_BACK} AND attempts < {STORED_MAX} THEN attempts + {GIVEN_BACK} ELSE attempts END"""


_ANYWHERE = """
SELECT * FROM (
    SELECT id, priority, body, grp, attempts, 0 AS dead, '' AS reason FROM jobs
    UNION ALL SELECT id, priority, body, grp, attempts, 1, reason FROM dead
)"""


def _queued(row: tuple[Any, ...]) -> QueuedJob:
    id, priority, body, group, stored, dead, reason = row
    return QueuedJob(Job(id, priority, body, group), attempt_of(stored), bool(dead), reason)


def _note(db: sqlite3.Connection, now_ms: int, *, changed: bool) -> None:
    """Keeps store time from going back in the next life, where it matters: what changes nothing needs no sync."""
    if changed:
        db.execute("UPDATE clock SET time_ms = max(time_ms, ?)", (now_ms,))


def _exists(db: sqlite3.Connection, table: str, id: str) -> bool:
    return db.execute(f"SELECT 1 FROM {table} WHERE id = ?", (id,)).fetchone() is not None


def _holder(lease: str) -> tuple[int, int]:
    number, dot, attempt = lease.partition(".")
    if not (dot and len(lease) <= _LEASE_DIGITS_MAX and number.isdecimal() and attempt.isdecimal()):
        raise invalid("lease", "is none of this queue's")
    return min(int(number), (1 << 63) - 1), min(int(attempt), (1 << 63) - 1)
