"""The methods of MemoryService that are about what somebody has seen: read sets, reservations, conflicts."""

from __future__ import annotations

from noosphere.consistency import (
    decode_page,
    encode_causal,
    encode_page,
    encode_read_set,
    fingerprint,
    invalid,
)
from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1 import types_pb2
from noosphere.v1.memory_service_pb2_grpc import MemoryServiceServicer

from ..memory import Memory
from ..memory.staleness import refresh
from ..memory.types import Call, ClaimReply, ResolveOp, WriteReply
from . import decode, encode
from .calls import Context, unary
from .errors import stale_message
from .times import duration_ms, timestamp


class CausalityMethods(MemoryServiceServicer):
    """A part of the gRPC face of shared memory; see :class:`~.memory.MemoryRpc`."""

    _memory: Memory

    @unary
    async def Commit(self, request: pb.CommitRequest, context: Context) -> pb.CommitResponse:
        """See the proto."""
        call = decode.call(request.call)
        compares, ops = decode.compares(request.compares), decode.operations(request.operations)
        reply = await self._memory.writes.commit(call, request.namespace, compares, ops, tuple(request.awaited_calls))
        tokens = tokens_of(call, request.namespace, reply)
        return pb.CommitResponse(applied=transact_applied(reply), head=reply.head, call=tokens)

    @unary
    async def RefreshReadSet(self, request: pb.RefreshReadSetRequest, context: Context) -> pb.RefreshReadSetResponse:
        """See the proto."""
        call = decode.call(request.call)
        if call.tokens is None or call.tokens.read_set is None:
            raise invalid("call.read_set_token", "is required")
        stale, read_set, heads = await refresh(self._memory.core, call)
        causal = call.tokens.causal
        for namespace, head in heads.items():
            causal = causal.seen(namespace, head)
        reply = types_pb2.CallReply(
            read_set_token=encode_read_set(read_set),
            causal_token=encode_causal(causal) if call.tokens.want_causal else b"",
        )
        return pb.RefreshReadSetResponse(stale=map(stale_message, stale), call=reply)

    @unary
    async def Reserve(self, request: pb.ReserveRequest, context: Context) -> pb.ReserveResponse:
        """See the proto."""
        held = await self._memory.reservations.reserve(
            decode.call(request.call),
            request.namespace,
            request.key,
            lease_ms=duration_ms("lease", request.lease),
            wait_ms=duration_ms("wait", request.wait),
        )
        ends = timestamp(held.expires_at_ms) if held.holder else None
        return pb.ReserveResponse(fence=held.fence, holder=held.holder, expire_time=ends, head=held.head)

    @unary
    async def CancelReservation(
        self, request: pb.CancelReservationRequest, context: Context
    ) -> pb.CancelReservationResponse:
        """See the proto."""
        call = decode.call(request.call)
        head = await self._memory.reservations.cancel(call, request.namespace, request.key, request.fence)
        return pb.CancelReservationResponse(head=head)

    @unary
    async def ListConflicts(self, request: pb.ListConflictsRequest, context: Context) -> pb.ListConflictsResponse:
        """See the proto."""
        query = fingerprint("conflicts", request.namespace, request.collection)
        call = decode.call(request.call)
        page = await self._memory.conflicts.list(
            call,
            request.namespace,
            request.collection,
            page_size=request.page_size,
            after=decode_page(request.page_token, query) if request.page_token else None,
        )
        conflicts = [
            pb.PendingConflict(record=encode.record(c.view), since=c.since, since_time=timestamp(c.since_ms))
            for c in page.conflicts
        ]
        token = "" if page.next_entry is None else encode_page(query, page.next_entry)
        tokens = encode.call_reply(call, request.namespace, page.head)
        return pb.ListConflictsResponse(conflicts=conflicts, next_page_token=token, head=page.head, call=tokens)

    @unary
    async def ResolveConflict(self, request: pb.ResolveConflictRequest, context: Context) -> pb.ResolveConflictResponse:
        """See the proto."""
        if not request.HasField("context"):
            raise invalid("context", "is required: what the resolver has seen of the key")
        op = ResolveOp(request.key, decode.resolution(request), decode.context(request.context))
        call = decode.call(request.call)
        reply = await self._memory.writes.resolve(call, request.namespace, op)
        applied = encode.applied(reply.results[0], reply.revision, reply.replayed)
        tokens = tokens_of(call, request.namespace, reply)
        return pb.ResolveConflictResponse(applied=applied, head=reply.head, call=tokens)


def tokens_of(call: Call, namespace: str, reply: WriteReply | ClaimReply) -> types_pb2.CallReply | None:
    """Returns the tokens that go with a write's reply."""
    return encode.call_reply(call, namespace, reply.head, reply.read_set, reply.stale)


def transact_applied(reply: WriteReply) -> pb.TransactApplied:
    """Returns what a transaction did."""
    results = [encode.applied(result, reply.revision, reply.replayed) for result in reply.results]
    return pb.TransactApplied(revision=reply.revision, results=results, replayed=reply.replayed)
