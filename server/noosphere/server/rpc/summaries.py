"""The method of SessionService that summarises."""

from __future__ import annotations

from noosphere.v1 import session_service_pb2 as pb
from noosphere.v1.session_service_pb2_grpc import SessionServiceServicer

from ..sessions import Sessions
from ..sessions.types import Summary
from . import decode
from . import session_shapes as shapes
from .calls import Context, unary


class SummaryMethods(SessionServiceServicer):
    """A part of the gRPC face of sessions; see :class:`~.sessions.SessionRpc`."""

    _sessions: Sessions

    @unary
    async def SummarizeSession(
        self, request: pb.SummarizeSessionRequest, context: Context
    ) -> pb.SummarizeSessionResponse:
        """See the proto."""
        call = decode.call(request.call)
        reply = await self._sessions.summaries.make(call, request.session_id)
        return pb.SummarizeSessionResponse(
            summary=None if reply.summary is None else summary_shape(reply.summary.summary),
            created=reply.created,
            head=reply.head,
            call=shapes.tokens_of(call, request.session_id, reply.head, reply.read_set),
        )


def summary_shape(value: Summary) -> pb.Summary:
    """Returns a summary."""
    return pb.Summary(
        key=value.key,
        first=value.first,
        last=value.last,
        messages=value.messages,
        goals=value.goals,
        decisions=value.decisions,
        open_questions=value.open_questions,
        entities=value.entities,
        narrative=value.narrative,
        producer=value.producer,
        tokens=value.tokens,
    )
