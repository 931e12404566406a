"""Who begins an epoch, and who may go on in one: many servers that meet a failover, and one that is cut off."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.contract.build import commit, head, put, write
from tests.contract.redislab import LabClock
from tests.support.etcd import EtcdProcess, needs_etcd
from tests.support.redis import RedisProcess, catch_up, needs_redis
from tests.support.redis_pair import cut_off, fail_over

from noosphere.consistency import Reason, Refusal, find_lost
from noosphere.server.ports.coordinator import Coordinator, EpochRecord
from noosphere.server.ports.runtime import SystemClock
from noosphere.server.ports.store import NamespaceRef
from noosphere.server.storage.embedded import EmbeddedCoordinator
from noosphere.server.storage.etcd import EtcdCoordinator
from noosphere.server.storage.redis import RedisStore, UnfitRedis, engine, lease, scripts

pytestmark = needs_redis

A = NamespaceRef("shared/a")


class Cut:
    """A coordinator to which the connection may be cut."""

    def __init__(self, inner: Coordinator) -> None:
        self._inner = inner
        self.reachable = asyncio.Event()
        self.reachable.set()
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def epochs(self) -> tuple[EpochRecord, ...]:
        self.asked += 1
        await self.reachable.wait()
        return await self._inner.epochs()


async def served(store: RedisStore) -> None:
    """Returns once a store reads again; a slow coordinator may be taken for one that is away."""
    async with asyncio.timeout(60):
        while True:
            try:
                await head(store, A)
                return
            except Refusal as refusal:
                assert refusal.reason is Reason.ENGINE_UNAVAILABLE  # noqa: PT017 # any other is to be seen


async def fail_over_under(stores: list[RedisStore], primary: RedisProcess, replica: RedisProcess) -> None:
    """Promotes the replica under all of them at once."""
    fail_over(primary, replica)
    await asyncio.gather(*(served(store) for store in stores))
    assert len({store.epoch for store in stores}) == 1
    # None of them ends what another one has begun.
    await asyncio.gather(*(write(store, put(f"k{i}"), namespace=A) for i, store in enumerate(stores)))


async def test_servers_that_meet_one_promoted_replica_begin_one_epoch(
    primary: RedisProcess, replica: RedisProcess, coordinator: EmbeddedCoordinator
) -> None:
    urls = [primary.url, replica.url]
    clock = SystemClock()
    stores = await asyncio.gather(*(RedisStore.open(urls, coordinator, clock=clock) for _ in range(8)))
    try:
        assert len(await coordinator.epochs()) == 2, "one for the Redis that nobody knew"
        await fail_over_under(stores, primary, replica)
        assert len(await coordinator.epochs()) == 3
    finally:
        await asyncio.gather(*(store.close() for store in stores))


@needs_etcd
async def test_servers_with_coordinators_of_their_own_on_one_etcd_begin_one_epoch(
    tmp_path: Path, primary: RedisProcess, replica: RedisProcess
) -> None:
    etcd = EtcdProcess(tmp_path / "etcd")
    etcd.start()
    clock = SystemClock()
    coordinators: list[EtcdCoordinator] = []
    stores: list[RedisStore] = []
    try:
        for _ in range(4):
            coordinators.append(await EtcdCoordinator.open([etcd.endpoint], clock=clock))
        urls = [primary.url, replica.url]
        stores += await asyncio.gather(*(RedisStore.open(urls, known, clock=clock) for known in coordinators))
        assert len(await coordinators[0].epochs()) == 1
        await fail_over_under(stores, primary, replica)
        assert len(await coordinators[0].epochs()) == 2
    finally:
        await asyncio.gather(*(store.close() for store in stores))
        await asyncio.gather(*(known.close() for known in coordinators))
        etcd.kill()


async def test_without_a_confirmed_epoch_nothing_is_read_or_written(
    primary: RedisProcess, coordinator: EmbeddedCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A call that finds the lease run out waits for so long; the test need not.
    monkeypatch.setattr(lease, "CALLER_SECONDS_MAX", 0.02)
    clock, cut = LabClock(), Cut(coordinator)
    store = await RedisStore.open([primary.url], cut, clock=clock)
    try:
        first = await write(store, put("a"), namespace=A)
        cut.reachable.clear()
        clock.advance(10_000)
        assert await write(store, put("a"), namespace=A) == first + 1, "twice its time has not passed"
        clock.advance(1)
        asked = (commit(store, put("a"), namespace=A), store.read(A, ()), store.drop(A, None), store.changes(A, 0, 9))
        for call in asked:
            with pytest.raises(Refusal, match="has not confirmed for 10 s that epoch") as refused:
                await call
            assert refused.value.reason is Reason.ENGINE_UNAVAILABLE
        monkeypatch.undo()
        cut.reachable.set()
        assert await head(store, A) == first + 1, "what was refused was not executed"
        assert await write(store, put("a"), namespace=A) == first + 2
        assert len(await coordinator.epochs()) == 2, "to be cut off begins no epoch"
    finally:
        await store.close()


async def test_the_lease_is_counted_from_before_the_coordinator_was_asked(
    primary: RedisProcess, coordinator: EmbeddedCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "CALLER_SECONDS_MAX", 0.02)
    clock, cut = LabClock(), Cut(coordinator)
    store = await RedisStore.open([primary.url], cut, clock=clock)
    try:
        cut.reachable.clear()
        clock.advance(10_001)
        asked = cut.asked
        with pytest.raises(Refusal):
            await head(store, A)
        assert cut.asked == asked + 1
        # The answer that is on its way may have been given at any time since.
        clock.advance(10_001)
        cut.reachable.set()
        cut.reachable.clear()
        with pytest.raises(Refusal):
            await head(store, A)
        monkeypatch.undo()
        cut.reachable.set()
        assert await head(store, A) == 0
    finally:
        await store.close()


async def test_a_newer_epoch_is_noticed_without_any_call(
    primary: RedisProcess, replica: RedisProcess, coordinator: EmbeddedCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing tells the one whose primary still lives: it makes no calls, and waits for tidings of the others."""
    monkeypatch.setattr(lease, "TTL_SECONDS", 0.05)
    told: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    clock = SystemClock()
    urls = [primary.url, replica.url]
    quiet = await RedisStore.open(urls, coordinator, clock=clock, on_epoch=told.set_result)
    kept = await RedisStore.open(urls, coordinator, clock=clock)
    other = None
    try:
        first = await write(quiet, put("a"), namespace=A)
        catch_up(primary, replica)
        replica.promote()
        other = await RedisStore.open([replica.url], coordinator, clock=clock)
        async with asyncio.timeout(60):
            assert await told == other.epoch == quiet.epoch
        with pytest.raises(Refusal) as refused:
            await head(quiet, A)
        assert refused.value.reason is Reason.ENGINE_UNAVAILABLE
        # Who keeps nothing in memory goes on, with the primary of the newest epoch.
        primary.ask("REPLICAOF", "127.0.0.1", replica.port)
        newer = await write(other, put("a"), namespace=A)
        assert newer > first
        assert await head(kept, A) == newer
        assert len(await coordinator.epochs()) == 3
    finally:
        for store in (quiet, kept, other):
            if store is not None:
                await store.close()


async def test_a_primary_that_another_one_has_replaced_is_not_gone_back_to(
    primary: RedisProcess, replica: RedisProcess, coordinator: EmbeddedCoordinator
) -> None:
    """Both say to be the primary, and which one a server meets first depends on the order of its addresses."""
    clock = SystemClock()
    store = await RedisStore.open([replica.url, primary.url], coordinator, clock=clock)
    others: list[RedisStore] = []
    try:
        await write(store, put("a"), namespace=A)
        catch_up(primary, replica)
        replica.promote()
        assert await write(store, put("a"), namespace=A), "as long as its primary lives, it stays with that"
        others.append(await RedisStore.open([replica.url], coordinator, clock=clock))
        newer = await write(others[0], put("a"), namespace=A)
        for urls in ([primary.url, replica.url], [replica.url, primary.url]):
            others.append(await RedisStore.open(urls, coordinator, clock=clock))
            assert await head(others[-1], A) == newer
        with pytest.raises(UnfitRedis, match="another one was promoted in its place"):
            await RedisStore.open([primary.url], coordinator, clock=clock)
        assert len(await coordinator.epochs()) == 3
        primary.restart()
        replica.ask("REPLICAOF", "127.0.0.1", primary.port)
        others.append(await RedisStore.open([primary.url, replica.url], coordinator, clock=clock))
        assert len(await coordinator.epochs()) == 4, "after a restart it is another process"
    finally:
        for one in (store, *others):
            await one.close()


async def test_a_primary_that_was_a_replica_while_nobody_called_is_looked_at_anew(
    primary: RedisProcess, replica: RedisProcess, coordinator: EmbeddedCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has kept its connections and its scripts, and taken over the data of the other one."""
    store = await RedisStore.open([primary.url, replica.url], coordinator, clock=SystemClock())
    try:
        first = await write(store, put("a"), namespace=A)
        cut_off(primary, replica)
        lost = await write(store, put("a"), namespace=A)
        epoch = store.epoch
        replica.promote()
        primary.ask("REPLICAOF", "127.0.0.1", replica.port)
        catch_up(replica, primary)
        primary.promote()
        replica.ask("REPLICAOF", "127.0.0.1", primary.port)
        monkeypatch.setattr(engine, "IDLE_SECONDS_MAX", 0.0)
        view = (await store.read(A, ())).view
        assert (view.head, view.epoch) == (first, epoch + 1)
        assert find_lost(lost, view.cuts) is not None
    finally:
        await store.close()


async def test_a_first_replica_that_comes_begins_no_epoch(
    tmp_path: Path, primary: RedisProcess, coordinator: EmbeddedCoordinator
) -> None:
    clock = SystemClock()
    first = await RedisStore.open([primary.url], coordinator, clock=clock)
    late = RedisProcess(tmp_path / "late", replicaof=f"127.0.0.1 {primary.port}")
    try:
        before = primary.info("replication")["master_replid"]
        late.start()
        catch_up(primary, late)
        assert primary.info("replication")["master_replid"] != before, "Redis takes it for a new history"
        second = await RedisStore.open([primary.url], coordinator, clock=clock)
        try:
            await write(second, put("k"), namespace=A)
            await head(first, A)
            assert first.epoch == second.epoch
            assert len(await coordinator.epochs()) == 2
        finally:
            await second.close()
    finally:
        await first.close()
        late.kill()


async def test_servers_with_other_scripts_share_an_epoch(
    primary: RedisProcess, coordinator: EmbeddedCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SystemClock()
    before = await RedisStore.open([primary.url], coordinator, clock=clock)
    await write(before, put("k"), namespace=A)
    source = scripts._source
    monkeypatch.setattr(scripts, "_source", lambda name: f"-- of the next version\n{source(name)}")
    after = await RedisStore.open([primary.url], coordinator, clock=clock)
    try:
        # Both go on, as they do while the servers of a fleet are replaced one after the other.
        for number, store in enumerate((after, before, after)):
            await write(store, put(f"k{number}"), namespace=A)
        assert await head(before, A) == await head(after, A)
        assert before.epoch == after.epoch
        assert len(await coordinator.epochs()) == 2
    finally:
        await after.close()
        await before.close()


async def test_an_epoch_that_a_newer_version_has_begun_is_not_answered_with_another_one(
    primary: RedisProcess, coordinator: EmbeddedCoordinator
) -> None:
    clock = SystemClock()
    store = await RedisStore.open([primary.url], coordinator, clock=clock)
    await write(store, put("k"), namespace=A)
    await coordinator.begin_epoch("unclean", "redis/2 who=somebody: 1 namespaces", 0)
    before = await coordinator.epochs()
    # One that serves goes on until it has to look who is there, and then does no more.
    primary.kill()
    primary.start()
    with pytest.raises(Refusal, match="Redis does not answer"):
        await write(store, put("k2"), namespace=A)
    await store.close()
    with pytest.raises(UnfitRedis, match=r"recorded in format 2 by a newer version, this one knows 1: upgrade"):
        await RedisStore.open([primary.url], coordinator, clock=clock)
    assert await coordinator.epochs() == before
