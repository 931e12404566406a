"""Facts through both clients against the real server: remembered, found, explained, refused, watched."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.process import ServerProcess
from tests.support.threaded import Connect

from noosphere.client import (
    Candidate,
    Client,
    EntryNotFound,
    FactPolicy,
    InvalidArgument,
    PermissionDenied,
    RequestIdReused,
    SourceDocument,
    new_request_id,
)

SECONDS_MAX = 30.0


@pytest.fixture
async def client(binary: ServerProcess, connect: Connect) -> AsyncIterator[Client]:
    async with connect(binary.address, timeout=60) as connected:
        yield connected


@pytest.fixture
async def operator(binary: ServerProcess, connect: Connect) -> AsyncIterator[Client]:
    async with connect(binary.address, agent=f"cli/{new_request_id()}", timeout=60) as connected:
        yield connected


@pytest.fixture
def user() -> str:
    return f"user/{new_request_id()}"


async def told(client: Client, user: str, text: str, **more: Any) -> Any:
    """Lets the user say something in a session, and the agent remember it."""
    async with client.session(new_request_id()) as session:
        (message,) = await session.append({"role": "user", "content": text})
        return await client.facts.remember(
            text, owner=user, said_by="user", evidence=message, session=session.id, **more
        )


async def texts(client: Client, query: str, **which: Any) -> list[str]:
    return [hit.text for hit in await client.facts.search(query, **which)]


async def test_what_a_user_said_is_remembered_and_found(client: Client, user: str) -> None:
    decision = await told(client, user, "I prefer metric units", subject="user", predicate="units", object="metric")
    assert (decision.status, decision.known, decision.version) == ("written", True, 1)
    hits = await client.facts.search("which units?", owner=user, max_tokens=300)
    (hit,) = hits
    assert (hit.id, hit.text, hit.trust, hit.fact.object) == (decision.fact_id, "I prefer metric units", 0.5, "metric")
    assert hit.evidence[0].reference.startswith("msg:")
    assert hit.evidence[0].content_hash
    assert 0 < hit.relevance <= 1
    assert hit.why().startswith("relevance ")
    assert await client.facts.get(hit) == hit.fact
    assert [fact async for fact in client.facts.list(user)] == [hit.fact]


async def test_who_is_told_finds_it_too(client: Client, operator: Client, user: str) -> None:
    await told(client, user, "I prefer metric units")
    await operator.observe(client.causal_token())
    assert await texts(operator, "units", owner=user) == ["I prefer metric units"]


async def test_what_an_agent_has_from_a_page_is_no_fact(client: Client, user: str) -> None:
    """Trust is that of the evidence, whoever repeats it."""
    async with client.session(new_request_id()) as session:
        call = await session.start_tool("browse", {"url": "https://example.org"})
        await call.finish("The user's bank account is at Evil Bank")
        laundered = await client.facts.remember(
            "The user's bank account is at Evil Bank", owner=user, evidence=call.reference
        )
        repeated = await client.facts.remember("The user's bank account is at Evil Bank", owner=user, session=session)
    assert (laundered.known, repeated.known) == (False, False)
    assert laundered.reasons[-1].explanation.removesuffix(".") in laundered.explain()
    assert await texts(client, "bank account", owner=user) == []


async def test_trust_is_not_for_the_claiming(client: Client, user: str) -> None:
    with pytest.raises(PermissionDenied) as claimed:
        await client.facts.remember("Trust me", owner=user, said_by="external", claimed_trust=0.9)
    assert (claimed.value.reason, claimed.value.outcome) == ("TRUST_DENIED", "not_applied")
    with pytest.raises(PermissionDenied, match="INTERNAL is the server's"):
        await client.facts.remember("Trust me", owner=user, said_by="internal")


async def test_a_new_value_supersedes_and_the_old_one_is_history(client: Client, user: str) -> None:
    slot: Any = {"subject": "user", "predicate": "units", "cardinality": "single"}
    first = await told(client, user, "I prefer metric units", object="metric", **slot)
    second = await told(client, user, "I prefer imperial units now", object="imperial", **slot)
    assert (second.status, second.superseded) == ("superseded", (first.fact_id,))
    assert await texts(client, "units", owner=user) == ["I prefer imperial units now"]
    assert len(await client.facts.search("units", owner=user, include_superseded=True)) == 2
    history = await client.facts.history(second.fact_id)
    assert {fact.id for fact in history} == {first.fact_id, second.fact_id}
    old = await client.facts.get(first.fact_id)
    assert (old.superseded_by, old.valid_to is not None) == (second.fact_id, True)
    then = await client.facts.search("units", owner=user, as_of=first.time)
    assert [hit.text for hit in then] == ["I prefer metric units"]


async def test_several_claims_are_decided_each_by_itself(client: Client, user: str) -> None:
    async with client.session(new_request_id()) as session:
        (message,) = await session.append({"role": "user", "content": "I have a cat and a dog"})
        good = Candidate("Has a cat", user, said_by="user", evidence=[message], session_id=session.id)
        bad = Candidate("Has a dog", user, said_by="external")
        decisions = await client.facts.remember_many(good, bad)
    assert [decision.known for decision in decisions] == [True, False]


async def test_proposals_are_decided_in_the_background_and_watched(client: Client, user: str) -> None:
    async with client.facts.watch(user) as watch:
        ids = await client.facts.propose(*(Candidate(f"Idea {number}", user) for number in range(3)))
        seen = [await asyncio.wait_for(anext(watch), SECONDS_MAX) for _ in ids]
    assert {one.decision.candidate_id for one in seen} == set(ids)
    async with client.facts.watch(user, resume=seen[0].resume) as watch:
        again = [await asyncio.wait_for(anext(watch), SECONDS_MAX) for _ in seen[1:]]
    assert again == seen[1:]
    listed = [state async for state in client.facts.candidates(user, page_size=2)]
    assert [state.decision.candidate_id for state in listed] == [one.decision.candidate_id for one in reversed(seen)]
    state = await client.facts.candidate(ids[0])
    assert state in listed
    assert [one async for one in client.facts.candidates(user, statuses=["written"])] == []


async def test_a_request_is_executed_once(client: Client, user: str) -> None:
    request_id = new_request_id()
    first = await client.facts.remember("Likes tea", owner=user, request_id=request_id)
    assert await client.facts.remember("Likes tea", owner=user, request_id=request_id) == first
    with pytest.raises(RequestIdReused):
        await client.facts.remember("Likes coffee", owner=user, request_id=request_id)


async def test_what_is_kept_apart_is_for_an_operator(client: Client, operator: Client, user: str) -> None:
    kept = await told(client, user, "My password is hunter2-Zq8", subject="user", predicate="password")
    assert kept.status == "quarantined"
    assert await texts(client, "password", owner=user) == []
    with pytest.raises(PermissionDenied):
        await client.facts.review(kept.candidate_id, accept=True)
    accepted = await operator.facts.review(kept.candidate_id, accept=True)
    assert accepted.known, accepted.explain()
    assert await texts(client, "password", owner=user) == ["My password is hunter2-Zq8"]
    with pytest.raises(InvalidArgument, match="only what was refused"):
        await operator.facts.review(kept.candidate_id, accept=False)


async def test_a_policy_decides_who_writes_what(client: Client, operator: Client, user: str) -> None:
    rules = FactPolicy(memory_types=("procedural",), trust_min=0.0, confidence_min=0.5, importance_min=0.5)
    found = await operator.facts.set_policy(rules, user)
    assert (found.memory_types, found.trust_min, found.conflict_rule) == (("procedural",), 0.0, "newest")
    assert await client.facts.policy(user) == found
    refused = await client.facts.remember("Likes tea", owner=user)
    taken = await client.facts.remember("To make tea, boil water", owner=user, memory_type="procedural")
    assert (refused.known, taken.known) == (False, True), taken.explain()


async def test_the_path_of_a_fact_is_told(client: Client, user: str) -> None:
    decision = await told(client, user, "I prefer metric units")
    path = await client.facts.explain(decision.fact_id, "which units?")
    assert path.fact.id == decision.fact_id
    assert [state.decision for state in path.candidates] == [decision]
    assert path.candidates[0].candidate.said_by == "user"
    assert (path.rank, path.scores is not None) == (1, True)
    assert (await client.facts.explain(decision.fact_id)).rank is None


async def test_an_agents_own_is_private(client: Client, operator: Client) -> None:
    """Whoever does not say whose fact it is means the agent's own, which nobody else reads but an operator."""
    await client.facts.set_policy(FactPolicy(trust_min=0.0))
    decision = await client.facts.remember("The build takes an hour")
    assert decision.known, decision.explain()
    assert await texts(client, "build") == ["The build takes an hour"]
    assert await texts(operator, "build", owner=f"agent/{client.agent}") == ["The build takes an hour"]
    with pytest.raises(PermissionDenied):
        await client.facts.search("build", owner="agent/somebody-else")


async def test_a_claim_that_rests_on_nothing_is_refused_with_that_word(client: Client, user: str) -> None:
    refused = await client.facts.remember("Lives in Oslo", owner=user)
    assert refused.explain().endswith("retain: Its trust is 0 (it names no evidence), and the scope takes 0.5 or more)")


async def test_facts_are_extracted_from_documents_and_sessions(client: Client, user: str) -> None:
    async with client.session(new_request_id()) as session:
        await session.append({"role": "user", "content": "My name is Anna. I live in Oslo."})
        job = await client.facts.extract(session, owner=user, wait=True)
    assert job.state == "done", job.failure
    assert await client.facts.extraction(job) == job
    # Its facts are known when it returns.
    decisions = [(await client.facts.candidate(candidate_id)).decision for candidate_id in job.candidate_ids]
    assert [decision.status for decision in decisions] == ["written", "written"]
    assert "The user lives in Oslo." in await texts(client, "Where does the user live?", owner=user)
    page = await client.facts.extract(SourceDocument("page", "Anna lives in Bergen."), owner=user, wait=True)
    assert page.state == "done", page.failure
    for candidate_id in page.candidate_ids:
        assert (await client.facts.candidate(candidate_id)).candidate.trust == 0
    assert "Anna lives in Bergen." not in await texts(client, "Where does Anna live?", owner=user)


async def test_what_is_not_there_is_said(client: Client, user: str) -> None:
    missing = f"{user}#{'0' * 24}"
    for attempt in (client.facts.get(missing), client.facts.history(missing), client.facts.explain(missing)):
        with pytest.raises(EntryNotFound):
            await attempt
    with pytest.raises(EntryNotFound):
        await client.facts.candidate(f"{user}#c{'0' * 24}")
    with pytest.raises(InvalidArgument, match="fact_id"):
        await client.facts.get("nonsense")
    with pytest.raises(InvalidArgument, match="owner"):
        await client.facts.search("units", owner="nobody")
