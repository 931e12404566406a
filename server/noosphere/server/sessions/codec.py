"""How the records of sessions become bytes: JSON objects, so that anybody can read them through MemoryService.

Unknown fields are ignored and missing ones have defaults, so that records outlive versions. What the record's
envelope holds (revision, writer, time) is put in by the decoder and stored only once.
"""

from __future__ import annotations

import struct
from typing import TypeVar

import msgspec

from noosphere.consistency import Record, Scalar, split_actor

from ..ports.store import StoredEntry
from .types import KeyChange, Lateness, Message, Part, Role, SessionInfo, SessionMeta, ToolUse, Turns

ROLE_ATTRIBUTE = "role"
AUTHOR_ATTRIBUTE = "author"
TURN_ATTRIBUTE = "turn"

_INDEX_BYTES = 2
_PLACE = struct.Struct(">QH")
_PLACES_MAX = 32

T = TypeVar("T")


class _Part(msgspec.Struct, frozen=True, omit_defaults=True):
    text: str = ""
    media_type: str = ""
    data: bytes = b""


class _ToolUse(msgspec.Struct, frozen=True):
    call_id: str
    name: str
    arguments: str


class _KeyChange(msgspec.Struct, frozen=True, omit_defaults=True):
    key: str
    actor: str = ""
    gone: bool = False


class _Lateness(msgspec.Struct, frozen=True, omit_defaults=True):
    changes: tuple[_KeyChange, ...] = ()
    overdue: bool = False


class _Message(msgspec.Struct, frozen=True, omit_defaults=True):
    role: Role
    id: str = ""
    parts: tuple[_Part, ...] = ()
    tool_calls: tuple[_ToolUse, ...] = ()
    tool_call_id: str = ""
    name: str = ""
    author: str = ""
    turn: int = 0
    time_ms: int = 0
    tokens: int = 0
    retracted: bool = False
    lateness: _Lateness | None = None


_encoder = msgspec.json.Encoder()
_messages = msgspec.json.Decoder(_Message)
_infos = msgspec.json.Decoder(SessionInfo)
_metas = msgspec.json.Decoder(SessionMeta)
_turns = msgspec.json.Decoder(Turns)


def encode(value: msgspec.Struct) -> bytes:
    """Returns a record's JSON."""
    return _encoder.encode(value)


def value_of(record: Record) -> bytes:
    """Returns the one value of a live record that the services of sessions keep."""
    data = record.siblings[-1].data
    assert data is not None, "a tombstone has no value"
    return data


def decode_info(record: Record) -> SessionInfo:
    """Returns what ``_session/info`` holds."""
    return _infos.decode(value_of(record))


def decode_meta(record: Record | None) -> SessionMeta:
    """Returns what ``_session/meta`` holds; nothing if it is absent."""
    return SessionMeta() if record is None else _metas.decode(value_of(record))


def decode_turns(record: Record | None) -> Turns:
    """Returns what ``_session/turns`` holds; nothing if it is absent."""
    return Turns() if record is None else _turns.decode(value_of(record))


def encode_message(message: Message) -> bytes:
    """Returns a message's JSON; its key is the record's."""
    return _encoder.encode(
        _Message(
            message.role,
            message.id,
            tuple(_Part(*part) for part in message.parts),
            tuple(_ToolUse(*use) for use in message.tool_calls),
            message.tool_call_id,
            message.name,
            message.author,
            message.turn,
            message.time_ms,
            message.tokens,
            message.retracted,
            None if message.lateness is None else _to_lateness(message.lateness),
        )
    )


def _to_lateness(lateness: Lateness) -> _Lateness:
    return _Lateness(tuple(_KeyChange(*change) for change in lateness.changes), lateness.overdue)


def _from_lateness(raw: _Lateness) -> Lateness:
    changes = (KeyChange(change.key, change.actor, change.gone) for change in raw.changes)
    return Lateness(tuple(changes), raw.overdue)


def decode_message(key: str, record: Record) -> Message:
    """Returns the message at ``key``. One without an id of its own is called by its slot, the end of its key."""
    raw = _messages.decode(value_of(record))
    return Message(
        raw.id or key.rpartition("/")[2],
        raw.role,
        tuple(Part(part.text, part.media_type, part.data) for part in raw.parts),
        tuple(ToolUse(use.call_id, use.name, use.arguments) for use in raw.tool_calls),
        raw.tool_call_id,
        raw.name,
        raw.author,
        raw.turn,
        raw.time_ms,
        raw.tokens,
        key,
        raw.retracted,
        None if raw.lateness is None else _from_lateness(raw.lateness),
    )


def message_attributes(message: Message) -> tuple[tuple[str, Scalar], ...]:
    """Returns what a list of messages can be filtered by."""
    return (
        (AUTHOR_ATTRIBUTE, message.author),
        (ROLE_ATTRIBUTE, message.role.value),
        (TURN_ATTRIBUTE, message.turn),
    )


def author_of(record: Record) -> str:
    """Returns the agent that wrote a record last."""
    actor = record.siblings[-1].actor
    return split_actor(actor)[0] if actor else ""


def encode_index(index: int) -> bytes:
    """Returns what an id's record holds: which mutation of its commit made the record."""
    return index.to_bytes(_INDEX_BYTES, "big")


def encode_places(index: int, before: StoredEntry | None) -> bytes:
    """Returns what an id's record holds: its newest place, and where it was used before, as far as there is room.

    Args:
        index: which mutation of the present commit makes the record.
        before: the id's record so far, None if it was never used.
    """
    earlier = () if before is None else decode_places(before)[: _PLACES_MAX - 1]
    return encode_index(index) + b"".join(_PLACE.pack(*place) for place in earlier)


def decode_places(entry: StoredEntry) -> tuple[tuple[int, int], ...]:
    """Returns revision and index of each record that an id has named, the newest first."""
    return ((entry.revision, decode_index(entry.data)), *_PLACE.iter_unpack(entry.data[_INDEX_BYTES:]))


def decode_index(data: bytes) -> int:
    """Returns which mutation of its commit made an id's record."""
    return int.from_bytes(data[:_INDEX_BYTES], "big")
