"""A Redis Cluster some of whose nodes fail, come and go: what one has lost is told, and nothing else is lost."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.contract.build import alive, change, commit, failures, get, head, put, write
from tests.contract.lab import until
from tests.support.redis import RedisError, needs_redis
from tests.support.redis_cluster import ClusterNode, RedisCluster, await_that, started_cluster
from tests.support.store_load import SPACE, Load

from noosphere.consistency import LostRange, Reason, Refusal, find_lost
from noosphere.server.ports.runtime import SystemClock
from noosphere.server.ports.store import Committed, FailureKind, HeadMoved, NamespaceRef
from noosphere.server.storage.embedded import EmbeddedCoordinator
from noosphere.server.storage.redis import RedisStore, UnfitRedis, engine, lease, wire
from noosphere.server.storage.redis.fence import META
from noosphere.server.storage.redis.packing import stem_of
from noosphere.server.storage.redis.slots import SLOTS, slot_of

pytestmark = needs_redis

REFS = [NamespaceRef(f"shared/{number}") for number in range(24)]
"""Enough for every node to have some."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RedisCluster]:
    """Three primaries, each with a replica."""
    with started_cluster(tmp_path / "redis", 3, 3) as made:
        yield made


async def opened(coordinator: EmbeddedCoordinator, cluster: RedisCluster) -> RedisStore:
    return await RedisStore.open(cluster.urls, coordinator, clock=SystemClock())


@pytest.fixture
async def store(cluster: RedisCluster, coordinator: EmbeddedCoordinator) -> AsyncIterator[RedisStore]:
    """A store on it."""
    made = await opened(coordinator, cluster)
    yield made
    await made.close()


def parted(cluster: RedisCluster, number: int) -> tuple[list[NamespaceRef], list[NamespaceRef]]:
    """Returns what is on a node, and what is elsewhere."""
    node = cluster.primaries[number]
    there = [ref for ref in REFS if cluster.of(stem_of(ref)) is node]
    assert there
    return there, [ref for ref in REFS if ref not in there]


def move_slot(slot: int, source: ClusterNode, target: ClusterNode, *, tell: tuple[ClusterNode, ...]) -> None:
    """Moves a slot with all that is in it, as redis-cli does."""
    begin_move(slot, source, target)
    end_move(slot, source, target, tell=tell)


def begin_move(slot: int, source: ClusterNode, target: ClusterNode) -> None:
    target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
    source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)


def end_move(slot: int, source: ClusterNode, target: ClusterNode, *, tell: tuple[ClusterNode, ...]) -> None:
    while keys := source.ask("CLUSTER", "GETKEYSINSLOT", slot, 100):
        source.ask("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
    for node in (target, source, *tell):
        node.ask("CLUSTER", "SETSLOT", slot, "NODE", target.id)


def misses(node: ClusterNode) -> bool:
    """Returns whether a node knows that somebody with slots is gone."""
    return node.state()["cluster_slots_fail"] != "0"


async def heard(feed: AsyncIterator[HeadMoved], moved: dict[NamespaceRef, int]) -> None:
    """Returns when the last that is told of each namespace is this."""
    told: dict[bytes, int] = {}
    async with asyncio.timeout(60):
        while any(told.get(ref.storage_id) != revision for ref, revision in moved.items()):
            told.update([await anext(feed)])


async def test_what_a_failover_of_one_node_loses_is_told_and_the_others_lose_nothing(
    store: RedisStore, cluster: RedisCluster, coordinator: EmbeddedCoordinator
) -> None:
    there, elsewhere = parted(cluster, 1)
    kept = {ref: [await write(store, put(f"k{i}"), namespace=ref) for i in range(5)] for ref in REFS}
    cluster.cut_off(1)
    later = {ref: [await write(store, put(f"k{i}", b"later"), namespace=ref) for i in range(7)] for ref in REFS}
    before = store.epoch
    cluster.fail_over(1)
    for ref in there:
        view = (await store.read(ref, ())).view
        assert view.epoch == store.epoch == before + 1
        assert view.head == kept[ref][-1]
        for revision in kept[ref]:
            assert find_lost(revision, view.cuts) is None
        for revision in later[ref]:
            assert find_lost(revision, view.cuts) == LostRange(view.head, store.epoch << 40)
    for ref in elsewhere:
        view = (await store.read(ref, ())).view
        assert view.head == later[ref][-1]
        for revision in (*kept[ref], *later[ref]):
            assert find_lost(revision, view.cuts) is None
        entry = await get(store, "k6", ref)
        assert entry is not None
        assert entry.data == b"later"
    for ref in REFS:
        assert await write(store, put("newer"), namespace=ref) == store.epoch << 40 | 1
    assert [summary.ref for summary in await store.namespaces("", "", 100)] == sorted(REFS, key=lambda ref: ref.name)
    assert len(await coordinator.epochs()) == 3, "one failover, one epoch"


async def test_what_was_decided_before_a_failover_is_not_written_after_it(
    store: RedisStore, cluster: RedisCluster
) -> None:
    (ref, *_), (other, *_) = parted(cluster, 0)
    first = await write(store, put("a"), namespace=ref)
    untouched = await write(store, put("a"), namespace=other)
    cluster.cut_off(0)
    second = await write(store, change("a", b"lost"), namespace=ref)
    decided = store.epoch
    cluster.fail_over(0)
    assert await head(store, ref) == first
    (failure,) = await failures(store, change("a"), namespace=ref, epoch=decided, checks=[alive("a", second)])
    assert (failure.kind, failure.actual) == (FailureKind.EPOCH, decided + 1)
    (failure,) = await failures(store, change("a"), namespace=ref, checks=[alive("a", second)])
    assert (failure.kind, failure.actual) == (FailureKind.KEY, first)
    assert await write(store, change("a"), namespace=other, checks=[alive("a", untouched)]) > untouched


async def test_servers_that_meet_a_failover_of_a_node_begin_one_epoch(
    cluster: RedisCluster, coordinator: EmbeddedCoordinator
) -> None:
    stores = await asyncio.gather(*(opened(coordinator, cluster) for _ in range(6)))
    try:
        for ref in REFS:
            await write(stores[0], put("a"), namespace=ref)
        cluster.cut_off(2)
        cluster.fail_over(2)
        await asyncio.gather(*(head(made, ref) for made in stores for ref in REFS))
        assert len(await coordinator.epochs()) == 3
        assert len({made.epoch for made in stores}) == 1
        # One that is in the earlier epoch still ends where somebody was in the later one.
        await asyncio.gather(
            *(write(made, put(f"k{i}"), namespace=ref) for i, made in enumerate(stores) for ref in REFS)
        )
    finally:
        await asyncio.gather(*(made.close() for made in stores))


async def test_a_node_that_fails_over_under_load_loses_what_is_told_and_heads_go_on(
    cluster: RedisCluster, coordinator: EmbeddedCoordinator
) -> None:
    number = cluster.primaries.index(cluster.of(stem_of(SPACE)))
    stores = await asyncio.gather(*(opened(coordinator, cluster) for _ in range(2)))
    feed = stores[1].heads()
    await asyncio.gather(*(stores[1].follow(ref) for ref in (SPACE, *REFS)))
    load = Load(stores)
    try:
        async with load.running():
            await load.more(100)
            await asyncio.to_thread(cluster.cut_off, number)
            await load.more(100)
            await asyncio.to_thread(cluster.fail_over, number)
            for place in range(2):
                await load.more(50, store=place)
        missing = await load.check(stores[0])
        assert len(missing) >= 50, "the failover lost nothing, so nothing was tried"
        assert len(await coordinator.epochs()) == 3
        await heard(feed, {ref: await write(stores[0], put("told"), namespace=ref) for ref in (SPACE, *REFS)})
    finally:
        await asyncio.gather(*(made.close() for made in stores))


@pytest.mark.parametrize("how", ["killed", "stopped"])
async def test_while_one_node_is_away_the_others_serve(
    store: RedisStore,
    cluster: RedisCluster,
    coordinator: EmbeddedCoordinator,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
) -> None:
    monkeypatch.setattr(engine, "PAUSES_SECONDS", (0.0, 0.02, 0.02))
    there, elsewhere = parted(cluster, 1)
    for ref in REFS:
        await write(store, put("a"), namespace=ref)
    if how == "killed":
        cluster.primaries[1].kill()
    else:
        cluster.primaries[1].pause()
    for ref in there[:2]:
        with monkeypatch.context() as impatient:
            impatient.setattr(wire, "REPLY_SECONDS_MAX", 0.3)
            with pytest.raises(Refusal) as refused:
                await head(store, ref)
        assert refused.value.reason is Reason.ENGINE_UNAVAILABLE
    # Those that are there may be slow.
    monkeypatch.setattr(wire, "REPLY_SECONDS_MAX", 3.0)
    for ref in elsewhere:
        assert await write(store, put("b"), namespace=ref)
    with pytest.raises(Refusal):
        await store.erase(elsewhere[0])
    assert len(await coordinator.epochs()) == 2, "who is away may come back with everything"
    late = await opened(coordinator, cluster)
    try:
        assert await write(late, put("b"), namespace=elsewhere[0])
        assert late.epoch == store.epoch
    finally:
        await late.close()
    if how == "stopped":
        cluster.primaries[1].resume()
        for ref in there:
            assert await write(store, put("b"), namespace=ref)
        assert len(await coordinator.epochs()) == 2


async def test_slots_move_from_node_to_node_under_load_without_a_new_epoch(
    store: RedisStore, cluster: RedisCluster, coordinator: EmbeddedCoordinator
) -> None:
    source, target, third = cluster.primaries
    there, _ = parted(cluster, 0)
    moving = there[:3]
    feed = store.heads()
    for ref in REFS:
        await store.follow(ref)
        await write(store, put("n"), namespace=ref)
    written: dict[NamespaceRef, list[int]] = {ref: [] for ref in moving}
    done = False

    async def load(ref: NamespaceRef) -> None:
        while not done:
            made = await commit(store, change("n"), namespace=ref)
            assert isinstance(made, Committed)
            written[ref].append(made.revision)

    def wrote(ref: NamespaceRef, enough: int) -> bool:
        return len(written[ref]) >= enough

    loading = [asyncio.create_task(load(ref)) for ref in moving]
    for ref in moving:
        await until(functools.partial(wrote, ref, 20))
        await asyncio.to_thread(move_slot, slot_of(stem_of(ref)), source, target, tell=(third,))
        reached = len(written[ref])
        await until(functools.partial(wrote, ref, reached + 20))
    done = True
    await asyncio.gather(*loading)
    for ref, revisions in written.items():
        assert revisions == list(range(revisions[0], revisions[0] + len(revisions))), "none is missing, none was twice"
        assert await head(store, ref) == revisions[-1]
        assert target.ask("EXISTS", stem_of(ref) + b":h") == 1
    await heard(feed, {ref: await write(store, put("told"), namespace=ref) for ref in REFS})
    assert len(await coordinator.epochs()) == 2, "nobody has lost anything"


async def test_a_namespace_on_its_way_to_another_node_waits_and_is_never_in_two_places(
    store: RedisStore, cluster: RedisCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "PAUSES_SECONDS", (0.0, 0.02, 0.02))
    source, target, third = cluster.primaries
    (old, *others), _ = parted(cluster, 0)
    slot = slot_of(stem_of(old))
    born = next(
        ref
        for ref in (NamespaceRef(f"shared/born-{number}") for number in range(1_000_000))
        if slot_of(stem_of(ref)) == slot
    )
    first = await write(store, put("a"), namespace=old)
    begin_move(slot, source, target)
    # Half of it has gone.
    source.ask("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", stem_of(old) + b":k", stem_of(old) + b":h")
    for call in (head(store, old), commit(store, put("a"), namespace=old), commit(store, put("a"), namespace=born)):
        with pytest.raises(Refusal) as refused:
            await call
        assert refused.value.reason is Reason.ENGINE_UNAVAILABLE
    assert await write(store, put("a"), namespace=others[0]), "another slot of the same node does not wait"
    end_move(slot, source, target, tell=(third,))
    assert await write(store, change("a"), namespace=old, checks=[alive("a", first)]) == first + 1
    assert await write(store, put("a"), namespace=born) == store.epoch << 40 | 1


async def test_a_node_that_joins_is_an_epoch_in_which_nothing_is_lost(
    store: RedisStore, cluster: RedisCluster, coordinator: EmbeddedCoordinator, tmp_path: Path
) -> None:
    (ref, *_), _ = parted(cluster, 0)
    revision = await write(store, put("a"), namespace=ref)
    epoch = store.epoch
    node = ClusterNode(tmp_path / "joined")
    node.start()
    try:
        cluster.meet(node)
        cluster.settle(node)
        move_slot(slot_of(stem_of(ref)), cluster.primaries[0], node, tell=tuple(cluster.primaries[1:]))
        view = (await store.read(ref, ())).view
        assert (view.head, view.epoch) == (revision, epoch + 1)
        assert find_lost(revision, view.cuts) is None
        assert await write(store, put("a"), namespace=ref) == view.epoch << 40 | 1
        assert len(await coordinator.epochs()) == 3
    finally:
        node.kill()


async def test_slots_that_a_known_node_was_given_without_what_was_in_them_are_lost_and_told(
    store: RedisStore, cluster: RedisCluster, coordinator: EmbeddedCoordinator
) -> None:
    """As an operator does who gives up a node, and a repair of the cluster."""
    (ref, *_), (other, *_) = parted(cluster, 0)
    lost = await write(store, put("a"), namespace=ref)
    kept = await write(store, put("a"), namespace=other)
    gone, *rest = cluster.primaries
    gone.kill()
    cluster.replicas[0].kill()
    low, high = 0, SLOTS // 3 - 1
    for node in rest:
        await_that(functools.partial(misses, node), "its death is not noticed")
    rest[0].ask("CLUSTER", "DELSLOTSRANGE", low, high)
    rest[0].ask("CLUSTER", "ADDSLOTSRANGE", low, high)
    rest[0].ask("CLUSTER", "BUMPEPOCH")
    await_that(lambda: not misses(rest[1]), "the slots are not taken over")
    view = (await store.read(ref, ())).view
    assert not view.exists
    assert find_lost(lost, view.cuts) == LostRange(0, store.epoch << 40)
    view = (await store.read(other, ())).view
    assert (view.head, find_lost(kept, view.cuts)) == (kept, None)
    assert len(await coordinator.epochs()) == 3


async def test_a_primary_that_the_cluster_has_left_behind_is_not_believed(
    cluster: RedisCluster, coordinator: EmbeddedCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows nobody any more, serves its slots as before, and says that all is well."""
    # So that it is asked when the test says so, however slow the machine is.
    monkeypatch.setattr(lease, "TTL_SECONDS", 3_600.0)
    (ref, *_), (other, *_) = parted(cluster, 0)
    stores = [await opened(coordinator, cluster)]
    try:
        first = await write(stores[0], put("a"), namespace=ref)
        old, replica = cluster.primaries[0], cluster.replicas[0]
        cluster.cut_off(0)
        id = old.id
        rest = [node for node in cluster.nodes if node not in (old, replica)]
        for node in (*rest, replica):
            old.ask("CLUSTER", "FORGET", node.id)
        replica.ask("CLUSTER", "FAILOVER", "TAKEOVER")
        for node in (*rest, replica):
            node.ask("CLUSTER", "FORGET", id)
        stores.append(await RedisStore.open([old.url, rest[0].url], coordinator, clock=SystemClock()))
        newer = await write(stores[1], put("a"), namespace=ref)
        assert newer == stores[1].epoch << 40 | 1
        assert old.state()["cluster_state"] == "ok"
        with pytest.raises(UnfitRedis, match="was left behind by the cluster"):
            await RedisStore.open([old.url], coordinator, clock=SystemClock())
        # Who has used it goes on until the coordinator tells of the epoch; what that has written is lost, and told.
        lost = await write(stores[0], put("a", b"lost"), namespace=ref)
        assert lost == first + 1
        await stores[0].scripts._lease._confirm()
        view = (await stores[0].read(ref, ())).view
        assert (view.head, view.epoch) == (newer, stores[1].epoch)
        assert find_lost(lost, view.cuts) is not None
        assert await write(stores[0], put("a"), namespace=other)
        assert len(await coordinator.epochs()) == 3
    finally:
        for made in stores:
            await made.close()


async def test_names_that_were_lost_with_their_node_are_found_again(
    store: RedisStore, cluster: RedisCluster, coordinator: EmbeddedCoordinator
) -> None:
    number = cluster.primaries.index(cluster.of(META))
    there, elsewhere = parted(cluster, number)
    await write(store, put("a"), namespace=there[0])
    cluster.cut_off(number)
    for ref in (*there[1:], *elsewhere):
        await write(store, put("a"), namespace=ref)
    await store.drop(elsewhere[0], None)
    cluster.fail_over(number)
    late = await opened(coordinator, cluster)
    try:
        found = await late.namespaces("", "", 100)
    finally:
        await late.close()
    assert {summary.ref for summary in found} == {there[0], *elsewhere}
    assert [summary.ref for summary in found if summary.deleted] == [elsewhere[0]]


async def test_a_database_of_its_own_is_refused_in_a_cluster(
    cluster: RedisCluster, coordinator: EmbeddedCoordinator
) -> None:
    with pytest.raises(UnfitRedis, match=r"database 3: .* is of a cluster, which has only 0"):
        await RedisStore.open([f"{cluster.urls[0]}/3"], coordinator, clock=SystemClock())
    assert len(await coordinator.epochs()) == 1


async def test_a_cluster_one_of_whose_nodes_evicts_is_not_used(
    cluster: RedisCluster, coordinator: EmbeddedCoordinator
) -> None:
    cluster.primaries[2].ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    with pytest.raises(UnfitRedis, match="noeviction"):
        await opened(coordinator, cluster)
    assert len(await coordinator.epochs()) == 1


async def test_any_node_tells_of_the_others_a_replica_too(
    cluster: RedisCluster, coordinator: EmbeddedCoordinator
) -> None:
    made = await RedisStore.open([cluster.replicas[1].url], coordinator, clock=SystemClock())
    try:
        for ref in REFS:
            await write(made, put("a"), namespace=ref)
        assert (await made.totals()).namespace_count == len(REFS)
    finally:
        await made.close()
    with pytest.raises(RedisError, match="MOVED"):
        cluster.replicas[1].ask("GET", "x")
