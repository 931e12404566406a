"""Crashes between the steps of a decision and of an extraction: nothing is decided twice, nothing is half there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.engine import LocalServer, local_server
from tests.support.facts import Conversation, FactAgent
from tests.support.meddling import meddle, once
from tests.support.sessions import SessionAgent

from noosphere.server.facts.sweeping import ORPHAN_AGE_MS
from noosphere.v1 import fact_service_pb2 as pb

Status = pb.CandidateStatus
USER = "user/ann"


@pytest.fixture
async def local(tmp_path: Path) -> AsyncIterator[LocalServer]:
    """A server in this process whose crashes the test controls."""
    async with local_server(tmp_path) as server:
        yield server


class Stop:
    """A place where whoever comes there stays until the process ends."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()

    async def __call__(self, *args: Any) -> None:
        """Stays."""
        self.reached.set()
        await asyncio.Event().wait()


def before_commit(skip: int = 0) -> Callable[[LocalServer], Stop]:
    """Stops at a commit to the working store, after letting ``skip`` of them pass."""

    def stopped(local: LocalServer) -> Stop:
        stop = Stop()
        meddle(local, once(stop, skip=skip))
        return stop

    return stopped


def before_done(local: LocalServer) -> Stop:
    """Stops when all is committed, and only the queue does not know yet."""
    stop = Stop()
    local.engine.facts.queue.done = stop  # type: ignore[assignment, method-assign] # it ends here
    return stop


async def operator(local: LocalServer) -> FactAgent:
    """The operator, who is trusted without evidence."""
    return FactAgent(await local.api.agent("cli/op", takeover=True))


async def crash(local: LocalServer) -> FactAgent:
    """Ends this life, and begins the next a moment later; returns its operator."""
    local.clock.advance(1)
    await local.crash()
    return await operator(local)


async def settled(facts: FactAgent, candidate_id: str) -> pb.Decision:
    """Waits for the decision about a candidate that was submitted before: those of one owner are decided in order."""
    await facts.decided("Nothing else matters", owner=USER, channel=pb.CHANNEL_INTERNAL)
    return (await facts.candidate(candidate_id)).decision


async def idle(local: LocalServer) -> None:
    """Returns once nothing waits any more."""
    while any((await local.engine.facts.queue.stats())[:2]):
        pass


@pytest.mark.parametrize("place", [before_commit(), before_done], ids=["contents are written", "all is committed"])
async def test_a_crash_while_a_candidate_is_decided(local: LocalServer, place: Callable[[LocalServer], Stop]) -> None:
    facts = await operator(local)
    stop = place(local)
    sent = await facts.submit(pb.Candidate(text="Likes green tea", owner=USER, channel=pb.CHANNEL_INTERNAL), wait=False)
    await stop.reached.wait()
    facts = await crash(local)
    decision = await settled(facts, sent.candidate_ids[0])
    assert decision.status == Status.CANDIDATE_STATUS_WRITTEN
    listed = [one.decision.candidate_id for one in await facts.candidates(USER)]
    assert sorted(listed) == sorted({*listed}), "decided once"
    known = [fact for fact in await facts.listed(USER, include_superseded=True) if "tea" in fact.text]
    assert [(fact.id, fact.source_count) for fact in known] == [(decision.fact_id, 1)]
    assert [hit.fact.id for hit in await facts.search("green tea", USER)] == [decision.fact_id]


async def test_words_that_a_crash_left_behind_are_found_by_nobody_and_swept(local: LocalServer) -> None:
    facts = await operator(local)
    stop = before_commit()(local)
    sent = await facts.submit(pb.Candidate(text="Likes green tea", owner=USER, channel=pb.CHANNEL_INTERNAL), wait=False)
    await stop.reached.wait()
    facts = await crash(local)
    await settled(facts, sent.candidate_ids[0])
    store, upkeep = local.engine.facts.store, local.engine.facts.upkeep
    assert (await store.stats()).versions == 3, "the words of two facts, and of one that the crash prevented"
    assert len(await facts.search("green tea", USER, include_superseded=True)) == 1
    await upkeep.round(USER, dry_run=False)
    assert (await store.stats()).versions == 3, "somebody might still be about to commit them"
    local.clock.advance(ORPHAN_AGE_MS)
    await upkeep.round(USER, dry_run=False)
    assert (await store.stats()).versions == 2
    assert len(await facts.search("green tea", USER)) == 1


@pytest.mark.parametrize(
    "place",
    [before_commit(), before_commit(1), before_done],
    ids=["what was found is queued", "what was read is noted", "all is committed"],
)
async def test_a_crash_while_an_extraction_is_done(local: LocalServer, place: Callable[[LocalServer], Stop]) -> None:
    facts = await operator(local)
    sessions = SessionAgent(facts.agent)
    talk = Conversation(sessions, (await sessions.open("s")).id)
    for at in range(3):
        await talk.hears(f"Please remember that my locker number {at} is L{at}.")
    # Deciding about what is found has to wait, so that every commit is the extraction's.
    local.engine.facts.pipeline.decide = Stop()  # type: ignore[assignment, method-assign]
    stop = place(local)
    asked = facts.agent.call(uuid="5f0c2a5e-8ad5-4c8e-9a0b-5c3d6e4f7a81")
    job = await facts.extract(wait=False, owner=USER, session_id="s", call=asked)
    await stop.reached.wait()
    facts = await crash(local)
    while (ended := await facts.extraction(job.id)).state == pb.EXTRACTION_STATE_QUEUED:
        pass
    assert ended.state == pb.EXTRACTION_STATE_DONE
    assert not (await facts.extract(owner=USER, session_id="s")).candidate_ids, "all was read"
    await idle(local)
    assert len(await facts.candidates(USER)) == 3, "each was decided once"
    known = await facts.listed(USER, include_superseded=True)
    assert sorted((fact.source_count, fact.text[-3:-1]) for fact in known) == [(1, "L0"), (1, "L1"), (1, "L2")]
