"""Reads dumps: all of it is verified before anybody uses a line."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, NamedTuple, cast

import msgspec

from noosphere.consistency import NamespacePolicy, Refusal
from noosphere.consistency.revision import EPOCH_MAX, REVISION_MAX

from ..ports.factstore import FactContent
from ..ports.tables import Table, check_entry, check_table_name
from .bodies import bytes_of
from .lines import (
    FORMAT,
    LINE_BYTES_MAX,
    Counters,
    DumpError,
    End,
    Entry,
    FactLine,
    FenceLine,
    Granted,
    Header,
    JobLine,
    Line,
    RecordLine,
    Rule,
    Space,
    line_of,
    parse,
)
from .meanings import content_of, grant_of, job_of

_GZIP_MAGIC = b"\x1f\x8b"
_NOTHING = Table()
# What may not come before what.
_ORDER: dict[type[Line], int] = {
    Header: 0,
    Rule: 1,
    Granted: 2,
    Entry: 3,
    Space: 4,
    FenceLine: 4,
    RecordLine: 4,
    FactLine: 5,
    JobLine: 6,
    Counters: 7,
}


class Summary(NamedTuple):
    """What a verified dump holds."""

    header: Header
    counters: Counters
    lines: int
    sha256: str
    namespaces: int
    records: int
    facts: int
    jobs: int
    rules: int
    grants: int
    entries: int


class _Stamp(msgspec.Struct, tag_field="is", tag="noosphere dump"):
    """The part of a header that every format has."""

    format: int


class DumpFile:
    """A dump in a file, which must not change while it is used.

    Args:
        path: where it is; compressed or not.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def verify(self, fits: Callable[[Line, Header], None] = lambda line, header: None) -> Summary:
        """Reads all of it.

        Args:
            fits: raises a Refusal for a line that its target would refuse.

        Raises:
            DumpError: it cannot be read, is no dump, of a newer format, cut off or altered.
        """
        counts: Counter[type[Line]] = Counter()
        header: Header | None = None
        counters: Counters | None = None
        end: End | None = None
        space: Space | None = None
        stage = 0
        for number, line in self._lines():
            if isinstance(line, End):
                end = line
                continue
            kind = type(line)
            counts[kind] += 1
            if header is None:
                if not isinstance(line, Header):
                    raise self._damaged(number, "the header is missing")
                header = line
            elif isinstance(line, Header) or _ORDER[kind] < stage or counters is not None:
                raise self._damaged(number, f"a {_name_of(line)} stands where none can")
            stage = _ORDER[kind]
            if isinstance(line, Space):
                space = line
            elif isinstance(line, Counters):
                counters = line
            try:
                _check(line, header, space)
                fits(line, header)
            except (ValueError, Refusal) as error:
                raise self._damaged(number, str(error)) from None
        if header is None or end is None:
            raise DumpError(f"{self.path} is empty: it is not a dump of noosphere")
        if counters is None:
            raise self._damaged(end.lines, "the counters are missing")
        return Summary(
            header,
            counters,
            end.lines,
            end.sha256,
            counts[Space],
            counts[RecordLine],
            counts[FactLine],
            counts[JobLine],
            counts[Rule],
            counts[Granted],
            counts[Entry],
        )

    def lines(self) -> Iterator[Line]:
        """Yields all lines but the last, and verifies them anew on the way.

        Raises:
            DumpError: it has changed since it was verified.
        """
        for _, line in self._lines():
            if not isinstance(line, End):
                yield line

    def _lines(self) -> Iterator[tuple[int, Line]]:
        digest = hashlib.sha256()
        number = 0
        ended = False
        try:
            with self._open() as file:
                while text := file.readline(LINE_BYTES_MAX + 1):
                    number += 1
                    if ended:
                        raise self._damaged(number, "something follows its last line")
                    if not number - 1:
                        self._check_stamp(text)
                    if not text.endswith(b"\n"):
                        raise self._damaged(number, "it is cut off, or a line is too long")
                    try:
                        line = parse(text)
                    except ValueError as error:
                        raise self._damaged(number, str(error)) from None
                    if isinstance(line, End):
                        # As it was written, to the last character.
                        if text != line_of(End(number - 1, digest.hexdigest())):
                            raise self._damaged(number, "its digest is another one: it was altered or cut")
                        ended = True
                    digest.update(text)
                    yield number, line
        except (gzip.BadGzipFile, EOFError, zlib.error):
            raise DumpError(f"{self.path} is damaged: its compression is cut off or altered") from None
        except OSError as error:
            raise DumpError(f"cannot read {self.path}: {error.strerror}") from None
        if number and not ended:
            raise self._damaged(number, "its last line is missing: it is cut off")

    def _open(self) -> IO[bytes]:
        with self.path.open("rb") as file:
            zipped = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
        return cast("IO[bytes]", gzip.open(self.path)) if zipped else self.path.open("rb")

    def _check_stamp(self, text: bytes) -> None:
        """Reads what is the same in every format."""
        try:
            stamp = msgspec.json.decode(text, type=_Stamp)
        except msgspec.MsgspecError:
            raise DumpError(f"{self.path} does not begin as a dump of noosphere does: it is none, or damaged") from None
        if stamp.format > FORMAT:
            raise DumpError(
                f"{self.path} has format {stamp.format}, this version of noosphere reads up to {FORMAT}: use the newer "
                "version"
            )

    def _damaged(self, number: int, why: str) -> DumpError:
        return DumpError(f"{self.path} is damaged, line {number}: {why}")


def _name_of(line: Line) -> str:
    return str(type(line).__struct_config__.tag)


def _check(line: Line, header: Header, space: Space | None) -> None:
    """Checks what a line says.

    Raises:
        ValueError, Refusal: nothing that could be stored.
    """
    match line:
        case Header():
            _within("epoch", line.epoch, EPOCH_MAX - 1)
            _within("dimension", line.dimension, 1 << 16)
            for table in line.tables:
                check_table_name(table)
        case Counters():
            _within("number", line.number, REVISION_MAX >> 1)
            _within("config_version", line.config_version, REVISION_MAX >> 1)
            _within("store_time_ms", line.store_time_ms, REVISION_MAX >> 1)
        case Rule():
            msgspec.convert(line.policy, NamespacePolicy).check()
        case Granted():
            grant_of(line)
        case Entry():
            if line.table not in header.tables:
                raise ValueError(f"table: {line.table!r} is none of those that the header names")
            check_entry(line.table, _NOTHING, line.key, bytes_of(line.value))
        case Space():
            _within("generation", line.generation, REVISION_MAX)
            _within("head", line.head, header.epoch << 40 | (1 << 40) - 1)
            _within("origin", line.origin, line.head)
            _within("floor_context", line.floor_context, REVISION_MAX)
            _within("config_version", line.config_version, REVISION_MAX >> 1)
        case FenceLine():
            if space is None or space.deleted:
                raise ValueError("is of no namespace")
            _within("token", line.token, REVISION_MAX)
        case RecordLine():
            if space is None or space.deleted:
                raise ValueError("is of no namespace")
            _within("revision", line.revision, space.head)
            _within("live_until_ms", line.live_until_ms, REVISION_MAX)
            _within("due_ms", line.due_ms, REVISION_MAX)
            bytes_of(line.body)
        case FactLine():
            _sized(content_of(line), header.dimension)
        case JobLine():
            job_of(line)


def _within(name: str, value: int, high: int) -> None:
    if not 0 <= value <= high:
        raise ValueError(f"{name}: {value} is not between 0 and {high}")


def _sized(content: FactContent, dimension: int) -> None:
    if content.vector is not None and len(content.vector) != dimension:
        raise ValueError(f"vector: has {len(content.vector)} numbers, not {dimension}")
