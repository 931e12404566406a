"""SessionService: each method decodes, calls one domain service and encodes."""

from __future__ import annotations

from noosphere.consistency import decode_page, encode_page, fingerprint
from noosphere.v1 import session_service_pb2 as pb

from ..sessions import Sessions
from ..sessions.sessions import SessionFilter
from ..transitions import Transitions
from . import decode
from . import session_shapes as shapes
from .calls import Context, unary
from .checkpoints import CheckpointMethods
from .endings import EndingMethods
from .handoffs import HandoffMethods
from .summaries import SummaryMethods
from .toolcalls import ToolCallMethods
from .transcripts import TranscriptMethods
from .transitions import TransitionMethods


class SessionRpc(
    TranscriptMethods,
    ToolCallMethods,
    CheckpointMethods,
    EndingMethods,
    HandoffMethods,
    TransitionMethods,
    SummaryMethods,
):
    """The gRPC face of sessions."""

    def __init__(self, sessions: Sessions, transitions: Transitions) -> None:
        self._sessions = sessions
        self._transitions = transitions

    @unary
    async def OpenSession(self, request: pb.OpenSessionRequest, context: Context) -> pb.OpenSessionResponse:
        """See the proto."""
        call = decode.call(request.call)
        reply = await self._sessions.book.open(
            call,
            request.session_id,
            title=request.title,
            labels=dict(request.labels),
            settings=shapes.settings(request.settings),
            ephemeral=request.ephemeral,
            allow_existing=request.allow_existing,
        )
        tokens = shapes.tokens_of(call, reply.session.id, reply.head, reply.read_set, reply.stale)
        session = shapes.session_message(reply.session)
        return pb.OpenSessionResponse(session=session, created=reply.created, head=reply.head, call=tokens)

    @unary
    async def GetSession(self, request: pb.GetSessionRequest, context: Context) -> pb.GetSessionResponse:
        """See the proto."""
        call = decode.call(request.call)
        reply = await self._sessions.book.get(call, request.session_id)
        tokens = shapes.tokens_of(call, request.session_id, reply.head, reply.read_set)
        return pb.GetSessionResponse(session=shapes.session_message(reply.session), head=reply.head, call=tokens)

    @unary
    async def ListSessions(self, request: pb.ListSessionsRequest, context: Context) -> pb.ListSessionsResponse:
        """See the proto."""
        labels = tuple(sorted(request.labels.items()))
        query = fingerprint("sessions", request.status, request.owner, labels)
        page = await self._sessions.book.list(
            decode.call(request.call),
            SessionFilter(shapes.status(request.status), request.owner, labels),
            page_size=request.page_size,
            after=decode_page(request.page_token, query) if request.page_token else "",
        )
        return pb.ListSessionsResponse(
            sessions=[shapes.session_message(session) for session in page.sessions],
            next_page_token="" if page.next_id is None else encode_page(query, page.next_id),
        )

    @unary
    async def UpdateSession(self, request: pb.UpdateSessionRequest, context: Context) -> pb.UpdateSessionResponse:
        """See the proto."""
        call = decode.call(request.call)
        reply = await self._sessions.book.update(
            call,
            request.session_id,
            title=request.title if request.HasField("title") else None,
            set_labels=dict(request.set_labels),
            remove_labels=tuple(request.remove_labels),
        )
        tokens = shapes.tokens_of(call, request.session_id, reply.head, reply.read_set, reply.stale)
        return pb.UpdateSessionResponse(session=shapes.session_message(reply.session), head=reply.head, call=tokens)
