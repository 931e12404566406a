"""Searching facts in every world: what was decided is found, ranked with reasons, and never what a filter hides."""

from __future__ import annotations

from typing import Any

from tests.support.facts import Conversation, FactAgent, user_name
from tests.support.worlds import World

from noosphere.v1 import fact_service_pb2 as pb

Status = pb.CandidateStatus


class Teller:
    """A user who says things that become facts at once, and an agent that hears them."""

    def __init__(self, facts: FactAgent, talk: Conversation, user: str) -> None:
        self.facts = facts
        self.talk = talk
        self.user = user

    @classmethod
    async def begin(cls, world: World) -> Teller:
        agent = await world.agent()
        return cls(FactAgent(agent), await Conversation.begin(agent), user_name())

    async def tells(self, text: str, **fields: Any) -> str:
        """Says something; returns the id of the fact that it became."""
        heard = await self.talk.hears(text)
        given = {"owner": self.user, "channel": pb.CHANNEL_USER, "evidence": [heard], **fields}
        decision = await self.facts.decided(text, **given)
        assert decision.fact_id, decision
        return decision.fact_id

    async def finds(self, query: str, **fields: Any) -> list[str]:
        """Searches; returns the texts of the hits."""
        return [hit.fact.text for hit in await self.facts.search(query, self.user, **fields)]


async def test_what_was_decided_is_found_at_once_and_says_why(world: World) -> None:
    user = await Teller.begin(world)
    await user.tells("Anna prefers metric units")
    fact_id = await user.tells("The Oslo office opens in March 2027")
    hits = await user.facts.search("When does the Oslo office open?", user.user)
    assert hits[0].fact.id == fact_id
    assert hits[0].fact == await user.facts.get(fact_id)
    scores = hits[0].scores
    assert 0 < scores.keyword <= 1
    assert scores.dense == 0
    assert abs(sum(scores.parts.values()) - scores.total) < 1e-9
    assert scores.parts["keywords"] > 0
    assert 0 < scores.relevance <= 1
    assert hits[0].tokens > 0
