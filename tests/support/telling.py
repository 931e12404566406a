"""Somebody who says things that become facts at once, for suites that are about finding them."""

from __future__ import annotations

import json
from typing import Any, Protocol

from tests.support.api import Agent
from tests.support.facts import Conversation, FactAgent, user_name

from noosphere.v1 import fact_service_pb2 as pb
from noosphere.v1 import types_pb2


class _World(Protocol):
    async def agent(self, name: str = "a") -> Agent: ...


class Teller:
    """A user who is heard by an agent, which submits what they say as it was said.

    Attributes:
        facts: calls FactService as the agent.
        user: the user, whose facts they become.
        talk: the session in which they are heard.
    """

    def __init__(self, facts: FactAgent, talk: Conversation, user: str) -> None:
        self.facts = facts
        self.user = user
        self.talk = talk

    @classmethod
    async def begin(cls, agent: Agent, user: str = "") -> Teller:
        """Opens a session for the agent in which the user speaks."""
        return cls(FactAgent(agent), await Conversation.begin(agent), user or user_name())

    def another(self, user: str = "") -> Teller:
        """Returns another user whom the same agent hears in the same session."""
        return Teller(self.facts, self.talk, user or user_name())

    async def tells(self, text: str, **fields: Any) -> str:
        """Says something; returns the id of the fact that it became."""
        decision = await self.decided(text, **fields)
        assert decision.fact_id, decision
        return decision.fact_id

    async def decided(self, text: str, **fields: Any) -> pb.Decision:
        """Says something; returns what became of it. An ``object`` is any JSON value."""
        heard = await self.talk.hears(text)
        if "object" in fields:
            data = json.dumps(fields["object"]).encode()
            fields["object"] = types_pb2.Value(data=data, encoding=types_pb2.ENCODING_JSON)
        given = {"owner": self.user, "channel": pb.CHANNEL_USER, "evidence": [heard], **fields}
        return await self.facts.decided(text, **given)

    async def search(self, query: str = "", /, **fields: Any) -> pb.SearchFactsResponse:
        """Searches this user's facts, unless other owners are named."""
        request = pb.SearchFactsRequest(**{"query": query, "owners": [self.user], **fields})
        return await self.facts.call("SearchFacts", request, pb.SearchFactsResponse)

    async def finds(self, query: str = "", /, **fields: Any) -> list[str]:
        """Searches; returns the texts of the hits."""
        return [hit.fact.text for hit in (await self.search(query, **fields)).hits]
