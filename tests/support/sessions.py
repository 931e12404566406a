"""Sessions as an agent of the behaviour suite calls them: raw requests, and the short ways that most tests take.

Nothing here remembers anything between calls or retries: tests see the contract raw.
"""

from __future__ import annotations

from typing import Any, TypeVar

from google.protobuf.message import Message
from tests.support.api import Agent
from tests.support.transport import SESSIONS

from noosphere.v1 import session_service_pb2 as pb
from noosphere.v1 import types_pb2 as types

Response = TypeVar("Response", bound=Message)


def space(session_id: str) -> str:
    """Returns a session's namespace."""
    return f"sessions/{session_id}"


class SessionAgent:
    """An agent that calls SessionService. Keyword arguments are fields of the request, by their own names."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent

    async def call(self, method: str, request: Message, kind: type[Response]) -> Response:
        """Makes one call; a request without a caller gets this agent."""
        if not request.HasField("call"):
            request.call.CopyFrom(self.agent.call())  # type: ignore[attr-defined] # every request has one
        return await self.agent.api.transport.unary(SESSIONS, method, request, kind)

    async def open(self, session_id: str = "", **fields: Any) -> pb.Session:
        """Opens a session."""
        request = pb.OpenSessionRequest(session_id=session_id, **fields)
        return (await self.call("OpenSession", request, pb.OpenSessionResponse)).session

    async def get(self, session_id: str) -> pb.Session:
        """Reads a session."""
        request = pb.GetSessionRequest(session_id=session_id)
        return (await self.call("GetSession", request, pb.GetSessionResponse)).session

    async def update(self, session_id: str, **fields: Any) -> pb.Session:
        """Changes title and labels."""
        request = pb.UpdateSessionRequest(session_id=session_id, **fields)
        return (await self.call("UpdateSession", request, pb.UpdateSessionResponse)).session

    async def listed(self, page_size: int = 0, **fields: Any) -> list[pb.Session]:
        """Reads every page of a list."""
        found: list[pb.Session] = []
        token = ""
        while True:
            request = pb.ListSessionsRequest(page_size=page_size, page_token=token, **fields)
            response = await self.call("ListSessions", request, pb.ListSessionsResponse)
            found += response.sessions
            token = response.next_page_token
            if not token:
                return found


__all__ = ["SessionAgent", "space", "types"]
