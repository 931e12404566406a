"""``kill -9`` in a burst of candidates and extractions: each is decided once, and each claim is one fact.

Upkeep runs every second meanwhile, as it always does.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest
from tests.faults.conftest import connected
from tests.support.api import Api
from tests.support.facts import Conversation, FactAgent, collected
from tests.support.process import ServerProcess
from tests.support.sessions import SessionAgent
from tests.support.statuses import Refused

from noosphere.v1 import fact_service_pb2 as pb
from noosphere.v1 import types_pb2

ROUNDS = int(os.environ.get("NOOSPHERE_TEST_KILLS", "3"))
BATCH = 20
BATCHES_A_ROUND = 12
LOCKERS = 3
"""So many things are said in each session."""

SOURCES = 3
"""So many candidates make each claim."""

BECAME_FACT = {
    pb.CANDIDATE_STATUS_WRITTEN,
    pb.CANDIDATE_STATUS_MERGED,
    pb.CANDIDATE_STATUS_SUPERSEDED,
    pb.CANDIDATE_STATUS_CONTESTED,
}
WOODS = "alder ash aspen beech birch cedar cherry elm hazel holly larch lime maple oak olive pear pine plum rowan teak"
GOODS = "tea silk salt wool rice iron glass paper honey linen pepper copper amber cocoa saffron"
CRATES = [f"{wood} {good}" for wood in WOODS.split() for good in GOODS.split()]
OWNERS = ("user/ann", "user/bob", "shared/crew")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server of the test's own that finds facts by words alone, since loading a model takes longer than the test."""
    process = ServerProcess(tmp_path / "data", ("--embedder", "none"))
    try:
        process.start()
        yield process
    finally:
        process.close()


async def operator(api: Api) -> FactAgent:
    """The operator, who is trusted without evidence."""
    return FactAgent(await api.agent("cli/loader", takeover=True))


@dataclass
class Burst:
    """Candidates of one owner, in batches whose requests are repeated until they are answered.

    Attributes:
        owner: whose.
        acknowledged: ids, by what was claimed.
        repeated: how many batches were sent again that the server had queued before it was killed.
        told: decisions that a watch has told of, over all kills.
    """

    owner: str
    acknowledged: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    repeated: int = 0
    told: list[pb.Decision] = field(default_factory=list)
    _count: int = 0
    _waiting: tuple[str, list[pb.Candidate]] | None = None
    _resume: bytes = b""

    async def begin(self, facts: FactAgent) -> None:
        """Begins to watch, before anything is submitted."""
        stream = facts.watch(self.owner)
        self._resume = (await anext(stream)).resume_token
        await stream.aclose()

    async def send(self, facts: FactAgent, batches: int = BATCHES_A_ROUND) -> None:
        """Submits batches without waiting for decisions, first the one that was not answered."""
        for _ in range(batches):
            uid, candidates = self._waiting = self._waiting or (str(uuid.uuid4()), [self._next() for _ in range(BATCH)])
            reply = await facts.submit(*candidates, wait=False, call=facts.agent.call(uuid=uid))
            self._waiting = None
            self.repeated += reply.replayed
            for candidate, id in zip(candidates, reply.candidate_ids, strict=True):
                self.acknowledged[candidate.text].append(id)

    async def hear(self, facts: FactAgent, count: int) -> None:
        """Watches until so many more decisions were told."""
        stream = facts.watch(self.owner, self._resume)
        found, self._resume = await collected(stream, count)
        self.told += found
        await stream.aclose()

    async def finish(self, facts: FactAgent) -> None:
        """Has the last batches taken, and watches until everything is told that was decided before a last candidate."""
        await self.send(facts, SOURCES)
        last = await facts.decided("This is the end of the burst", owner=self.owner, channel=pb.CHANNEL_INTERNAL)
        while not self.told or self.told[-1].candidate_id != last.candidate_id:
            await self.hear(facts, 1)
        assert self.told.pop() == last

    def _next(self) -> pb.Candidate:
        """Returns the next candidate: most are about crates, some say where the owner lives by then."""
        claim, source = divmod(self._count, SOURCES)
        self._count += 1
        candidate = pb.Candidate(owner=self.owner, channel=pb.CHANNEL_INTERNAL, producer=f"clerk-{source}")
        if claim % 10:
            crate = CRATES[claim % len(CRATES)]
            candidate.text = f"The {crate} crate {claim // len(CRATES)} is sealed"
            return candidate
        city = f"Port {claim // 10}"
        candidate.text = f"Lives in {city}"
        candidate.subject, candidate.predicate = "user", "home city"
        candidate.object.CopyFrom(types_pb2.Value(data=json.dumps(city).encode(), encoding=types_pb2.ENCODING_JSON))
        candidate.cardinality = pb.CARDINALITY_SINGLE
        candidate.valid_from.FromSeconds(1_000 + claim)
        return candidate


@pytest.mark.campaign
async def test_each_acknowledged_candidate_is_decided_once_and_each_claim_is_one_fact(server: ServerProcess) -> None:
    chance = random.Random(9)
    bursts = [Burst(owner) for owner in OWNERS]
    async with connected(server) as api:
        facts = await operator(api)
        for burst in bursts:
            await burst.begin(facts)
    for _ in range(ROUNDS):
        async with connected(server) as api:
            facts = await operator(api)
            sending = [asyncio.create_task(burst.send(facts)) for burst in bursts]
            await chance.choice(bursts).hear(facts, chance.randrange(1, BATCH * BATCHES_A_ROUND // 2))
            server.kill()
            for outcome in await asyncio.gather(*sending, return_exceptions=True):
                assert outcome is None or isinstance(outcome, Refused), outcome
        server.restart()
    async with connected(server) as api:
        facts = await operator(api)
        for burst in bursts:
            await burst.finish(facts)
            await check(facts, burst)


async def check(facts: FactAgent, burst: Burst) -> None:
    """Compares what an owner's facts are with what was submitted."""
    ids = [id for of_claim in burst.acknowledged.values() for id in of_claim]
    assert Counter(decision.candidate_id for decision in burst.told) == Counter(ids)
    assert {decision.status for decision in burst.told} <= BECAME_FACT
    decisions = {decision.candidate_id: decision for decision in burst.told}
    known = [fact for fact in await facts.listed(burst.owner, include_superseded=True) if "burst" not in fact.text]
    assert Counter(fact.text for fact in known) == Counter(burst.acknowledged.keys()), "each claim is one fact"
    by_text = {fact.text: fact for fact in known}
    for text, of_claim in burst.acknowledged.items():
        fact = by_text[text]
        assert {decisions[id].fact_id for id in of_claim} == {fact.id}
        assert fact.source_count == len(of_claim), "each of its sources counts once"
    homes = sorted((fact for fact in known if fact.predicate), key=lambda fact: fact.valid_from.seconds)
    homes = [fact for fact in homes if fact.text.startswith("Lives in")]
    assert [fact.text for fact in homes if not fact.superseded_by] == [homes[-1].text]
    assert all(older.valid_to == newer.valid_from for older, newer in pairwise(homes))
    newest = await facts.search("", burst.owner, subject="user", predicate="home city")
    assert [hit.fact.text for hit in newest] == [homes[-1].text]


@pytest.mark.campaign
async def test_extractions_survive_and_find_everything_once(server: ServerProcess) -> None:
    chance = random.Random(4)
    asked: list[tuple[str, str, str]] = []
    for _ in range(ROUNDS):
        async with connected(server) as api:
            facts = await operator(api)
            for _ in range(chance.randrange(2, 5)):
                owner = f"user/u{len(asked)}"
                sessions = SessionAgent(facts.agent)
                talk = Conversation(sessions, (await sessions.open(f"s{len(asked)}")).id)
                for at in range(LOCKERS):
                    await talk.hears(f"Please remember that my locker number {at} is L{at}.")
                uid = str(uuid.uuid4())
                asked.append((owner, talk.id, uid))
                await extract(facts, *asked[-1], wait=False)
            if chance.random() < 0.5:
                # It dies at another place.
                await facts.decided("Nothing of importance", owner="shared/crew", channel=pb.CHANNEL_INTERNAL)
            server.kill()
        server.restart()
    async with connected(server) as api:
        facts = await operator(api)
        for owner, session_id, uid in asked:
            # The same request: it is the same extraction.
            job = await extract(facts, owner, session_id, uid, wait=True)
            assert job.state == pb.EXTRACTION_STATE_DONE
            again = await extract(facts, owner, session_id, str(uuid.uuid4()), wait=True)
            assert (again.state, list(again.candidate_ids)) == (pb.EXTRACTION_STATE_DONE, []), "it was all read"
            while len(await facts.candidates(owner)) < LOCKERS:
                pass
            known = [fact for fact in await facts.listed(owner) if "locker" in fact.text]
            assert len(known) == LOCKERS
            assert {fact.source_count for fact in known} == {1}
            found = await facts.candidates(owner)
            assert len(found) == len({one.candidate.id for one in found}) == LOCKERS, "each was decided once"


async def extract(facts: FactAgent, owner: str, session_id: str, uid: str, *, wait: bool) -> pb.ExtractionJob:
    """Extracts from a session under a request id."""
    return await facts.extract(wait=wait, owner=owner, session_id=session_id, call=facts.agent.call(uuid=uid))
