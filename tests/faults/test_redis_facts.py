"""A server whose ledger and queue are on a Redis that fails over with real loss: nothing is gone untold."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr
from tests.integration.test_facts_away import Surroundings, begin
from tests.support.engine import LocalServer, local_server
from tests.support.facts import FactAgent
from tests.support.redis import needs_redis
from tests.support.redis_pair import RedisPair, redis_pair
from tests.support.statuses import refusal

from noosphere.consistency import Reason
from noosphere.server import app
from noosphere.server.ports.runtime import SystemClock
from noosphere.v1 import fact_service_pb2 as pb

pytestmark = needs_redis

Status = pb.CandidateStatus


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[RedisPair]:
    """Two Redis."""
    with redis_pair(tmp_path) as made:
        yield made


@pytest.fixture
def around(monkeypatch: pytest.MonkeyPatch) -> Surroundings:
    """Workers who rest when the test says so."""
    made = Surroundings()
    made.store = None
    monkeypatch.setattr(app, "open_drivers", made.open)
    return made


@pytest.fixture
async def local(tmp_path: Path, pair: RedisPair, around: Surroundings) -> AsyncIterator[LocalServer]:
    """A server with its facts in its data folder, and the rest on Redis."""
    urls = SecretStr(f"{pair.primary.url},{pair.replica.url}")
    clock = SystemClock()
    async with local_server(tmp_path / "data", clock, redis_urls=urls) as server:  # type: ignore[arg-type] # real time
        yield server


async def decided(facts: FactAgent, candidate_id: str) -> pb.Decision:
    while (found := (await facts.candidate(candidate_id)).decision).status == Status.CANDIDATE_STATUS_QUEUED:
        # Each look is a call, in which the workers go on.
        continue
    return found


async def test_a_decision_that_was_lost_with_the_end_of_its_job_is_made_again(
    local: LocalServer, pair: RedisPair, around: Surroundings
) -> None:
    """The job is back as well: what is undone of the ledger is undone of the queue."""
    facts, talk, user = await begin(local)
    heard = await talk.hears("Metric units please.")
    around.halted = True
    claim = pb.Candidate(text="Prefers metric units", owner=user, channel=pb.CHANNEL_USER, evidence=[heard])
    (candidate_id,) = (await facts.submit(claim, wait=False)).candidate_ids
    pair.cut_off()
    around.halted = False
    first = await decided(facts, candidate_id)
    assert first.status == Status.CANDIDATE_STATUS_WRITTEN
    while (await facts.upkeep(user)).leased:
        continue
    pair.fail_over()
    await local.restart()
    facts = FactAgent(await local.api.agent("later"))
    again = await decided(facts, candidate_id)
    assert again.status == Status.CANDIDATE_STATUS_WRITTEN
    assert again.fact_id == first.fact_id
    assert [hit.fact.text for hit in await facts.search("units", user)] == ["Prefers metric units"]


async def test_a_candidate_that_was_lost_with_its_note_is_told_to_whoever_presents_its_token(
    local: LocalServer, pair: RedisPair, around: Surroundings
) -> None:
    facts, _, user = await begin(local)
    around.halted = True
    (kept,) = (await facts.submit(pb.Candidate(text="Likes tea", owner=user), wait=False)).candidate_ids
    pair.cut_off()
    call = facts.agent.call()
    call.return_causal_token = True
    reply = await facts.submit(pb.Candidate(text="Likes coffee", owner=user), wait=False, call=call)
    (lost,) = reply.candidate_ids
    pair.fail_over()
    await local.restart()
    facts = FactAgent(await local.api.agent("later"))
    assert (await facts.candidate(kept)).decision.status == Status.CANDIDATE_STATUS_QUEUED
    assert (await facts.upkeep(user)).waiting == 1
    call = facts.agent.call()
    call.causal_tokens.append(reply.call.causal_token)
    with refusal(Reason.ACKED_WRITES_LOST):
        await facts.call("GetCandidate", pb.GetCandidateRequest(candidate_id=lost, call=call), pb.GetCandidateResponse)


async def test_a_job_that_was_lost_alone_is_decided_to_be_lost(
    local: LocalServer, pair: RedisPair, around: Surroundings
) -> None:
    """As where the queue's node of a Redis Cluster fails over and the ledger's does not."""
    facts, _, user = await begin(local)
    around.halted = True
    claims = [pb.Candidate(text=f"Likes tea number {at}", owner=user) for at in range(3)]
    ids = list((await facts.submit(*claims, wait=False)).candidate_ids)
    await local.engine.facts.queue.remove(ids=ids[:1])
    pair.cut_off()
    pair.fail_over()
    await local.restart()
    facts = FactAgent(await local.api.agent("later"))
    await facts.run_upkeep(user)
    found = (await facts.candidate(ids[0])).decision
    assert (found.status, found.reasons[0].reason) == (Status.CANDIDATE_STATUS_DEAD, "lost")
    assert (await facts.upkeep(user)).waiting == 2
