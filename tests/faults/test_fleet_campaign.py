"""Faults at random over a whole fleet under load, and the whole history judged afterwards.

A seed decides which faults happen, and in which order. ``make campaigns`` runs a few; ``make faults`` many::

    make faults FAULTS=200 SEED=7

A run counts only if the load went on before, during (where anything can) and after each fault, if each fault has
happened, and if everybody was answered after the last one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from tests.faults.conftest import connected
from tests.support.etcd import needs_etcd
from tests.support.fleet import Fleet
from tests.support.fleet_load import FleetLoad
from tests.support.process import ServerProcess
from tests.support.proxy import Fault, Proxy, proxied
from tests.support.redis import needs_redis

FAULTS = int(os.environ.get("NOOSPHERE_TEST_FAULTS", "6"))
SEED = int(os.environ.get("NOOSPHERE_TEST_SEED", "1"))
ALWAYS = ("Redis fails over with loss", "Redis full", "replica killed")
FAITHFUL, FICKLE = 2, 4
STEPS_BETWEEN = 60
STEPS_DURING = 30
LOOKS_MAX = 1_200
OUTAGE_SECONDS = 2.0
"""How long that lasts during which nobody can be answered. Nothing is asserted of it."""

pytestmark = [needs_redis, needs_etcd, pytest.mark.timeout(120 + 60 * FAULTS)]


class Campaign:
    """A fleet, of whose replicas the first one reaches everything, and is reached, through proxies.

    Args:
        fleet: all of it.
        load: what it is under.
        proxies: by the way that they stand in.
        chance: chooses among replicas.
    """

    def __init__(self, fleet: Fleet, load: FleetLoad, proxies: dict[str, list[Proxy]], chance: random.Random) -> None:
        self._fleet = fleet
        self._load = load
        self._proxies = proxies
        self._chance = chance

    def kinds(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """Returns every fault by its name."""
        kinds: dict[str, Callable[[], Awaitable[None]]] = {
            "replica killed": self._kill_replica,
            "replica stands still": self._pause_replica,
            "Redis fails over with loss": self._fail_over,
            "Redis killed and started": self._restart_redis,
            "Redis stands still": self._pause_redis,
            "scripts flushed": self._flush_scripts,
            "Redis full": self._fill_redis,
            "etcd killed and started": self._restart_etcd,
            "etcd stands still": self._pause_etcd,
        }
        for way in self._proxies:
            for fault in Fault:
                kinds[f"{way}: {fault}"] = lambda way=way, fault=fault: self._disturb(way, fault)  # type: ignore[misc] # Its defaults bind the names.
        return kinds

    async def _during(self) -> None:
        await self._load.more(STEPS_DURING)

    async def _kill_replica(self) -> None:
        server = self._chance.choice(self._fleet.servers)
        await asyncio.to_thread(server.kill)
        await self._during()
        await asyncio.to_thread(server.restart)

    async def _pause_replica(self) -> None:
        server: ServerProcess = self._chance.choice(self._fleet.servers)
        server.pause()
        try:
            await self._during()
        finally:
            server.resume()

    async def _fail_over(self) -> None:
        await asyncio.to_thread(self._fleet.cut_replica_off)
        await self._during()
        await asyncio.to_thread(self._fleet.fail_over, lose=True)
        await self._during()
        await asyncio.to_thread(self._fleet.follow)

    async def _restart_redis(self) -> None:
        await asyncio.to_thread(self._fleet.primary.kill)
        await asyncio.sleep(OUTAGE_SECONDS)
        await asyncio.to_thread(self._fleet.primary.start)

    async def _pause_redis(self) -> None:
        self._fleet.primary.pause()
        await asyncio.sleep(OUTAGE_SECONDS)
        self._fleet.primary.resume()

    async def _flush_scripts(self) -> None:
        for _ in range(5):
            await asyncio.to_thread(self._fleet.primary.ask, "SCRIPT", "FLUSH")
            await self._load.more(STEPS_DURING // 5)

    async def _fill_redis(self) -> None:
        redis = self._fleet.primary
        # In the middle of what goes on, not at once.
        used = int((await asyncio.to_thread(redis.info, "memory"))["used_memory"])
        await asyncio.to_thread(redis.ask, "CONFIG", "SET", "maxmemory", used + 50_000)
        await self._load.refused(STEPS_DURING)
        await asyncio.to_thread(redis.ask, "CONFIG", "SET", "maxmemory", 0)

    async def _restart_etcd(self) -> None:
        await asyncio.to_thread(self._fleet.etcd.kill)
        # Longer than a while the epoch lease lasts; nobody notices a shorter one.
        await self._during()
        await asyncio.to_thread(self._fleet.etcd.start)

    async def _pause_etcd(self) -> None:
        self._fleet.etcd.pause()
        await asyncio.sleep(OUTAGE_SECONDS)
        self._fleet.etcd.resume()

    async def _disturb(self, way: str, fault: Fault) -> None:
        """Disturbs the first replica's way to somebody; the others serve whoever leaves it."""
        before = sum(proxy.counts[fault] for proxy in self._proxies[way])
        with contextlib.ExitStack() as stack:
            for proxy in self._proxies[way]:
                proxy.begin(fault, seconds=0.05, longer_than=0 if way == "Redis" else 64)
                stack.callback(proxy.end)
                if fault is Fault.DUPLICATE:
                    # Only what begins now is sent twice.
                    proxy.cut()
            await self._during()
            # A way that nobody has taken meanwhile is taken by what goes on in the background.
            for _ in range(LOOKS_MAX):
                if sum(proxy.counts[fault] for proxy in self._proxies[way]) > before:
                    return
                await asyncio.sleep(0.05)
            raise AssertionError(f"the fault did not happen: {way}: {fault}")


def planned(kinds: list[str], chance: random.Random) -> list[str]:
    """Returns which faults happen: each kind before any comes a second time, those that cost most in every run."""
    rounds = [name for _ in range(FAULTS // len(kinds) + 1) for name in chance.sample(kinds, len(kinds))]
    first = [name for name in rounds[: len(kinds)] if name not in ALWAYS]
    plan = [*ALWAYS, *first, *rounds[len(kinds) :]][:FAULTS]
    begin = plan[: len(kinds)]
    chance.shuffle(begin)
    return begin + plan[len(kinds) :]


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with Fleet(tmp_path / "fleet", servers=0) as made:
        yield made


async def test_faults_at_random_lose_nothing_untold_and_break_no_order(fleet: Fleet, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    assert fleet.replica is not None
    with contextlib.ExitStack() as stack:
        to_redis = [stack.enter_context(proxied(f"127.0.0.1:{r.port}")) for r in (fleet.primary, fleet.replica)]
        to_etcd = stack.enter_context(proxied(fleet.etcd.endpoint))
        urls = ",".join(f"redis://{proxy.address}" for proxy in to_redis)
        fleet.add(redis_urls=urls, etcd_endpoints=to_etcd.address)
        fleet.add()
        fleet.add()
        front = stack.enter_context(proxied(fleet.servers[0].address))
        everywhere = ",".join((front.address, *(server.address for server in fleet.servers[1:])))
        # Some stay with the first one, whatever happens to it; the others leave it when it fails.
        load = FleetLoad(tmp_path, [front.address] * FAITHFUL + [everywhere] * FICKLE, SEED)
        ways = {"Redis": to_redis, "etcd": [to_etcd], "clients": [front]}
        campaign = Campaign(fleet, load, ways, chance)
        kinds = campaign.kinds()
        plan = planned(sorted(kinds), chance)
        happened: Counter[str] = Counter()
        async with load.running():
            for name in plan:
                await load.more(STEPS_BETWEEN)
                print(f"{load.steps.total()} steps; {name}")
                await kinds[name]()
                happened[name] += 1
                await load.everybody()
            await load.everybody(5)
        assert happened.total() == FAULTS
        assert load.losses, "the failover has lost nothing, or nobody was told"
        async with connected(fleet.servers[1]) as api:
            verdict = await load.check(api)
        print(verdict.explain())
        assert verdict.ok, verdict.explain()
        assert verdict.figures.lost_updates == 0
        assert verdict.figures.commits > STEPS_BETWEEN
        assert verdict.figures.registers > 0
