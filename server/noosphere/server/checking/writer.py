"""Writing histories: a journal per process that survives ``kill -9``, and collecting journals."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from .history import FORMAT_NAME, FORMAT_VERSION, Call, Header, Reply, Setting
from .reader import read_history

_ENCODER = msgspec.json.Encoder()


class HistoryWriter:
    """Appends calls and replies to a journal, each in one write to the operating system.

    What has been written survives the death of the process at any point; at most the last line is torn,
    and a reader tolerates that. It does not survive the death of the machine: nothing is synced.

    Args:
        path: the file; must not exist.
        settings: for the header.
        complete: for the header, see :class:`Header`.

    Raises:
        FileExistsError: ``path`` exists.
    """

    def __init__(
        self, path: Path | str, settings: Mapping[str, Setting] | None = None, complete: Iterable[str] = ()
    ) -> None:
        self._path = Path(path)
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        self._write(new_header(settings, complete))

    def begin(self, call: Call) -> None:
        """Records a call that is about to be sent."""
        self._write(call)

    def end(self, reply: Reply) -> None:
        """Records how a call ended."""
        self._write(reply)

    def close(self) -> None:
        """Closes the file; further calls fail. Closing twice is harmless."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write(self, line: Header | Call | Reply) -> None:
        data = _ENCODER.encode(line) + b"\n"
        written = os.write(self._file, data)
        while written < len(data):
            written += os.write(self._file, data[written:])


def new_header(
    settings: Mapping[str, Setting] | None = None,
    complete: Iterable[str] = (),
    cuts: Mapping[str, Iterable[tuple[int, int]]] | None = None,
) -> Header:
    """Returns the header of a history that starts now. See :class:`Header`."""
    return Header(
        format=FORMAT_NAME,
        version=FORMAT_VERSION,
        started_unix_ms=time.time_ns() // 1_000_000,
        settings=dict(settings or {}),
        complete=tuple(complete),
        cuts={namespace: tuple(found) for namespace, found in (cuts or {}).items()},
    )


def collect_history(journals: Iterable[Path], path: Path, header: Header) -> int:
    """Joins the journals of several processes into one history, a line for each call by start time.

    Args:
        journals: files of :class:`HistoryWriter`.
        path: the history to write; replaced if it exists.
        header: its header; torn journals are added to it.

    Returns:
        How many calls the history holds.

    Raises:
        HistoryError: a journal cannot be read.
        OSError: the history cannot be written.
    """
    calls: list[Call] = []
    torn: set[str] = set(header.torn)
    for journal in journals:
        history = read_history(journal)
        calls.extend(history.calls)
        torn.update(history.header.torn)
    calls.sort(key=lambda call: call.start_ns)
    write_history(path, msgspec.structs.replace(header, torn=tuple(sorted(torn))), calls)
    return len(calls)


def write_history(path: Path, header: Header, calls: Iterable[Call]) -> None:
    """Writes a whole history; replaces the file if it exists, and only once all of it is written."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with fresh.open("wb") as file:
            file.write(_ENCODER.encode(header) + b"\n")
            for call in calls:
                file.write(_ENCODER.encode(call) + b"\n")
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
