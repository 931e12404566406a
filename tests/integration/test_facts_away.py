"""Servers without a fact store, or whose store is away for a while: candidates are taken and wait; the rest is told."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, MutableMapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from structlog.testing import capture_logs
from tests.support.contexts import ContextAgent
from tests.support.engine import LocalServer, local_server
from tests.support.facts import Conversation, FactAgent, user_name
from tests.support.statuses import refusal

from noosphere.consistency import Reason, Refusal
from noosphere.server import app
from noosphere.server.drivers import Drivers, open_drivers
from noosphere.server.facts.awaited import WAIT_SECONDS_MAX
from noosphere.server.facts.contents import HELD
from noosphere.server.facts.workers import ATTEMPTS_MAX, AWAY_SECONDS_MAX, BATCH
from noosphere.server.ports.factstore import FactContent, FactStore
from noosphere.server.rpc.calls import Context
from noosphere.server.rpc.facts import patience
from noosphere.server.storage.facts import AwayFactStore
from noosphere.v1 import fact_service_pb2 as pb

Status = pb.CandidateStatus
WHY = "there is none here"


class PassingStore:
    """A fact store that is away for as long as the test says, or takes no writes, or none of some scopes."""

    def __init__(self, store: FactStore) -> None:
        self._store = store
        self.away = False
        self.read_only: set[str] = set()
        """Scopes whose contents nobody may write."""
        self.keeps = False
        """Whether nothing can be removed."""
        self.refused = 0
        """How many writes were refused."""

    def __getattr__(self, name: str) -> Any:
        if self.away and name != "engine":
            raise Refusal(Reason.ENGINE_UNAVAILABLE, "the index does not answer")
        if self.keeps and name == "remove":
            raise Refusal(Reason.ENGINE_UNAVAILABLE, "the index is read-only")
        return self._writing if name == "write" else getattr(self._store, name)

    async def _writing(self, contents: Sequence[FactContent]) -> None:
        if any(content.scope.removeprefix(HELD) in self.read_only for content in contents):
            self.refused += 1
            raise Refusal(Reason.ENGINE_UNAVAILABLE, "the index is read-only")
        await self._store.write(contents)


class Surroundings:
    """Where the next server finds its facts: nowhere, unless the test says otherwise."""

    def __init__(self) -> None:
        self.store: FactStore | None = AwayFactStore(WHY)
        self.passing: PassingStore | None = None
        self.takes = 0
        self.deciding = 0
        """How often the worker that decides has asked for jobs."""
        self.asks_first = False
        """Whether the store can be asked whether it is there."""
        self.halted = False
        """No job is handed out."""
        self.refusing = False
        """The queue does not answer."""

    @contextlib.asynccontextmanager
    async def open(self, *given: Any, **options: Any) -> AsyncIterator[Drivers]:
        async with open_drivers(*given, **options) as drivers:
            if self.store is not None:
                yield drivers._replace(fact_store=self.store)
                return
            self.passing = PassingStore(drivers.fact_store)
            take = drivers.fact_queue.take

            async def counted(worker: str, *given: Any, **options: Any) -> Any:
                self.takes += 1
                self.deciding += worker == "facts"
                if self.refusing:
                    raise Refusal(Reason.ENGINE_UNAVAILABLE, "the queue does not answer")
                if self.halted:
                    return ()
                return await take(worker, *given, **options)

            drivers.fact_queue.take = counted  # type: ignore[method-assign]
            yield drivers._replace(fact_store=self.passing, fact_probe=self._probe if self.asks_first else None)

    async def _probe(self) -> None:
        assert self.passing is not None
        if self.passing.away:
            raise Refusal(Reason.ENGINE_UNAVAILABLE, "the index does not answer")


@pytest.fixture
def around(monkeypatch: pytest.MonkeyPatch) -> Surroundings:
    """Servers of this test have no fact store."""
    made = Surroundings()
    monkeypatch.setattr(app, "open_drivers", made.open)
    return made


@pytest.fixture
async def local(tmp_path: Path, around: Surroundings) -> AsyncIterator[LocalServer]:
    """A server without a fact store."""
    async with local_server(tmp_path) as server:
        yield server


def warnings(logs: list[MutableMapping[str, Any]]) -> list[str]:
    """The events that were logged as warnings."""
    return [entry["event"] for entry in logs if entry["log_level"] == "warning"]


async def begin(local: LocalServer, name: str = "guide") -> tuple[FactAgent, Conversation, str]:
    agent = await local.api.agent(name)
    return FactAgent(agent), await Conversation.begin(agent), user_name()


async def test_candidates_are_taken_and_wait_until_there_is_a_store(local: LocalServer, around: Surroundings) -> None:
    facts, talk, user = await begin(local)
    heard = await talk.hears("Metric units please.")
    claim = pb.Candidate(text="Prefers metric units", owner=user, channel=pb.CHANNEL_USER, evidence=[heard])
    reply = await facts.submit(claim, wait=True)
    (waits,) = reply.decisions
    assert waits.status == Status.CANDIDATE_STATUS_QUEUED
    assert [(why.step, why.reason) for why in waits.reasons] == [("queue", "no_store")]
    known = await facts.candidate(waits.candidate_id)
    assert (known.candidate.text, known.candidate.trust, known.decision) == ("Prefers metric units", 0.5, waits)
    await local.elapse(3_600_000)
    assert (await facts.candidate(waits.candidate_id)).decision == waits
    assert (await facts.upkeep(user)).waiting == 1
    around.store = None
    await local.restart()
    facts = FactAgent(await local.api.agent("later"))
    while (known := await facts.candidate(waits.candidate_id)).decision.status == Status.CANDIDATE_STATUS_QUEUED:
        # Each look is a call, in which the workers go on.
        continue
    assert known.decision.status == Status.CANDIDATE_STATUS_WRITTEN
    assert [hit.fact.text for hit in await facts.search("units", user)] == ["Prefers metric units"]


async def test_whoever_waits_while_the_store_is_away_is_told_what_for(tmp_path: Path, around: Surroundings) -> None:
    around.store = None
    async with local_server(tmp_path) as local:
        assert around.passing is not None
        around.passing.away = True
        facts, talk, user = await begin(local)
        heard = await talk.hears("Metric units please.")
        claim = pb.Candidate(text="Prefers metric units", owner=user, channel=pb.CHANNEL_USER, evidence=[heard])
        asked = asyncio.create_task(facts.submit(claim, wait=True))
        for _ in range(round(2 * WAIT_SECONDS_MAX)):
            await local.elapse(1_000)
        (waits,) = (await asked).decisions
        assert waits.status == Status.CANDIDATE_STATUS_QUEUED
        assert [(why.step, why.reason) for why in waits.reasons] == [("queue", "engine_away")]
        assert "accepted" in waits.reasons[0].explanation
        assert "the index does not answer" in waits.reasons[0].explanation
        assert (await facts.candidate(waits.candidate_id)).decision == waits
        around.passing.away = False
        for _ in range(60):
            await local.elapse(1_000)
        assert (await facts.candidate(waits.candidate_id)).decision.status == Status.CANDIDATE_STATUS_WRITTEN


class _Deadline:
    """A call whose caller waits for so long."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds

    def time_remaining(self) -> float | None:
        return self._seconds


@pytest.mark.parametrize(("left", "kept"), [(None, 30.0), (5.0, 4.5), (3_600.0, 30.0), (0.0, 0.001), (-1.0, 0.001)])
def test_a_caller_is_kept_waiting_no_longer_than_an_answer_can_reach_it(left: float | None, kept: float) -> None:
    assert patience(cast("Context", _Deadline(left))) == pytest.approx(kept)


async def test_what_needs_the_store_says_that_there_is_none(local: LocalServer) -> None:
    facts, _, user = await begin(local)
    await facts.submit(pb.Candidate(text="Likes tea", owner=user), wait=False)
    with refusal(Reason.ENGINE_UNAVAILABLE) as refused:
        await facts.search("tea", user)
    assert WHY in str(refused)
    with refusal(Reason.ENGINE_UNAVAILABLE) as refused:
        await facts.run_upkeep(user)
    assert WHY in str(refused)
    # The ledger knows that there is nothing.
    assert await facts.listed(user) == []


async def test_forgetting_is_refused_before_it_has_begun(local: LocalServer) -> None:
    facts, _, user = await begin(local)
    (candidate_id,) = (await facts.submit(pb.Candidate(text="Likes tea", owner=user), wait=False)).candidate_ids
    with refusal(Reason.ENGINE_UNAVAILABLE) as refused:
        await facts.forget(owner=user, all=True)
    assert WHY in str(refused)
    assert (await facts.candidate(candidate_id)).decision.status == Status.CANDIDATE_STATUS_QUEUED


async def test_contexts_do_without_facts_and_say_so_and_the_log_says_so_once(local: LocalServer) -> None:
    _, talk, user = await begin(local)
    contexts = ContextAgent(talk.sessions, talk.id)
    with capture_logs() as logs:
        for _ in range(5):
            context = await contexts.assemble("Which units?", fact_owners=[user])
            assert context.warnings == ["FACTS_UNAVAILABLE"]
            assert context.openai[-1]["content"] == "Which units?"
    assert warnings(logs) == ["facts cannot be recalled"]


async def test_extraction_goes_on_and_what_it_finds_waits(local: LocalServer) -> None:
    facts, talk, user = await begin(local)
    await talk.hears("I live in Berlin.")
    job = await facts.extract(session_id=talk.id, owner=user)
    assert job.state == pb.EXTRACTION_STATE_DONE
    (found,) = job.candidate_ids
    assert (await facts.candidate(found)).decision.status == Status.CANDIDATE_STATUS_QUEUED


async def test_upkeep_without_a_store_is_quiet(tmp_path: Path, around: Surroundings) -> None:
    async with local_server(tmp_path, sweep_seconds=60) as local:
        facts, _, user = await begin(local)
        await facts.submit(pb.Candidate(text="Likes tea", owner=user), wait=False)
        with capture_logs() as logs:
            for _ in range(10):
                await local.elapse(60_000)
        assert [entry for entry in logs if entry["log_level"] in ("warning", "error")] == []


async def test_while_a_store_is_away_jobs_are_tried_now_and_then_and_the_log_says_so_once(
    tmp_path: Path, around: Surroundings
) -> None:
    around.store = None
    async with local_server(tmp_path) as local:
        facts, _, user = await begin(local)
        assert around.passing is not None
        around.passing.away = True
        with capture_logs() as logs:
            ids: list[str] = []
            for at in range(4):
                claims = (pb.Candidate(text=f"Likes tea number {at}-{one}", owner=user) for one in range(BATCH))
                ids += (await facts.submit(*claims, wait=False)).candidate_ids
            # The disk takes the time it takes until jobs have been taken and failed.
            while warnings(logs) == []:
                await local.elapse(1_000)
                await facts.candidate(ids[0])
            before = around.takes
            for _ in range(60):
                await local.elapse(1_000)
            # Two batches at once, by one worker, and the one that looks for extractions.
            assert around.takes - before <= 3 * 60 / AWAY_SECONDS_MAX + 60
            for id in ids[:3]:
                assert (await facts.candidate(id)).decision.status == Status.CANDIDATE_STATUS_QUEUED
        assert warnings(logs) == ["fact jobs wait for an engine"]
        around.passing.away = False
        left = set(ids)
        while left:
            await local.elapse(1_000)
            left = {id for id in left if (await facts.candidate(id)).decision.status == Status.CANDIDATE_STATUS_QUEUED}


async def test_while_its_store_is_away_a_server_leaves_jobs_to_others(tmp_path: Path, around: Surroundings) -> None:
    """It asked for them every ten seconds at least, could not do them, and gave them back for longer each time."""
    around.store, around.asks_first = None, True
    async with local_server(tmp_path) as local:
        facts, _, user = await begin(local)
        assert around.passing is not None
        around.passing.away = True
        ids: list[str] = []

        async def propose(count: int) -> None:
            claims = (pb.Candidate(text=f"Likes tea number {len(ids) + at}", owner=user) for at in range(count))
            ids.extend((await facts.submit(*claims, wait=False)).candidate_ids)

        with capture_logs() as logs:
            await propose(3)
            while warnings(logs) == []:
                await local.elapse(1_000)
                await facts.candidate(ids[0])
            before = around.deciding
            for _ in range(60):
                await local.elapse(1_000)
                await propose(1)
        # What was begun before.
        assert around.deciding - before <= 2
        assert warnings(logs) == ["fact jobs wait for an engine"]
        queue = local.engine.facts.queue
        assert (await queue.stats())[:3] == (len(ids), 0, 0), "whoever can do them may have them"
        around.passing.away = False
        left = set(ids)
        while left:
            await local.elapse(1_000)
            left = {id for id in left if (await facts.candidate(id)).decision.status == Status.CANDIDATE_STATUS_QUEUED}


async def test_an_outage_uses_up_no_attempts(tmp_path: Path, around: Surroundings) -> None:
    around.store = None
    async with local_server(tmp_path) as local:
        facts, _, user = await begin(local)
        assert around.passing is not None
        around.passing.read_only.add(user)
        claims = [pb.Candidate(text=f"Likes tea number {at}", owner=user) for at in range(4)]
        ids = (await facts.submit(*claims, wait=False)).candidate_ids
        queue = local.engine.facts.queue
        while around.passing.refused < 3 * ATTEMPTS_MAX * len(ids):
            await local.elapse(round(AWAY_SECONDS_MAX * 1_000))
        waiting = [one for one in await queue.find(ids) if one is not None]
        assert len(waiting) == len(ids)
        assert {(one.dead, min(one.attempts, 2)) for one in waiting} <= {(False, 0), (False, 1)}
        around.passing.read_only.clear()
        left = set(ids)
        while left:
            await local.elapse(1_000)
            left = {id for id in left if (await facts.candidate(id)).decision.status == Status.CANDIDATE_STATUS_QUEUED}
        assert len(await facts.candidates(user)) == len(ids)


async def test_where_a_part_of_the_store_is_away_the_rest_is_decided(tmp_path: Path, around: Surroundings) -> None:
    around.store = None
    async with local_server(tmp_path) as local:
        facts, _, stuck = await begin(local)
        other = user_name()
        assert around.passing is not None
        around.passing.read_only.add(stuck)
        for at in range(BATCH):
            claim = f"Likes tea number {at}"
            await facts.submit(pb.Candidate(text=claim, owner=stuck), pb.Candidate(text=claim, owner=stuck), wait=False)
            await facts.submit(pb.Candidate(text=claim, owner=other), wait=False)
        while len(await facts.candidates(other)) < BATCH:
            await local.elapse(1_000)
        assert await facts.candidates(stuck) == []


@pytest.mark.parametrize("by", ["id", "query", "owner"])
async def test_forgetting_that_was_cut_off_goes_on_when_it_is_called_again(
    tmp_path: Path, around: Surroundings, by: str
) -> None:
    around.store = None
    async with local_server(tmp_path) as local:
        facts, talk, user = await begin(local)
        heard = await talk.hears("I like green tea.")
        claim = {"owner": user, "channel": pb.CHANNEL_USER, "evidence": [heard]}
        known = await facts.decided("Likes green tea", **claim)
        wanted: dict[str, Any] = {"query": "tea", "owner": user} if by == "query" else {"all": True, "owner": user}
        wanted = {"fact_id": known.fact_id} if by == "id" else wanted
        store = around.passing
        assert store is not None
        store.keeps = True
        for _ in range(2):
            with refusal(Reason.ENGINE_UNAVAILABLE):
                await facts.forget(**wanted)
        assert await facts.listed(user) == [], "the ledger has forgotten it"
        assert (await store.stats()).versions == 1
        store.keeps = False
        report = await facts.forget(**wanted)
        assert (await store.stats()).versions == 0
        if by == "id":
            assert list(report.fact_ids) == [known.fact_id]
            with refusal(Reason.ENTRY_NOT_FOUND):
                await facts.forget(**wanted)


async def test_while_the_queue_is_away_it_is_asked_now_and_then_and_the_log_says_so_once(
    tmp_path: Path, around: Surroundings
) -> None:
    around.store = None
    async with local_server(tmp_path) as local:
        facts, _, user = await begin(local)
        with capture_logs() as logs:
            around.refusing = True
            (candidate_id,) = (await facts.submit(pb.Candidate(text="Likes tea", owner=user), wait=False)).candidate_ids
            while warnings(logs) == []:
                await local.elapse(1_000)
            before = around.takes
            for _ in range(100):
                await local.elapse(1_000)
            asked = around.takes - before
            around.refusing = False
            while (await facts.candidate(candidate_id)).decision.status == Status.CANDIDATE_STATUS_QUEUED:
                await local.elapse(1_000)
        # Two workers look for candidates and for extractions; one that has had nothing to do may not look at all.
        assert 100 / AWAY_SECONDS_MAX / 2 <= asked <= 2 * 100 / AWAY_SECONDS_MAX + 10
        told = warnings(logs)
        assert set(told) == {"fact jobs cannot be taken"}
        assert len(told) <= 2
