"""Contexts as an agent of the behaviour suite calls for them."""

from __future__ import annotations

import json
from typing import Any

from google.protobuf.message import Message
from tests.support.sessions import Response, SessionAgent
from tests.support.transport import CONTEXTS

from noosphere.v1 import context_service_pb2 as pb
from noosphere.v1 import types_pb2


class ContextAgent:
    """An agent that calls ContextService for one session. Keyword arguments are fields of the request."""

    def __init__(self, sessions: SessionAgent, session_id: str) -> None:
        self.sessions = sessions
        self.session_id = session_id

    async def call(self, method: str, request: Message, kind: type[Response]) -> Response:
        """Makes one call; a request without a caller gets this agent."""
        if not request.HasField("call"):
            request.call.CopyFrom(self.sessions.agent.call())  # type: ignore[attr-defined] # every request has one
        return await self.sessions.agent.api.transport.unary(CONTEXTS, method, request, kind)

    async def assemble(self, input: str = "", **fields: Any) -> Assembled:
        """Assembles a context."""
        request = pb.AssembleContextRequest(session_id=self.session_id, input=input, **fields)
        return Assembled(await self.call("AssembleContext", request, pb.AssembleContextResponse))

    async def plan(self, input: str = "", **fields: Any) -> pb.PlanContextResponse:
        """Plans a context."""
        context = pb.AssembleContextRequest(session_id=self.session_id, input=input, **fields)
        context.call.CopyFrom(self.sessions.agent.call())
        transport = self.sessions.agent.api.transport
        return await transport.unary(
            CONTEXTS, "PlanContext", pb.PlanContextRequest(context=context), pb.PlanContextResponse
        )

    async def report(self, context_id: str, **fields: Any) -> tuple[int, int]:
        """Reports what was used; returns how much of how much."""
        request = pb.ReportUsageRequest(session_id=self.session_id, context_id=context_id, **fields)
        reply = await self.call("ReportUsage", request, pb.ReportUsageResponse)
        return reply.used, reply.recalled

    async def explain(self, context_id: str = "") -> pb.Manifest:
        """Reads a manifest."""
        request = pb.ExplainContextRequest(session_id=self.session_id, context_id=context_id)
        return (await self.call("ExplainContext", request, pb.ExplainContextResponse)).manifest


class Assembled:
    """A context, with its message lists decoded."""

    def __init__(self, response: pb.AssembleContextResponse) -> None:
        self.response = response
        self.id = response.context_id
        self.manifest = response.manifest
        self.openai: list[dict[str, Any]] = json.loads(response.messages.openai)
        self.anthropic: dict[str, Any] = json.loads(response.messages.anthropic)
        self.warnings = list(response.manifest.warnings)

    @property
    def text(self) -> str:
        """Everything that is sent, as text."""
        return "\n".join(message["content"] or "" for message in self.openai)

    @property
    def token(self) -> bytes:
        """The read set that covers it."""
        return self.response.call.read_set_token

    def fates(self, section: str = "") -> dict[str, tuple[str, str]]:
        """What became of each candidate, and why; of one section, if it is named."""
        wanted = pb.SectionKind.Value(f"SECTION_KIND_{section}") if section else None
        return {
            entry.id: (pb.EntryFate.Name(entry.fate).removeprefix("ENTRY_FATE_").lower(), entry.reason)
            for entry in self.manifest.entries
            if wanted is None or entry.section == wanted
        }


def against(agent: SessionAgent, token: bytes, *guards: str) -> types_pb2.CallContext:
    """A call that is made with what a context showed."""
    call = agent.agent.call()
    call.read_set_token = token
    call.guards.extend(types_pb2.Guard(prefix=guard) for guard in guards)
    return call
