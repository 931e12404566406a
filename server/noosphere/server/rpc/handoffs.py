"""The method of SessionService that hands a session over."""

from __future__ import annotations

from noosphere.v1 import session_service_pb2 as pb
from noosphere.v1.session_service_pb2_grpc import SessionServiceServicer

from ..sessions import Sessions
from . import decode
from . import session_shapes as shapes
from .calls import Context, unary


class HandoffMethods(SessionServiceServicer):
    """A part of the gRPC face of sessions; see :class:`~.sessions.SessionRpc`."""

    _sessions: Sessions

    @unary
    async def Handoff(self, request: pb.HandoffRequest, context: Context) -> pb.HandoffResponse:
        """See the proto."""
        call = decode.call(request.call)
        reply = await self._sessions.handoffs.hand_over(call, request.session_id, request.to, request.note)
        return pb.HandoffResponse(
            envelope=reply.envelope,
            handoff_id=reply.handoff_id,
            head=reply.head,
            call=shapes.tokens_of(call, request.session_id, reply.head, reply.read_set, reply.stale),
        )
