"""ContextService: each method decodes, calls the service and encodes."""

from __future__ import annotations

from noosphere.v1 import context_service_pb2 as pb
from noosphere.v1.context_service_pb2_grpc import ContextServiceServicer

from ..context.service import ContextService
from . import context_shapes as shapes
from . import decode
from .calls import Context, unary


class ContextRpc(ContextServiceServicer):
    """The gRPC face of contexts."""

    def __init__(self, contexts: ContextService) -> None:
        self._contexts = contexts

    @unary
    async def AssembleContext(self, request: pb.AssembleContextRequest, context: Context) -> pb.AssembleContextResponse:
        """See the proto."""
        call = decode.call(request.call)
        reply = await self._contexts.assemble(call, shapes.asked(request))
        return shapes.assembled(call, request.session_id, reply)

    @unary
    async def PlanContext(self, request: pb.PlanContextRequest, context: Context) -> pb.PlanContextResponse:
        """See the proto."""
        reply = await self._contexts.plan(decode.call(request.context.call), shapes.asked(request.context))
        sections = [
            pb.Section(kind=kind.value, tokens_max=tokens)  # type: ignore[arg-type] # the numbers are the same
            for kind, tokens in reply.sections
        ]
        return pb.PlanContextResponse(sections=sections, tokens_max=reply.tokens_max)

    @unary
    async def ReportUsage(self, request: pb.ReportUsageRequest, context: Context) -> pb.ReportUsageResponse:
        """See the proto."""
        reply = await self._contexts.report(
            decode.call(request.call), request.session_id, request.context_id, tuple(request.used), request.reply
        )
        return pb.ReportUsageResponse(used=reply.used, recalled=reply.recalled)

    @unary
    async def ExplainContext(self, request: pb.ExplainContextRequest, context: Context) -> pb.ExplainContextResponse:
        """See the proto."""
        manifest = await self._contexts.explain(decode.call(request.call), request.session_id, request.context_id)
        return pb.ExplainContextResponse(manifest=shapes.manifest_message(manifest))
