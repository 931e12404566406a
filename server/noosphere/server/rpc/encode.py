"""Domain values to proto messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from noosphere.consistency import (
    NEVER_MS,
    CausalContext,
    Claim,
    Dot,
    MergeType,
    NamePattern,
    NamespacePolicy,
    ReadSet,
    Record,
    Scalar,
    Sibling,
    StaleEntry,
    VersionClock,
    encode_causal,
    encode_read_set,
    merge,
)
from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1 import types_pb2

from ..memory.types import AppliedOp, BatchView, Call, RecordView
from .errors import dot_message, stale_message
from .times import duration, timestamp


def context(value: CausalContext) -> types_pb2.CausalContext:
    """Returns a causal context."""
    return types_pb2.CausalContext(prefix=value.prefix, extras=value.extras)


def scalar(value: Scalar) -> types_pb2.Scalar:
    """Returns a scalar; bool before int, because Python's bool is one."""
    if isinstance(value, bool):
        return types_pb2.Scalar(bool_value=value)
    if isinstance(value, str):
        return types_pb2.Scalar(string_value=value)
    if isinstance(value, int):
        return types_pb2.Scalar(int_value=value)
    return types_pb2.Scalar(double_value=value)


def clock(value: VersionClock) -> types_pb2.VersionClock:
    """Returns a version vector."""
    return types_pb2.VersionClock(
        base=value.base,
        entries=[types_pb2.ClockEntry(actor=actor, revision=revision) for actor, revision in value.entries],
    )


def claim(value: Claim) -> types_pb2.Claim:
    """Returns a claim."""
    message = types_pb2.Claim(
        holder=value.holder,
        fence=value.fence,
        done=value.done,
        completed_by=value.completed_by,
        attempts=value.attempts,
    )
    if value.holder:
        message.expire_time.CopyFrom(timestamp(value.expires_at_ms))
    if value.result is not None:
        message.result.data = value.result
        message.result.encoding = value.result_encoding.value  # type: ignore[assignment] # the numbers are the same
    return message


def record(view: RecordView, *, keys_only: bool = False) -> types_pb2.Record:
    """Returns a record as of its view; it may be shared, so nobody changes it."""
    stored, now_ms = view.record, view.now_ms
    if stored is None:
        return types_pb2.Record(key=view.key, context=types_pb2.CausalContext(prefix=view.head))
    if keys_only or not _looks_the_same(stored):
        return _record(stored, view, now_ms, keys_only)
    # The decoder hands out the same object for what is read again and again.
    kept = _shown.get(id(stored))
    if kept is not None and kept[0] is stored and kept[1].key == view.key:
        return kept[1]
    message = _record(stored, view, now_ms, keys_only)
    _shown[id(stored)] = stored, message
    if len(_shown) > _SHOWN_MAX:
        del _shown[next(iter(_shown))]
    return message


_SHOWN_MAX = 4096
_SHOWN_BYTES_MAX = 2048
_shown: dict[int, tuple[Record, types_pb2.Record]] = {}
"""Messages of small records, with the records themselves, so that no other object can have the same id."""


def forget_shown() -> None:
    """Forgets what was kept of records that were shown."""
    _shown.clear()


def _looks_the_same(stored: Record) -> bool:
    """Tells whether a record is shown in the same way until it is written again: one plain value without an end."""
    if stored.claim is not None or len(stored.siblings) != 1:
        return False
    sibling = stored.siblings[0]
    # A tombstone is shown with the head at which it was read.
    return sibling.data is not None and sibling.expires_at_ms == NEVER_MS and len(sibling.data) <= _SHOWN_BYTES_MAX


def _record(stored: Record, view: RecordView, now_ms: int, keys_only: bool) -> types_pb2.Record:
    live = stored.live(now_ms)
    if not live:
        return types_pb2.Record(
            key=view.key,
            context=types_pb2.CausalContext(prefix=view.head),
            clock=clock(stored.clock),
            change_count=stored.change_count,
        )
    # One constructor call: setting the fields one by one takes twice as long, and every read pays it.
    message = types_pb2.Record(
        key=view.key,
        version=stored.stored,
        context=types_pb2.CausalContext(prefix=stored.stored),
        values=[_live_value(sibling, stored.merge_type, keys_only) for sibling in live],
        clock=clock(stored.clock),
        merge_type=stored.merge_type.value,  # type: ignore[arg-type] # the numbers are the same
        create_time=timestamp(stored.created_ms),
        change_count=stored.change_count,
    )
    for name, value in stored.attributes:
        message.attributes[name].CopyFrom(scalar(value))
    if stored.claim is not None:
        message.claim.CopyFrom(claim(stored.claim))
    return message


def _live_value(sibling: Sibling, merge_type: MergeType, keys_only: bool) -> types_pb2.LiveValue:
    expire_time = None if sibling.expires_at_ms == NEVER_MS else timestamp(sibling.expires_at_ms)
    data = sibling.data
    if keys_only or data is None:
        shown = None
    else:
        shown = types_pb2.Value(
            data=data if merge_type is MergeType.NONE else merge.render(merge_type, data),
            encoding=sibling.encoding.value,  # type: ignore[arg-type] # the numbers are the same
        )
    return types_pb2.LiveValue(
        dot=sibling.dot,
        actor=sibling.actor,
        write_time=timestamp(sibling.time_ms),
        expire_time=expire_time,
        value=shown,
    )


def dots(values: Iterable[Dot]) -> list[types_pb2.DotInfo]:
    """Returns dots without content."""
    return [dot_message(dot) for dot in values]


def applied(op: AppliedOp, revision: int, replayed: bool) -> types_pb2.Applied:
    """Returns what one operation did."""
    message = types_pb2.Applied(
        revision=revision,
        version=op.version,
        context=context(op.context),
        concurrent_delete=op.concurrent_delete,
        trimmed=op.trimmed,
        replayed=replayed,
    )
    if op.overwritten:
        message.overwritten.extend(dots(op.overwritten))
    if op.merged is not None:
        message.merged.data = op.merged
        message.merged.encoding = types_pb2.ENCODING_JSON
    return message


def batch(view: BatchView) -> pb.ChangeBatch:
    """Returns the changes of one revision."""
    message = pb.ChangeBatch(revision=view.revision, commit_time=timestamp(view.time_ms))
    for change in view.changes:
        shown = message.changes.add(
            key=change.key,
            kind=change.event.kind.value,
            actor=change.event.actor,
        )
        if change.record is not None:
            shown.record.CopyFrom(record(change.record))
        if change.event.overwritten:
            shown.overwritten.extend(dots(change.event.overwritten))
    return message


def call_reply(
    call: Call, namespace: str, head: int, read_set: ReadSet | None = None, overruled: Iterable[StaleEntry] = ()
) -> types_pb2.CallReply | None:
    """Returns the tokens that go with a reply, None if the caller presented and asked for none.

    A read set that the call has neither extended nor advanced is returned as it was presented.
    """
    return heads_reply(call, {namespace: head}, read_set, overruled)


def heads_reply(
    call: Call, heads: Mapping[str, int], read_set: ReadSet | None = None, overruled: Iterable[StaleEntry] = ()
) -> types_pb2.CallReply | None:
    """Returns the tokens that go with a reply about several namespaces, each seen at its revision."""
    tokens = call.tokens
    if tokens is None:
        return None
    if read_set is None:
        read_set = tokens.read_set
    causal = tokens.causal
    for namespace, head in heads.items():
        causal = causal.seen(namespace, head)
    return types_pb2.CallReply(
        causal_token=encode_causal(causal) if tokens.want_causal else b"",
        read_set_token=b"" if read_set is None else encode_read_set(read_set),
        stale=map(stale_message, overruled),
    )


def policy(value: NamespacePolicy) -> types_pb2.NamespacePolicy:
    """Returns a namespace's rules, every field filled in."""
    return types_pb2.NamespacePolicy(
        conflict_policy=value.conflict_policy.value,  # type: ignore[arg-type] # the numbers are the same
        prefix_policies=[
            types_pb2.PrefixPolicy(prefix=prefix, conflict_policy=override.value)  # type: ignore[arg-type] # same
            for prefix, override in value.prefix_policies
        ],
        item_bytes_max=value.item_bytes_max,
        records_max=value.records_max,
        tombstone_retention=duration(value.tombstone_retention_ms),
        log_age_max=duration(value.log_age_ms_max),
        log_revisions_max=value.log_revisions_max,
        log_bytes_max=value.log_bytes_max,
    )


def pattern(value: NamePattern) -> types_pb2.NamePattern:
    """Returns a name pattern."""
    if value.exact:
        return types_pb2.NamePattern(exact=value.text)
    return types_pb2.NamePattern(prefix=value.text)
