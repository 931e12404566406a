"""Locks and groups of agents at two replicas, whose services share nothing but etcd."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.contract.coordlab import EtcdLab
from tests.contract.lab import EmbeddedLab, until
from tests.support.api import Agent, Api
from tests.support.coordination import Coordinated
from tests.support.etcd import needs_etcd
from tests.support.statuses import Refused
from tests.support.transport import HandlerTransport

from noosphere.consistency.limits import AGENT_LEASE_MS
from noosphere.server.coordination import Coordination
from noosphere.server.memory import Memory
from noosphere.server.rpc.admin import AdminRpc
from noosphere.server.rpc.coordination import CoordinationRpc
from noosphere.server.rpc.memory import MemoryRpc
from noosphere.server.storage.etcd import EtcdCoordinator

pytestmark = needs_etcd

WAIT_MS = 60_000


def replica(coordinator: EtcdCoordinator, store: EmbeddedLab) -> Api:
    """Returns the services of one process; their working store is shared in this test."""
    memory = Memory.build(
        store.store, coordinator, clock=store.clock, agent_lease_ms=AGENT_LEASE_MS, sweep_interval_ms=3_600_000
    )
    rest: Any = None
    coordination = CoordinationRpc(Coordination.build(memory.core, memory.signals))
    return Api(
        HandlerTransport(MemoryRpc(memory), AdminRpc(memory, store.clock), rest, rest, coordination=coordination)
    )


@pytest.fixture
async def pair(etcd: EtcdLab, embedded: EmbeddedLab) -> AsyncIterator[tuple[Api, Api]]:
    other = await etcd.another()
    try:
        yield replica(etcd.coordinator, embedded), replica(other, embedded)
    finally:
        await other.close()


def elsewhere(api: Api, agent: Coordinated) -> Coordinated:
    """Returns the same agent as it calls another replica."""
    return Coordinated(Agent(api, agent.agent.actor))


async def test_a_holder_renews_and_releases_at_any_replica(pair: tuple[Api, Api]) -> None:
    here, there = pair
    a, b = Coordinated(await here.agent("a")), Coordinated(await there.agent("b"))
    lock = await a.took("x")
    assert await b.acquire("x") is None
    assert await b.holder("x") == lock
    await elsewhere(there, a).renew(lock)
    assert await b.locks("x") == [lock]
    assert await elsewhere(there, a).release(lock)
    assert (await b.took("x")).token > lock.token


async def test_an_acquire_that_moves_to_another_replica_keeps_its_place(etcd: EtcdLab, pair: tuple[Api, Api]) -> None:
    here, there = pair
    first, a, b = [Coordinated(await here.agent(name)) for name in ("first", "a", "b")]
    held = await first.took("x")
    call = a.agent.call(sequence=3)
    cut_off = asyncio.create_task(a.acquire("x", wait_ms=WAIT_MS, call=call))
    await until(lambda: etcd.queued("x") == 1)
    behind = asyncio.create_task(b.acquire("x", wait_ms=WAIT_MS))
    await until(lambda: etcd.queued("x") == 2)
    again = asyncio.create_task(elsewhere(there, a).acquire("x", wait_ms=WAIT_MS, call=call))
    await until(lambda: any(kv.mod_revision > kv.create_revision for kv in etcd.seats("x")))
    cut_off.cancel()
    await asyncio.wait((cut_off,))
    await first.release(held)
    lock = await again
    assert lock is not None
    assert lock.holder == a.agent.name
    assert not behind.done()
    assert await elsewhere(there, a).release(lock)
    assert (await behind) is not None


@pytest.mark.parametrize("how", ["close", "takeover"])
async def test_an_agent_that_ends_at_one_replica_frees_what_it_took_at_another(pair: tuple[Api, Api], how: str) -> None:
    here, there = pair
    a, b = Coordinated(await here.agent("a")), Coordinated(await there.agent("b"))
    await a.took("x")
    await a.join("g")
    watch = b.watch("g")
    assert [member.agent_id for member in (await anext(watch)).joined] == ["a"]
    waiting = asyncio.create_task(b.acquire("x", wait_ms=WAIT_MS))
    if how == "close":
        await there.close_agent(a.agent.actor)
    else:
        await there.open_agent("a", takeover=True)
    lock = await waiting
    assert lock is not None
    assert lock.holder == b.agent.name
    assert (await anext(watch)).left == ["a"]
    await watch.aclose()
    with pytest.raises(Refused) as refused:
        await a.acquire("y")
    assert refused.value.reason == "STALE_INCARNATION"


async def test_members_at_all_replicas_are_told_at_each(pair: tuple[Api, Api]) -> None:
    here, there = pair
    a, b = Coordinated(await here.agent("a")), Coordinated(await there.agent("b"))
    watches = [a.watch("g"), b.watch("g")]
    for watch in watches:
        await anext(watch)
    mine, other = await a.join("g", data=b"1"), await b.join("g", data=b"2")
    for watch in watches:
        told: list[Any] = []
        while len(told) < 2:
            told += (await anext(watch)).joined
        assert told == [mine, other]
        await watch.aclose()
    assert await a.members("g") == await b.members("g") == [mine, other]


async def test_a_thousand_attempts_in_vain_leave_nothing_behind(etcd: EtcdLab, pair: tuple[Api, Api]) -> None:
    before = etcd.server.leases()
    here, there = pair
    holder = Coordinated(await here.agent("holder"))
    lock = await holder.took("x")
    others = [Coordinated(await (here, there)[i % 2].agent(f"a{i}")) for i in range(10)]
    for at in range(50):
        # Half of them give up at once, half are cut off while they wait.
        waiting = [asyncio.create_task(other.acquire("x", wait_ms=WAIT_MS)) for other in others]
        assert await asyncio.gather(*(other.acquire("x") for other in others)) == [None] * 10
        if at % 10 == 0:
            await until(lambda: etcd.queued("x") == 10)
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
    assert etcd.queued("x") == 0
    assert len(etcd.server.leases() - before) == 11 + 1, "of the agents, and of the lock"
    assert await holder.release(lock)
    for agent in (holder, *others):
        await here.close_agent(agent.agent.actor)
    assert etcd.server.leases() <= before
    assert not etcd.server.kvs(f"{etcd.root}mine/")
