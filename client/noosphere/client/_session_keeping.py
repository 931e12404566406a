"""What keeps a session: savepoints, summaries, the controller, its health, handing it over, and its end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Literal

from noosphere.consistency import encode_causal
from noosphere.v1 import session_service_pb2 as pb

from ._arguments import checked_text, shown
from ._errors import InvalidArgument
from ._listing import PAGE_SIZE, checked_page_size
from ._operations import checked_key
from ._session_contexts import SessionContexts
from ._session_data import (
    Checkpoint,
    ClosedSession,
    Restored,
    SessionHealth,
    Summary,
    Transition,
    TransitionAction,
)
from ._session_wire import (
    ACTIONS,
    number_of,
    to_checkpoint,
    to_health,
    to_session,
    to_summary,
    to_transition,
)

ItemDisposition = Literal["archive", "drop", "keep"]
"""What becomes of the items of a session that is closed: fact candidates; nothing; they stay until it is purged."""

PendingCalls = Literal["fail", "refuse"]
"""What becomes of pending tool calls when a session is closed: they fail; or the session is not closed."""

_DISPOSITIONS: Mapping[ItemDisposition, pb.ItemDisposition.ValueType] = {
    "archive": pb.ITEM_DISPOSITION_ARCHIVE,
    "drop": pb.ITEM_DISPOSITION_DROP,
    "keep": pb.ITEM_DISPOSITION_KEEP,
}
_PENDING: Mapping[PendingCalls, pb.PendingCalls.ValueType] = {
    "fail": pb.PENDING_CALLS_FAIL,
    "refuse": pb.PENDING_CALLS_REFUSE,
}


class SessionKeeping(SessionContexts):
    """What keeps a session."""

    async def checkpoint(
        self, name: str = "", *, request_id: str | None = None, timeout: float | None = None
    ) -> Checkpoint:
        """Makes a savepoint of the whole session: items, control state, position in the transcript, summary.

        Args:
            name: for people, at most 128 bytes.
            request_id: a UUID of your own; None uses the client's sequence.
            timeout: the deadline with all retries, in seconds.

        Raises:
            SessionClosed: the session is closed.
            NoosphereError: anything else, see the tree.
        """
        link = self._link
        request = pb.CreateCheckpointRequest(session_id=link.id, name=checked_text("name", name))
        reply: pb.CreateCheckpointResponse
        reply, _ = await link.write(link.sessions.CreateCheckpoint, request, request_id, timeout)
        return to_checkpoint(reply.checkpoint)

    def checkpoints(self, *, page_size: int = PAGE_SIZE, timeout: float | None = None) -> AsyncIterator[Checkpoint]:
        """Lists savepoints, the newest first, page by page.

        Args:
            page_size: savepoints per call, 1 to 1,000.
            timeout: the deadline of each page with its retries, in seconds.
        """
        link = self._link
        request = pb.ListCheckpointsRequest(session_id=link.id, page_size=checked_page_size(page_size))
        return link.pages(
            link.sessions.ListCheckpoints, request, lambda reply: reply.checkpoints, to_checkpoint, timeout
        )

    async def restore(
        self, checkpoint: Checkpoint | str, *, request_id: str | None = None, timeout: float | None = None
    ) -> Restored:
        """Goes back to a savepoint in one commit. What came after it stays readable, as a branch of its own.

        Args:
            checkpoint: the savepoint, or its id.
            request_id: a UUID of your own; None uses the client's sequence.
            timeout: the deadline with all retries, in seconds.

        Raises:
            EntryNotFound: there is no such savepoint any more.
            SessionClosed: the session is closed; fork it.
            NoosphereError: anything else, see the tree.
        """
        link = self._link
        request = pb.RestoreCheckpointRequest(session_id=link.id, checkpoint_id=checkpoint_id_of(checkpoint))
        reply: pb.RestoreCheckpointResponse
        reply, _ = await link.write(link.sessions.RestoreCheckpoint, request, request_id, timeout)
        return Restored(to_session(reply.session), reply.abandoned_branch, reply.restored, reply.removed)

    async def summarize(self, *, request_id: str | None = None, timeout: float | None = None) -> Summary | None:
        """Makes a summary of what has left the window now, instead of leaving that to the background.

        Args:
            request_id: a UUID of your own; None uses the client's sequence.
            timeout: the deadline with all retries, in seconds; a summary by a model may take long.

        Returns:
            The newest summary; None if nothing has left the window.

        Raises:
            SessionClosed: the session is closed.
            NoosphereError: anything else, see the tree.
        """
        link = self._link
        reply: pb.SummarizeSessionResponse
        reply, _ = await link.write(
            link.sessions.SummarizeSession, pb.SummarizeSessionRequest(session_id=link.id), request_id, timeout
        )
        return to_summary(reply)

    async def run_transitions(
        self,
        *keys: str,
        dry_run: bool = False,
        instruction: TransitionAction | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> tuple[Transition, ...]:
        """Runs the controller, which decides what leaves working memory, or tells what it would do.

        Args:
            keys: only these items; none for all.
            dry_run: only tell.
            instruction: do this with ``keys``, whatever the rules say; pinned items, open goals and what pending
                calls need stay.
            request_id: a UUID of your own; None uses the client's sequence.
            timeout: the deadline with all retries, in seconds.

        Returns:
            One decision per item, by key.

        Raises:
            SessionClosed: the session is closed.
            NoosphereError: anything else, see the tree.
        """
        link = self._link
        request = pb.RunTransitionsRequest(session_id=link.id, dry_run=dry_run, keys=[checked_key(key) for key in keys])
        if instruction is not None:
            request.instruction = number_of("instruction", instruction, ACTIONS)
        reply: pb.RunTransitionsResponse
        reply, _ = await link.write(link.sessions.RunTransitions, request, request_id, timeout)
        return tuple(map(to_transition, reply.transitions))

    def transitions(self, *, page_size: int = PAGE_SIZE, timeout: float | None = None) -> AsyncIterator[Transition]:
        """Lists the controller's decisions that changed something, the newest first, page by page.

        Args:
            page_size: decisions per call, 1 to 1,000.
            timeout: the deadline of each page with its retries, in seconds.
        """
        link = self._link
        request = pb.ListTransitionsRequest(session_id=link.id, page_size=checked_page_size(page_size))
        return link.pages(
            link.sessions.ListTransitions, request, lambda reply: reply.transitions, to_transition, timeout
        )

    async def health(self, *, timeout: float | None = None) -> SessionHealth:
        """Tells how the session fares, in figures and in words.

        Args:
            timeout: the deadline with all retries, in seconds.

        Raises:
            SessionNotFound: it was purged.
            NoosphereError: anything else, see the tree.
        """
        link = self._link
        request = pb.GetSessionHealthRequest(session_id=link.id)
        reply: pb.GetSessionHealthResponse = await link.read(link.sessions.GetSessionHealth, request, timeout)
        return to_health(reply)

    async def handoff(
        self, to: str, note: str = "", *, request_id: str | None = None, timeout: float | None = None
    ) -> str:
        """Hands the session to another agent.

        The grant is recorded in the session. The text that is returned carries the grant's id, the control state,
        the note and what this client has seen; the other agent passes it to ``Client.observe``, and
        :func:`read_handoff` tells what is in it. It authorises nothing by itself.

        Args:
            to: the agent that takes over.
            note: what it should know, at most 4 KiB.
            request_id: a UUID of your own; None uses the client's sequence.
            timeout: the deadline with all retries, in seconds.

        Returns:
            One text, a JSON object.

        Raises:
            AckedWritesLost: something that this client has seen did not survive.
            SessionClosed: the session is closed.
            NoosphereError: anything else, see the tree.
        """
        link = self._link
        request = pb.HandoffRequest(session_id=link.id, to=checked_text("to", to), note=checked_text("note", note))
        request.call.causal_tokens.append(encode_causal(link.transport.progress.causal.token))
        reply: pb.HandoffResponse
        reply, _ = await link.write(link.sessions.Handoff, request, request_id, timeout)
        return reply.envelope

    async def close(
        self,
        *,
        items: ItemDisposition = "archive",
        pending_calls: PendingCalls = "fail",
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> ClosedSession:
        """Closes the session: it can be read and forked from then on, until it is purged. An ephemeral one is gone.

        Closing it again changes nothing: what was decided first stays.

        Args:
            items: what becomes of its items; an ephemeral session drops them, whatever this says.
            pending_calls: what becomes of its pending tool calls.
            request_id: a UUID of your own; None uses the client's sequence.
            timeout: the deadline with all retries, in seconds.

        Raises:
            CallsPending: calls are pending, and ``pending_calls`` is ``refuse``.
            NoosphereError: anything else, see the tree.
        """
        link = self._link
        request = pb.CloseSessionRequest(
            session_id=link.id,
            items=number_of("items", items, _DISPOSITIONS),
            pending_calls=number_of("pending_calls", pending_calls, _PENDING),
        )
        reply: pb.CloseSessionResponse
        reply, _ = await link.write(link.sessions.CloseSession, request, request_id, timeout)
        if reply.session.ephemeral:
            link.transport.progress.causal.drop(link.namespace)
        return ClosedSession(reply.archived, reply.dropped, reply.failed_calls)

    async def purge(self, *, request_id: str | None = None, timeout: float | None = None) -> int:
        """Removes a closed session and everything in it; purging again changes nothing.

        Args:
            request_id: a UUID of your own; None uses the client's sequence.
            timeout: the deadline with all retries, in seconds.

        Returns:
            How many records were removed.

        Raises:
            SessionOpen: it is in use: close it first.
            ChildrenOpen: a fork still reads its messages.
            NoosphereError: anything else, see the tree.
        """
        link = self._link
        reply: pb.PurgeSessionResponse
        reply, _ = await link.write(
            link.sessions.PurgeSession, pb.PurgeSessionRequest(session_id=link.id), request_id, timeout
        )
        link.transport.progress.causal.drop(link.namespace)
        return reply.records


def checkpoint_id_of(checkpoint: Checkpoint | str) -> str:
    """Returns the id of a savepoint.

    Raises:
        InvalidArgument: it is none.
    """
    if isinstance(checkpoint, Checkpoint):
        return checkpoint.id
    if not isinstance(checkpoint, str):
        raise InvalidArgument(f"checkpoint: {shown(checkpoint)} is {type(checkpoint).__name__}, not a checkpoint")
    return checked_text("checkpoint", checkpoint)
