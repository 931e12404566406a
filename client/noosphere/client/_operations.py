"""Operations by name: what transactions are made of, and what single writes lower to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from noosphere.consistency import CausalContext, Refusal, Scalar, check_key
from noosphere.v1 import memory_service_pb2 as ms
from noosphere.v1 import types_pb2 as pb

from ._arguments import INT64_MAX, checked_revision, checked_text, shown
from ._errors import InvalidArgument
from ._message_shapes import MessageLike, one_message_of
from ._record import Record
from ._values import Codec, Payload, codec_for, dump_json
from ._wire import (
    from_context,
    from_payload,
    from_scalars,
    from_seconds,
    from_time,
    local_refusal,
    to_seconds,
)

Seen = Record[Any] | CausalContext
"""What a writer has seen of a key: the record that it read, or that record's context."""


@dataclass(frozen=True, slots=True)
class Compare:
    """A condition of a transaction: the key's version is this; 0 asks for a key without a live value."""

    key: str
    expected_version: int


@dataclass(frozen=True, slots=True)
class Put:
    """Writes a key. The fields are the arguments of ``Namespace.put``."""

    key: str
    value: Any
    model: Any = None
    expected_version: int | None = None
    seen: Seen | None = None
    blind: bool = False
    ttl: timedelta | float | None = None
    expires_at: datetime | None = None
    attributes: Mapping[str, Scalar] | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletes a key. The fields are the arguments of ``Namespace.delete``."""

    key: str
    expected_version: int | None = None
    seen: Seen | None = None
    blind: bool = False


@dataclass(frozen=True, slots=True)
class Increment:
    """Adds to a counter; ``by`` may be negative."""

    key: str
    by: int = 1


@dataclass(frozen=True, slots=True)
class SetUpdate:
    """Adds JSON values to a set and removes some; removal drops the adds that ``seen`` covers (None: all)."""

    key: str
    add: Iterable[Any] = ()
    remove: Iterable[Any] = ()
    seen: Seen | None = None


@dataclass(frozen=True, slots=True)
class KeepMax:
    """Keeps the larger of what is there and ``value``, a number or a text."""

    key: str
    value: float | str


@dataclass(frozen=True, slots=True)
class KeepMin:
    """Keeps the smaller of what is there and ``value``, a number or a text."""

    key: str
    value: float | str


@dataclass(frozen=True, slots=True)
class MapUpdate:
    """Sets fields of a map to JSON values and removes fields."""

    key: str
    set: Mapping[str, Any] = field(default_factory=dict)
    remove: Iterable[str] = ()


@dataclass(frozen=True, slots=True)
class LogAppend:
    """Appends JSON values to a log, which keeps the newest that fit, at most ``keep`` (0: no count)."""

    key: str
    entries: Iterable[Any]
    keep: int = 0


@dataclass(frozen=True, slots=True)
class Append:
    """Appends a message to the transcript of a session, in a commit or transaction on its namespace.

    Attributes:
        message: a :class:`Message`, or one in OpenAI's or Anthropic's shape.
    """

    message: MessageLike


MergeOperation = Increment | SetUpdate | KeepMax | KeepMin | MapUpdate | LogAppend
Operation = Put | Delete | MergeOperation | Append


def checked_key(key: str) -> str:
    """Returns ``key``.

    Raises:
        InvalidArgument: it is no key.
    """
    try:
        check_key(key)
    except Refusal as refusal:
        raise local_refusal(refusal) from None
    return key


def context_of(seen: Seen, namespace: str, key: str) -> CausalContext:
    """Returns the context to send.

    Raises:
        InvalidArgument: the record was read from another key, so it says nothing about this one; or it is
            neither a record nor a context.
    """
    if isinstance(seen, CausalContext):
        for revision in seen.revisions:
            checked_revision("seen", revision)
        return seen
    if not isinstance(seen, Record):
        raise InvalidArgument(f"seen: {shown(seen)} is neither a record nor a context")
    if (seen.namespace, seen.key) != (namespace, key):
        raise InvalidArgument(f"seen: was read from {seen.key!r} in {seen.namespace}, not from {key!r} in {namespace}")
    return seen.seen


def precondition(
    namespace: str, key: str, expected_version: int | None, seen: Seen | None, blind: bool
) -> pb.Precondition | None:
    """Returns what must hold for a write, None for an unconditional one.

    Raises:
        InvalidArgument: the conditions are malformed or contradict each other.
    """
    if blind and (expected_version is not None or seen is not None):
        raise InvalidArgument("blind: a blind write has neither expected_version nor seen")
    if expected_version is None and seen is None and not blind:
        return None
    wanted = pb.Precondition(blind=blind)
    if expected_version is not None:
        wanted.expected_version = checked_revision("expected_version", expected_version)
    if seen is not None:
        wanted.context.CopyFrom(from_context(context_of(seen, namespace, key)))
    return wanted


def lower_put(namespace: str, put: Put, codec: Codec[Any]) -> tuple[ms.PutOperation, Payload]:
    """Returns a put as sent, and its encoded value."""
    payload = codec.encode(put.value)
    operation = ms.PutOperation(
        key=checked_key(put.key),
        value=from_payload(payload),
        precondition=precondition(namespace, put.key, put.expected_version, put.seen, put.blind),
        attributes=from_scalars("attributes", put.attributes),
    )
    if put.ttl is not None and put.expires_at is not None:
        raise InvalidArgument("ttl: give ttl or expires_at, not both")
    if put.ttl is not None:
        operation.ttl.CopyFrom(from_seconds(to_seconds("ttl", put.ttl)))
    if put.expires_at is not None:
        operation.expire_time.CopyFrom(from_time("expires_at", put.expires_at))
    return operation, payload


def lower_delete(namespace: str, delete: Delete) -> ms.DeleteOperation:
    """Returns a delete as sent."""
    return ms.DeleteOperation(
        key=checked_key(delete.key),
        precondition=precondition(namespace, delete.key, delete.expected_version, delete.seen, delete.blind),
    )


def lower_merge(namespace: str, operation: MergeOperation) -> ms.MergeOperation:
    """Returns a merge operation as sent."""
    merge = ms.MergeOperation(key=checked_key(operation.key))
    match operation:
        case Increment(by=by):
            if isinstance(by, bool) or not isinstance(by, int) or not -INT64_MAX <= by <= INT64_MAX:
                raise InvalidArgument(f"by: {shown(by)} is not a 64-bit whole number")
            merge.counter_add.SetInParent()
            merge.counter_add.delta = by
        case SetUpdate(add=add, remove=remove, seen=seen):
            merge.set_update.SetInParent()
            merge.set_update.add.extend(_json("add", value) for value in _several("add", add))
            merge.set_update.remove.extend(_json("remove", value) for value in _several("remove", remove))
            if seen is not None:
                merge.set_update.context.CopyFrom(from_context(context_of(seen, namespace, operation.key)))
        case KeepMax(value=value):
            merge.max = _json("value", value)
        case KeepMin(value=value):
            merge.min = _json("value", value)
        case MapUpdate(set=fields, remove=remove):
            merge.map_update.SetInParent()
            if not isinstance(fields, Mapping):
                raise InvalidArgument(f"set: {shown(fields)} is {type(fields).__name__}, not a mapping")
            for name, value in fields.items():
                merge.map_update.set[checked_text("set", name)] = _json(f"set[{shown(name)}]", value)
            merge.map_update.remove.extend(checked_text("remove", name) for name in _several("remove", remove))
        case LogAppend(entries=entries, keep=keep):
            if isinstance(keep, bool) or not isinstance(keep, int) or not 0 <= keep < 1 << 32:
                raise InvalidArgument(f"keep: {shown(keep)} is not a number of entries")
            merge.log_append.SetInParent()
            merge.log_append.entries.extend(_json("entries", value) for value in _several("entries", entries))
            merge.log_append.entries_max = keep
    return merge


def key_of(operation: Operation) -> str:
    """Returns the key that an operation writes; of an append, whose key the server issues, an empty one."""
    return "" if isinstance(operation, Append) else operation.key


def lower(namespace: str, operation: Operation) -> tuple[ms.Operation, Codec[Any], Payload | None]:
    """Returns an operation as sent, with the codec and value that a conflict about it shows.

    Raises:
        InvalidArgument: it is none, or it is malformed.
    """
    match operation:
        case Put():
            codec: Codec[Any] = codec_for(operation.model)
            put, payload = lower_put(namespace, operation, codec)
            return ms.Operation(put=put), codec, payload
        case Delete():
            return ms.Operation(delete=lower_delete(namespace, operation)), codec_for(None), None
        case Increment() | SetUpdate() | KeepMax() | KeepMin() | MapUpdate() | LogAppend():
            return ms.Operation(merge=lower_merge(namespace, operation)), codec_for(None), None
        case Append():
            message = one_message_of(operation.message, "append")
            return ms.Operation(append=ms.AppendOperation(message=message)), codec_for(None), None
        case _:
            raise InvalidArgument(f"operations: {type(operation).__name__} is no operation")


def _several(field_name: str, values: Iterable[Any]) -> Iterable[Any]:
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise InvalidArgument(f"{field_name}: expected several values, got one {type(values).__name__}")
    return values


def _json(field_name: str, value: Any) -> str:
    return dump_json(value, field_name).decode()
