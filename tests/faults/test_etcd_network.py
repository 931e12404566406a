"""The coordinator on etcd over a network that duplicates, swallows, delays and stands still."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import pytest
from tests.contract.lab import until
from tests.contract.test_coordinator import STRICT
from tests.support.etcd import EtcdProcess, needs_etcd
from tests.support.proxy import Fault, Proxy, proxied

from noosphere.consistency import NamePattern, Reason, Refusal
from noosphere.server.ports.coordinator import Incarnation
from noosphere.server.ports.runtime import SystemClock
from noosphere.server.storage.etcd import EtcdCoordinator

pytestmark = needs_etcd

ROOT = "fleet/"
LEASE_MS = 60_000
"""Longer than any of these tests takes, so that nothing lapses."""


@pytest.fixture
def proxy(etcd: EtcdProcess) -> Iterator[Proxy]:
    with proxied(etcd.endpoint) as made:
        yield made


@contextlib.asynccontextmanager
async def coordinator(endpoint: str) -> AsyncIterator[EtcdCoordinator]:
    made = await EtcdCoordinator.open([endpoint], clock=SystemClock(), root=ROOT, agent_lease_ms=LEASE_MS)
    try:
        yield made
    finally:
        await made.close()


async def test_what_arrives_twice_is_done_once(etcd: EtcdProcess, proxy: Proxy) -> None:
    with proxy.during(Fault.DUPLICATE):
        async with coordinator(proxy.address) as doubled, coordinator(etcd.endpoint) as other:
            # Whichever of the two arrives first, the id tells that it is the same.
            opened = [await doubled.open_agent(f"a{number}", False, f"open {number}") for number in range(10)]
            assert len({incarnation.number for incarnation in opened}) == 10
            for incarnation in opened:
                assert await other.latest(incarnation.agent_id) == incarnation.number
                await other.keep_agent(incarnation)
            for number in range(10):
                member = await doubled.presence.join("g", f"m{number}", LEASE_MS)
                # Lets what came the second time, and whatever followed from it, be done.
                await other.refresh()
                assert member.name in {there.name for there in await other.presence.members("g")}
            for present in range(5):
                # Whoever begins one on a condition looks again if that did not hold.
                with contextlib.suppress(Refusal):
                    await doubled.begin_epoch("drill", "", 0, present)
                assert [record.epoch for record in await other.epochs()] == list(range(1, present + 2))
            versions = [await doubled.set_policy(NamePattern(f"shared/{n}", True), STRICT) for n in range(5)]
            assert versions == sorted(set(versions))
            assert len((await other.refresh()).entries) == 5
            tokens = []
            for number in range(10):
                held = await doubled.locks.acquire("x", f"owner-{number}", LEASE_MS, 0)
                assert held is not None
                tokens.append(held.token)
                assert await other.locks.acquire("x", "nobody", LEASE_MS, 0) is None
                await doubled.locks.release("x", held.token)
            assert tokens == sorted(set(tokens))
            last = await other.locks.acquire("x", "last", LEASE_MS, 0)
            assert last is not None
            assert last.token > tokens[-1]


@pytest.mark.parametrize("fault", [Fault.HALF_OPEN, Fault.FREEZE])
async def test_an_etcd_that_takes_and_never_answers_is_given_up_and_used_again(
    etcd: EtcdProcess, proxy: Proxy, fault: Fault
) -> None:
    pattern = NamePattern("shared/a", True)
    async with coordinator(proxy.address) as parted, coordinator(etcd.endpoint) as other:
        kept = await parted.open_agent("kept", False)
        with proxy.during(fault):
            results = await asyncio.gather(
                *(parted.open_agent(f"a{number}", False) for number in range(20)),
                parted.epochs(),
                parted.locks.acquire("x", "parted", LEASE_MS, 0),
                return_exceptions=True,
            )
            assert [getattr(result, "reason", result) for result in results] == [Reason.ENGINE_UNAVAILABLE] * 22
            assert parted.touch(kept), "what is known is served"
            # What happens meanwhile is known as soon as it can be.
            await other.set_policy(pattern, STRICT)
            ended = await other.open_agent("ended", False)
            await other.close_agent(ended)
        came = await other.open_agent("came", False)
        await until(lambda: parted.touch(came) and pattern in parted.policies().entries)
        assert not parted.touch(ended)
        last = await retried(parted, "last")
        assert await other.latest("last") == last.number


async def test_a_slow_way_to_etcd_only_costs_time(etcd: EtcdProcess, proxy: Proxy) -> None:
    async with coordinator(proxy.address) as slow, coordinator(etcd.endpoint) as other:
        with proxy.during(Fault.DELAY, seconds=0.05):
            opened = await asyncio.gather(*(slow.open_agent(f"a{number}", False) for number in range(10)))
            for incarnation in opened:
                await other.keep_agent(incarnation)


async def test_connections_that_break_all_the_time_begin_nobody_twice(etcd: EtcdProcess, proxy: Proxy) -> None:
    async with coordinator(proxy.address) as broken, coordinator(etcd.endpoint) as other:
        breaking = True

        async def cut() -> None:
            pause = 0.2
            while breaking:
                proxy.cut()
                await asyncio.sleep(pause)
                # On a slow machine, too, somebody gets through in the end.
                pause *= 1.1

        cutting = asyncio.create_task(cut())
        opened = [await retried(broken, f"a{number}") for number in range(10)]
        breaking = False
        await cutting
        assert proxy.counts[Fault.CUT] > 0, "nothing was broken"
        for incarnation in opened:
            assert await other.latest(incarnation.agent_id) == incarnation.number, "a retry has begun another one"


async def retried(coordinator: EtcdCoordinator, agent_id: str) -> Incarnation:
    """Opens an agent, under the same id until that is answered."""
    for _ in range(1_000):
        try:
            return await coordinator.open_agent(agent_id, False, f"{agent_id} once")
        except Refusal as refusal:
            assert refusal.reason is Reason.ENGINE_UNAVAILABLE  # noqa: PT017 # any other is to be seen
            await asyncio.sleep(0.02)
    raise AssertionError("etcd is never used again")
