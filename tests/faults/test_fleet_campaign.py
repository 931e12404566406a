"""Faults at random over a whole fleet under load, and the whole history judged afterwards.

A seed decides which faults happen, and in which order. ``make campaigns`` runs a few; ``make faults`` many::

    make faults FAULTS=200 SEED=7

A run counts only if the load went on before, during (where anything can) and after each fault, if each fault has
happened, and if everybody was answered after the last one.

With ``weaviate-server`` installed there are facts as well. While Weaviate is away everybody's working memory goes on;
after each fault facts are found again, without anything being started for that. In the end each acknowledged candidate
was decided once, or its loss was told; each claim is one fact; and nothing is there that was forgotten.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from tests.faults.conftest import connected
from tests.support.etcd import needs_etcd
from tests.support.fleet import OPTIONS, Fleet
from tests.support.fleet_facts import FactLoad
from tests.support.fleet_load import FleetLoad
from tests.support.process import ServerProcess
from tests.support.proxy import Fault, Proxy, proxied
from tests.support.redis import needs_redis
from tests.support.weaviate import PROGRAM as WEAVIATE
from tests.support.weaviate import REASON

FAULTS = int(os.environ.get("NOOSPHERE_TEST_FAULTS", "6"))
SEED = int(os.environ.get("NOOSPHERE_TEST_SEED", "1"))
FACTS = WEAVIATE is not None
KINDS = "facts on Weaviate" if FACTS else f"NO FACTS: {REASON}"
ALWAYS = (
    "Redis fails over with loss",
    "Redis full",
    "replica killed",
    *(("Weaviate stands still",) if FACTS else ()),
)
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
        facts: the part of the load that is about facts; None without Weaviate.
        proxies: by the way that they stand in.
        chance: chooses among replicas.
    """

    def __init__(
        self,
        fleet: Fleet,
        load: FleetLoad,
        facts: FactLoad | None,
        proxies: dict[str, list[Proxy]],
        chance: random.Random,
    ) -> None:
        self._fleet = fleet
        self._load = load
        self._facts = facts
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
        if self._facts is not None:
            kinds["Weaviate killed and started"] = self._restart_weaviate
            kinds["Weaviate stands still"] = self._pause_weaviate
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

    async def _restart_weaviate(self) -> None:
        assert self._fleet.weaviate is not None
        assert self._facts is not None
        self._facts.index_in_doubt = True
        await asyncio.to_thread(self._fleet.weaviate.kill)
        await self._without_facts()
        await asyncio.to_thread(self._fleet.weaviate.start)

    async def _pause_weaviate(self) -> None:
        assert self._fleet.weaviate is not None
        self._fleet.weaviate.pause()
        try:
            await self._without_facts()
        finally:
            self._fleet.weaviate.resume()

    async def _without_facts(self) -> None:
        """Whoever looks for facts is told, and nobody else notices anything."""
        assert self._facts is not None
        await self._facts.noticed()
        await self._load.everybody()
        await self._during()

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
    # The lease of a worker that was killed lasts for a minute, for which what it had begun waits.
    begin.sort(key=lambda name: name != "replica killed")
    return begin + plan[len(kinds) :]


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    options = (*OPTIONS, "--weaviate-call-ms-max", "2000", "--sweep-seconds", "2") if FACTS else OPTIONS
    with Fleet(tmp_path / "fleet", servers=0, options=options, weaviate=FACTS) as made:
        yield made


@contextlib.contextmanager
def disturbed_ways(fleet: Fleet) -> Iterator[dict[str, list[Proxy]]]:
    """Starts three replicas, and proxies around the first one; returns them by the way in which they stand."""
    assert fleet.replica is not None
    with contextlib.ExitStack() as stack:
        to_redis = [stack.enter_context(proxied(f"127.0.0.1:{r.port}")) for r in (fleet.primary, fleet.replica)]
        to_etcd = stack.enter_context(proxied(fleet.etcd.endpoint))
        ways = {"Redis": to_redis, "etcd": [to_etcd]}
        weaviate = None
        if fleet.weaviate is not None:
            seat = fleet.weaviate.seat
            rest, grpc = (stack.enter_context(proxied(address)) for address in (seat.address, seat.grpc))
            ways["Weaviate"] = [rest, grpc]
            weaviate = f'weaviate_url = "http://{rest.address}"\nweaviate_grpc = "{grpc.address}"\n'
        urls = ",".join(f"redis://{proxy.address}" for proxy in to_redis)
        fleet.add(redis_urls=urls, etcd_endpoints=to_etcd.address, weaviate=weaviate)
        fleet.add()
        fleet.add()
        ways["clients"] = [stack.enter_context(proxied(fleet.servers[0].address))]
        yield ways


@pytest.mark.parametrize("_kinds", [KINDS], ids=[KINDS])
async def test_faults_at_random_lose_nothing_untold_and_break_no_order(
    fleet: Fleet, tmp_path: Path, _kinds: str
) -> None:
    chance = random.Random(SEED)
    print(f"\n{KINDS}")
    with disturbed_ways(fleet) as ways:
        (front,) = ways["clients"]
        everywhere = ",".join((front.address, *(server.address for server in fleet.servers[1:])))
        # Some stay with the first one, whatever happens to it; the others leave it when it fails.
        load = FleetLoad(tmp_path, [front.address] * FAITHFUL + [everywhere] * FICKLE, SEED)
        facts = FactLoad([front.address, everywhere], fleet.addresses, SEED) if FACTS else None
        campaign = Campaign(fleet, load, facts, ways, chance)
        kinds = campaign.kinds()
        plan = planned(sorted(kinds), chance)
        happened: Counter[str] = Counter()
        began = time.monotonic()
        async with load.running(), contextlib.nullcontext() if facts is None else facts.running():
            for name in plan:
                await load.more(STEPS_BETWEEN)
                print(f"{time.monotonic() - began:.0f} s, {load.steps.total()} steps; {name}")
                await kinds[name]()
                happened[name] += 1
                await load.everybody()
                if facts is not None:
                    await facts.everybody()
            await load.everybody(5)
            print(f"{time.monotonic() - began:.0f} s, {load.steps.total()} steps; all that waits is done")
        print(f"{time.monotonic() - began:.0f} s; judged")
        assert happened.total() == FAULTS
        assert load.losses, "the failover has lost nothing, or nobody was told"
        async with connected(fleet.servers[1]) as api:
            verdict = await load.check(api)
        print(verdict.explain())
        print(f"faults: {dict(sorted(happened.items()))}")
        assert verdict.ok, verdict.explain()
        assert verdict.figures.lost_updates == 0
        assert verdict.figures.commits > STEPS_BETWEEN
        assert verdict.figures.registers > 0
        if facts is not None:
            print(f"facts: {dict(sorted(facts.done.items()))}, refused while away: {facts.refused.total()}")
            assert not facts.problems, "\n".join(facts.problems)
            assert facts.done["facts in the end"] > 0
            assert facts.done["forgotten"] > 0
