"""The methods of SessionService that are about calls of tools."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator

from noosphere.consistency import decode_page, encode_page, fingerprint
from noosphere.v1 import session_service_pb2 as pb
from noosphere.v1.session_service_pb2_grpc import SessionServiceServicer

from ..ports.grants import Verb
from ..sessions import Sessions
from ..sessions.raw import MESSAGE_BYTES_MAX
from . import decode
from . import session_shapes as shapes
from .calls import Context, certain, streaming, unary
from .message_shapes import message_shape
from .toolcall_shapes import change_shapes, new_tool_call, outcome, ticket, tool_call_shape, tool_call_status


class ToolCallMethods(SessionServiceServicer):
    """A part of the gRPC face of sessions; see :class:`~.sessions.SessionRpc`."""

    _sessions: Sessions

    @unary
    async def StartToolCall(self, request: pb.StartToolCallRequest, context: Context) -> pb.StartToolCallResponse:
        """See the proto."""
        call = decode.call(request.call)
        reply = await self._sessions.tool_calls.start(call, request.session_id, new_tool_call(request))
        return pb.StartToolCallResponse(
            tool_call=tool_call_shape(request.session_id, reply.tool_call),
            started=reply.started,
            head=reply.head,
            call=shapes.tokens_of(call, request.session_id, reply.head, reply.read_set, reply.stale),
        )

    @unary
    async def FinishToolCall(self, request: pb.FinishToolCallRequest, context: Context) -> pb.FinishToolCallResponse:
        """See the proto."""
        call = decode.call(request.call)
        at = ticket(request.ticket, request.attempt)
        reply = await self._sessions.finisher.finish(call, at, outcome(request), append_message=request.append_message)
        return pb.FinishToolCallResponse(
            tool_call=tool_call_shape(at.session_id, reply.tool_call),
            message=None if reply.message is None else message_shape(reply.message),
            replayed=reply.replayed,
            head=reply.head,
            call=shapes.tokens_of(call, at.session_id, reply.head, reply.read_set, reply.stale),
        )

    @unary
    async def UploadToolResult(
        self, request: AsyncIterator[pb.UploadToolResultRequest], context: Context
    ) -> pb.UploadToolResultResponse:
        """See the proto."""
        first = await anext(aiter(request), pb.UploadToolResultRequest())
        call, at = decode.call(first.call), ticket(first.ticket)
        await self._sessions.scribe.core.access.require_in_session(call, at.session_id, Verb.WRITE)
        # Who calls is checked before anything is read on.
        made = await certain(lambda: self._sessions.finisher.upload(call, at, _parts(first, request)))
        return pb.UploadToolResultResponse(upload_id=made.upload_id, bytes=made.bytes)

    @unary
    async def ReviewToolCall(self, request: pb.ReviewToolCallRequest, context: Context) -> pb.ReviewToolCallResponse:
        """See the proto."""
        call = decode.call(request.call)
        at = ticket(request.ticket)
        reply = await self._sessions.finisher.review(call, at, apply=request.apply)
        return pb.ReviewToolCallResponse(
            tool_call=tool_call_shape(at.session_id, reply.tool_call),
            head=reply.head,
            call=shapes.tokens_of(call, at.session_id, reply.head, reply.read_set, reply.stale),
        )

    @unary
    async def GetToolCall(self, request: pb.GetToolCallRequest, context: Context) -> pb.GetToolCallResponse:
        """See the proto."""
        call = decode.call(request.call)
        at = ticket(request.ticket)
        reply = await self._sessions.tool_calls.get(call, at)
        return pb.GetToolCallResponse(
            tool_call=tool_call_shape(at.session_id, reply.tool_call),
            changes=change_shapes(reply.changes),
            head=reply.head,
            call=shapes.tokens_of(call, at.session_id, reply.head, reply.read_set),
        )

    @unary
    async def ListToolCalls(self, request: pb.ListToolCallsRequest, context: Context) -> pb.ListToolCallsResponse:
        """See the proto."""
        call = decode.call(request.call)
        query = fingerprint("tool_calls", request.session_id, request.status, request.reverse)
        page = await self._sessions.tool_calls.list(
            call,
            request.session_id,
            page_size=request.page_size,
            position=decode_page(request.page_token, query) if request.page_token else None,
            reverse=request.reverse,
            status=tool_call_status(request.status),
        )
        return pb.ListToolCallsResponse(
            tool_calls=[tool_call_shape(request.session_id, found) for found in page.tool_calls],
            next_page_token="" if page.position is None else encode_page(query, page.position),
            head=page.head,
            call=shapes.tokens_of(call, request.session_id, page.head, page.read_set),
        )

    @streaming
    async def ReadToolResult(
        self, request: pb.ReadToolResultRequest, context: Context
    ) -> AsyncGenerator[pb.ReadToolResultResponse, None]:
        """See the proto."""
        async for piece in self._sessions.finisher.read_raw(decode.call(request.call), ticket(request.ticket)):
            yield pb.ReadToolResultResponse(data=piece)


async def _parts(
    first: pb.UploadToolResultRequest, rest: AsyncIterator[pb.UploadToolResultRequest]
) -> AsyncIterator[bytes]:
    yield decode.bounded("data", first.data, MESSAGE_BYTES_MAX)
    async for request in rest:
        yield decode.bounded("data", request.data, MESSAGE_BYTES_MAX)
