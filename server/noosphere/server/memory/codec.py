"""How records and log events become bytes.

Records are msgpack arrays behind one format byte. Inside them revision 0 means "the revision of the
commit that wrote me", because a store assigns it only while committing; decoding puts it in.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from noosphere.consistency import (
    ChangeKind,
    Claim,
    Dot,
    Encoding,
    Event,
    MergeType,
    Record,
    Scalar,
    Sibling,
    VersionClock,
)
from noosphere.consistency.merge import state_at

from ..ports.store import StoredEntry

FORMAT = 1
_FORMAT_BYTE = bytes((FORMAT,))


class CorruptRecord(Exception):
    """Stored bytes that this version cannot read."""


class _Claim(msgspec.Struct, array_like=True, frozen=True, gc=False):
    holder: str
    expires_at_ms: int
    fence: int
    attempts: int
    done: bool
    completed_by: str
    result: bytes | None
    result_encoding: Encoding


class _Record(msgspec.Struct, array_like=True, frozen=True, gc=False):
    siblings: tuple[Sibling, ...]
    clock: tuple[tuple[str, int], ...]
    clock_base: int
    created_ms: int
    change_count: int
    attributes: tuple[tuple[str, Scalar], ...]
    merge_type: MergeType
    claim: _Claim | None
    deleted_ms: int
    queued: tuple[int, int] | None = None


class _Event(msgspec.Struct, array_like=True, frozen=True, gc=False):
    kind: ChangeKind
    actor: str
    overwritten: tuple[Dot, ...]


_encoder = msgspec.msgpack.Encoder()
_record_decoder = msgspec.msgpack.Decoder(_Record)
_events_decoder = msgspec.msgpack.Decoder(tuple[_Event, ...])


def encode_record(record: Record) -> bytes:
    """Returns the stored form; ``record.stored`` is left out, the store knows it."""
    claim = record.claim
    return _FORMAT_BYTE + _encoder.encode(
        _Record(
            record.siblings,
            record.clock.entries,
            record.clock.base,
            record.created_ms,
            record.change_count,
            record.attributes,
            record.merge_type,
            None
            if claim is None
            else _Claim(
                claim.holder,
                claim.expires_at_ms,
                claim.fence,
                claim.attempts,
                claim.done,
                claim.completed_by,
                claim.result,
                claim.result_encoding,
            ),
            record.deleted_ms,
            record.queued,
        )
    )


def decode_record(data: bytes, revision: int) -> Record:
    """Returns the record that the commit at ``revision`` wrote; the same object for what is read again and again.

    Raises:
        CorruptRecord: damaged bytes or a newer format.
    """
    return _decode_small(data, revision) if len(data) <= _SMALL_BYTES_MAX else _decode(data, revision)


def _decode(data: bytes, revision: int) -> Record:
    if data[:1] != _FORMAT_BYTE:
        raise CorruptRecord(f"record format {data[:1].hex()}, this version reads {FORMAT}")
    try:
        raw = _record_decoder.decode(memoryview(data)[1:])
    except msgspec.MsgspecError as error:
        raise CorruptRecord(str(error)) from error
    siblings = raw.siblings
    if any(s.dot == 0 for s in siblings):
        siblings = tuple(Sibling(revision, *s[1:]) if s.dot == 0 else s for s in siblings)
    if raw.merge_type is MergeType.SET:
        siblings = tuple(
            s if s.data is None else s._replace(data=state_at(MergeType.SET, s.data, revision)) for s in siblings
        )
    claim = None
    if raw.claim is not None:
        c = raw.claim
        claim = Claim(
            c.holder,
            c.expires_at_ms,
            c.fence or revision,
            c.attempts,
            c.done,
            c.completed_by,
            c.result,
            c.result_encoding,
        )
    return Record(
        revision,
        siblings,
        VersionClock(raw.clock, raw.clock_base).at(revision),
        raw.created_ms,
        raw.change_count,
        raw.attributes,
        raw.merge_type,
        claim,
        raw.deleted_ms,
        raw.queued if raw.queued is None else (raw.queued[0] or revision, raw.queued[1]),
    )


_SMALL_BYTES_MAX = 2048
# Records are immutable and the store keeps one bytes object for each, whose hash is computed once. At most
# about 20 MiB; larger records are rarer, and their decoding costs less beside the rest of what they cost.
_decode_small = lru_cache(maxsize=4096)(_decode)


def forget_decoded() -> None:
    """Forgets what was kept of decoded records."""
    _decode_small.cache_clear()


def decode_entry(entry: StoredEntry | None) -> Record | None:
    """Returns a stored entry's record, None for None."""
    return None if entry is None else decode_record(entry.data, entry.revision)


def encode_events(events: tuple[Event, ...]) -> bytes:
    """Returns the stored form of a key's part in a log batch; empty for no events."""
    if not events:
        return b""
    return _FORMAT_BYTE + _encoder.encode(events)


def decode_events(data: bytes) -> tuple[Event, ...]:
    """Returns a key's events in a log batch.

    Raises:
        CorruptRecord: damaged bytes or a newer format.
    """
    if data[:1] != _FORMAT_BYTE:
        raise CorruptRecord(f"event format {data[:1].hex()}, this version reads {FORMAT}")
    try:
        return tuple(Event(e.kind, e.actor, e.overwritten) for e in _events_decoder.decode(memoryview(data)[1:]))
    except msgspec.MsgspecError as error:
        raise CorruptRecord(str(error)) from error
