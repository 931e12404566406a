"""Facts while things go wrong: lost replies, broken connections, a failover that takes decisions with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

import noosphere.testing
from noosphere.client import AckedWritesLost, Candidate, Client, FactDecision, Session

USER = "user/42"
SECONDS_MAX = 30.0


@pytest.fixture
async def server() -> AsyncIterator[noosphere.testing.Server]:
    async with noosphere.testing.server() as found:
        yield found


@pytest.fixture
async def client(server: noosphere.testing.Server) -> AsyncIterator[Client]:
    async with server.client("guide") as found:
        yield found


async def told(client: Client, session: Session, words: str) -> FactDecision:
    """Lets the user say something, and the agent remember it."""
    (said,) = await session.append({"role": "user", "content": words})
    return await client.facts.remember(words, owner=USER, said_by="user", evidence=said, session=session)


async def test_a_lost_reply_makes_no_second_candidate(server: noosphere.testing.Server, client: Client) -> None:
    async with client.session("s1") as session:
        (said,) = await session.append({"role": "user", "content": "I live in Oslo"})
        server.faults.drop_reply(method="SubmitCandidates")
        decision = await client.facts.remember(
            "I live in Oslo", owner=USER, said_by="user", evidence=said, session=session
        )
    assert decision.known, decision.explain()
    assert [state.decision async for state in client.facts.candidates(USER)] == [decision]


async def test_a_fact_that_died_in_a_failover_is_told_once(server: noosphere.testing.Server, client: Client) -> None:
    """A client that has seen a decision is never shown a world without it as if nothing had happened."""
    async with client.session("s1") as session:
        kept = await told(client, session, "I live in Oslo")
        await told(client, session, "I own a boat")
        await server.faults.fail_over(lose=1)
        with pytest.raises(AckedWritesLost) as caught:
            await client.facts.search("Where do I live, and what do I own?", owner=USER)
        assert caught.value.namespace == f"facts/{USER}"
        hits = await client.facts.search("Where do I live, and what do I own?", owner=USER)
        assert [hit.id for hit in hits] == [kept.fact_id]
        assert (await told(client, session, "I own a boat")).status == "written"


async def test_forgetting_that_died_in_a_failover_is_told(server: noosphere.testing.Server, client: Client) -> None:
    """What was forgotten is known to the ledger again: whoever had it forgotten has to hear of that."""
    async with client.session("s1") as session:
        decision = await told(client, session, "I own a boat")
        # Lost with all that came after it.
        await client.private.put("k", 1)
        report = await client.facts.forget(decision.fact_id)
        assert report.fact_ids == (decision.fact_id,)
        await server.faults.fail_over(lose=1)
        with pytest.raises(AckedWritesLost) as caught:
            await client.facts.forget(decision.fact_id)
        assert caught.value.namespace == f"facts/{USER}"
        assert (await client.facts.forget(decision.fact_id)).fact_ids == (decision.fact_id,)


async def test_forgetting_alone_makes_a_client_hear_of_its_loss(server: noosphere.testing.Server) -> None:
    """Also one that has seen nothing else of the scope."""
    async with server.client("cli/op") as operator, server.client("cli/other") as other:
        decision = await operator.facts.remember("The quay is long", owner=USER, said_by="internal")
        await other.private.put("k", 1)
        await other.facts.forget(decision.fact_id)
        await server.faults.fail_over(lose=1)
        with pytest.raises(AckedWritesLost):
            await other.facts.search("quay", owner=USER)


async def test_a_watch_goes_on_after_a_failover(server: noosphere.testing.Server, client: Client) -> None:
    async with client.facts.watch(USER) as decisions:
        first = await client.facts.propose(Candidate("I live in Oslo", USER))
        assert (await asyncio.wait_for(anext(decisions), SECONDS_MAX)).decision.candidate_id == first[0]
        await server.faults.fail_over()
        second = await client.facts.propose(Candidate("I own a boat", USER))
        assert (await asyncio.wait_for(anext(decisions), SECONDS_MAX)).decision.candidate_id == second[0]
