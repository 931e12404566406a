"""The control state of a session: where an agent's program stands."""

from __future__ import annotations

from typing import Any

from noosphere.v1 import session_service_pb2 as pb

from ._arguments import checked_revision, checked_text
from ._session_data import ControlState
from ._session_link import Link
from ._session_wire import to_control, whole
from ._values import JSON
from ._wire import from_payload


class Control:
    """A session's control state; ``session.control``. A handle: it holds nothing.

    A restore brings it back as it was, and a hand-over carries it.
    """

    def __init__(self, link: Link) -> None:
        self._link = link

    async def get(self, *, timeout: float | None = None) -> ControlState:
        """Returns the control state; its version is 0 if it was never set.

        Args:
            timeout: the deadline with all retries, in seconds.

        Raises:
            SessionNotFound: there is no such session any more.
            NoosphereError: anything else, see the tree.
        """
        link = self._link
        request = pb.GetControlRequest(session_id=link.id)
        reply: pb.GetControlResponse = await link.read(link.sessions.GetControl, request, timeout)
        return to_control(reply)

    async def set(
        self,
        *,
        next_node: str = "",
        pending_interrupt: str = "",
        retries: int = 0,
        data: Any = None,
        expected_version: int | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> int:
        """Replaces the control state as a whole.

        Args:
            next_node: the next step of the agent's program.
            pending_interrupt: what it waits for; empty for nothing.
            retries: how often the present step was tried again.
            data: whatever else the program needs: a JSON value or a pydantic model, at most 64 KiB.
            expected_version: replace only this version; 0 asks that it was never set.
            request_id: a UUID of your own; None uses the client's sequence.
            timeout: the deadline with all retries, in seconds.

        Returns:
            The new version.

        Raises:
            VersionMismatch: it has another version by now.
            SessionClosed: the session is closed.
            NoosphereError: anything else, see the tree.
        """
        link = self._link
        state = pb.ControlState(
            next_node=checked_text("next_node", next_node),
            pending_interrupt=checked_text("pending_interrupt", pending_interrupt),
            retries=whole("retries", retries),
            data=from_payload(JSON.encode(data, "data")),
        )
        request = pb.SetControlRequest(session_id=link.id, control=state)
        if expected_version is not None:
            request.expected_version = checked_revision("expected_version", expected_version)
        reply: pb.SetControlResponse
        reply, _ = await link.write(link.sessions.SetControl, request, request_id, timeout)
        return reply.version

    def __repr__(self) -> str:
        return f"Control({self._link.id!r})"
