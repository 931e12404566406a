"""What the journal and the log hold, and how it becomes bytes.

The same objects serve as working state, as log and as journal entries, so values exist once. They are
msgspec structs outside the garbage collector's reach: with named tuples, every full collection would
walk all records of the store on the event loop.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from noosphere.consistency import NEVER_MS, Cut, Remembered, RequestRef

BLOB_FORMAT = 1
_HEADER_BYTES = 5

T = TypeVar("T")


class Cell(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """A key as one commit left it. ``data`` is None if the key was removed; ``event`` as in ``Mutation``."""

    key: str
    revision: int
    data: bytes | None
    live_until_ms: int
    due_ms: int
    members: bool = False
    event: bytes = b""


class LogItem(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """The logged part of one commit: the cells that watchers hear of."""

    revision: int
    time_ms: int
    cells: tuple[Cell, ...]
    size: int
    """Bytes of keys, values and events."""


class Birth(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """The name of a namespace that begins to exist."""

    name: str
    generation: int
    origin: int


class Request(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """A remembered call."""

    client: str
    sequence: int
    answered_through: int
    uuid: str
    revision: int
    fingerprint: bytes
    reply: bytes
    time_ms: int

    @classmethod
    def of(cls, ref: RequestRef, call: Remembered) -> Request:
        """Joins what ``RequestMemory`` keeps apart."""
        return cls(*ref, *call)

    @property
    def ref(self) -> RequestRef:
        """The call's identity."""
        return RequestRef(self.client, self.sequence, self.answered_through, self.uuid)

    @property
    def call(self) -> Remembered:
        """What is remembered of it."""
        return Remembered(self.revision, self.fingerprint, self.reply, self.time_ms)


class CommitItem(msgspec.Struct, array_like=True, gc=False, frozen=True, tag=0):
    """One accepted commit. ``revision`` is the head after it, new only if there are cells."""

    storage_id: bytes
    revision: int
    time_ms: int
    cells: tuple[Cell, ...]
    config_version: int
    floor_context: int
    birth: Birth | None = None
    cut: Cut | None = None
    request: Request | None = None
    fences: tuple[tuple[str, int], ...] = ()


class DropItem(msgspec.Struct, array_like=True, gc=False, frozen=True, tag=1):
    """A dropped namespace."""

    storage_id: bytes


class FloorItem(msgspec.Struct, array_like=True, gc=False, frozen=True, tag=2):
    """A log that was cut off up to ``floor``."""

    storage_id: bytes
    floor: int


class EraseItem(msgspec.Struct, array_like=True, gc=False, frozen=True, tag=3):
    """A log that was cut off up to ``floor``, with the answers of all calls remembered until then."""

    storage_id: bytes
    floor: int
    time_ms: int


Item = CommitItem | DropItem | FloorItem | EraseItem


class Batch(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """One journal row."""

    time_ms: int
    items: tuple[Item, ...]


class DamagedBlob(Exception):
    """A blob that this program did not write, or that has changed since."""


_encode = msgspec.msgpack.Encoder().encode
_BATCH = msgspec.msgpack.Decoder(Batch)
_LOG = msgspec.msgpack.Decoder(tuple[LogItem, ...])
_REQUESTS = msgspec.msgpack.Decoder(tuple[Request, ...])
_CUTS = msgspec.msgpack.Decoder(tuple[Cut, ...])


def encode_batch(time_ms: int, items: Sequence[Item]) -> bytes:
    """Returns a journal row."""
    return _frame(_encode((time_ms, items)))


def decode_batch(blob: bytes) -> Batch:
    """Returns the batch in a journal row.

    Raises:
        DamagedBlob: as for every decoder here.
    """
    return _unframe(blob, _BATCH)


def encode_log(items: Sequence[LogItem]) -> bytes:
    """Returns a stretch of a namespace's log."""
    return _frame(_encode(items))


def decode_log(blob: bytes) -> tuple[LogItem, ...]:
    """Returns a stretch of a namespace's log."""
    return _unframe(blob, _LOG)


def encode_requests(requests: Sequence[Request]) -> bytes:
    """Returns a namespace's remembered requests."""
    return _frame(_encode(requests))


def decode_requests(blob: bytes) -> tuple[Request, ...]:
    """Returns a namespace's remembered requests."""
    return _unframe(blob, _REQUESTS)


def encode_cuts(cuts: Sequence[Cut]) -> bytes:
    """Returns a namespace's cuts."""
    return _frame(_encode(cuts))


def decode_cuts(blob: bytes) -> tuple[Cut, ...]:
    """Returns a namespace's cuts."""
    return _unframe(blob, _CUTS)


def shared_never(time_ms: int) -> int:
    """Returns the one object that stands for "never", so that a million records do not hold a copy each."""
    return NEVER_MS if time_ms == NEVER_MS else time_ms


def _frame(body: bytes) -> bytes:
    return b"".join((bytes((BLOB_FORMAT,)), zlib.crc32(body).to_bytes(4, "big"), body))


def _unframe(blob: bytes, decoder: msgspec.msgpack.Decoder[T]) -> T:
    if len(blob) < _HEADER_BYTES or blob[0] != BLOB_FORMAT:
        found: Any = blob[0] if blob else "none"
        raise DamagedBlob(f"unknown blob format {found}")
    body = memoryview(blob)[_HEADER_BYTES:]
    if zlib.crc32(body) != int.from_bytes(blob[1:_HEADER_BYTES], "big"):
        raise DamagedBlob("checksum mismatch")
    try:
        return decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise DamagedBlob(str(error)) from None
