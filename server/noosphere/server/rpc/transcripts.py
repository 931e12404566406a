"""The methods of SessionService that are about what is said: messages, turns, control state."""

from __future__ import annotations

from noosphere.consistency import decode_page, encode_page, fingerprint
from noosphere.v1 import session_service_pb2 as pb
from noosphere.v1.session_service_pb2_grpc import SessionServiceServicer

from ..sessions import Sessions
from . import decode
from . import session_shapes as shapes
from .calls import Context, unary
from .message_shapes import message, message_shape


class TranscriptMethods(SessionServiceServicer):
    """A part of the gRPC face of sessions; see :class:`~.sessions.SessionRpc`."""

    _sessions: Sessions

    @unary
    async def AppendMessages(self, request: pb.AppendMessagesRequest, context: Context) -> pb.AppendMessagesResponse:
        """See the proto."""
        call = decode.call(request.call)
        reply = await self._sessions.transcript.append(
            call,
            request.session_id,
            tuple(message(value, f"messages[{index}]") for index, value in enumerate(request.messages)),
            expected_last=request.expected_last if request.HasField("expected_last") else None,
        )
        return pb.AppendMessagesResponse(
            messages=map(message_shape, reply.messages),
            revision=reply.revision,
            replayed=reply.replayed,
            head=reply.head,
            call=shapes.tokens_of(call, request.session_id, reply.head, reply.read_set, reply.stale),
        )

    @unary
    async def ListMessages(self, request: pb.ListMessagesRequest, context: Context) -> pb.ListMessagesResponse:
        """See the proto."""
        branch = request.branch if request.HasField("branch") else None
        query = fingerprint("messages", request.session_id, request.reverse, branch, request.turn)
        call = decode.call(request.call)
        page = await self._sessions.transcript.list(
            call,
            request.session_id,
            page_size=request.page_size,
            position=decode_page(request.page_token, query) if request.page_token else None,
            reverse=request.reverse,
            branch=branch,
            turn=request.turn,
        )
        return pb.ListMessagesResponse(
            messages=map(message_shape, page.messages),
            next_page_token="" if page.position is None else encode_page(query, page.position),
            head=page.head,
            call=shapes.tokens_of(call, request.session_id, page.head, page.read_set),
        )

    @unary
    async def RetractMessage(self, request: pb.RetractMessageRequest, context: Context) -> pb.RetractMessageResponse:
        """See the proto."""
        call = decode.call(request.call)
        reply = await self._sessions.transcript.retract(call, request.session_id, request.message_id)
        tokens = shapes.tokens_of(call, request.session_id, reply.head, reply.read_set, reply.stale)
        return pb.RetractMessageResponse(message=message_shape(reply.messages[0]), head=reply.head, call=tokens)

    @unary
    async def BeginTurn(self, request: pb.BeginTurnRequest, context: Context) -> pb.BeginTurnResponse:
        """See the proto."""
        call = decode.call(request.call)
        reply = await self._sessions.turns.begin(call, request.session_id)
        tokens = shapes.tokens_of(call, request.session_id, reply.head, reply.read_set, reply.stale)
        return pb.BeginTurnResponse(turn=reply.turn, head=reply.head, call=tokens)

    @unary
    async def EndTurn(self, request: pb.EndTurnRequest, context: Context) -> pb.EndTurnResponse:
        """See the proto."""
        call = decode.call(request.call)
        reply = await self._sessions.turns.end(call, request.session_id, request.turn)
        return pb.EndTurnResponse(
            turn=reply.turn,
            checkpoint_id=reply.outcome.checkpoint_id,
            transitions=map(shapes.transition_shape, reply.outcome.transitions),
            head=reply.head,
            call=shapes.tokens_of(call, request.session_id, reply.head, reply.read_set, reply.stale),
        )

    @unary
    async def GetControl(self, request: pb.GetControlRequest, context: Context) -> pb.GetControlResponse:
        """See the proto."""
        call = decode.call(request.call)
        reply = await self._sessions.control.get(call, request.session_id)
        return pb.GetControlResponse(
            control=shapes.control_shape(reply.control) if reply.version else None,
            version=reply.version,
            author=reply.author,
            pending_calls=reply.pending_calls,
            head=reply.head,
            call=shapes.tokens_of(call, request.session_id, reply.head, reply.read_set),
        )

    @unary
    async def SetControl(self, request: pb.SetControlRequest, context: Context) -> pb.SetControlResponse:
        """See the proto."""
        call = decode.call(request.call)
        reply = await self._sessions.control.set(
            call,
            request.session_id,
            shapes.control(request.control),
            expected_version=request.expected_version if request.HasField("expected_version") else None,
        )
        tokens = shapes.tokens_of(call, request.session_id, reply.head, reply.read_set, reply.stale)
        return pb.SetControlResponse(version=reply.version, head=reply.head, call=tokens)
