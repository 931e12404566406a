"""A session with words that are to be forgotten, and where they may be left."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.support import toolcalls
from tests.support.api import Agent
from tests.support.engine import LocalServer, local_server
from tests.support.resting import Resting
from tests.support.sessions import SessionAgent, said, space, text_of

from noosphere.server import assembly
from noosphere.server.models.tokenizers import TokenizerRegistry
from noosphere.server.ports.runtime import system_random
from noosphere.server.sessions.session_sources import SessionSources
from noosphere.v1 import session_service_pb2 as pb

S = "s"
"""The session."""

WORD = "zq7-Canary-épée"
"""What is to be forgotten."""

SPELLINGS = ("zq7-Canary-épée", "ZQ7-CANARY-ÉPÉE", "zq7-canary-e\u0301pe\u0301e", json.dumps("zq7-Canary-épée")[1:-1])
"""The word as people, models and JSON may write it."""


class Bench(NamedTuple):
    """A server with one open session, and what forgets."""

    server: LocalServer
    agent: SessionAgent
    other: SessionAgent

    @property
    def sources(self) -> SessionSources:
        """What finds and forgets, in the present life."""
        engine = self.server.engine
        hooks: tuple[Callable[[str], None], ...] = (
            lambda _: engine.memory.watches.forget_decoded(),
            engine.contexts.forget,
        )
        return SessionSources(engine.sessions.scribe, TokenizerRegistry(), system_random(), hooks)

    async def forget(self, *references: str, words: tuple[str, ...] = (WORD,)) -> dict[str, int]:
        """Forgets; returns how much of what."""
        return {place: count for place, count in await self.sources.redact(references, words)}

    async def say(self, role: pb.Role.ValueType, text: str, message_id: str, session_id: str = S, **more: Any) -> None:
        """Appends a message."""
        await self.agent.append(session_id, said(text, role=role, id=message_id, **more))

    async def text(self, message_id: str, session_id: str = S) -> str:
        """Returns the text of one message."""
        return next(text_of(m) for m in await self.agent.messages(session_id) if m.id == message_id)

    async def tool(self, call_id: str, result: object, session_id: str = S, **fields: Any) -> str:
        """Makes a call and brings its result; returns its ticket."""
        call = await toolcalls.start(self.agent, session_id, call_id, **fields)
        await toolcalls.finish(self.agent, call.ticket, result)
        return call.ticket

    def in_files(self) -> set[str]:
        """Returns in which files any spelling of the word is, case apart."""
        needles = [spelling.encode().lower() for spelling in SPELLINGS] + [b"canary"]
        files = [path for path in self.server.data.rglob("*") if path.is_file()]
        return {path.name for path in files if any(needle in path.read_bytes().lower() for needle in needles)}


@contextlib.asynccontextmanager
async def forgetting(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    """Runs a server with two agents, and a session that the first has opened; outboxes keep what they have."""
    monkeypatch.setattr(assembly, "OutboxDrain", Resting)
    async with local_server(folder) as server:
        a, b = [SessionAgent(Agent(server.api, await server.api.open_agent(name))) for name in ("a", "b")]
        await a.open(S)
        yield Bench(server, a, b)


async def summaries_of(agent: SessionAgent, session_id: str) -> list[str]:
    """Returns the summaries that a session has."""
    records = await agent.agent.listing(space(session_id), "_session/summaries/")
    return [record.values[0].value.data.decode() for record in records]
