"""Turns requests and replies of the API into the calls and replies of a history. No I/O."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped, unused-ignore] # ships no py.typed
from msgspec.structs import replace

from noosphere.v1 import errors_pb2
from noosphere.v1 import memory_service_pb2 as ms
from noosphere.v1 import types_pb2 as pb

from .history import Call, Compare, Context, Op, Outcome, Reply, Result, Seen, Write, WriteKind, value_id

KNOWN_MAX = 20_000

_MERGE_KINDS: dict[int, str] = {
    pb.MERGE_TYPE_COUNTER: "add",
    pb.MERGE_TYPE_SET: "set",
    pb.MERGE_TYPE_MAX: "max",
    pb.MERGE_TYPE_MIN: "min",
    pb.MERGE_TYPE_MAP: "map",
    pb.MERGE_TYPE_LOG: "log",
}
_DETAILS = (
    errors_pb2.ConflictDetail,
    errors_pb2.LostRevisionsDetail,
    errors_pb2.LimitDetail,
    errors_pb2.LogRangeDetail,
    errors_pb2.TransactionDetail,
)


class Known:
    """Which values a process had read under which context and version; the newest 20,000.

    The register checker must not look at revisions, but a write names what its writer had read by
    revisions only. So the recorder, which saw the read, writes down the values.
    """

    def __init__(self) -> None:
        self._values: OrderedDict[tuple[object, ...], tuple[str, ...]] = OrderedDict()

    def learn(self, namespace: str, key: str, version: int, context: Context, values: tuple[str, ...]) -> None:
        """Remembers what a reply showed of a key."""
        for name in ((namespace, key, version), (namespace, key, context.prefix, context.extras)):
            self._values[name] = values
            self._values.move_to_end(name)
        while len(self._values) > KNOWN_MAX:
            self._values.popitem(last=False)

    def at_version(self, namespace: str, key: str, version: int) -> tuple[str, ...] | None:
        """Returns the values at a version, none at version 0, None if they are not known."""
        return self._values.get((namespace, key, version)) if version else ()

    def under(self, namespace: str, key: str, context: Context) -> tuple[str, ...] | None:
        """Returns the values that a context was read with, None if they are not known."""
        return self._values.get((namespace, key, context.prefix, context.extras))


def to_call(request: Message, process: str, number: int, start_ns: int, known: Known) -> Call | None:
    """Returns the call that ``request`` makes, None if it is none that a history records."""
    stale = False
    if isinstance(request, (ms.GetRequest, ms.BatchGetRequest, ms.ListRequest)):
        stale = request.consistency in (pb.READ_CONSISTENCY_CAUSAL, pb.READ_CONSISTENCY_STALE)
    match request:
        case ms.GetRequest():
            return Call(process, number, Op.GET, request.namespace, start_ns, (request.key,), stale=stale)
        case ms.BatchGetRequest():
            return Call(process, number, Op.GET, request.namespace, start_ns, tuple(request.keys), stale=stale)
        case ms.ListRequest():
            collection = request.collection
            return Call(process, number, Op.LIST, request.namespace, start_ns, collection=collection, stale=stale)
        case ms.PutRequest():
            put = _put(request.put, request.namespace, known)
            return Call(process, number, Op.PUT, request.namespace, start_ns, writes=(put,))
        case ms.DeleteRequest():
            delete = _delete(request.delete, request.namespace, known)
            return Call(process, number, Op.DELETE, request.namespace, start_ns, writes=(delete,))
        case ms.MergeRequest():
            merge = _merge(request.merge)
            return Call(process, number, Op.MERGE, request.namespace, start_ns, writes=(merge,))
        case ms.TransactRequest():
            writes = tuple(_operation(operation, request.namespace, known) for operation in request.operations)
            compares = tuple(
                Compare(c.key, c.expected_version, known.at_version(request.namespace, c.key, c.expected_version))
                for c in request.compares
            )
            return Call(process, number, Op.TRANSACT, request.namespace, start_ns, writes=writes, compares=compares)
        case ms.ClaimNextRequest():
            lease_ms = request.lease.ToMilliseconds()
            collection = request.collection
            return Call(
                process, number, Op.CLAIM, request.namespace, start_ns, collection=collection, lease_ms=lease_ms
            )
        case ms.RenewRequest():
            lease_ms = request.lease.ToMilliseconds()
            return _step(Op.RENEW, request, process, number, start_ns, lease_ms)
        case ms.ReleaseRequest():
            return _step(Op.RELEASE, request, process, number, start_ns)
        case ms.CompleteRequest():
            return _step(Op.COMPLETE, request, process, number, start_ns)
        case ms.ReserveRequest() | ms.CancelReservationRequest():
            return Call(process, number, Op.RESERVE, request.namespace, start_ns, (request.key,))
        case _:
            return None


def to_reply(call: Call, request: Message, reply: Message, return_ns: int, known: Known) -> Reply:
    """Returns what an answer says."""
    done = Reply(call.process, call.call, return_ns, Outcome.OK)
    match reply:
        case ms.GetResponse():
            return replace(done, head=reply.head, seen=_seen(call.namespace, [reply.record], known))
        case ms.BatchGetResponse():
            return replace(done, head=reply.head, seen=_seen(call.namespace, reply.records, known))
        case ms.ListResponse():
            assert isinstance(request, ms.ListRequest)
            partial = request.page_token or reply.next_page_token or request.where or request.claimed_only
            # A page without values shows which keys there are, but no record.
            seen = () if request.keys_only else _seen(call.namespace, reply.records, known)
            return replace(done, head=reply.head, seen=seen, whole=not partial and not request.keys_only)
        case ms.PutResponse() | ms.DeleteResponse():
            if reply.WhichOneof("outcome") == "applied":
                return _applied(done, call, reply.head, reply.applied.revision, [reply.applied], known)
            return _refused(done, call, reply.head, [reply.not_applied], known)
        case ms.MergeResponse():
            return _applied(done, call, reply.head, reply.applied.revision, [reply.applied], known)
        case ms.TransactResponse():
            if reply.WhichOneof("outcome") == "applied":
                applied = reply.applied
                done = replace(done, replayed=applied.replayed)
                return _applied(done, call, reply.head, applied.revision, applied.results, known)
            details = [failure.detail for failure in reply.not_applied.failures]
            return _refused(done, call, reply.head, details, known)
        case ms.ClaimNextResponse() | ms.CompleteResponse():
            held = [reply.record] if reply.HasField("record") else []
            return _claimed(replace(done, head=reply.head, replayed=reply.replayed), call.namespace, held, known)
        case ms.RenewResponse() | ms.ReleaseResponse():
            return _claimed(replace(done, head=reply.head), call.namespace, [reply.record], known)
        case ms.ReserveResponse() | ms.CancelReservationResponse():
            return replace(done, head=reply.head)
        case _:
            raise AssertionError(f"no reply to a recorded call: {type(reply).__name__}")


def refusal(status: bytes) -> tuple[str, int]:
    """Returns reason and head of an error from its ``google.rpc.Status``; empty and 0 if it has none."""
    reason, head = "", 0
    info = error_details_pb2.ErrorInfo()
    for packed in status_pb2.Status.FromString(status).details:
        if packed.Is(info.DESCRIPTOR):
            packed.Unpack(info)
            reason = info.reason
        for kind in _DETAILS:
            if packed.Is(kind.DESCRIPTOR):
                detail = kind()
                packed.Unpack(detail)
                head = detail.head
    return reason, head


def _put(put: ms.PutOperation, namespace: str, known: Known) -> Write:
    expected, context, base = _precondition(put.precondition, namespace, put.key, known)
    return Write(
        put.key,
        WriteKind.PUT,
        value_id(put.value.data),
        expected=expected,
        context=context,
        blind=put.precondition.blind,
        base=base,
        expires=put.WhichOneof("expiry") is not None,
    )


def _delete(delete: ms.DeleteOperation, namespace: str, known: Known) -> Write:
    expected, context, base = _precondition(delete.precondition, namespace, delete.key, known)
    return Write(
        delete.key,
        WriteKind.DELETE,
        expected=expected,
        context=context,
        blind=delete.precondition.blind,
        base=base,
    )


def _precondition(
    given: pb.Precondition, namespace: str, key: str, known: Known
) -> tuple[int | None, Context | None, tuple[str, ...] | None]:
    expected = given.expected_version if given.HasField("expected_version") else None
    context = _context(given.context) if given.HasField("context") else None
    if context is not None:
        return expected, context, known.under(namespace, key, context)
    return expected, None, known.at_version(namespace, key, expected) if expected is not None else None


def _operation(operation: ms.Operation, namespace: str, known: Known) -> Write:
    match operation.WhichOneof("kind"):
        case "put":
            return _put(operation.put, namespace, known)
        case "delete":
            return _delete(operation.delete, namespace, known)
        case _:
            return _merge(operation.merge)


def _merge(merge: ms.MergeOperation) -> Write:
    operand: Any
    context = None
    match merge.WhichOneof("operation"):
        case "counter_add":
            kind, operand = WriteKind.ADD, merge.counter_add.delta
        case "set_update":
            change = merge.set_update
            kind = WriteKind.SET
            operand = {"add": list(map(json.loads, change.add)), "remove": list(map(json.loads, change.remove))}
            context = _context(change.context) if change.HasField("context") else None
        case "max":
            kind, operand = WriteKind.MAX, json.loads(merge.max)
        case "min":
            kind, operand = WriteKind.MIN, json.loads(merge.min)
        case "map_update":
            kind = WriteKind.MAP
            fields = {name: json.loads(text) for name, text in merge.map_update.set.items()}
            operand = {"set": fields, "remove": list(merge.map_update.remove)}
        case _:
            kind, operand = WriteKind.LOG, list(map(json.loads, merge.log_append.entries))
    return Write(merge.key, kind, merge=operand, context=context)


def _step(
    op: Op,
    request: ms.RenewRequest | ms.ReleaseRequest | ms.CompleteRequest,
    process: str,
    number: int,
    start_ns: int,
    lease_ms: int = 0,
) -> Call:
    key, fence = request.key, request.fence
    return Call(process, number, op, request.namespace, start_ns, key=key, fence=fence, lease_ms=lease_ms)


def _seen(namespace: str, records: Iterable[pb.Record], known: Known, *, own: bool = False) -> tuple[Seen, ...]:
    """Returns the records of a reply; ``own`` ones are as their own revision left them."""
    found = []
    for record in records:
        kind = _MERGE_KINDS.get(record.merge_type, "")
        values = () if kind else tuple(value_id(value.value.data) for value in record.values)
        dots = tuple(value.dot for value in record.values)
        known.learn(namespace, record.key, record.version, _context(record.context), values)
        found.append(
            Seen(
                record.key,
                record.version,
                values,
                () if dots == (record.version,) else dots,
                kind,
                json.loads(record.values[0].value.data) if kind and record.values else None,
                record.claim.fence,
                record.claim.done,
                record.version if own else 0,
            )
        )
    return tuple(found)


def _applied(done: Reply, call: Call, head: int, revision: int, results: Iterable[pb.Applied], known: Known) -> Reply:
    told, seen = [], []
    replayed = done.replayed
    for write, applied in zip(call.writes, results, strict=False):
        version = applied.version if applied.HasField("version") else None
        overwritten = tuple(dot.dot for dot in applied.overwritten)
        told.append(Result(version, overwritten, applied.concurrent_delete))
        replayed = replayed or applied.replayed
        if write.kind in (WriteKind.PUT, WriteKind.DELETE):
            values = (write.value,) if write.kind is WriteKind.PUT else ()
            if version is not None:
                known.learn(call.namespace, write.key, version, _context(applied.context), values)
        elif applied.HasField("merged") and not applied.replayed:
            content = json.loads(applied.merged.data)
            seen.append(Seen(write.key, revision, kind=str(write.kind), content=content, at=revision))
    return replace(done, head=head, revision=revision, results=tuple(told), seen=tuple(seen), replayed=replayed)


def _refused(done: Reply, call: Call, head: int, parts: Iterable[pb.NotApplied], known: Known) -> Reply:
    reason, seen = "", []
    for part in parts:
        reason = reason or part.reason
        if part.HasField("current"):
            [current] = _seen(call.namespace, [part.current], known)
            seen.append(replace(current, at=part.as_of))
    return replace(done, outcome=Outcome.REFUSED, reason=reason, head=head, seen=tuple(seen))


def _claimed(done: Reply, namespace: str, records: Iterable[pb.Record], known: Known) -> Reply:
    for record in records:
        expires_ms = record.claim.expire_time.ToMilliseconds() if record.claim.HasField("expire_time") else 0
        seen = _seen(namespace, [record], known, own=True)
        return replace(done, revision=record.version, seen=seen, expires_ms=expires_ms)
    return done


def _context(context: pb.CausalContext) -> Context:
    return Context(context.prefix, tuple(context.extras))
