"""Protobuf ⇄ the plain types that callers see. No I/O and no decisions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from noosphere.consistency import CausalContext, Encoding, NamespacePolicy, Refusal, Scalar, VersionClock
from noosphere.consistency import ConflictPolicy as _ConflictPolicy
from noosphere.consistency.limits import TTL_MS_MAX
from noosphere.v1 import types_pb2 as pb

from ._arguments import INT64_MAX, checked_text, shown
from ._errors import InvalidArgument, ValueTooLarge
from ._values import Payload

SECONDS_MAX = TTL_MS_MAX // 1000
"""The longest span that anything lasts: 100 years."""


class Dot(NamedTuple):
    """One write, without its content.

    Attributes:
        revision: where in the namespace's log it was written.
        actor: who wrote it, as ``agent#incarnation``; empty for an expiry.
        time: store time of the write, in UTC; None if the server did not say.
        deleted: whether it is a delete or an expiry rather than a value.
    """

    revision: int
    actor: str
    time: datetime | None
    deleted: bool


def local_refusal(refusal: Refusal) -> InvalidArgument:
    """Returns the client's error for a rule that was broken before anything was sent."""
    kind = ValueTooLarge if refusal.reason == ValueTooLarge.default_reason else InvalidArgument
    return kind(refusal.message, reason=refusal.reason.value)


def to_time(stamp: Timestamp) -> datetime:
    """Returns an aware datetime in UTC."""
    return datetime.fromtimestamp(stamp.seconds, UTC) + timedelta(microseconds=stamp.nanos // 1000)


def from_time(field: str, time: datetime) -> Timestamp:
    """Returns the timestamp of an aware datetime."""
    if not isinstance(time, datetime):
        raise InvalidArgument(f"{field}: {shown(time)} is {type(time).__name__}, not a datetime")
    if time.tzinfo is None:
        raise InvalidArgument(f"{field}: {time.isoformat()} has no time zone; use an aware datetime")
    stamp = Timestamp()
    stamp.FromDatetime(time.astimezone(UTC))
    return stamp


def to_seconds(field: str, span: timedelta | float) -> float:
    """Returns a positive, finite span in seconds."""
    seconds = span.total_seconds() if isinstance(span, timedelta) else span
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise InvalidArgument(f"{field}: {shown(span)} is {type(span).__name__}, neither seconds nor a timedelta")
    if not 0 < seconds <= SECONDS_MAX:
        raise InvalidArgument(f"{field}: {shown(seconds)} is not a number of seconds above 0 and at most {SECONDS_MAX}")
    return float(seconds)


def from_seconds(seconds: float) -> Duration:
    """Returns a duration, to the millisecond and never 0 for a positive span."""
    ms = max(round(seconds * 1000), 1) if seconds > 0 else 0
    return Duration(seconds=ms // 1000, nanos=ms % 1000 * 1_000_000)


def span_seconds(span: Duration) -> float:
    """Returns a duration in seconds."""
    return float(span.seconds) + span.nanos / 1e9


def to_scalar(scalar: pb.Scalar) -> Scalar:
    """Returns the scalar's value."""
    match scalar.WhichOneof("kind"):
        case "string_value":
            return scalar.string_value
        case "int_value":
            return scalar.int_value
        case "double_value":
            return scalar.double_value
        case _:
            return scalar.bool_value


def from_scalars(field: str, scalars: Mapping[str, Scalar] | None) -> dict[str, pb.Scalar]:
    """Returns the wire form of attributes or of a filter."""
    found: dict[str, pb.Scalar] = {}
    if scalars is not None and not isinstance(scalars, Mapping):
        raise InvalidArgument(f"{field}: {shown(scalars)} is {type(scalars).__name__}, not a mapping")
    for name, value in (scalars or {}).items():
        checked_text(field, name)
        where = f"{field}[{shown(name)}]"
        if isinstance(value, bool):
            found[name] = pb.Scalar(bool_value=value)
        elif isinstance(value, int):
            if not -INT64_MAX - 1 <= value <= INT64_MAX:
                raise InvalidArgument(f"{where}: {shown(value)} does not fit 64 bits")
            found[name] = pb.Scalar(int_value=value)
        elif isinstance(value, float):
            if not math.isfinite(value):
                raise InvalidArgument(f"{where}: {value!r} is not a number to compare with")
            found[name] = pb.Scalar(double_value=value)
        elif isinstance(value, str):
            found[name] = pb.Scalar(string_value=checked_text(where, value))
        else:
            raise InvalidArgument(f"{where}: {shown(value)} is not a scalar (text, number or truth value)")
    return found


def to_payload(value: pb.Value) -> Payload:
    """Returns a stored value; an encoding from a newer server reads as bytes."""
    return Payload(value.data, Encoding.JSON if value.encoding == pb.ENCODING_JSON else Encoding.BYTES)


def from_payload(payload: Payload) -> pb.Value:
    """Returns the wire form of an encoded value."""
    json = payload.encoding is Encoding.JSON
    return pb.Value(data=payload.data, encoding=pb.ENCODING_JSON if json else pb.ENCODING_BYTES)


def to_context(context: pb.CausalContext) -> CausalContext:
    """Returns a causal context."""
    return CausalContext(context.prefix, tuple(context.extras))


def from_context(context: CausalContext) -> pb.CausalContext:
    """Returns the wire form of a causal context."""
    return pb.CausalContext(prefix=context.prefix, extras=context.extras)


def to_clock(clock: pb.VersionClock) -> VersionClock:
    """Returns a version vector."""
    return VersionClock(tuple((entry.actor, entry.revision) for entry in clock.entries), clock.base)


def to_dots(dots: Iterable[pb.DotInfo]) -> tuple[Dot, ...]:
    """Returns writes without their content."""
    return tuple(
        Dot(dot.dot, dot.actor, to_time(dot.write_time) if dot.HasField("write_time") else None, dot.deleted)
        for dot in dots
    )


def from_policy(policy: NamespacePolicy) -> pb.NamespacePolicy:
    """Returns the wire form of a namespace's rules.

    Raises:
        InvalidArgument: they are none, or one of them is out of bounds.
    """
    if not isinstance(policy, NamespacePolicy):
        raise InvalidArgument(f"policy: {shown(policy)} is {type(policy).__name__}, not a NamespacePolicy")
    try:
        policy.check()
    except Refusal as refusal:
        raise local_refusal(refusal) from None
    return pb.NamespacePolicy(
        conflict_policy=pb.ConflictPolicy.ValueType(policy.conflict_policy),
        prefix_policies=[
            pb.PrefixPolicy(prefix=prefix, conflict_policy=pb.ConflictPolicy.ValueType(override))
            for prefix, override in policy.prefix_policies
        ],
        item_bytes_max=policy.item_bytes_max,
        records_max=policy.records_max,
        tombstone_retention=from_seconds(policy.tombstone_retention_ms / 1000),
        log_age_max=from_seconds(policy.log_age_ms_max / 1000),
        log_revisions_max=policy.log_revisions_max,
        log_bytes_max=policy.log_bytes_max,
    )


def to_policy(policy: pb.NamespacePolicy) -> NamespacePolicy:
    """Returns a namespace's rules; what the server leaves out has its default."""
    default = NamespacePolicy()
    retention = policy.tombstone_retention if policy.HasField("tombstone_retention") else None
    age = policy.log_age_max if policy.HasField("log_age_max") else None
    return NamespacePolicy(
        conflict_policy=_ConflictPolicy(policy.conflict_policy) if policy.conflict_policy else default.conflict_policy,
        prefix_policies=tuple((p.prefix, _ConflictPolicy(p.conflict_policy)) for p in policy.prefix_policies),
        item_bytes_max=policy.item_bytes_max or default.item_bytes_max,
        records_max=policy.records_max or default.records_max,
        tombstone_retention_ms=default.tombstone_retention_ms if retention is None else retention.ToMilliseconds(),
        log_age_ms_max=default.log_age_ms_max if age is None else age.ToMilliseconds(),
        log_revisions_max=policy.log_revisions_max or default.log_revisions_max,
        log_bytes_max=policy.log_bytes_max or default.log_bytes_max,
    )
