"""Many who submit, review, forget and search at once: whoever is faster, what is known is consistent in the end."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from tests.support.engine import LocalServer
from tests.support.facts import Conversation, FactAgent
from tests.support.interleaving import interleave
from tests.support.meddling import meddle, once
from tests.support.sessions import SessionAgent
from tests.support.statuses import Refused, refusal

from noosphere.consistency import Reason
from noosphere.server.facts.sweeping import ORPHAN_AGE_MS
from noosphere.server.facts.types import Candidate, Cardinality, Channel, Decision
from noosphere.server.ports.factstore import FactContent
from noosphere.v1 import fact_service_pb2 as pb

Status = pb.CandidateStatus
AGENTS = 8
ANN, BOB = OWNERS = ("user/ann", "user/bob")
SEEDS = range(4)


async def operators(local: LocalServer, count: int = AGENTS) -> list[FactAgent]:
    """Agents that are trusted without evidence."""
    return [FactAgent(await local.api.agent(f"cli/op-{at}")) for at in range(count)]


async def idle(local: LocalServer) -> None:
    """Returns once nothing waits any more."""
    while any((await local.engine.facts.queue.stats())[:2]):
        pass


def said(text: str, owner: str = ANN, **fields: Any) -> pb.Candidate:
    """What the operator says."""
    return pb.Candidate(text=text, owner=owner, channel=pb.CHANNEL_INTERNAL, **fields)


def queued(at: int, text: str, *, owner: str = ANN, **fields: Any) -> Candidate:
    """A candidate as a worker takes it from the queue."""
    common = {"confidence": 0.9, "importance": 0.7, "channel": Channel.INTERNAL, "trust": 1.0, "valid_from_ms": 1}
    given: dict[str, Any] = {**common, "producer": f"clerk-{at}", **fields}
    return Candidate(id=f"{owner}#c{at:024x}", scope=owner, owner=owner, text=text, **given)


def home(at: int, since_ms: int) -> Candidate:
    """Where somebody lives from then on, of which there is one at a time."""
    city = f"Port {since_ms}"
    fields = {"subject": "user", "predicate": "home city", "object": json.dumps(city)}
    return queued(at, f"Lives in {city}", valid_from_ms=since_ms, cardinality=Cardinality.SINGLE, **fields)


async def side_by_side(local: LocalServer, candidates: Sequence[Candidate]) -> list[Decision]:
    """Decides at the same time, as several servers with one store would; one server decides one after the other."""
    pipeline = local.engine.facts.pipeline
    return await asyncio.gather(*map(pipeline.decide, candidates))


@pytest.mark.parametrize("seed", SEEDS)
async def test_what_eight_agents_say_of_two_owners_at_once_is_one_fact_of_each(local: LocalServer, seed: int) -> None:
    agents = await operators(local)
    interleave(local, random.Random(seed))
    barrier = asyncio.Barrier(2 * AGENTS)

    async def says(agent: FactAgent, owner: str) -> pb.Decision:
        await barrier.wait()
        (decision,) = (await agent.submit(said("Likes green tea", owner))).decisions
        return decision

    made = await asyncio.gather(*(says(agent, owner) for agent in agents for owner in OWNERS))
    assert Counter(decision.status for decision in made) == {
        Status.CANDIDATE_STATUS_WRITTEN: 2,
        Status.CANDIDATE_STATUS_MERGED: 2 * (AGENTS - 1),
    }
    for owner in OWNERS:
        (fact,) = await agents[0].listed(owner, include_superseded=True)
        assert (fact.owner, fact.source_count) == (owner, AGENTS)
        assert {decision.fact_id for decision in made if decision.candidate_id.startswith(owner)} == {fact.id}


@pytest.mark.parametrize("seed", SEEDS)
async def test_servers_that_decide_about_the_same_at_once_make_one_fact(local: LocalServer, seed: int) -> None:
    (facts,) = await operators(local, 1)
    interleave(local, random.Random(seed))
    made = await side_by_side(local, [queued(at, "Likes green tea") for at in range(AGENTS)])
    (fact,) = await facts.listed(ANN, include_superseded=True)
    assert {decision.fact_id for decision in made} == {fact.id}
    assert fact.source_count == AGENTS
    assert len({decision.version for decision in made}) == AGENTS, "each merge has seen the one before it"


@pytest.mark.parametrize("seed", SEEDS)
async def test_of_many_values_of_one_slot_at_once_one_is_current_and_none_is_lost(
    local: LocalServer, seed: int
) -> None:
    (facts,) = await operators(local, 1)
    rng = random.Random(seed)
    interleave(local, rng)
    # Of two that are so since the same moment neither is older; still only one can be.
    times = [1_000, 2_000, 2_000, 3_000, 4_000, 5_000, 6_000, 7_000, 8_000, 9_000]
    rng.shuffle(times)
    candidates = [home(at, since_ms) for at, since_ms in enumerate(times)]
    made = await side_by_side(local, candidates)
    (current,) = await facts.listed(ANN)
    assert current.text == "Lives in Port 9000"
    known = {fact.id: fact for fact in await facts.listed(ANN, include_superseded=True)}
    assert {fact.text for fact in known.values()} == {candidate.text for candidate in candidates}, "no side is lost"
    assert {decision.fact_id for decision in made} == set(known)
    history = {fact.id for fact in await facts.history(current.id)}
    assert history == set(known), "and each can be told of"
    for fact in known.values():
        if fact.id != current.id:
            assert known[fact.superseded_by].valid_from.ToMilliseconds() >= fact.valid_from.ToMilliseconds()
            assert fact.HasField("valid_to")


@pytest.mark.parametrize("seed", SEEDS)
async def test_what_is_forgotten_while_it_is_said_again_does_not_come_back_from_the_same_evidence(
    local: LocalServer, seed: int
) -> None:
    rng = random.Random(seed)
    agent = await local.api.agent("cli/op")
    facts, sessions = FactAgent(agent), SessionAgent(agent)
    talk = Conversation(sessions, (await sessions.open("s")).id)
    heard = [await talk.hears(f"I like green tea, now and {at} times before.") for at in range(8)]
    first = await facts.decided("Likes green tea", owner=ANN, channel=pb.CHANNEL_USER, evidence=heard[:2])
    assert first.status == Status.CANDIDATE_STATUS_WRITTEN
    interleave(local, rng)

    async def says(evidence: pb.FactEvidence) -> pb.Decision:
        for _ in range(rng.randrange(60)):
            await asyncio.sleep(0)
        return await facts.decided("Likes green tea", owner=ANN, channel=pb.CHANNEL_USER, evidence=[evidence])

    saying = [asyncio.create_task(says(evidence)) for evidence in heard]
    for _ in range(rng.randrange(60)):
        await asyncio.sleep(0)
    await facts.forget(fact_id=first.fact_id)
    made = await asyncio.gather(*saying)
    await idle(local)
    gone = {one.reference for one in heard[:2]}
    gone |= {one.reference for one, decision in zip(heard, made, strict=True) if decision.fact_id == first.fact_id}
    left = await facts.listed(ANN, include_superseded=True)
    assert first.fact_id not in {fact.id for fact in left}
    assert not gone & {one.reference for fact in left for one in fact.evidence}, "that evidence teaches nothing more"
    after = await facts.decided("Likes green tea", owner=ANN, channel=pb.CHANNEL_USER, evidence=[heard[0]])
    assert after.status not in (Status.CANDIDATE_STATUS_WRITTEN, Status.CANDIDATE_STATUS_MERGED)


@pytest.mark.parametrize("seed", SEEDS)
async def test_an_accepting_review_and_the_same_claim_at_once_make_one_fact(local: LocalServer, seed: int) -> None:
    facts, *others = await operators(local)
    rejected = await facts.decided("Likes green tea", owner=ANN, channel=pb.CHANNEL_INTERNAL, importance=0.1)
    assert rejected.status == Status.CANDIDATE_STATUS_REJECTED
    # A decision has a time, and a review waits for a later one.
    local.clock.advance(1)
    interleave(local, random.Random(seed))
    accepted, *made = await asyncio.gather(
        facts.review(rejected.candidate_id, accept=True),
        *(other.decided("Likes green tea", owner=ANN, channel=pb.CHANNEL_INTERNAL) for other in others),
    )
    (fact,) = await facts.listed(ANN, include_superseded=True)
    assert {accepted.fact_id, *(decision.fact_id for decision in made)} == {fact.id}
    assert fact.source_count == AGENTS
    assert (await facts.candidate(rejected.candidate_id)).decision == accepted


@pytest.mark.parametrize("seed", SEEDS)
async def test_reviews_that_disagree_leave_what_one_of_them_decided(local: LocalServer, seed: int) -> None:
    accepting, refusing = await operators(local, 2)
    rejected = await accepting.decided("Likes green tea", owner=ANN, channel=pb.CHANNEL_INTERNAL, importance=0.1)
    local.clock.advance(1)
    interleave(local, random.Random(seed))
    outcomes = await asyncio.gather(
        accepting.review(rejected.candidate_id, accept=True),
        refusing.review(rejected.candidate_id, accept=False),
        return_exceptions=True,
    )
    assert all(isinstance(outcome, (pb.Decision, Refused)) for outcome in outcomes), outcomes
    await idle(local)
    decision = (await accepting.candidate(rejected.candidate_id)).decision
    known = await accepting.listed(ANN)
    assert [fact.id for fact in known] == ([decision.fact_id] if decision.fact_id else []), decision
    assert (decision.status == Status.CANDIDATE_STATUS_REJECTED) == (not known)


async def test_what_was_accepted_at_the_last_moment_is_not_turned_down(local: LocalServer) -> None:
    accepting, refusing = await operators(local, 2)
    rejected = await accepting.decided("Likes green tea", owner=ANN, channel=pb.CHANNEL_INTERNAL, importance=0.1)
    local.clock.advance(1)
    accepted: list[pb.Decision] = []

    async def accept() -> None:
        accepted.append(await accepting.review(rejected.candidate_id, accept=True))

    meddle(local, once(accept))
    with refusal(Reason.INVALID_FIELD):
        await refusing.review(rejected.candidate_id, accept=False)
    assert [fact.id for fact in await accepting.listed(ANN)] == [accepted[0].fact_id]
    assert [(await accepting.candidate(rejected.candidate_id)).decision] == accepted


@pytest.mark.parametrize("seed", SEEDS)
async def test_upkeep_beside_a_burst_takes_nothing_away(local: LocalServer, seed: int) -> None:
    (facts,) = await operators(local, 1)
    rng = random.Random(seed)
    interleave(local, rng)
    texts = [
        f"The {wood} crate holds {what}" for wood in ("oak", "ash", "elm", "fir") for what in ("tea", "salt", "silk")
    ]
    candidates = [queued(at, text) for at, text in enumerate(rng.sample(texts * 4, k=4 * len(texts)))]
    candidates += [home(len(candidates) + at, 1_000 + at) for at in range(12)]
    deciding = asyncio.gather(
        *(side_by_side(local, candidates[start::6]) for start in range(6)),
    )
    while not deciding.done():
        # Whatever somebody is about to commit is older than what is swept, by the clock.
        local.clock.advance(ORPHAN_AGE_MS // 100)
        await local.engine.facts.upkeep.round(ANN, dry_run=False)
    made = [decision for part in await deciding for decision in part]
    local.clock.advance(2 * ORPHAN_AGE_MS)
    await local.engine.facts.upkeep.round(ANN, dry_run=False)
    known = await facts.listed(ANN, include_superseded=True)
    assert Counter(fact.text for fact in known) == Counter({one.text for one in candidates}), "each claim is one fact"
    assert {decision.fact_id for decision in made} >= {fact.id for fact in known}
    versions = [version for fact in known for version in await facts.history(fact.id)]
    assert all(version.text for version in versions)
    (lives,) = [fact for fact in await facts.listed(ANN) if fact.text.startswith("Lives")]
    assert lives.text == "Lives in Port 1011"


async def test_words_that_were_swept_before_their_commit_are_written_again(local: LocalServer) -> None:
    """Between the two the machine may have been suspended for longer than orphans are left alone."""
    (facts,) = await operators(local, 1)
    store = local.engine.facts.store
    write, slow = store.write, [True]

    async def suspended(contents: Sequence[FactContent]) -> None:
        await write(contents)
        if slow:
            slow.clear()
            local.clock.advance(ORPHAN_AGE_MS)
            await local.engine.facts.upkeep.round(ANN, dry_run=False)
            assert await store.read([content.key for content in contents]) == (None,), "nothing was swept"

    store.write = suspended  # type: ignore[method-assign] # the machine's lid is closed
    (candidate_id,) = (await facts.submit(said("Likes green tea"), wait=False)).candidate_ids
    await idle(local)
    decision = (await facts.candidate(candidate_id)).decision
    assert [(fact.id, fact.text) for fact in await facts.listed(ANN)] == [(decision.fact_id, "Likes green tea")]


async def test_what_agents_know_at_full_load_is_seen_by_nobody_else(local: LocalServer) -> None:
    """Each has facts of its own that say the same but for a word; searches and lists of others must not hold it."""
    rng = random.Random(5)
    names = [f"agent-{at}" for at in range(AGENTS)]
    agents = {name: FactAgent(await local.api.agent(name)) for name in names}
    (operator,) = await operators(local, 1)
    interleave(local, rng)
    canaries = {name: f"canary{at}bird" for at, name in enumerate(names)}

    async def learns(name: str) -> None:
        scope = f"agent/{name}"
        for at in range(5):
            text = f"The code of door {at} in the harbour office is {canaries[name]}"
            (decision,) = (await operator.submit(said(text, scope))).decisions
            assert decision.fact_id, decision

    async def looks(name: str) -> None:
        mine, others = canaries[name], [canary for other, canary in canaries.items() if other != name]
        for _ in range(10):
            hits = await agents[name].search("code of the door in the harbour office", f"agent/{name}")
            told = [hit.fact.text for hit in hits]
            told += [fact.text for fact in await agents[name].listed(f"agent/{name}")]
            told += [hit.fact.text for hit in await agents[name].search(rng.choice(others), f"agent/{name}")]
            assert not [text for text in told for other in others if other in text]
            assert all(mine in text for text in told)
            other = rng.choice([one for one in names if one != name])
            for look in (agents[name].listed(f"agent/{other}"), agents[name].search("code", f"agent/{other}")):
                with refusal(Reason.PERMISSION_DENIED):
                    await look

    await asyncio.gather(*(learns(name) for name in names), *(looks(name) for name in names))
    for name in names:
        known = await agents[name].listed(f"agent/{name}")
        assert len(known) == 5
        foreign = await operator.listed(f"agent/{rng.choice([one for one in names if one != name])}")
        with refusal(Reason.PERMISSION_DENIED):
            await agents[name].get(foreign[0].id)
