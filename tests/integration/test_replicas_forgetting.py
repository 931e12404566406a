"""What is forgotten at one replica leaves the memory of the others within seconds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NoReturn

import pytest
from tests.support.api import Agent
from tests.support.contexts import ContextAgent
from tests.support.engine import LocalServer, local_server
from tests.support.facts import FactAgent
from tests.support.meddling import meddle
from tests.support.sessions import SessionAgent, space
from tests.support.statuses import refusal
from tests.support.telling import Teller
from tests.support.watching import watching

from noosphere.consistency import Reason, Refusal
from noosphere.server.memory.cache_drops import AGAIN_MS, LOOK_SECONDS, CacheDrops

SAID = "My locker is number zq7-Canary."
LOOK_MS = int(LOOK_SECONDS * 1_000)


@pytest.fixture
async def replicas(tmp_path: Path) -> AsyncIterator[LocalServer]:
    async with local_server(tmp_path, replicas=2) as server:
        # Each has looked for the first time, and once more.
        await server.elapse(0)
        await server.elapse(AGAIN_MS)
        yield server


async def test_words_leave_what_another_replica_keeps_for_contexts_searches_and_watchers(replicas: LocalServer) -> None:
    teller = await Teller.begin(await replicas.apis[0].agent("a"))
    fact_id = await teller.tells(SAID)
    session_id = teller.talk.id
    agent = Agent(replicas.apis[1], teller.facts.agent.actor)
    # The other replica has read all of it.
    kept = replicas.engines[1]
    await agent.put(space(session_id), "notes/locker", SAID)
    await agent.put(space(session_id), "notes/other", "Lockers are in the cellar.")
    contexts = ContextAgent(SessionAgent(agent), session_id)
    await contexts.assemble("Where is my locker?", fact_owners=[teller.user])
    assert await FactAgent(agent).search("locker", teller.user)
    assert len(kept.facts.retrieval.contents)
    async with (
        watching(agent, space(session_id), after=0) as slow,
        watching(agent, space(session_id), after=0) as quick,
    ):
        first = await quick.batch()
        assert (await slow.batch()).revision == first.revision
        await teller.facts.forget(fact_id=fact_id)
        await replicas.elapse(LOOK_MS)
        assert not len(kept.facts.retrieval.contents)
        with refusal(Reason.COMPACTED):
            await slow.ended()


async def test_what_was_being_read_when_it_was_forgotten_is_dropped_a_little_later(replicas: LocalServer) -> None:
    drops = CacheDrops(replicas.engine.memory.core, replicas.clock, shared=True)
    dropped: list[int] = []
    drops.register(lambda: dropped.append(replicas.clock.monotonic_ms()))
    begun_ms = replicas.clock.monotonic_ms()
    running = asyncio.create_task(drops.run())
    await replicas.elapse(0)
    assert dropped == [begun_ms], "what was forgotten before it looked"
    for _ in range(2 * AGAIN_MS // LOOK_MS):
        await replicas.elapse(LOOK_MS)
    assert dropped == [begun_ms, begun_ms + AGAIN_MS]
    await CacheDrops(replicas.engines[1].memory.core, replicas.clock, shared=True).tell()
    told_ms = replicas.clock.monotonic_ms()
    for _ in range(2 * AGAIN_MS // LOOK_MS):
        await replicas.elapse(LOOK_MS)
    assert dropped[2:] == [told_ms + LOOK_MS, told_ms + LOOK_MS + AGAIN_MS]
    running.cancel()


async def test_a_replica_that_cannot_look_keeps_nothing(replicas: LocalServer) -> None:
    drops = CacheDrops(replicas.engine.memory.core, replicas.clock, shared=True)
    dropped: list[None] = []
    drops.register(lambda: dropped.append(None))
    running = asyncio.create_task(drops.run())
    await replicas.elapse(0)

    async def fail() -> NoReturn:
        raise Refusal(Reason.ENGINE_UNAVAILABLE, "for now")

    meddle(replicas, fail, "read")
    count = len(dropped)
    await replicas.elapse(LOOK_MS)
    assert len(dropped) == count + 1
    running.cancel()


async def test_forgetting_that_nobody_could_be_told_of_is_to_be_called_again(replicas: LocalServer) -> None:
    teller = await Teller.begin(await replicas.apis[0].agent("a"))
    fact_id = await teller.tells(SAID)
    told = CacheDrops.tell

    async def fail(self: CacheDrops) -> NoReturn:
        raise Refusal(Reason.ENGINE_UNAVAILABLE, "for now")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(CacheDrops, "tell", fail)
        with refusal(Reason.ENGINE_UNAVAILABLE):
            await teller.facts.forget(fact_id=fact_id)
    heard: list[None] = []

    async def tell(self: CacheDrops) -> None:
        heard.append(None)
        await told(self)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(CacheDrops, "tell", tell)
        # What was begun is carried on, whoever calls for it.
        await replicas.engine.facts.forgetting.resume(teller.user)
    assert heard
