"""Reading histories, with errors that name the line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from .history import FORMAT_NAME, FORMAT_VERSION, Call, Header, History, Reply

LINE_BYTES_MAX = 4 * 1024 * 1024
"""A line holds at most one reply, and gRPC's default limit for that is as much."""
CALLS_MAX = 5_000_000

_LINES = msgspec.json.Decoder(Header | Call | Reply)


class HistoryError(ValueError):
    """A file that is no history, or one that this version cannot read."""


class _Stamp(msgspec.Struct):
    format: str = ""
    version: int = 0


def read_history(path: Path | str) -> History:
    """Reads a history or the journal of one process.

    A last line without its newline was torn by the death of the writer; it is left out, and the
    header's ``torn`` then names the process. A call without a reply has an unknown outcome.

    Raises:
        HistoryError: the file cannot be opened, is no history, has a newer format, or a line is wrong.
    """
    path = Path(path)
    calls: dict[tuple[str, int], Call] = {}
    header: Header | None = None
    torn = False
    for number, line in _lines(path):
        if not line.endswith(b"\n"):
            torn = True
            break
        if header is None:
            header = _header(path, line)
            continue
        try:
            item = _LINES.decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            raise _wrong(path, number, str(error)) from None
        if isinstance(item, Header):
            raise _wrong(path, number, "a second header; join histories with collect_history")
        name = (item.process, item.call)
        if isinstance(item, Call):
            if name in calls:
                raise _wrong(path, number, f"{item.process} call {item.call} was recorded before")
            if len(calls) >= CALLS_MAX:
                raise _wrong(path, number, f"more than {CALLS_MAX} calls")
            calls[name] = _checked(path, number, item)
        else:
            calls[name] = _answered(path, number, calls.get(name), item)
    if header is None:
        raise HistoryError(f"{path}: empty, or its first line is torn; a history begins with a header")
    ordered = tuple(sorted(calls.values(), key=lambda call: (call.start_ns, call.process, call.call)))
    if torn:
        processes = {call.process for call in ordered}
        who = processes.pop() if len(processes) == 1 else path.name
        header = msgspec.structs.replace(header, torn=tuple(sorted({*header.torn, who})))
    return History(header, ordered)


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(LINE_BYTES_MAX + 1):
                number += 1
                if len(line) > LINE_BYTES_MAX:
                    raise _wrong(path, number, f"longer than {LINE_BYTES_MAX} bytes")
                yield number, line
    except OSError as error:
        raise HistoryError(f"{path}: {error.strerror or error}") from None


def _header(path: Path, line: bytes) -> Header:
    try:
        stamp = msgspec.json.decode(line, type=_Stamp)
    except (msgspec.DecodeError, RecursionError):
        stamp = _Stamp()
    if stamp.format != FORMAT_NAME:
        raise _wrong(path, 1, f"no history: the first line has no `format` of {FORMAT_NAME!r}")
    if stamp.version > FORMAT_VERSION:
        raise _wrong(path, 1, f"format {stamp.version} is newer than {FORMAT_VERSION}, the newest that is known here")
    if stamp.version < 1:
        raise _wrong(path, 1, f"format {stamp.version} never existed")
    try:
        return msgspec.json.decode(line, type=Header)
    except msgspec.DecodeError as error:
        raise _wrong(path, 1, str(error)) from None


def _checked(path: Path, number: int, call: Call) -> Call:
    reply = call.reply
    if reply is None:
        return call
    if (reply.process, reply.call) != (call.process, call.call):
        raise _wrong(path, number, f"{call.process} call {call.call} holds the reply of another call")
    if reply.return_ns < call.start_ns:
        raise _wrong(path, number, f"returned at {reply.return_ns}, before its start at {call.start_ns}")
    return call


def _answered(path: Path, number: int, call: Call | None, reply: Reply) -> Call:
    if call is None:
        raise _wrong(path, number, f"a reply to {reply.process} call {reply.call}, which was never made")
    if call.reply is not None:
        raise _wrong(path, number, f"a second reply to {reply.process} call {reply.call}")
    return _checked(path, number, msgspec.structs.replace(call, reply=reply))


def _wrong(path: Path, number: int, problem: str) -> HistoryError:
    return HistoryError(f"{path}, line {number}: {problem}")
