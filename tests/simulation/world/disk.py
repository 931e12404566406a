"""Simulated disks: the real SQLite on files in memory, and power over what of them a crash leaves.

What the embedded drivers do goes through SQLite as it does in production. The disk knows which of it SQLite has
synced: a killed process loses nothing that was written, a power cut keeps what was synced and of the rest as much as
the seed decides, torn at any byte. Blocking calls run on the event loop, and take as long as the seed decides.
"""

from __future__ import annotations

import shutil
import sqlite3
import struct
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from noosphere.server.storage.embedded.worker import Done

from .loop import Family, SimLoop, family

_WAL_HEADER = struct.Struct(">IIIIIIII")
_FRAME_HEADER = struct.Struct(">IIIIII")


@dataclass
class Drive:
    """How a disk fares at present.

    Attributes:
        sync_seconds: the shortest time of a blocking call.
        jitter_seconds: how much longer it may take.
        spike: how probable it is that it takes much longer.
        spike_seconds: how much at most.
        fault: ``full`` or ``broken``: what is written next is refused so; empty: nothing is.
    """

    sync_seconds: float = 0.0002
    jitter_seconds: float = 0.001
    spike: float = 0.0
    spike_seconds: float = 0.0
    fault: str = ""


class SimDisk:
    """The disk of one machine, through all its crashes.

    Args:
        loop: whose time it follows.
        folder: where its files are.
        name: the machine's.

    Attributes:
        drive: how it fares.
        syncs: whether SQLite's syncs reach it. Planted bugs unset that.
    """

    def __init__(self, loop: SimLoop, folder: Path, name: str) -> None:
        self.drive = Drive()
        self.rng = loop.chance(f"disk of {name}")
        self.loop = loop
        self._folder = folder
        self._name = name
        self._crashes = 0
        # By path: bytes of its log that are durable, for files of which not everything is.
        self._undurable: dict[Path, int] = {}

    @property
    def data(self) -> Path:
        """The data folder, as the last crash has left it."""
        return self._folder / f"{self._name}-{self._crashes}"

    def owns(self, path: Path) -> bool:
        """Tells whether a file is on this disk."""
        return path.parent.parent == self._folder and path.parent.name.startswith(f"{self._name}-")

    def crash(self, *, power: bool) -> None:
        """Has the machine's process gone, and with ``power`` what was not synced, too."""
        before = self.data
        self._crashes += 1
        if before.exists():
            shutil.copytree(before, self.data, ignore=shutil.ignore_patterns("LOCK", "*-shm"))
        kept = ""
        for path, durable in self._undurable.items():
            if power and path.parent == before:
                kept += f" {path.name}:{self._tear(self.data / f'{path.name}-wal', durable)}"
        self._undurable.clear()
        self.loop.trace("disk", self._name, "power cut" if power else "crash", kept)

    def _tear(self, wal: Path, durable: int) -> str:
        """Cuts a log somewhere between what is durable and its end, and damages what is left of the former rest."""
        end = written(wal)
        if end <= durable:
            return "whole"
        cut = self.rng.randint(durable, end)
        with wal.open("r+b") as file:
            file.truncate(cut)
            if cut > durable and self.rng.random() < 0.5:
                file.seek(self.rng.randrange(durable, cut))
                file.write(b"\xa5")
        return f"{cut - durable}/{end - durable}"

    def before(self, connection: SimConnection, sql: str) -> None:
        """Is told of a statement.

        Raises:
            OperationalError: the disk fails.
        """
        fault = self.drive.fault
        if fault and (sql == "COMMIT" or sql.startswith(("INSERT", "UPDATE", "DELETE"))):
            self.loop.trace("disk", self._name, fault)
            raise sqlite3.OperationalError("database or disk is full" if fault == "full" else "disk I/O error")
        if sql == "COMMIT" and connection.level != "FULL" and connection.path not in self._undurable:
            self._undurable[connection.path] = written(connection.path.with_name(f"{connection.path.name}-wal"))

    def after(self, connection: SimConnection, sql: str) -> None:
        """Is told of a statement that was executed."""
        if sql.startswith("PRAGMA synchronous"):
            connection.level = sql.rpartition(" ")[2]
        elif (sql == "COMMIT" and connection.level == "FULL") or sql.startswith("PRAGMA wal_checkpoint"):
            self._undurable.pop(connection.path, None)

    def worker(self) -> Callable[[str], SimWorker]:
        """Returns what makes workers for the present process."""
        own = family.get()
        return lambda name: SimWorker(self, own)


class SimConnection(sqlite3.Connection):
    """A connection of SQLite to a file on a simulated disk.

    Attributes:
        level: what SQLite syncs.
        path: the file.
    """

    def __init__(self, database: Any, *args: Any, disk: SimDisk, **options: Any) -> None:
        super().__init__(database, *args, **options)
        self.disk = disk
        self.level = "FULL"
        self.path = Path(database)

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        """Executes a statement, if the disk will."""
        self.disk.before(self, sql)
        found = super().execute(sql, *parameters)
        self.disk.after(self, sql)
        return found

    def executemany(self, sql: str, parameters: Any) -> sqlite3.Cursor:
        """Executes a statement many times, if the disk will."""
        self.disk.before(self, sql)
        return super().executemany(sql, parameters)


class SimWorker:
    """Runs blocking calls one after the other on the event loop, at moments of the seed's choosing."""

    def __init__(self, disk: SimDisk, own: Family | None) -> None:
        self._disk = disk
        self._own = own
        self._queue: deque[tuple[Callable[[], Any], Done]] = deque()
        self._busy = False

    def submit(self, call: Callable[[], Any], done: Done) -> None:
        """Runs ``call``; ``done(result, error)`` is then called on the event loop."""
        self._queue.append((call, done))
        if not self._busy:
            self._busy = True
            self._later(self._run)

    def stop(self) -> None:
        """Runs what is left, at once: nobody waits for it any more."""
        while self._queue:
            self._call()

    def _run(self) -> None:
        if self._queue:
            self._call()
        if self._queue:
            self._later(self._run)
        else:
            self._busy = False

    def _call(self) -> None:
        call, done = self._queue.popleft()
        result: Any = None
        error: Exception | None = None
        if self._own is not None and self._own.dead:
            error = OSError("the process is dead")
        else:
            self._disk.loop.blocking = True
            try:
                result = call()
            except Exception as raised:
                error = raised
            finally:
                self._disk.loop.blocking = False
        # What was done may take effect long before anybody hears of it.
        self._later(lambda: done(result, error))

    def _later(self, callback: Callable[[], Any]) -> None:
        drive, rng = self._disk.drive, self._disk.rng
        seconds = drive.sync_seconds + rng.random() * drive.jitter_seconds
        if drive.spike and rng.random() < drive.spike:
            seconds += rng.random() * drive.spike_seconds
        self._disk.loop.call_later(seconds / 2, callback)


def written(wal: Path) -> int:
    """Returns how many bytes of a write-ahead log count: those of the frames that belong to its header."""
    try:
        data = wal.read_bytes()
    except FileNotFoundError:
        return 0
    if len(data) < _WAL_HEADER.size:
        return 0
    _, _, page, _, *salts, _, _ = _WAL_HEADER.unpack_from(data)
    end = _WAL_HEADER.size
    while end + _FRAME_HEADER.size + page <= len(data):
        _, _, *frame_salts, _, _ = _FRAME_HEADER.unpack_from(data, end)
        if frame_salts != salts:
            break
        end += _FRAME_HEADER.size + page
    return end


@contextmanager
def mounted(*disks: SimDisk) -> Iterator[None]:
    """Has SQLite use simulated disks for their files, for the length of the block."""
    real: Any = sqlite3.connect

    def connect(database: Any, *args: Any, **options: Any) -> sqlite3.Connection:
        for disk in disks:
            if disk.owns(Path(database)):
                options["factory"] = partial(SimConnection, disk=disk)
        made: sqlite3.Connection = real(database, *args, **options)
        return made

    sqlite3.connect = connect  # type: ignore[assignment] # the same signature, less explicit
    try:
        yield
    finally:
        sqlite3.connect = real
