"""The audit log: JSON lines of who did what, written by a thread of its own to files of bounded size.

No entry holds a value, a token or a claim's words; names of namespaces and keys are in it. Whoever notes an entry never
waits: what finds no room is counted, and the next line that can be written says how many there were.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import sys
import threading
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

import msgspec
import structlog

log = structlog.get_logger(__name__)

STANDARD_OUTPUT = "-"
ENTRIES_MAX = 50_000
"""So many entries wait for the disk; a busy server notes some thousand a second."""

BATCH_ENTRIES = 2_000
INTERVAL_SECONDS = 0.1
CLOSE_SECONDS = 5.0
_ENCODER = msgspec.json.Encoder()
_NUMBER = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)


class Entry(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One call.

    Attributes:
        time_ms: when it ended, in milliseconds since 1970.
        principal: the identity that its credential proved; "" if none was asked for, or none proved.
        credential: which credential, e.g. a token's id.
        agent: in whose name it came, as ``agent#incarnation``. If it was refused, this is only what it said.
        peer: from which address.
        request: the id by which it can be repeated.
        method: as ``MemoryService/Put``.
        kind: ``read``, ``write`` or ``admin``; ``keep`` for what renews something.
        target: what it was about: a namespace, ``locks/<name>`` or ``groups/<name>``.
        keys: of what in it, at most 16 keys or ids.
        more: how many keys it named beyond.
        owners: whose facts, at most 16.
        versions: which versions it read or wrote, at most 16, in the order of what it names.
        head: the namespace's newest revision as it was answered; 0 if that was not told.
        count: how many records, messages or facts it was answered.
        code: how it ended, as ``OK``.
        reason: why it was refused.
        inside: whether it came inside a Pipeline.
        sampled: the share of such calls that is noted; 1 for all of them.
        lost: this is no call: so many entries before it found no room.
    """

    time_ms: int
    principal: str = ""
    credential: str = ""
    agent: str = ""
    peer: str = ""
    request: str = ""
    method: str = ""
    kind: str = ""
    target: str = ""
    keys: tuple[str, ...] = ()
    more: int = 0
    owners: tuple[str, ...] = ()
    versions: tuple[int, ...] = ()
    head: int = 0
    count: int = 0
    code: str = "OK"
    reason: str = ""
    inside: bool = False
    sampled: float = 1.0
    lost: int = 0


def line_of(entry: Entry) -> bytes:
    """Returns an entry as one line."""
    # Put together from bytes: on a busy server this thread takes its time from the event loop.
    return b'{"time":"%s",%s\n' % (time_text(entry.time_ms).encode(), _ENCODER.encode(entry)[1:])


def read_line(line: bytes) -> Entry | None:
    """Returns the entry of a line; None for one that was cut off, or is none."""
    try:
        return msgspec.json.decode(line, type=Entry)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def files_of(path: Path) -> list[Path]:
    """Returns the files that there are of an audit log, oldest first."""
    numbers = []
    with contextlib.suppress(OSError):
        for name in os.listdir(path.parent):
            stem, _, number = name.rpartition(".")
            # A rotation that was cut off leaves a gap between the numbers.
            if stem == path.name and _NUMBER.fullmatch(number):
                numbers.append(int(number))
    older = [path.with_name(f"{path.name}.{number}") for number in sorted(numbers, reverse=True)]
    return [*older, *([path] if path.exists() else [])]


class AuditLog:
    """Writes entries. Used by one event loop and its own thread.

    Args:
        path: the file; ``-`` for standard output, which is not rotated.
        wall_ms: the time.
        bytes_max: a file is not written any further beyond this.
        files_max: so many files are kept, the present one included.
        entries_max: so many entries wait for the disk.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(
        self,
        path: str,
        *,
        wall_ms: Callable[[], int],
        bytes_max: int = 64 << 20,
        files_max: int = 8,
        entries_max: int = ENTRIES_MAX,
    ) -> None:
        self._wall_ms = wall_ms
        self._entries_max = entries_max
        self._waiting: deque[Entry] = deque()
        self._file = _Files(Path(path), bytes_max, files_max) if path != STANDARD_OUTPUT else _Output()
        self._stop = threading.Event()
        self._lost_total = 0
        self._lost_told = 0
        self._failing = False
        self._thread = threading.Thread(target=self._run, name="noosphere-audit", daemon=True)
        self._thread.start()

    @property
    def lost(self) -> int:
        """How many entries found no room since the start."""
        return self._lost_total

    @property
    def failing(self) -> bool:
        """Whether entries cannot be written at present."""
        return self._failing

    def note(self, entry: Entry) -> None:
        """Has an entry written soon. Never waits."""
        if len(self._waiting) >= self._entries_max:
            self._lost_total += 1
            return
        self._waiting.append(entry)

    def close(self) -> None:
        """Writes what waits, and closes; at most some seconds."""
        self._stop.set()
        self._thread.join(CLOSE_SECONDS)
        self._file.close()
        if self._waiting:
            log.error("the audit log could not be written to its end", count=len(self._waiting))

    def _run(self) -> None:
        while True:
            stopping = self._stop.wait(INTERVAL_SECONDS)
            while self._waiting and self._write():
                pass
            if stopping:
                return

    def _write(self) -> bool:
        """Writes some of what waits; returns whether that worked. What was not written still waits."""
        batch = [self._waiting[place] for place in range(min(len(self._waiting), BATCH_ENTRIES))]
        lost = self._lost_total - self._lost_told
        lines = [line_of(entry) for entry in batch]
        if lost:
            lines.append(line_of(Entry(self._wall_ms(), kind="lost", lost=lost)))
        try:
            self._file.write(b"".join(lines))
        except (OSError, ValueError) as error:
            # A ValueError is standard output that has been closed.
            if not self._failing:
                log.error("the audit log cannot be written", error=getattr(error, "strerror", None) or str(error))
            self._failing = True
            return False
        if self._failing:
            log.warning("the audit log is written again", lost=lost)
        self._failing = False
        self._lost_told += lost
        for _ in batch:
            self._waiting.popleft()
        return True


class _Output:
    """Standard output."""

    def write(self, lines: bytes) -> None:
        """Writes lines."""
        sys.stdout.buffer.write(lines)
        sys.stdout.buffer.flush()

    def close(self) -> None:
        """Leaves it open."""


class _Files:
    """A file, and those that it was before it grew too large: ``<name>.1`` is the youngest of them."""

    def __init__(self, path: Path, bytes_max: int, files_max: int) -> None:
        self._path = path
        self._bytes_max = bytes_max
        self._files_max = files_max
        self._torn = False
        self._open()

    def write(self, lines: bytes) -> None:
        """Appends lines, all or none of them.

        Raises:
            OSError: none was appended.
        """
        if self._size and self._size + len(lines) > self._bytes_max:
            self._rotate()
        if self._torn:
            # Who wrote it was killed half way. The next entry must not become the end of that line.
            lines = b"\n" + lines
        written = 0
        try:
            while written < len(lines):
                written += os.write(self._number, lines[written:])
        except OSError:
            # Half a line would be taken for an entry that somebody has tampered with.
            with contextlib.suppress(OSError):
                os.ftruncate(self._number, self._size)
            raise
        self._size += written
        self._torn = False

    def close(self) -> None:
        """Has what was written on the disk."""
        with contextlib.suppress(OSError):
            os.fsync(self._number)
        os.close(self._number)

    def _open(self) -> None:
        self._number = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._size = os.fstat(self._number).st_size
        self._torn = self._size > 0 and _ends_within_a_line(self._path)

    def _rotate(self) -> None:
        kept = self._files_max - 1
        # Somebody may have taken it away, or an earlier attempt has failed after that: then nothing has to move.
        if not self._path.exists():
            pass
        elif kept:
            free = next((number for number in range(1, kept) if not self._numbered(number).exists()), kept)
            for number in range(free - 1, 0, -1):
                os.replace(self._numbered(number), self._numbered(number + 1))
            os.replace(self._path, self._numbered(1))
        else:
            os.unlink(self._path)
        former = self._number
        self._open()
        os.close(former)

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")


def _ends_within_a_line(path: Path) -> bool:
    # Who may only write to it cannot tell; then it is taken for whole.
    with contextlib.suppress(OSError), path.open("rb") as file:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"
    return False


def time_text(time_ms: int) -> str:
    """Returns a time as RFC 3339 has it, with milliseconds."""
    return f"{_second_text(time_ms // 1000)}.{time_ms % 1000:03d}Z"


@lru_cache(maxsize=8)
def _second_text(time_seconds: int) -> str:
    return datetime.fromtimestamp(time_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
