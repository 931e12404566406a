"""A session: what agents share while they work on one conversation."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar, overload

from noosphere.v1 import memory_service_pb2 as ms
from noosphere.v1 import session_service_pb2 as pb

from ._arguments import checked_text
from ._control import Control
from ._key import Key
from ._listing import PAGE_SIZE, checked_page_size
from ._message_shapes import MessageLike, messages_of
from ._messages import Message, to_message
from ._namespace import Namespace
from ._operations import checked_key
from ._session_data import Checkpoint, SessionInfo
from ._session_keeping import SessionKeeping, checkpoint_id_of
from ._session_link import Link, opened_namespace
from ._session_wire import checked_labels, number_of, to_session, whole
from ._tool_call import STATUSES, LatePolicy, ToolCall, ToolCallStatus, start_tool
from ._turn import Turn, TurnScope, begin_turn
from ._values import Model, codec_for

T = TypeVar("T")


class Session(SessionKeeping):
    """A session of one agent's client; made by ``Client.session``.

    A handle: it holds no messages and no items, and evidence only where ``context`` is asked to carry it.

    ::

        async with client.session("s1") as session, session.turn():
            await session.append({"role": "user", "content": question})
            context = await session.context(model="gpt-4o", reserve_output=1024)
            await context.commit(Append(await chat(context.openai())))
    """

    def __init__(self, link: Link, opened: SessionInfo, *, created: bool) -> None:
        super().__init__(link)
        self._items = Namespace(link.space)
        self._opened = opened
        self._created = created

    @property
    def opened(self) -> SessionInfo:
        """The session as it was when this handle was made; :meth:`info` reads it anew."""
        return self._opened

    @property
    def created(self) -> bool:
        """Whether the session was created for this handle; False if it was there."""
        return self._created

    @property
    def items(self) -> Namespace:
        """Its working memory: the namespace ``sessions/<id>``, with everything that a namespace offers.

        What lies below ``_session/`` there is the transcript, the tool calls and so on, as records that can be
        read and watched.
        """
        return self._items

    @property
    def control(self) -> Control:
        """Where the agent's program stands."""
        return Control(self._link)

    @overload
    def goal(self, name: str = "main") -> Key[Any]: ...
    @overload
    def goal(self, name: str = "main", *, model: Model[T]) -> Key[T]: ...
    def goal(self, name: str = "main", *, model: Model[Any] | None = None) -> Key[Any]:
        """Returns the key of a goal, ``goals/<name>``; see ``Namespace.key``.

        A goal is open until its attribute ``status`` is ``done`` or ``closed``. Tool calls are based on the open
        ones, contexts guard them, and the controller leaves them alone.
        """
        key = checked_key(f"goals/{checked_text('name', name)}")
        return Key(self._link.space, codec_for(model), key)

    async def info(self, *, timeout: float | None = None) -> SessionInfo:
        """Returns settings, status and position of the session as they are now.

        Args:
            timeout: the deadline with all retries, in seconds.

        Raises:
            SessionNotFound: it was purged.
            NoosphereError: anything else, see the tree.
        """
        link = self._link
        request = pb.GetSessionRequest(session_id=link.id)
        reply: pb.GetSessionResponse = await link.read(link.sessions.GetSession, request, timeout)
        return to_session(reply.session)

    async def update(
        self,
        *,
        title: str | None = None,
        set_labels: Mapping[str, str] | None = None,
        remove_labels: Sequence[str] = (),
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> SessionInfo:
        """Changes title and labels; that disturbs no running turn and no decision.

        Args:
            title: the new title; None leaves it.
            set_labels: labels to set.
            remove_labels: labels to remove.
            request_id: a UUID of your own; None uses the client's sequence.
            timeout: the deadline with all retries, in seconds.

        Raises:
            SessionClosed: the session is closed.
            NoosphereError: anything else, see the tree.
        """
        link = self._link
        request = pb.UpdateSessionRequest(
            session_id=link.id,
            set_labels=checked_labels("set_labels", set_labels),
            remove_labels=[checked_text("remove_labels", name) for name in remove_labels],
        )
        if title is not None:
            request.title = checked_text("title", title)
        reply: pb.UpdateSessionResponse
        reply, _ = await link.write(link.sessions.UpdateSession, request, request_id, timeout)
        return to_session(reply.session)

    # The transcript.

    async def append(
        self,
        *messages: MessageLike,
        expected_last: str | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> tuple[Message, ...]:
        """Appends messages to the transcript in one commit, in their order.

        Args:
            messages: 1 to 16, at most 256 KiB together: :class:`Message`, or in OpenAI's or Anthropic's shape. A
                message with an id of its own is appended once, however often that is tried.
            expected_last: refuse unless this is the newest message's id; empty asks for an empty transcript.
            request_id: a UUID of your own; None uses the client's sequence.
            timeout: the deadline with all retries, in seconds.

        Returns:
            The messages as stored.

        Raises:
            TranscriptMoved: ``expected_last`` is not the newest message any more.
            TurnNotOpen: a message names a turn that is not open.
            SessionClosed: the session is closed.
            NoosphereError: anything else, see the tree.
        """
        link = self._link
        request = pb.AppendMessagesRequest(session_id=link.id)
        for index, message in enumerate(messages):
            request.messages.extend(messages_of(message, f"messages[{index}]"))
        if expected_last is not None:
            request.expected_last = checked_text("expected_last", expected_last)
        reply: pb.AppendMessagesResponse
        reply, call_id = await link.write(link.sessions.AppendMessages, request, request_id, timeout)
        # If they are lost, they can be written again as what they are: operations on the session's namespace.
        sent = ms.TransactRequest(namespace=link.namespace)
        sent.operations.extend(ms.Operation(append=ms.AppendOperation(message=one)) for one in request.messages)
        link.space.acked(sent, reply.revision, call_id, reply.replayed)
        return tuple(map(to_message, reply.messages))

    def messages(
        self,
        *,
        reverse: bool = False,
        branch: int | None = None,
        turn: int | None = None,
        page_size: int = PAGE_SIZE,
        timeout: float | None = None,
    ) -> AsyncIterator[Message]:
        """Lists the transcript page by page, the oldest message first.

        Args:
            reverse: the newest first.
            branch: another branch than the present one, e.g. one that a restore has left.
            turn: only messages of this turn.
            page_size: messages per call, 1 to 1,000.
            timeout: the deadline of each page with its retries, in seconds.
        """
        link = self._link
        request = pb.ListMessagesRequest(
            session_id=link.id,
            page_size=checked_page_size(page_size),
            reverse=reverse,
            turn=0 if turn is None else whole("turn", turn, low=1, high=(1 << 63) - 1),
        )
        if branch is not None:
            request.branch = whole("branch", branch)
        return link.pages(link.sessions.ListMessages, request, lambda reply: reply.messages, to_message, timeout)

    async def retract(self, message_id: str, *, request_id: str | None = None, timeout: float | None = None) -> Message:
        """Takes a message's content back; a mark of it stays in its place.

        Args:
            message_id: the message's id.
            request_id: a UUID of your own; None uses the client's sequence.
            timeout: the deadline with all retries, in seconds.

        Returns:
            What is left of it.

        Raises:
            EntryNotFound: there is no such message.
            NoosphereError: anything else, see the tree.
        """
        link = self._link
        request = pb.RetractMessageRequest(session_id=link.id, message_id=checked_text("message_id", message_id))
        reply: pb.RetractMessageResponse
        reply, _ = await link.write(link.sessions.RetractMessage, request, request_id, timeout)
        return to_message(reply.message)

    def turn(self, *, timeout: float | None = None) -> TurnScope:
        """Begins a turn for the length of an ``async with`` block, whose end ends it.

        What this agent appends in it belongs to the turn. A turn holds any number of steps; other agents may
        have turns of their own open.

        Args:
            timeout: the deadline of each call with its retries, in seconds.

        Returns:
            A context manager that gives a :class:`Turn`.
        """
        return TurnScope(self._link, timeout)

    async def begin_turn(self, *, request_id: str | None = None, timeout: float | None = None) -> Turn:
        """Begins a turn that no block ends: :meth:`Turn.end` does.

        Args:
            request_id: a UUID of your own; None uses the client's sequence.
            timeout: the deadline with all retries, in seconds.

        Raises:
            LimitExceeded: too many turns are open.
            SessionClosed: the session is closed.
            NoosphereError: anything else, see the tree.
        """
        return await begin_turn(self._link, request_id, timeout)

    # Tools.

    async def start_tool(
        self,
        name: str,
        args: Any = None,
        *,
        call_id: str = "",
        based_on: Sequence[str] = (),
        late: LatePolicy = "apply_flagged",
        deadline: timedelta | float | None = None,
        side_effects: bool = False,
        retry: bool = False,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> ToolCall:
        """Records a tool call as pending; its ``ticket`` lets any process finish it, once.

        Args:
            name: the tool's name.
            args: its arguments: a JSON value or a pydantic model, or JSON text as a model wrote it; at most 16 KiB.
            call_id: the call's id, as the model named it; empty asks the server for one. A known id with the same
                name and arguments returns the earlier call; with others it is a new call, unless that one is pending.
            based_on: keys of the session that it is based on, at most 32; empty for the open goals.
            late: what happens to the result if what it is based on has changed by then, or the deadline passed.
            deadline: how long the call may take, in seconds or as a span; None for ever.
            side_effects: declares that the tool changes the world.
            retry: start a known, unfinished call again; results of earlier attempts are refused from then on.
            request_id: a UUID of your own; None uses the client's sequence.
            timeout: the deadline with all retries, in seconds.

        Raises:
            SessionClosed: the session is closed.
            LimitExceeded: too many calls are pending.
            NoosphereError: anything else, see the tree.
        """
        return await start_tool(
            self._link,
            name,
            {} if args is None else args,
            call_id=call_id,
            based_on=based_on,
            late=late,
            deadline=deadline,
            side_effects=side_effects,
            retry=retry,
            request_id=request_id,
            timeout=timeout,
        )

    def tool_calls(
        self,
        *,
        status: ToolCallStatus | None = None,
        reverse: bool = False,
        page_size: int = PAGE_SIZE,
        timeout: float | None = None,
    ) -> AsyncIterator[ToolCall]:
        """Lists tool calls in the order in which they were started, page by page.

        Args:
            status: only calls that stand there.
            reverse: the newest first.
            page_size: calls per call of the server, 1 to 1,000.
            timeout: the deadline of each page with its retries, in seconds.
        """
        link = self._link
        request = pb.ListToolCallsRequest(session_id=link.id, page_size=checked_page_size(page_size), reverse=reverse)
        if status is not None:
            request.status = number_of("status", status, STATUSES)
        return link.pages(
            link.sessions.ListToolCalls,
            request,
            lambda reply: reply.tool_calls,
            lambda found: ToolCall(link.services, found),
            timeout,
        )

    async def fork(
        self,
        session_id: str = "",
        *,
        checkpoint: Checkpoint | str = "",
        title: str = "",
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> Session:
        """Opens a new session that begins with this one's items, summary and window.

        Args:
            session_id: the new session's id; empty asks the server for one.
            checkpoint: begin as this savepoint, or the one of this id, instead of as it is now.
            title: the new session's title.
            request_id: a UUID of your own; None uses the client's sequence.
            timeout: the deadline with all retries, in seconds.

        Returns:
            The new session; it stays open.

        Raises:
            EntryNotFound: there is no such savepoint any more.
            SessionExists: there is a session of the new id.
            NoosphereError: anything else, see the tree.
        """
        link = self._link
        request = pb.ForkSessionRequest(
            session_id=link.id,
            checkpoint_id=checkpoint_id_of(checkpoint),
            fork_id=checked_text("session_id", session_id),
            title=checked_text("title", title),
        )
        reply: pb.ForkSessionResponse
        reply, _ = await link.write(link.sessions.ForkSession, request, request_id, timeout, opened=opened_namespace)
        forked = to_session(reply.session)
        return Session(Link(link.services, forked.id), forked, created=True)

    def __repr__(self) -> str:
        return f"Session({self.id!r})"
