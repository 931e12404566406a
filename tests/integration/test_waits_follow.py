"""Whoever waits for a namespace has the store tell of it while it waits, and no longer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from tests.support.api import Agent, Api
from tests.support.causality import cancel, reserve
from tests.support.engine import LocalServer
from tests.support.facts import FactAgent, user_name
from tests.support.following import FollowedOnly
from tests.support.transport import HandlerTransport
from tests.support.watching import watching

from noosphere.server.facts.decisions import Decisions
from noosphere.server.memory import Memory
from noosphere.server.memory.types import Call
from noosphere.server.rpc.admin import AdminRpc
from noosphere.server.rpc.context import ContextRpc
from noosphere.server.rpc.memory import MemoryRpc
from noosphere.server.rpc.sessions import SessionRpc

SPACE = "shared/s"
SECONDS_MAX = 60.0
"""A bound against hanging: the clock stands still, so whoever is not told waits for ever."""


class Replica:
    """A second set of memory services, on a store that tells only of what is followed."""

    def __init__(self, local: LocalServer) -> None:
        engine = local.engine
        self.store = FollowedOnly(engine.store)
        self.memory = Memory.build(
            self.store,
            engine.memory.core.coordinator,
            clock=local.clock,
            agent_lease_ms=30_000,
            sweep_interval_ms=60_000,
        )
        admin = AdminRpc(self.memory, local.clock)
        sessions, contexts = SessionRpc(engine.sessions, engine.transitions), ContextRpc(engine.contexts)
        self.api = Api(HandlerTransport(MemoryRpc(self.memory), admin, sessions, contexts))

    async def at(self, agent: Agent) -> Agent:
        """Returns an agent of the other services as it calls these."""
        return Agent(self.api, agent.actor)

    async def follows(self) -> None:
        """Returns once anybody follows anything."""
        await asyncio.wait_for(self.store.begun.wait(), SECONDS_MAX)


@pytest.fixture
async def replica(local: LocalServer) -> AsyncIterator[Replica]:
    made = Replica(local)
    telling = asyncio.create_task(made.memory.signals.run(made.store.heads()))
    yield made
    assert made.store.followed.total() == 0, "what is not waited for is not followed"
    telling.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await telling


async def test_a_watch_follows_while_it_runs(local: LocalServer, replica: Replica) -> None:
    writer = await local.api.agent("a")
    async with watching(await replica.at(writer), SPACE, after=0) as watch:
        waiting = asyncio.create_task(watch.batch())
        await replica.follows()
        made = await writer.put(SPACE, "k", 1)
        assert (await asyncio.wait_for(waiting, SECONDS_MAX)).revision == made.revision


async def test_a_claimer_follows_while_it_waits(local: LocalServer, replica: Replica) -> None:
    writer = await local.api.agent("a")
    claimer = await replica.at(await local.api.agent("b"))
    assert await claimer.claim(SPACE) is None
    waiting = asyncio.create_task(claimer.claim(SPACE, wait_ms=4_000))
    await replica.follows()
    await writer.put(SPACE, "task", 1)
    task = await asyncio.wait_for(waiting, SECONDS_MAX)
    assert task is not None
    assert task.key == "task"


async def test_a_claimer_misses_nothing_between_its_look_and_following(local: LocalServer, replica: Replica) -> None:
    writer = await local.api.agent("a")
    claimer = await replica.at(await local.api.agent("b"))
    follow = replica.store.follow

    async def late(namespace: object) -> None:
        await writer.put(SPACE, "task", 1)
        await follow(namespace)  # type: ignore[arg-type] # what it was given

    replica.store.follow = late  # type: ignore[method-assign] # on purpose
    task = await asyncio.wait_for(claimer.claim(SPACE, wait_ms=4_000), SECONDS_MAX)
    assert task is not None


async def test_one_that_waits_for_a_reservation_follows(local: LocalServer, replica: Replica) -> None:
    holder = await local.api.agent("a")
    waiter = await replica.at(await local.api.agent("b"))
    held = await reserve(holder, SPACE, "k")
    assert not (await reserve(waiter, SPACE, "k")).fence
    waiting = asyncio.create_task(reserve(waiter, SPACE, "k", wait_ms=4_000))
    await replica.follows()
    await cancel(holder, SPACE, "k", held.fence)
    assert (await asyncio.wait_for(waiting, SECONDS_MAX)).fence > held.fence


async def test_a_watch_of_decisions_follows_the_ledger(local: LocalServer, replica: Replica) -> None:
    agent = await local.api.agent("a")
    facts, user = FactAgent(agent), user_name()
    made = local.engine.facts
    decisions = Decisions(
        replica.memory.core, made.ledger, made.queue, made.store, made.intake, replica.memory.signals, local.clock
    )
    stream = decisions.watch(Call(), user, None)
    await anext(stream)
    waiting = asyncio.ensure_future(anext(stream))
    await replica.follows()
    decided = await facts.decided("Likes green tea", owner=user)
    told = await asyncio.wait_for(waiting, SECONDS_MAX)
    assert told.decision is not None
    assert told.decision.candidate_id == decided.candidate_id
    await stream.aclose()
