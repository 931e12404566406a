"""MemoryService: each method decodes, calls one domain service and encodes."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing

from noosphere.consistency import (
    Encoding,
    Reason,
    Refusal,
    decode_page,
    decode_resume,
    encode_page,
    encode_resume,
    fingerprint,
    invalid,
)
from noosphere.consistency.errors import ConflictInfo, TransactionInfo
from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1 import types_pb2

from .. import __version__
from ..memory import Memory
from ..memory.reads import BATCH_BYTES_MAX
from ..memory.types import BatchView, Call, ClaimReply, RecordView
from ..memory.watches import Bookmark, SnapshotPage, WatchMessage, WatchStart
from . import decode, encode
from .calls import Context, streaming, unary
from .causality import CausalityMethods, tokens_of, transact_applied
from .deliveries import Deliveries
from .gate import Gate
from .pages import revision_at
from .pipeline import PipelineStream, handlers_of
from .times import duration, duration_ms, timestamp

API_VERSION = "noosphere.v1"
_CONSISTENCIES = frozenset(types_pb2.ReadConsistency.values())
_NOT_APPLIED = frozenset(
    {
        Reason.VERSION_MISMATCH,
        Reason.CONFLICT,
        Reason.CONTEXT_TOO_OLD,
        Reason.SIBLING_LIMIT,
        Reason.PRECONDITION_REQUIRED,
        Reason.MERGE_TYPE_MISMATCH,
    }
)
"""Refusals that depend on the record, which `return_current` answers with the record as it is now."""


_STEP_RECORDS = 64
_PIPELINED = {
    "get": "Get",
    "batch_get": "BatchGet",
    "list": "List",
    "put": "Put",
    "delete": "Delete",
    "merge": "Merge",
    "transact": "Transact",
    "commit": "Commit",
    "renew": "Renew",
    "release": "Release",
    "complete": "Complete",
}
"""What a pipeline carries, by the field of its request."""


class MemoryRpc(CausalityMethods):
    """The gRPC face of shared memory.

    Args:
        memory: the services.
        watch_stall_seconds: how long a watcher may leave a message untaken; infinite for ever.
        gate: what calls inside a Pipeline pass.
    """

    def __init__(self, memory: Memory, watch_stall_seconds: float = math.inf, gate: Gate | None = None) -> None:
        self._memory = memory
        self._deliveries = Deliveries(watch_stall_seconds)
        self._pipelined = handlers_of(self, _PIPELINED, gate or Gate(), f"/{API_VERSION}.MemoryService/")

    @unary
    async def Get(self, request: pb.GetRequest, context: Context) -> pb.GetResponse:
        """See the proto."""
        _check_consistency(request.consistency)
        call = decode.call(request.call)
        reply = await self._memory.reads.get(call, request.namespace, request.key)
        tokens = encode.call_reply(call, request.namespace, reply.head, reply.read_set)
        return pb.GetResponse(record=encode.record(reply.records[0]), head=reply.head, call=tokens)

    @unary
    async def BatchGet(self, request: pb.BatchGetRequest, context: Context) -> pb.BatchGetResponse:
        """See the proto."""
        _check_consistency(request.consistency)
        call = decode.call(request.call)
        reply = await self._memory.reads.batch_get(call, request.namespace, request.keys)
        tokens = encode.call_reply(call, request.namespace, reply.head, reply.read_set)
        return pb.BatchGetResponse(records=await _shown(reply.records, False), head=reply.head, call=tokens)

    @unary
    async def List(self, request: pb.ListRequest, context: Context) -> pb.ListResponse:
        """See the proto."""
        _check_consistency(request.consistency)
        where = decode.scalars("where", request.where)
        query = fingerprint("list", request.namespace, request.collection, request.reverse, where, request.claimed_only)
        call = decode.call(request.call)
        reply = await self._memory.reads.list(
            call,
            request.namespace,
            request.collection,
            page_size=request.page_size,
            after=decode_page(request.page_token, query) if request.page_token else None,
            reverse=request.reverse,
            where=where,
            claimed_only=request.claimed_only,
        )
        return pb.ListResponse(
            records=await _shown(reply.records, request.keys_only),
            next_page_token="" if reply.next_key is None else encode_page(query, reply.next_key),
            head=reply.head,
            stamp=pb.CollectionStamp(changed=reply.stamps.changed, members=reply.stamps.members),
            call=encode.call_reply(call, request.namespace, reply.head, reply.read_set),
        )

    @unary
    async def ListHistory(self, request: pb.ListHistoryRequest, context: Context) -> pb.ListHistoryResponse:
        """See the proto."""
        query = fingerprint("history", request.namespace, request.key)
        after = revision_at(decode_page(request.page_token, query)) if request.page_token else None
        reply = await self._memory.reads.history(
            decode.call(request.call),
            request.namespace,
            request.key,
            page_size=request.page_size,
            after=after,
        )
        return pb.ListHistoryResponse(
            batches=await _batches(reply.batches),
            next_page_token="" if reply.next_after is None else encode_page(query, str(reply.next_after)),
            floor=reply.floor,
            head=reply.head,
        )

    @unary
    async def Put(self, request: pb.PutRequest, context: Context) -> pb.PutResponse:
        """See the proto."""
        call, op = decode.call(request.call), decode.put(request.put)
        try:
            reply = await self._memory.writes.put(call, request.namespace, op)
        except Refusal as refusal:
            refused = await self._not_applied(call, refusal, op.key, request.return_current)
            tokens = encode.call_reply(call, request.namespace, refused.as_of)
            return pb.PutResponse(not_applied=refused, head=refused.as_of, call=tokens)
        applied = encode.applied(reply.results[0], reply.revision, reply.replayed)
        return pb.PutResponse(applied=applied, head=reply.head, call=tokens_of(call, request.namespace, reply))

    @unary
    async def Delete(self, request: pb.DeleteRequest, context: Context) -> pb.DeleteResponse:
        """See the proto."""
        call, op = decode.call(request.call), decode.delete(request.delete)
        try:
            reply = await self._memory.writes.delete(call, request.namespace, op)
        except Refusal as refusal:
            refused = await self._not_applied(call, refusal, op.key, request.return_current)
            tokens = encode.call_reply(call, request.namespace, refused.as_of)
            return pb.DeleteResponse(not_applied=refused, head=refused.as_of, call=tokens)
        applied = encode.applied(reply.results[0], reply.revision, reply.replayed)
        return pb.DeleteResponse(applied=applied, head=reply.head, call=tokens_of(call, request.namespace, reply))

    @unary
    async def Merge(self, request: pb.MergeRequest, context: Context) -> pb.MergeResponse:
        """See the proto."""
        call, op = decode.call(request.call), decode.merge_operation(request.merge)
        reply = await self._memory.writes.merge(call, request.namespace, op)
        applied = encode.applied(reply.results[0], reply.revision, reply.replayed)
        return pb.MergeResponse(applied=applied, head=reply.head, call=tokens_of(call, request.namespace, reply))

    @unary
    async def Transact(self, request: pb.TransactRequest, context: Context) -> pb.TransactResponse:
        """See the proto."""
        call = decode.call(request.call)
        compares, ops = decode.compares(request.compares), decode.operations(request.operations)
        try:
            reply = await self._memory.writes.transact(call, request.namespace, compares, ops)
        except Refusal as refusal:
            if not request.return_current or not isinstance(refusal.detail, TransactionInfo):
                raise
            parts = refusal.detail.failures
            for part in parts:
                part.refusal.namespace, part.refusal.head = refusal.namespace, refusal.head
                if part.refusal.reason not in _NOT_APPLIED:
                    raise part.refusal from None
            # All at one head, so that what others have written together is shown together.
            try:
                present = await self._memory.reads.batch_get(call, refusal.namespace, [part.key for part in parts])
            except Refusal as unread:
                if unread.reason is Reason.LIMIT_EXCEEDED:
                    raise refusal from None
                raise
            failures, size = [], 0
            for part, record in zip(parts, present.records, strict=True):
                detail = _not_applied(part.refusal, record, present.head)
                if (size := size + detail.ByteSize()) > BATCH_BYTES_MAX:
                    raise
                failures.append(pb.TransactFailure(index=part.index, is_operation=part.is_operation, detail=detail))
            head = max(refusal.head, present.head)
            tokens = encode.call_reply(call, request.namespace, head)
            return pb.TransactResponse(not_applied=pb.TransactNotApplied(failures=failures), head=head, call=tokens)
        tokens = tokens_of(call, request.namespace, reply)
        return pb.TransactResponse(applied=transact_applied(reply), head=reply.head, call=tokens)

    @streaming
    async def Pipeline(
        self, requests: AsyncIterator[pb.PipelineRequest], context: Context
    ) -> AsyncGenerator[pb.PipelineResponse, None]:
        """See the proto."""
        stream = PipelineStream(self._pipelined, self._memory.signals)
        async with aclosing(stream.run(requests)) as responses:
            async for response in responses:
                yield response

    @streaming
    async def Watch(self, request: pb.WatchRequest, context: Context) -> AsyncGenerator[pb.WatchResponse, None]:
        """See the proto."""
        start = WatchStart()
        match request.WhichOneof("start"):
            case "after":
                start = WatchStart(after=request.after)
            case "resume_token":
                start = WatchStart(resume=decode_resume(request.resume_token))
            case "snapshot":
                start = WatchStart(snapshot=request.snapshot)
            case _:
                pass
        call = decode.call(request.call)
        watch = self._memory.watches.watch(call, request.namespace, request.collection, start)
        with self._deliveries.to(context) as delivery:
            async with aclosing(watch) as messages:
                async for message in messages:
                    delivery.begin(request.namespace, message.head)
                    yield _watch_response(message)
                    delivery.taken()

    @unary
    async def ClaimNext(self, request: pb.ClaimNextRequest, context: Context) -> pb.ClaimNextResponse:
        """See the proto."""
        call = decode.call(request.call)
        reply = await self._memory.tasks.claim_next(
            call,
            request.namespace,
            request.collection,
            where=decode.scalars("where", request.where),
            lease_ms=duration_ms("lease", request.lease),
            wait_ms=duration_ms("wait", request.wait),
        )
        tokens = tokens_of(call, request.namespace, reply)
        return pb.ClaimNextResponse(record=_claimed(reply), head=reply.head, replayed=reply.replayed, call=tokens)

    @unary
    async def Renew(self, request: pb.RenewRequest, context: Context) -> pb.RenewResponse:
        """See the proto."""
        call = decode.call(request.call)
        reply = await self._memory.tasks.renew(
            call,
            request.namespace,
            request.key,
            request.fence,
            duration_ms("lease", request.lease),
        )
        tokens = tokens_of(call, request.namespace, reply)
        return pb.RenewResponse(record=_claimed(reply), head=reply.head, replayed=reply.replayed, call=tokens)

    @unary
    async def Release(self, request: pb.ReleaseRequest, context: Context) -> pb.ReleaseResponse:
        """See the proto."""
        call = decode.call(request.call)
        reply = await self._memory.tasks.release(call, request.namespace, request.key, request.fence)
        tokens = tokens_of(call, request.namespace, reply)
        return pb.ReleaseResponse(record=_claimed(reply), head=reply.head, replayed=reply.replayed, call=tokens)

    @unary
    async def Complete(self, request: pb.CompleteRequest, context: Context) -> pb.CompleteResponse:
        """See the proto."""
        data, encoding = None, Encoding.JSON
        if request.HasField("result"):
            data, encoding = decode.value("result", request.result)
        call = decode.call(request.call)
        reply = await self._memory.tasks.complete(call, request.namespace, request.key, request.fence, data, encoding)
        tokens = tokens_of(call, request.namespace, reply)
        return pb.CompleteResponse(record=_claimed(reply), head=reply.head, replayed=reply.replayed, call=tokens)

    @unary
    async def OpenAgent(self, request: pb.OpenAgentRequest, context: Context) -> pb.OpenAgentResponse:
        """See the proto."""
        request_id = decode.uuid_text("request_id", request.request_id) if request.request_id else ""
        opened = await self._memory.agents.open(request.agent_id, request.takeover, request_id)
        return pb.OpenAgentResponse(
            actor=types_pb2.Actor(agent_id=opened.agent_id, incarnation=opened.number, fleet=self._memory.core.fleet),
            lease=duration(self._memory.agents.lease_ms),
        )

    @unary
    async def KeepAgent(self, request: pb.KeepAgentRequest, context: Context) -> pb.KeepAgentResponse:
        """See the proto."""
        self._memory.core.check_fleet(request.actor.fleet)
        await self._memory.agents.keep(decode.incarnation(request.actor))
        return pb.KeepAgentResponse(lease=duration(self._memory.agents.lease_ms))

    @unary
    async def CloseAgent(self, request: pb.CloseAgentRequest, context: Context) -> pb.CloseAgentResponse:
        """See the proto."""
        self._memory.core.check_fleet(request.actor.fleet)
        await self._memory.agents.close(decode.incarnation(request.actor))
        return pb.CloseAgentResponse()

    @unary
    async def EnsureNamespace(self, request: pb.EnsureNamespaceRequest, context: Context) -> pb.EnsureNamespaceResponse:
        """See the proto."""
        policy = decode.policy(request.policy) if request.HasField("policy") else None
        ensured = await self._memory.namespaces.ensure(decode.call(request.call), request.namespace, policy)
        return pb.EnsureNamespaceResponse(
            generation=ensured.generation,
            policy=encode.policy(ensured.policy),
            head=ensured.head,
            created=ensured.created,
        )

    @unary
    async def GetServerInfo(self, request: pb.GetServerInfoRequest, context: Context) -> pb.GetServerInfoResponse:
        """See the proto."""
        store = self._memory.core.store
        return pb.GetServerInfoResponse(
            version=__version__,
            api_version=API_VERSION,
            epoch=store.epoch,
            store_time=timestamp(store.now_ms()),
            engine=store.engine,
            durability=store.durability,
            agent_lease=duration(self._memory.agents.lease_ms),
        )

    async def _not_applied(self, call: Call, refusal: Refusal, key: str, return_current: bool) -> types_pb2.NotApplied:
        """Returns a refusal as an outcome with the record as it is now, or raises it again."""
        if not return_current or refusal.reason not in _NOT_APPLIED:
            raise refusal
        reply = await self._memory.reads.get(call, refusal.namespace, key)
        return _not_applied(refusal, reply.records[0], reply.head)


def _not_applied(refusal: Refusal, present: RecordView, head: int) -> types_pb2.NotApplied:
    unseen = refusal.detail.unseen if isinstance(refusal.detail, ConflictInfo) else ()
    return types_pb2.NotApplied(
        reason=refusal.reason.value,
        message=refusal.message,
        current=encode.record(present),
        unseen=encode.dots(unseen),
        as_of=head,
    )


async def _shown(views: Sequence[RecordView], keys_only: bool) -> list[types_pb2.Record]:
    """Returns a page's records, in steps that do not hold up other callers."""
    shown: list[types_pb2.Record] = []
    for start in range(0, len(views), _STEP_RECORDS):
        if start:
            await asyncio.sleep(0)
        shown += [encode.record(view, keys_only=keys_only) for view in views[start : start + _STEP_RECORDS]]
    return shown


async def _batches(views: Sequence[BatchView]) -> list[pb.ChangeBatch]:
    """Returns a page's batches, in steps as :func:`_shown` does."""
    shown: list[pb.ChangeBatch] = []
    changes = 0
    for view in views:
        if (changes := changes + len(view.changes)) >= _STEP_RECORDS:
            changes = 0
            await asyncio.sleep(0)
        shown.append(encode.batch(view))
    return shown


def _claimed(reply: ClaimReply) -> types_pb2.Record | None:
    return None if reply.record is None else encode.record(reply.record)


def _check_consistency(number: int) -> None:
    # Every read is one of synced state, on Redis at the primary, so all three levels get the same answer.
    if number not in _CONSISTENCIES:
        raise invalid("consistency", f"{number} is not a consistency level")


def _watch_response(message: WatchMessage) -> pb.WatchResponse:
    resume = b"" if message.resume is None else encode_resume(message.resume)
    response = pb.WatchResponse(resume_token=resume, head=message.head)
    event = message.event
    match event:
        case SnapshotPage(records, last):
            response.snapshot.CopyFrom(pb.SnapshotPage(records=[encode.record(view) for view in records], last=last))
        case BatchView():
            response.changes.CopyFrom(encode.batch(event))
        case Bookmark(draining):
            response.bookmark.CopyFrom(pb.Bookmark(draining=draining))
        case _:
            response.epoch.CopyFrom(pb.EpochChanged(epoch=event.epoch, cut=event.cut))
    return response
