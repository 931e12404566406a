"""Between the model's words and the API's messages, so that a real server can be asked what the model is asked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from google.protobuf.timestamp_pb2 import Timestamp
from tests.simulation.calls import (
    Add,
    Append,
    Attributes,
    Call,
    Caller,
    Claim,
    Complete,
    Condition,
    Delete,
    Extreme,
    Fields,
    Merge,
    Put,
    Release,
    Renew,
    Reply,
    Request,
    Resolve,
    Seen,
    Shown,
    Task,
    Update,
    View,
)
from tests.simulation.model_readsets import Part, ReadSet, Sight, Stale
from tests.support.api import JSON, Api, scalars, span
from tests.support.statuses import Refused, check_contract

from noosphere import consistency
from noosphere.consistency import (
    NEVER_MS,
    CollectionSeen,
    KeySeen,
    NamespaceSeen,
    StampMode,
    decode_read_set,
    encode_read_set,
)
from noosphere.v1 import errors_pb2
from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1 import types_pb2 as types


class Answer(NamedTuple):
    """An answer in the model's words, with what only the real server has.

    Attributes:
        reply: the answer; its ``seen_now`` is left to ``token``.
        head: the head that it carries.
        record: the record, if the answer brings one.
        token: the read-set token.
    """

    reply: Reply
    head: int
    record: types.Record | None = None
    token: bytes = b""


async def do(api: Api, space: str, caller: Caller, call: Call) -> Answer:
    """Makes a call."""
    try:
        response, reply = await _do(api, space, context_of(caller), call)
    except Refused as refused:
        check_contract(refused)
        return Answer(of_refusal(refused), refused.head)
    told: types.CallReply = response.call
    worked = not hasattr(response, "applied") and response.HasField("record")
    reply = reply._replace(stale=of_stale(told.stale))
    return Answer(reply, response.head, response.record if worked else None, told.read_set_token)


async def _do(api: Api, space: str, who: types.CallContext, call: Call) -> tuple[Any, Reply]:
    response: Any
    match call:
        case Put():
            response = await api.put(pb.PutRequest(namespace=space, put=put_of(call), call=who))
            return response, of_applied(call.key, response.applied)
        case Delete():
            response = await api.delete(pb.DeleteRequest(namespace=space, delete=delete_of(call), call=who))
            return response, of_applied(call.key, response.applied)
        case Resolve():
            response = await api.resolve_conflict(resolve_of(space, call, who))
            return response, of_applied(call.key, response.applied)
        case Claim():
            response = await api.claim_next(
                pb.ClaimNextRequest(
                    namespace=space,
                    collection=call.prefix,
                    where=scalars(dict(call.where)),
                    lease=span(call.lease_ms),
                    call=who,
                )
            )
            return response, of_worked(response) if response.HasField("record") else Reply("none")
        case Renew(key, fence, lease_ms):
            response = await api.renew(
                pb.RenewRequest(namespace=space, key=key, fence=fence, lease=span(lease_ms), call=who)
            )
            return response, of_worked(response)
        case Release(key, fence):
            response = await api.release(pb.ReleaseRequest(namespace=space, key=key, fence=fence, call=who))
            return response, of_worked(response)
        case Complete(key, fence, result):
            value = None if result is None else types.Value(data=result, encoding=JSON)
            response = await api.complete(
                pb.CompleteRequest(namespace=space, key=key, fence=fence, result=value, call=who)
            )
            return response, of_worked(response)
        case _:
            response = await api.merge(pb.MergeRequest(namespace=space, merge=merge_of(call), call=who))
            return response, of_applied(call.key, response.applied)


# -- to the API ------------------------------------------------------------------------------------


def actor_of(name: str) -> types.Actor:
    agent, _, number = name.rpartition("#")
    return types.Actor(agent_id=agent, incarnation=int(number))


def context_of(caller: Caller) -> types.CallContext:
    found = types.CallContext(
        actor=actor_of(caller.actor), fences=[types.Fence(lock=lock, token=token) for lock, token in caller.fences]
    )
    match caller.request:
        case Request(uuid=str(uuid)) if uuid:
            found.request_id.uuid = uuid
        case Request(sequence, answered_through):
            found.request_id.sequence.sequence = sequence
            found.request_id.sequence.answered_through = answered_through
    if caller.grounds is not None:
        found.read_set_token = caller.grounds.token
        found.guards.extend(types.Guard(prefix=guard.prefix, namespace=guard.space) for guard in caller.grounds.guards)
        found.guard_mode = types.GUARD_MODE_WARN if caller.grounds.warn else types.GUARD_MODE_STRICT
        found.allow_checked = caller.grounds.allow_checked
    return found


def seen_of(seen: Seen | None) -> types.CausalContext | None:
    return None if seen is None else types.CausalContext(prefix=seen.prefix, extras=seen.extras)


def condition_of(when: Condition) -> types.Precondition:
    return types.Precondition(expected_version=when.version, context=seen_of(when.seen), blind=when.blind)


def put_of(call: Put) -> pb.PutOperation:
    found = pb.PutOperation(
        key=call.key,
        value=types.Value(data=call.data, encoding=JSON),
        precondition=condition_of(call.when),
        attributes=scalars(dict(call.attributes)),
    )
    if call.ttl_ms is not None:
        found.ttl.FromMilliseconds(call.ttl_ms)
    elif call.until_ms is not None:
        found.expire_time.FromMilliseconds(call.until_ms)
    return found


def delete_of(call: Delete) -> pb.DeleteOperation:
    return pb.DeleteOperation(key=call.key, precondition=condition_of(call.when))


def resolve_of(space: str, call: Resolve, who: types.CallContext) -> pb.ResolveConflictRequest:
    found = pb.ResolveConflictRequest(namespace=space, key=call.key, context=seen_of(call.seen), call=who)
    if call.keep:
        found.keep_dot = call.keep
    elif call.data is not None:
        found.value.CopyFrom(types.Value(data=call.data, encoding=JSON))
    else:
        found.delete = True
    return found


def merge_of(call: Merge) -> pb.MergeOperation:
    found = pb.MergeOperation(key=call.key)
    match call:
        case Add(_, delta):
            found.counter_add.delta = delta
        case Update(_, add, remove, seen):
            found.set_update.CopyFrom(pb.SetUpdate(add=add, remove=remove, context=seen_of(seen)))
        case Extreme(_, value, largest):
            setattr(found, "max" if largest else "min", value)
        case Fields(_, fields, remove):
            found.map_update.CopyFrom(pb.MapUpdate(set=dict(fields), remove=remove))
        case Append(_, entries, keep):
            found.log_append.CopyFrom(pb.LogAppend(entries=entries, entries_max=keep))
    return found


def operation_of(call: Put | Delete | Merge) -> pb.Operation:
    match call:
        case Put():
            return pb.Operation(put=put_of(call))
        case Delete():
            return pb.Operation(delete=delete_of(call))
        case _:
            return pb.Operation(merge=merge_of(call))


# -- from the API ----------------------------------------------------------------------------------


def of_seen(message: types.CausalContext) -> Seen:
    return Seen(message.prefix, tuple(message.extras))


def of_ms(message: Timestamp) -> int:
    return message.ToMilliseconds()


def of_attributes(record: types.Record) -> Attributes:
    return tuple(sorted((name, getattr(s, s.WhichOneof("kind") or "")) for name, s in record.attributes.items()))


def of_claim(claim: types.Claim) -> Task:
    assert claim.done == bool(claim.completed_by)
    return Task(
        claim.holder,
        of_ms(claim.expire_time) if claim.HasField("expire_time") else 0,
        claim.fence,
        claim.attempts,
        claim.completed_by,
        claim.result.data if claim.HasField("result") else None,
    )


def of_record(record: types.Record) -> View:
    values = tuple(
        Shown(
            value.dot,
            value.actor,
            of_ms(value.write_time),
            value.value.data,
            of_ms(value.expire_time) if value.HasField("expire_time") else None,
        )
        for value in record.values
    )
    kind = types.MergeType.Name(record.merge_type).removeprefix("MERGE_TYPE_")
    return View(
        record.version,
        of_seen(record.context),
        values,
        "" if kind == "UNSPECIFIED" else kind,
        of_attributes(record),
        of_claim(record.claim) if record.HasField("claim") else None,
        of_ms(record.create_time) if record.HasField("create_time") else 0,
        record.change_count,
    )


def of_applied(key: str, applied: types.Applied) -> Reply:
    outcome = "replayed" if applied.replayed else "applied" if applied.revision else "unchanged"
    return Reply(
        outcome,
        revision=applied.revision,
        version=applied.version if applied.HasField("version") else None,
        seen=of_seen(applied.context),
        overwritten=tuple(dot.dot for dot in applied.overwritten),
        concurrent_delete=applied.concurrent_delete,
        merged=applied.merged.data if applied.HasField("merged") else None,
        trimmed=applied.trimmed,
        key=key,
    )


def of_worked(response: Any) -> Reply:
    replayed = getattr(response, "replayed", False)
    return Reply(
        "replayed" if replayed else "applied", revision=0 if replayed else response.head, key=response.record.key
    )


def of_refusal(refused: Refused) -> Reply:
    unseen: tuple[int, ...] = ()
    lost = None
    stale: tuple[Stale, ...] = ()
    match refused.detail:
        case errors_pb2.ConflictDetail() as detail:
            unseen = tuple(dot.dot for dot in detail.unseen)
        case errors_pb2.LostRevisionsDetail() as detail:
            lost = getattr(detail, "from"), detail.to
        case errors_pb2.StaleReadSetDetail() as detail:
            stale = of_stale(detail.stale)
    space = refused.metadata.get("namespace", "")
    return Reply("refused", refused.reason, unseen=unseen, lost=lost, space=space, stale=stale)


def of_stale(entries: Iterable[types.StaleEntry]) -> tuple[Stale, ...]:
    return tuple(
        Stale(
            entry.namespace,
            entry.name,
            entry.is_collection,
            entry.seen,
            entry.now,
            tuple((change.key, change.actor, change.revision) for change in entry.changes),
        )
        for entry in entries
    )


# -- tokens: opaque to their bearers, so only here taken apart and put together ----------------------


def of_read_set(token: bytes) -> ReadSet:
    return {
        space: Part(
            part.revision,
            {key: _sight(*seen) for key, seen in part.keys.items()},
            {(name, mode.value): _sight(*seen) for (name, mode), seen in part.collections.items()},
        )
        for space, part in decode_read_set(token).namespaces.items()
    }


def token_of(seen: ReadSet) -> bytes:
    return encode_read_set(
        consistency.ReadSet(
            {
                space: NamespaceSeen(
                    part.since,
                    {key: KeySeen(sight.at, _end(sight)) for key, sight in part.keys.items()},
                    {
                        (name, StampMode(mode)): CollectionSeen(sight.at, _end(sight))
                        for (name, mode), sight in part.lists.items()
                    },
                )
                for space, part in seen.items()
            }
        )
    )


def _sight(at: int, ends_ms: int) -> Sight:
    return Sight(at, None if ends_ms == NEVER_MS else ends_ms)


def _end(sight: Sight) -> int:
    return NEVER_MS if sight.ends_ms is None else sight.ends_ms
