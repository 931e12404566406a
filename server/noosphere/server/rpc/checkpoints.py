"""The methods of SessionService that go back and begin anew: checkpoints, restores, forks."""

from __future__ import annotations

from noosphere.consistency import decode_page, encode_page, fingerprint
from noosphere.v1 import session_service_pb2 as pb
from noosphere.v1.session_service_pb2_grpc import SessionServiceServicer

from ..sessions import Sessions
from ..sessions.types import Checkpoint
from . import decode
from . import session_shapes as shapes
from .calls import Context, unary
from .times import timestamp


class CheckpointMethods(SessionServiceServicer):
    """A part of the gRPC face of sessions; see :class:`~.sessions.SessionRpc`."""

    _sessions: Sessions

    @unary
    async def CreateCheckpoint(
        self, request: pb.CreateCheckpointRequest, context: Context
    ) -> pb.CreateCheckpointResponse:
        """See the proto."""
        call = decode.call(request.call)
        reply = await self._sessions.checkpoints.create(call, request.session_id, name=request.name)
        return pb.CreateCheckpointResponse(
            checkpoint=checkpoint_shape(reply.checkpoint),
            head=reply.head,
            call=shapes.tokens_of(call, request.session_id, reply.head, reply.read_set, reply.stale),
        )

    @unary
    async def ListCheckpoints(self, request: pb.ListCheckpointsRequest, context: Context) -> pb.ListCheckpointsResponse:
        """See the proto."""
        query = fingerprint("checkpoints", request.session_id)
        page = await self._sessions.checkpoints.list(
            decode.call(request.call),
            request.session_id,
            page_size=request.page_size,
            position=decode_page(request.page_token, query) if request.page_token else None,
        )
        return pb.ListCheckpointsResponse(
            checkpoints=map(checkpoint_shape, page.checkpoints),
            next_page_token="" if page.position is None else encode_page(query, page.position),
        )

    @unary
    async def RestoreCheckpoint(
        self, request: pb.RestoreCheckpointRequest, context: Context
    ) -> pb.RestoreCheckpointResponse:
        """See the proto."""
        call = decode.call(request.call)
        reply = await self._sessions.restorer.restore(call, request.session_id, request.checkpoint_id)
        return pb.RestoreCheckpointResponse(
            session=shapes.session_message(reply.session),
            abandoned_branch=reply.abandoned_branch,
            restored=reply.restored,
            removed=reply.removed,
            head=reply.head,
            call=shapes.tokens_of(call, request.session_id, reply.head, reply.read_set, reply.stale),
        )

    @unary
    async def ForkSession(self, request: pb.ForkSessionRequest, context: Context) -> pb.ForkSessionResponse:
        """See the proto."""
        call = decode.call(request.call)
        reply = await self._sessions.forker.fork(
            call,
            request.session_id,
            checkpoint_id=request.checkpoint_id,
            fork_id=request.fork_id,
            title=request.title,
        )
        tokens = shapes.tokens_of(call, reply.session.id, reply.head, reply.read_set, reply.stale)
        return pb.ForkSessionResponse(session=shapes.session_message(reply.session), head=reply.head, call=tokens)


def checkpoint_shape(value: Checkpoint) -> pb.Checkpoint:
    """Returns a checkpoint."""
    return pb.Checkpoint(
        id=value.id,
        name=value.name,
        create_time=timestamp(value.created_ms),
        author=value.author,
        cause=value.cause.value,
        branch=value.branch,
        turn=value.turn,
        last_message=value.last_message,
        items=value.items,
        bytes=value.bytes,
    )
