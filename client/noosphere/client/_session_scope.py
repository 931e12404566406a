"""Opening sessions: the block of one, the list of all, and what a hand-over says."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal, NamedTuple

from noosphere.v1 import session_service_pb2 as pb

from ._arguments import checked_text
from ._errors import InvalidArgument, NoosphereError, SessionNotFound
from ._handover import ENVELOPE_CHARS_MAX
from ._listing import checked_page_size
from ._session import Session
from ._session_data import SessionInfo, SessionSettings, SessionStatus
from ._session_link import Link, Services, namespace_of, opened_namespace, pages
from ._session_wire import STATUSES, checked_labels, from_settings, number_of, to_session
from ._transport import LOG

Existing = Literal["allowed", "required", "refused"]
"""Whether a session may be there before: it is taken as it is; it has to be, closed or not; it must not be."""

_EXISTING: tuple[Existing, ...] = ("allowed", "required", "refused")


class Handoff(NamedTuple):
    """What the text of a hand-over says.

    Attributes:
        id: the grant's id.
        session_id: the session.
        note: what the other agent wanted to say.
        control: the control state at that moment, as a JSON value.
        causal_token: what the other agent had seen.
    """

    id: str
    session_id: str
    note: str
    control: Any
    causal_token: str


class SessionScope:
    """The ``async with`` block of a session; made by ``Client.session``, for one use."""

    def __init__(self, services: Services, request: pb.OpenSessionRequest, existing: Existing, timeout: float | None):
        self._services = services
        self._request = request
        self._existing = existing
        self._timeout = timeout
        self._session: Session | None = None
        self._entered = False

    async def __aenter__(self) -> Session:
        """Opens the session.

        Raises:
            SessionExists: it is there, and must not be.
            SessionNotFound: it is not there, and has to be.
            SessionClosed: it is closed.
        """
        if self._entered:
            raise RuntimeError("a session's block is for one use; call client.session again")
        self._entered = True
        self._session = await self._open()
        return self._session

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leaves the session open for others, unless it is ephemeral: then it is gone."""
        session = self._session
        if session is None or not (session.created and session.opened.ephemeral):
            return
        try:
            with suppress(SessionNotFound):
                # It may have been closed in the block, or have ended with the server.
                await session.close(items="drop", timeout=self._timeout)
        except NoosphereError as failed:
            if error is None:
                raise
            # The block's own outcome matters more, and an abandoned session is closed when it has been idle.
            LOG.debug("could not close %r: %s", session, failed)

    async def _open(self) -> Session:
        services, request = self._services, self._request
        transport = services.transport
        namespace = namespace_of(request.session_id)
        if self._existing == "required":
            wanted = pb.GetSessionRequest(session_id=request.session_id)
            found: pb.GetSessionResponse = await transport.read(
                services.sessions.GetSession, wanted, timeout=self._timeout, namespace=namespace
            )
            info, created = to_session(found.session), False
        else:
            reply: pb.OpenSessionResponse
            reply, _ = await transport.write(
                services.sessions.OpenSession,
                request,
                request_id=None,
                timeout=self._timeout,
                namespace=namespace,
                opened=opened_namespace,
            )
            info, created = to_session(reply.session), reply.created
        return Session(Link(services, info.id), info, created=created)


def session_scope(
    services: Services,
    session_id: str | None,
    *,
    title: str,
    labels: Mapping[str, str] | None,
    settings: SessionSettings | None,
    ephemeral: bool,
    existing: Existing,
    timeout: float | None,
) -> SessionScope:
    """Returns the block of a session; see ``Client.session``."""
    if existing not in _EXISTING:
        raise InvalidArgument(f"existing: {existing!r} is not one of {', '.join(_EXISTING)}")
    if existing == "required" and not session_id:
        raise InvalidArgument("session_id: is needed to find a session that has to be there")
    if ephemeral and session_id and existing != "required":
        raise InvalidArgument(f"session_id: {session_id!r} is given, but the server names ephemeral sessions")
    request = pb.OpenSessionRequest(
        session_id=checked_text("session_id", session_id or ""),
        title=checked_text("title", title),
        labels=checked_labels("labels", labels),
        settings=from_settings(settings),
        ephemeral=ephemeral,
        allow_existing=existing == "allowed" and bool(session_id),
    )
    return SessionScope(services, request, existing, timeout)


def list_sessions(
    services: Services,
    *,
    status: SessionStatus | None,
    owner: str,
    labels: Mapping[str, str] | None,
    page_size: int,
    timeout: float | None,
) -> AsyncIterator[SessionInfo]:
    """Lists sessions; see ``Client.sessions``."""
    request = pb.ListSessionsRequest(
        page_size=checked_page_size(page_size),
        owner=checked_text("owner", owner),
        labels=checked_labels("labels", labels),
    )
    if status is not None:
        request.status = number_of("status", status, STATUSES)
    stub = services.sessions
    return pages(services.transport, stub.ListSessions, request, lambda reply: reply.sessions, to_session, timeout)


def read_handoff(envelope: str) -> Handoff:
    """Returns what the text of a hand-over says. Before relying on it, pass the text to ``Client.observe``.

    Args:
        envelope: what ``Session.handoff`` returned.

    Raises:
        InvalidArgument: it is no such text.
    """
    if len(checked_text("envelope", envelope)) > ENVELOPE_CHARS_MAX:
        raise InvalidArgument(f"envelope: {len(envelope)} characters, the limit is {ENVELOPE_CHARS_MAX}")
    try:
        found: Any = json.loads(envelope)
        texts = [found[name] for name in ("handoff_id", "session", "note", "causal_token")]
        control = found["control"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InvalidArgument("envelope: is not the text of a hand-over") from None
    if not all(isinstance(text, str) for text in texts):
        raise InvalidArgument("envelope: is not the text of a hand-over")
    handoff_id, session_id, note, token = texts
    return Handoff(handoff_id, session_id, note, control, token)
