"""The methods of SessionService that let go what a session no longer needs, and tell how it fares."""

from __future__ import annotations

from collections.abc import Mapping

from noosphere.consistency import decode_page, encode_page, fingerprint, invalid
from noosphere.v1 import session_service_pb2 as pb
from noosphere.v1.session_service_pb2_grpc import SessionServiceServicer

from ..sessions import Sessions
from ..sessions.types import TransitionAction
from ..transitions import Transitions
from ..transitions.events import list_transitions
from ..transitions.health import Figure, Metric, Verdict
from . import decode
from . import session_shapes as shapes
from .calls import Context, unary

_INSTRUCTIONS: Mapping[int, TransitionAction] = {
    pb.TRANSITION_ACTION_RETAIN: TransitionAction.RETAIN,
    pb.TRANSITION_ACTION_ARCHIVE: TransitionAction.ARCHIVE,
    pb.TRANSITION_ACTION_COMPRESS: TransitionAction.COMPRESS,
    pb.TRANSITION_ACTION_DROP: TransitionAction.DROP,
    pb.TRANSITION_ACTION_PROMOTE: TransitionAction.PROMOTE,
    pb.TRANSITION_ACTION_LEARN: TransitionAction.LEARN,
}
_METRICS = {
    Metric.CONTEXT_UTILIZATION: pb.HEALTH_METRIC_CONTEXT_UTILIZATION,
    Metric.STATE_HIT_RATE: pb.HEALTH_METRIC_STATE_HIT_RATE,
    Metric.STATE_LIFESPAN: pb.HEALTH_METRIC_STATE_LIFESPAN,
    Metric.TOKEN_GROWTH: pb.HEALTH_METRIC_TOKEN_GROWTH,
}
_VERDICTS = {
    Verdict.UNKNOWN: pb.HEALTH_VERDICT_UNKNOWN,
    Verdict.GOOD: pb.HEALTH_VERDICT_GOOD,
    Verdict.TOO_LOW: pb.HEALTH_VERDICT_TOO_LOW,
    Verdict.TOO_HIGH: pb.HEALTH_VERDICT_TOO_HIGH,
}


class TransitionMethods(SessionServiceServicer):
    """A part of the gRPC face of sessions; see :class:`~.sessions.SessionRpc`."""

    _sessions: Sessions
    _transitions: Transitions

    @unary
    async def RunTransitions(self, request: pb.RunTransitionsRequest, context: Context) -> pb.RunTransitionsResponse:
        """See the proto."""
        call = decode.call(request.call)
        reply = await self._transitions.controller.run(
            call,
            request.session_id,
            dry_run=request.dry_run,
            keys=tuple(request.keys),
            instruction=_instruction(request.instruction),
        )
        return pb.RunTransitionsResponse(
            transitions=map(shapes.transition_shape, reply.transitions),
            head=reply.head,
            call=shapes.tokens_of(call, request.session_id, reply.head, reply.read_set, reply.stale),
        )

    @unary
    async def ListTransitions(self, request: pb.ListTransitionsRequest, context: Context) -> pb.ListTransitionsResponse:
        """See the proto."""
        query = fingerprint("transitions", request.session_id)
        page = await list_transitions(
            self._sessions.scribe,
            decode.call(request.call),
            request.session_id,
            page_size=request.page_size,
            position=decode_page(request.page_token, query) if request.page_token else None,
        )
        return pb.ListTransitionsResponse(
            transitions=map(shapes.transition_shape, page.transitions),
            next_page_token="" if page.position is None else encode_page(query, page.position),
        )

    @unary
    async def GetSessionHealth(
        self, request: pb.GetSessionHealthRequest, context: Context
    ) -> pb.GetSessionHealthResponse:
        """See the proto."""
        health = await self._transitions.health.report(decode.call(request.call), request.session_id)
        return pb.GetSessionHealthResponse(
            figures=map(_figure_shape, health.figures),
            items=health.items,
            messages=health.messages,
            pending_calls=health.pending_calls,
            outbox=health.outbox,
            head=health.head,
        )


def _figure_shape(figure: Figure) -> pb.HealthFigure:
    return pb.HealthFigure(
        metric=_METRICS[figure.metric],
        value=figure.value,
        verdict=_VERDICTS[figure.verdict],
        low=figure.low,
        high=figure.high,
        source=figure.source.value,
        advice=figure.advice,
    )


def _instruction(number: int) -> TransitionAction | None:
    if number == pb.TRANSITION_ACTION_UNSPECIFIED:
        return None
    found = _INSTRUCTIONS.get(number)
    if found is None:
        raise invalid("instruction", f"{number} is not a transition action")
    return found
