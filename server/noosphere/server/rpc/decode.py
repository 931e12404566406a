"""Proto messages to domain values. Malformed fields are refused here, by name."""

from __future__ import annotations

import contextlib
import math
import uuid
from collections.abc import Iterable, Mapping
from functools import lru_cache

import msgspec

from noosphere.consistency import (
    EVERYTHING,
    REVISION_MAX,
    CausalContext,
    ConflictPolicy,
    DeleteAll,
    Encoding,
    Guard,
    KeepDot,
    NamePattern,
    NamespacePolicy,
    Precondition,
    Put,
    RequestRef,
    Resolution,
    Scalar,
    actor_name,
    check_agent_id,
    check_guards,
    decode_causal,
    decode_read_set,
    invalid,
    merge,
    merge_tokens,
    too_large,
)
from noosphere.consistency.limits import (
    ATTRIBUTE_NAME_BYTES_MAX,
    ATTRIBUTE_VALUE_BYTES_MAX,
    ATTRIBUTES_MAX,
    CAUSAL_TOKENS_MAX,
    JSON_DEPTH_MAX,
    SEQUENCE_MAX,
    TTL_MS_MAX,
)
from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1 import types_pb2

from ..memory.types import AppendOp, Call, Compare, DeleteOp, MergeOperation, Operation, PutOp, Tokens
from ..ports.coordinator import Incarnation
from ..ports.store import Fence
from ..security import calling
from ..security.permissions import require_acting, require_lock
from ..sessions.appending import message_bytes
from .message_shapes import message as transcript_message
from .times import duration_ms, timestamp_ms

_GUARD_MODES = frozenset(types_pb2.GuardMode.values())
_ENCODINGS: Mapping[int, Encoding] = {
    types_pb2.ENCODING_JSON: Encoding.JSON,
    types_pb2.ENCODING_BYTES: Encoding.BYTES,
}


def incarnation(actor: types_pb2.Actor, field: str = "actor") -> Incarnation:
    """Returns an incarnation.

    Raises:
        Refusal: INVALID_FIELD or VALUE_TOO_LARGE; PERMISSION_DENIED, if the caller may not act as the agent.
    """
    found = _incarnation(actor.agent_id, actor.incarnation, field)
    require_acting(found.agent_id)
    return found


# The same few agents send every call.
@lru_cache(maxsize=4096)
def _incarnation(agent_id: str, number: int, field: str) -> Incarnation:
    check_agent_id(agent_id, f"{field}.agent_id")
    if not 0 < number <= REVISION_MAX:
        raise invalid(f"{field}.incarnation", f"{number} is not a number that OpenAgent returned")
    return Incarnation(agent_id, number)


def call(message: types_pb2.CallContext) -> Call:
    """Returns who calls.

    Raises:
        Refusal: INVALID_FIELD or VALUE_TOO_LARGE; PERMISSION_DENIED, if the caller may not act as the agent, or may not
            take a lock whose fence it presents.
    """
    who = incarnation(message.actor, "call.actor") if message.HasField("actor") else None
    request = _request(message.request_id, who) if message.HasField("request_id") else None
    fences: tuple[Fence, ...] = ()
    if message.fences:
        for fence in message.fences:
            if fence.token > REVISION_MAX:
                raise invalid("call.fences.token", f"{fence.token} is not a fencing token")
            # Whoever presents a number keeps out all that hold the lock under a lower one.
            require_lock(fence.lock, message.actor.agent_id)
        fences = tuple(Fence(fence.lock, fence.token) for fence in message.fences)
    return Call(who, request, fences, _tokens(message), message.actor.fleet, calling.get())


def _tokens(message: types_pb2.CallContext) -> Tokens | None:
    causal, presented = message.causal_tokens, message.read_set_token
    if not presented and (message.guards or message.guard_mode or message.allow_checked):
        raise invalid("call.guards", "need call.read_set_token, of which they are a part")
    if not (causal or presented or message.record_read_set or message.return_causal_token):
        return None
    if len(causal) > CAUSAL_TOKENS_MAX:
        raise too_large("call.causal_tokens", len(causal), CAUSAL_TOKENS_MAX, "tokens")
    if message.guard_mode not in _GUARD_MODES:
        raise invalid("call.guard_mode", f"{message.guard_mode} is not a guard mode")
    guards = tuple(Guard(guard.prefix, guard.namespace) for guard in message.guards)
    check_guards(guards)
    tokens = tuple(decode_causal(token, "call.causal_tokens") for token in causal)
    return Tokens(
        causal=merge_tokens(tokens),
        presented=tokens,
        read_set=decode_read_set(presented, "call.read_set_token") if presented else None,
        guards=guards or EVERYTHING,
        warn=message.guard_mode == types_pb2.GUARD_MODE_WARN,
        allow_checked=message.allow_checked,
        record=message.record_read_set,
        want_causal=bool(causal) or message.return_causal_token,
    )


def _request(message: types_pb2.RequestId, who: Incarnation | None) -> RequestRef:
    if message.WhichOneof("id") == "sequence":
        if who is None:
            raise invalid("call.request_id.sequence", "needs call.actor, whose sequence it is")
        sequence = message.sequence
        if not 0 < sequence.sequence <= SEQUENCE_MAX:
            raise invalid(
                "call.request_id.sequence.sequence", f"{sequence.sequence} is not between 1 and {SEQUENCE_MAX}"
            )
        if sequence.answered_through >= sequence.sequence:
            raise invalid(
                "call.request_id.sequence.answered_through",
                f"{sequence.answered_through} is not below this call's sequence {sequence.sequence}",
            )
        return RequestRef(actor_name(*who), sequence.sequence, sequence.answered_through)
    return RequestRef(uuid=uuid_text("call.request_id.uuid", message.uuid))


def uuid_text(field: str, text: str) -> str:
    """Returns a UUID in its usual form.

    Raises:
        Refusal: INVALID_FIELD.
    """
    try:
        return str(uuid.UUID(text))
    except ValueError:
        raise invalid(field, f"{text[:64]!r} is not a UUID") from None


def context(message: types_pb2.CausalContext) -> CausalContext:
    """Returns a causal context; its bounds are checked with the operation that it belongs to."""
    return CausalContext(message.prefix, tuple(message.extras))


def precondition(message: types_pb2.Precondition) -> Precondition:
    """Returns what must hold."""
    return Precondition(
        message.expected_version if message.HasField("expected_version") else None,
        context(message.context) if message.HasField("context") else None,
        message.blind,
    )


def scalars(field: str, message: Mapping[str, types_pb2.Scalar]) -> tuple[tuple[str, Scalar], ...]:
    """Returns attributes or a filter, by name.

    Raises:
        Refusal: INVALID_FIELD or VALUE_TOO_LARGE.
    """
    if not message:
        return ()
    if len(message) > ATTRIBUTES_MAX:
        raise too_large(field, len(message), ATTRIBUTES_MAX, "entries")
    return tuple(sorted((name, _scalar(field, name, message[name])) for name in message))


def _scalar(field: str, name: str, message: types_pb2.Scalar) -> Scalar:
    if not name or len(name.encode()) > ATTRIBUTE_NAME_BYTES_MAX:
        raise too_large(f"{field} name", len(name.encode()), ATTRIBUTE_NAME_BYTES_MAX)
    match message.WhichOneof("kind"):
        case "string_value":
            if (size := len(message.string_value.encode())) > ATTRIBUTE_VALUE_BYTES_MAX:
                raise too_large(f"{field}[{name!r}]", size, ATTRIBUTE_VALUE_BYTES_MAX)
            return message.string_value
        case "int_value":
            return message.int_value
        case "double_value":
            if not math.isfinite(message.double_value):
                raise invalid(f"{field}[{name!r}]", f"{message.double_value} is not a finite number")
            return message.double_value
        case "bool_value":
            return message.bool_value
        case _:
            raise invalid(f"{field}[{name!r}]", "has no value")


def value(field: str, message: types_pb2.Value) -> tuple[bytes, Encoding]:
    """Returns a value's bytes; JSON is checked to parse.

    Raises:
        Refusal: INVALID_FIELD.
    """
    found = encoding(field, message)
    data = message.data
    if found is Encoding.JSON:
        _check_json(f"{field}.data", data)
    return data, found


def encoding(field: str, message: types_pb2.Value) -> Encoding:
    """Returns how a value is to be read.

    Raises:
        Refusal: INVALID_FIELD.
    """
    found = _ENCODINGS.get(message.encoding)
    if found is None:
        raise invalid(f"{field}.encoding", f"{message.encoding} is not JSON (1) or BYTES (2)")
    return found


def bounded(field: str, data: bytes, limit: int) -> bytes:
    """Returns bytes that are no more than a limit.

    Raises:
        Refusal: VALUE_TOO_LARGE.
    """
    if len(data) > limit:
        raise too_large(field, len(data), limit)
    return data


def _check_json(field: str, data: bytes) -> None:
    # msgspec accepts the same texts in a tenth of the time, except that it lets them nest deeper.
    if data.count(b"[") + data.count(b"{") <= JSON_DEPTH_MAX:
        with contextlib.suppress(msgspec.DecodeError):
            msgspec.json.decode(data)
            return
    merge.parse_json(field, data)


def put(message: pb.PutOperation) -> PutOp:
    """Returns a put.

    Raises:
        Refusal: INVALID_FIELD or VALUE_TOO_LARGE.
    """
    data, encoding = value("put.value", message.value)
    ttl_ms = expires_at_ms = None
    match message.WhichOneof("expiry"):
        case "ttl":
            ttl_ms = duration_ms("put.ttl", message.ttl)
            if not 0 < ttl_ms <= TTL_MS_MAX:
                raise invalid("put.ttl", f"{ttl_ms} ms is not between 1 and {TTL_MS_MAX} ms")
        case "expire_time":
            expires_at_ms = timestamp_ms("put.expire_time", message.expire_time)
        case _:
            pass
    return PutOp(
        message.key,
        Put(
            data,
            encoding,
            scalars("put.attributes", message.attributes),
            ttl_ms,
            expires_at_ms,
            precondition(message.precondition),
        ),
    )


def delete(message: pb.DeleteOperation) -> DeleteOp:
    """Returns a delete."""
    return DeleteOp(message.key, precondition(message.precondition))


def merge_operation(message: pb.MergeOperation) -> MergeOperation:
    """Returns a merge operation.

    Raises:
        Refusal: INVALID_FIELD.
    """
    op: merge.MergeOp
    match message.WhichOneof("operation"):
        case "counter_add":
            op = merge.CounterAdd(message.counter_add.delta)
        case "set_update":
            update = message.set_update
            seen = context(update.context) if update.HasField("context") else None
            if seen is not None:
                seen.check("merge.set_update.context")
            op = merge.SetUpdate(tuple(update.add), tuple(update.remove), seen)
        case "max":
            op = merge.Extreme(message.max, largest=True)
        case "min":
            op = merge.Extreme(message.min, largest=False)
        case "map_update":
            fields = message.map_update.set
            op = merge.MapUpdate({name: fields[name] for name in sorted(fields)}, tuple(message.map_update.remove))
        case "log_append":
            op = merge.LogAppend(tuple(message.log_append.entries), message.log_append.entries_max)
        case _:
            raise invalid("merge.operation", "is required")
    return MergeOperation(message.key, op)


def operations(messages: Iterable[pb.Operation]) -> tuple[Operation, ...]:
    """Returns the operations of a transaction.

    Raises:
        Refusal: INVALID_FIELD or VALUE_TOO_LARGE.
    """
    ops: list[Operation] = []
    for index, message in enumerate(messages):
        match message.WhichOneof("kind"):
            case "put":
                ops.append(put(message.put))
            case "delete":
                ops.append(delete(message.delete))
            case "merge":
                ops.append(merge_operation(message.merge))
            case "append":
                appended = transcript_message(message.append.message, f"operations[{index}].append.message")
                ops.append(AppendOp(appended, message_bytes(appended)))
            case _:
                raise invalid(f"operations[{index}]", "has no operation")
    return tuple(ops)


def resolution(message: pb.ResolveConflictRequest) -> Resolution:
    """Returns how a conflict is to be resolved.

    Raises:
        Refusal: INVALID_FIELD.
    """
    match message.WhichOneof("resolution"):
        case "value":
            data, encoding = value("value", message.value)
            return Put(data, encoding)
        case "keep_dot":
            return KeepDot(message.keep_dot)
        case "delete" if message.delete:
            return DeleteAll()
        case _:
            raise invalid("resolution", "must be a value, a dot to keep, or delete")


def compares(messages: Iterable[pb.Compare]) -> tuple[Compare, ...]:
    """Returns the conditions of a transaction."""
    return tuple(Compare(message.key, message.expected_version) for message in messages)


def conflict_policy(field: str, number: int) -> ConflictPolicy:
    """Returns a policy; UNSPECIFIED means REJECT.

    Raises:
        Refusal: INVALID_FIELD for an unknown one.
    """
    if number == types_pb2.CONFLICT_POLICY_UNSPECIFIED:
        return ConflictPolicy.REJECT
    try:
        return ConflictPolicy(number)
    except ValueError:
        raise invalid(field, f"{number} is not a conflict policy") from None


def policy(message: types_pb2.NamespacePolicy) -> NamespacePolicy:
    """Returns a namespace's rules; what is not given gets its default.

    Raises:
        Refusal: INVALID_FIELD.
    """
    default = NamespacePolicy()
    retention_ms, age_ms = default.tombstone_retention_ms, default.log_age_ms_max
    if message.HasField("tombstone_retention"):
        retention_ms = duration_ms("policy.tombstone_retention", message.tombstone_retention)
    if message.HasField("log_age_max"):
        age_ms = duration_ms("policy.log_age_max", message.log_age_max)
    return NamespacePolicy(
        conflict_policy("policy.conflict_policy", message.conflict_policy),
        tuple(
            (entry.prefix, conflict_policy("policy.prefix_policies.conflict_policy", entry.conflict_policy))
            for entry in message.prefix_policies
        ),
        message.item_bytes_max or default.item_bytes_max,
        message.records_max or default.records_max,
        retention_ms,
        age_ms,
        message.log_revisions_max or default.log_revisions_max,
        message.log_bytes_max or default.log_bytes_max,
    )


def pattern(message: types_pb2.NamePattern) -> NamePattern:
    """Returns a name pattern.

    Raises:
        Refusal: INVALID_FIELD.
    """
    match message.WhichOneof("kind"):
        case "exact":
            return NamePattern(message.exact, True)
        case "prefix":
            return NamePattern(message.prefix, False)
        case _:
            raise invalid("pattern", "must be exact or prefix")
