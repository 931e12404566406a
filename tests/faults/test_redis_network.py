"""Working stores under load whose Redis, or the way to it, fails: what is acknowledged is there, or told lost."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from tests.support.proxy import Fault, Proxy, proxied
from tests.support.redis import needs_redis
from tests.support.redis_pair import RedisPair, redis_pair
from tests.support.store_load import WRITERS, Load

from noosphere.consistency import Reason, Refusal
from noosphere.server.ports.coordinator import EpochRecord
from noosphere.server.ports.runtime import SystemClock
from noosphere.server.storage.embedded import EmbeddedCoordinator
from noosphere.server.storage.redis import RedisStore, engine, fitness, lease, wire

pytestmark = needs_redis

FIRST_EPOCH = 9_001


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[RedisPair]:
    """A primary and its replica."""
    with redis_pair(tmp_path / "redis") as made:
        yield made


@pytest.fixture
def proxy(pair: RedisPair) -> Iterator[Proxy]:
    """What stands before the primary."""
    with proxied(f"127.0.0.1:{pair.primary.port}") as made:
        yield made


@pytest.fixture
async def store(pair: RedisPair, proxy: Proxy, coordinator: EmbeddedCoordinator) -> AsyncIterator[RedisStore]:
    """A store that reaches the primary through the proxy only."""
    made = await opened(coordinator, f"redis://{proxy.address}", pair.replica.url)
    yield made
    await made.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands still is given up soon. Who has to be answered at once undoes it: a slow Redis is no faulty one."""
    monkeypatch.setattr(wire, "REPLY_SECONDS_MAX", 0.3)


async def opened(coordinator: EmbeddedCoordinator, *urls: str) -> RedisStore:
    return await RedisStore.open(urls, coordinator, clock=SystemClock())


async def epochs(coordinator: EmbeddedCoordinator) -> list[int]:
    return [record.epoch for record in (await coordinator.epochs())[1:]]


async def test_commits_whose_replies_are_dropped_execute_once_and_are_answered_as_successes(
    store: RedisStore, proxy: Proxy, coordinator: EmbeddedCoordinator
) -> None:
    load = Load([store])
    async with load.running():
        drops = 0
        # Those of reads are dropped as well: until that of a commit has been, which the test's time limit bounds.
        while drops < 20 or not load.replayed:
            await load.more(20)
            with proxy.during(Fault.DROP_REPLIES, longer_than=0, times=1):
                await proxy.happened()
            drops += 1
        await load.more(20)
    assert await load.check(store) == set()
    assert await epochs(coordinator) == [FIRST_EPOCH], "a broken connection is no failover"


async def test_what_a_network_sends_twice_is_executed_once(
    pair: RedisPair, proxy: Proxy, coordinator: EmbeddedCoordinator
) -> None:
    with proxy.during(Fault.DUPLICATE):
        store = await opened(coordinator, f"redis://{proxy.address}")
        try:
            load = Load([store])
            async with load.running():
                await load.more(500)
            assert await load.check(store) == set()
            assert await epochs(coordinator) == [FIRST_EPOCH]
        finally:
            await store.close()


async def test_a_slow_network_only_costs_time(
    store: RedisStore, proxy: Proxy, coordinator: EmbeddedCoordinator
) -> None:
    load = Load([store])
    async with load.running():
        await load.more(100)
        with proxy.during(Fault.DELAY, seconds=0.01):
            await load.more(100)
        await load.more(100)
    assert not load.refused
    assert await load.check(store) == set()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("fault", [Fault.HALF_OPEN, Fault.FREEZE])
async def test_a_primary_that_takes_and_never_answers_is_noticed_and_used_again(
    store: RedisStore,
    proxy: Proxy,
    coordinator: EmbeddedCoordinator,
    monkeypatch: pytest.MonkeyPatch,
    fault: Fault,
) -> None:
    load = Load([store])
    async with load.running():
        await load.more(100)
        with proxy.during(fault):
            # Each writer, not only the first: nobody waits for ever.
            await load.refusals(3 * 8)
        await load.more(100)
    monkeypatch.undo()
    assert await load.check(store) == set()
    assert await epochs(coordinator) == [FIRST_EPOCH], "the same process was found again"


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("fault", [Fault.HALF_OPEN, Fault.FREEZE, Fault.CUT])
async def test_a_replica_that_is_promoted_serves_while_the_old_primary_cannot_be_reached(
    store: RedisStore,
    proxy: Proxy,
    pair: RedisPair,
    coordinator: EmbeddedCoordinator,
    monkeypatch: pytest.MonkeyPatch,
    fault: Fault,
) -> None:
    load = Load([store])
    async with load.running():
        await load.more(100)
        pair.cut_off()
        await load.more(50)
        with proxy.during(fault):
            await proxy.happened()
            pair.promote()
            await load.more(100)
        # The old one is there again, alive and a primary; what begins now has to find the right one of the two.
        for _ in range(3):
            await load.more(20)
            (await store.scripts.ready()).nodes[0].wire.abort("test")
    monkeypatch.undo()
    missing = await load.check(store)
    assert len(missing) >= 40, "the failover lost nothing, so nothing was tried"
    assert await epochs(coordinator) == [FIRST_EPOCH, FIRST_EPOCH + 1], "one failover, one epoch"
    late = await opened(coordinator, f"redis://{proxy.address}", pair.replica.url)
    try:
        assert late.epoch == FIRST_EPOCH + 1
        assert await load.check(late) == missing
    finally:
        await late.close()


async def test_a_redis_that_is_full_for_a_while_writes_all_of_a_commit_or_nothing_and_goes_on_reading(
    store: RedisStore, pair: RedisPair, coordinator: EmbeddedCoordinator
) -> None:
    load = Load([store])
    async with load.running():
        for _ in range(5):
            await load.more(50)
            used = int(pair.primary.info("memory")["used_memory"])
            # Full in the middle of what is going on, not at once.
            pair.primary.ask("CONFIG", "SET", "maxmemory", used + 10_000)
            await load.refusals(20, Reason.LIMIT_EXCEEDED)
            before = load.read
            await load.refusals(20, Reason.LIMIT_EXCEEDED)
            assert load.read > before, "reads were refused too"
            pair.primary.ask("CONFIG", "SET", "maxmemory", 0)
        await load.more(50)
    assert set(load.refused) == {Reason.LIMIT_EXCEEDED}
    assert await load.check(store) == set()
    assert await epochs(coordinator) == [FIRST_EPOCH]


async def test_scripts_flushed_under_load_are_loaded_again_and_no_call_fails(
    store: RedisStore, pair: RedisPair, coordinator: EmbeddedCoordinator
) -> None:
    other = await opened(coordinator, pair.primary.url)
    try:
        load = Load([store, other])
        async with load.running():
            for _ in range(30):
                await load.more(10)
                pair.primary.ask("SCRIPT", "FLUSH")
            await load.more(50)
        assert not load.refused
        assert await load.check(store) == set()
        assert (store.epoch, other.epoch) == (FIRST_EPOCH, FIRST_EPOCH)
        assert await epochs(coordinator) == [FIRST_EPOCH]
    finally:
        await other.close()


class LeaseClock(SystemClock):
    """On which a lease runs out when a test says so, however slow the machine is."""

    def __init__(self) -> None:
        self._now_ms = super().monotonic_ms()

    def monotonic_ms(self) -> int:
        return self._now_ms

    def advance(self, by_ms: int) -> None:
        self._now_ms += by_ms


class HardOfHearing:
    """A coordinator that can be made to answer nothing, as one that is out of reach."""

    def __init__(self, inner: EmbeddedCoordinator) -> None:
        self._inner = inner
        self.away = False

    async def epochs(self) -> Sequence[EpochRecord]:
        if self.away:
            raise Refusal(Reason.ENGINE_UNAVAILABLE, "the coordinator is out of reach")
        return await self._inner.epochs()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.mark.usefixtures("impatient")
async def test_while_two_primaries_live_every_loss_is_told_and_the_left_one_is_not_served_for_long(
    pair: RedisPair,
    coordinator: EmbeddedCoordinator,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The primary stands still, its replica is promoted, and the old one goes on as if nothing had been.

    One process sees all of this. Another one, which does not hear of the new epoch, goes on with the old primary until
    its lease ends.
    """
    # Whoever waited for long, or looks whether all is well, would find the one that stands still, and leave it.
    monkeypatch.setattr(engine, "IDLE_SECONDS_MAX", 3_600.0)
    monkeypatch.setattr(fitness, "LOOK_SECONDS", 3_600.0)
    hard, clock = HardOfHearing(coordinator), LeaseClock()
    store = await opened(coordinator, *pair.urls)
    left = await RedisStore.open([pair.primary.url], cast("Any", hard), clock=clock)
    try:
        load = Load([store, left])
        async with load.running():
            await load.more(100)
            pair.cut_off()
            await load.more(50)
            await load.rest(1)
            hard.away = True
            pair.primary.pause()
            pair.promote()
            await load.more(100, store=0)
            pair.primary.resume()
            monkeypatch.setattr(wire, "REPLY_SECONDS_MAX", 60.0)
            load.go_on(1)
            # Nobody tells it; it serves what nobody else will ever see.
            await load.more(20, store=1)
            assert (store.epoch, left.epoch) == (FIRST_EPOCH + 1, FIRST_EPOCH)
            # Until its lease ends: all of its writers are refused.
            clock.advance(int(2_000 * lease.TTL_SECONDS) + 1)
            await load.refusals(100)
            made = load.by_store[1]
            await load.refusals(100)
            assert load.by_store[1] == made
            await load.more(20, store=0)
            # Whoever it may be that it finds, once it hears: not the old one.
            left._engine._addresses = store._engine._addresses
            hard.away = False
            await load.more(20, store=1)
        monkeypatch.undo()
        missing = await load.check(store)
        assert missing == await load.check(left)
        assert len(missing) >= 50 + 20 - 2 * WRITERS
        assert await epochs(coordinator) == [FIRST_EPOCH, FIRST_EPOCH + 1]
        said = [record for record in caplog.records if "does not say which epoch" in record.getMessage()]
        assert len(said) == 1, "not once for each call that is refused"
    finally:
        await left.close()
        await store.close()
