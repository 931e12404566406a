"""The methods of SessionService that end sessions: closing and purging."""

from __future__ import annotations

from collections.abc import Mapping

from noosphere.consistency import invalid
from noosphere.v1 import session_service_pb2 as pb
from noosphere.v1.session_service_pb2_grpc import SessionServiceServicer

from ..sessions import Sessions
from ..sessions.types import ItemDisposition
from . import decode
from . import session_shapes as shapes
from .calls import Context, unary

_DISPOSITIONS: Mapping[int, ItemDisposition] = {
    pb.ITEM_DISPOSITION_UNSPECIFIED: ItemDisposition.ARCHIVE,
    pb.ITEM_DISPOSITION_ARCHIVE: ItemDisposition.ARCHIVE,
    pb.ITEM_DISPOSITION_DROP: ItemDisposition.DROP,
    pb.ITEM_DISPOSITION_KEEP: ItemDisposition.KEEP,
}
_REFUSE: Mapping[int, bool] = {
    pb.PENDING_CALLS_UNSPECIFIED: False,
    pb.PENDING_CALLS_FAIL: False,
    pb.PENDING_CALLS_REFUSE: True,
}


class EndingMethods(SessionServiceServicer):
    """A part of the gRPC face of sessions; see :class:`~.sessions.SessionRpc`."""

    _sessions: Sessions

    @unary
    async def CloseSession(self, request: pb.CloseSessionRequest, context: Context) -> pb.CloseSessionResponse:
        """See the proto."""
        if request.items not in _DISPOSITIONS:
            raise invalid("items", f"{request.items} is not a disposition of items")
        if request.pending_calls not in _REFUSE:
            raise invalid("pending_calls", f"{request.pending_calls} is not what may become of pending calls")
        call = decode.call(request.call)
        reply = await self._sessions.closer.close(
            call,
            request.session_id,
            items=_DISPOSITIONS[request.items],
            refuse_pending=_REFUSE[request.pending_calls],
        )
        return pb.CloseSessionResponse(
            session=shapes.session_message(reply.session),
            archived=reply.closing.archived,
            dropped=reply.closing.dropped,
            failed_calls=reply.closing.failed_calls,
            head=reply.head,
            call=shapes.tokens_of(call, request.session_id, reply.head, reply.read_set, reply.stale),
        )

    @unary
    async def PurgeSession(self, request: pb.PurgeSessionRequest, context: Context) -> pb.PurgeSessionResponse:
        """See the proto."""
        records = await self._sessions.purger.purge(decode.call(request.call), request.session_id)
        return pb.PurgeSessionResponse(records=records)
