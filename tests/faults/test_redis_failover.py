"""Redis primaries that die with acknowledged writes: what was lost is told, exactly, and nothing else is."""

from __future__ import annotations

import asyncio
import time

import pytest
from tests.contract.build import alive, change, commit, failures, get, head, logged, put, remember, sequence, write
from tests.faults.conftest import opened
from tests.support.proxy import Fault, proxied
from tests.support.redis import RedisProcess, needs_redis
from tests.support.redis_pair import cut_off, fail_over
from tests.support.store_load import Load

from noosphere.consistency import LostRange, Reason, Refusal, find_lost
from noosphere.server.ports.runtime import SystemClock
from noosphere.server.ports.store import Commit, Committed, FailureKind, NamespaceRef, Replayed
from noosphere.server.storage.embedded import EmbeddedCoordinator
from noosphere.server.storage.redis import RedisStore, fence, wire
from noosphere.server.storage.redis.scripts import scripts_of

pytestmark = needs_redis

A, B, C = (NamespaceRef(f"shared/{name}") for name in "abc")


async def test_what_a_failover_loses_is_the_range_that_is_told(
    store: RedisStore, primary: RedisProcess, replica: RedisProcess, coordinator: EmbeddedCoordinator
) -> None:
    survived = {ref: [await write(store, put(f"k{i}"), namespace=ref) for i in range(10)] for ref in (A, B)}
    cut_off(primary, replica)
    lost = {A: [await write(store, put(f"k{i}", b"lost"), namespace=A) for i in range(25)]}
    lost[C] = [await write(store, put("born", b"lost"), namespace=C)]
    before = store.epoch
    fail_over(primary, replica)
    for ref in (A, B, C):
        view = (await store.read(ref, ())).view
        assert view.epoch == store.epoch == before + 1
        kept = survived.get(ref, [])
        assert view.head == (kept[-1] if kept else 0)
        assert view.exists is bool(kept)
        for revision in kept:
            assert find_lost(revision, view.cuts) is None
        for revision in lost.get(ref, []):
            assert find_lost(revision, view.cuts) == LostRange(view.head, store.epoch << 40)
        newer = await write(store, put("newer"), namespace=ref)
        assert newer == store.epoch << 40 | 1
        cuts = (await store.read(ref, ())).view.cuts
        assert cuts == view.cuts, "the cut stays what it was when it was first told"
        assert find_lost(newer, cuts) is None
    assert [batch.revision for batch in await logged(store, 0, A)] == [*survived[A], store.epoch << 40 | 1]
    assert [n.ref for n in await store.namespaces("", "", 10)] == [A, B, C]
    assert len(await coordinator.epochs()) == 3


async def test_what_was_decided_before_a_failover_is_not_written_after_it(
    store: RedisStore, primary: RedisProcess, replica: RedisProcess
) -> None:
    first = await write(store, put("a"), namespace=A)
    cut_off(primary, replica)
    second = await write(store, change("a", b"lost"), namespace=A)
    decided = store.epoch
    fail_over(primary, replica)
    # Whoever writes as the first after a failover is not told whether that was done; so somebody reads.
    assert await head(store, A) == first
    (failure,) = await failures(store, change("a"), namespace=A, epoch=decided, checks=[alive("a", second)])
    assert failure.kind is FailureKind.EPOCH
    assert failure.actual == store.epoch == decided + 1
    (failure,) = await failures(store, change("a"), namespace=A, checks=[alive("a", second)])
    assert (failure.kind, failure.actual) == (FailureKind.KEY, first)


async def test_a_server_that_starts_in_the_middle_does_not_defeat_the_fence(
    store: RedisStore, primary: RedisProcess, replica: RedisProcess, coordinator: EmbeddedCoordinator
) -> None:
    """It loads scripts on the promoted one. Those that the first server knows must be missing there all the same."""
    await write(store, put("a"), namespace=A)
    cut_off(primary, replica)
    lost = await write(store, put("a"), namespace=A)
    fail_over(primary, replica)
    late = await opened(coordinator, primary, replica)
    try:
        newer = await write(late, put("b"), namespace=A)
        assert store.epoch < late.epoch
        view = (await store.read(A, ())).view
        assert (store.epoch, view.head) == (late.epoch, newer)
        assert find_lost(lost, view.cuts) is not None
        assert len(await coordinator.epochs()) == 3, "one failover, one epoch"
    finally:
        await late.close()


async def test_a_primary_that_comes_back_from_its_files_is_another_epoch(
    store: RedisStore, primary: RedisProcess
) -> None:
    revision = await write(store, put("a"), namespace=A)
    epoch = store.epoch
    primary.restart()
    view = (await store.read(A, ())).view
    assert (view.head, view.epoch) == (revision, epoch + 1)
    assert find_lost(revision, view.cuts) is None


async def test_what_the_files_of_a_primary_have_lost_is_told(store: RedisStore, primary: RedisProcess) -> None:
    """A process that is killed loses nothing: the system still has its pages. So the end of its log is cut off."""
    kept = await write(store, put("a"), namespace=A)
    # What is acknowledged has been handed to the system, so this is where it stands in the file.
    (file,) = (primary.folder / "appendonlydir").glob("*.incr.aof")
    length = file.stat().st_size
    lost = [await write(store, put("a", b"lost"), namespace=A) for _ in range(5)]
    lost.append(await write(store, put("born", b"lost"), namespace=C))
    epoch = store.epoch
    primary.kill()
    with file.open("r+b") as log:
        # In the middle of a command, as when a machine stops.
        log.truncate(length + 10)
    primary.start()
    view = (await store.read(A, ())).view
    assert (view.head, view.epoch) == (kept, epoch + 1)
    assert find_lost(kept, view.cuts) is None
    for revision in lost[:-1]:
        assert find_lost(revision, view.cuts) == LostRange(kept, (epoch + 1) << 40)
    assert find_lost(lost[-1], (await store.read(C, ())).view.cuts) == LostRange(0, (epoch + 1) << 40)
    assert await write(store, put("a"), namespace=A) == (epoch + 1) << 40 | 1


async def test_scripts_that_an_operator_flushes_are_loaded_again_without_a_new_epoch(
    store: RedisStore, primary: RedisProcess, coordinator: EmbeddedCoordinator
) -> None:
    first = await write(store, put("a"), namespace=A)
    for _ in range(3):
        primary.ask("SCRIPT", "FLUSH")
        assert await write(store, put("a"), namespace=A) == (first := first + 1)
    assert len(await coordinator.epochs()) == 2


async def test_two_versions_of_the_scripts_share_an_epoch_under_load(
    store: RedisStore, primary: RedisProcess, coordinator: EmbeddedCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while servers are replaced by newer ones, one by one."""
    older = fence.heads_suffix

    def newer(address: wire.Address) -> str:
        return f"{older(address)}:v2" if address.host == "localhost" else older(address)

    monkeypatch.setattr(fence, "heads_suffix", newer)
    url = f"redis://localhost:{primary.port}"
    other = await RedisStore.open([url], coordinator, clock=SystemClock())
    load = Load([store, other])
    try:
        async with load.running():
            for _ in range(3):
                await load.more(50, store=0)
                await load.more(50, store=1)
                # Each loads its own again. One that comes anew takes nothing away from the others.
                primary.ask("SCRIPT", "FLUSH")
                late = await RedisStore.open([url], coordinator, clock=SystemClock())
                await late.close()
        assert not load.refused
        assert await load.check(other) == set()
        for suffix in (":heads:0", ":heads:0:v2"):
            known = primary.ask("SCRIPT", "EXISTS", *scripts_of(store.epoch, suffix).digests.values())
            assert 1 in known
        assert store.epoch == other.epoch
        assert len(await coordinator.epochs()) == 2
    finally:
        await other.close()


async def test_a_primary_that_has_become_a_replica_executes_nothing(
    store: RedisStore, primary: RedisProcess, replica: RedisProcess
) -> None:
    """It keeps its connections and its scripts, unlike one that was restarted."""
    await write(store, put("a"), namespace=A)
    cut_off(primary, replica)
    lost = await write(store, put("a"), namespace=A)
    replica.promote()
    primary.ask("REPLICAOF", "127.0.0.1", replica.port)
    decided = store.epoch
    (failure,) = await failures(store, put("a"), namespace=A)
    assert (failure.kind, failure.actual) == (FailureKind.EPOCH, decided + 1)
    newer = await write(store, put("a"), namespace=A)
    assert newer == store.epoch << 40 | 1
    assert find_lost(lost, (await store.read(A, ())).view.cuts) is not None


async def test_a_call_without_a_reply_executes_once(primary: RedisProcess, coordinator: EmbeddedCoordinator) -> None:
    with proxied(f"127.0.0.1:{primary.port}") as proxy:
        store = await RedisStore.open([f"redis://{proxy.address}"], coordinator, clock=SystemClock())
        try:
            first = await write(store, put("a"), namespace=A)
            with proxy.during(Fault.DROP_REPLIES):
                making = asyncio.create_task(commit(store, put("a", b"x" * 100), namespace=A))
                request = remember(sequence(1), b"r" * 100)
                asking = asyncio.create_task(commit(store, put("b"), namespace=A, request=request))
                with pytest.raises(Refusal) as refused:
                    await making
            assert refused.value.reason is Reason.ENGINE_UNAVAILABLE
            assert isinstance(await asking, Replayed | Committed)
            assert len(await logged(store, first, A)) == 2, "neither was executed twice"
            assert len(await coordinator.epochs()) == 2, "a broken connection is no failover"
        finally:
            await store.close()


async def test_who_asks_is_told_of_a_later_epoch_and_served_no_more(
    primary: RedisProcess, replica: RedisProcess, coordinator: EmbeddedCoordinator
) -> None:
    told: list[int] = []
    urls = [primary.url, replica.url]
    store = await RedisStore.open(urls, coordinator, clock=SystemClock(), on_epoch=told.append)
    try:
        await write(store, put("a"), namespace=A)
        primary.ask("SCRIPT", "FLUSH")
        await write(store, put("a"), namespace=A)
        assert not told
        cut_off(primary, replica)
        fail_over(primary, replica)
        for _ in range(2):
            with pytest.raises(Refusal, match="try again") as refused:
                await store.read(A, ("a",))
            assert refused.value.reason is Reason.ENGINE_UNAVAILABLE
        assert told == [store.epoch]
    finally:
        await store.close()


async def test_without_a_primary_calls_are_refused_and_later_served(
    store: RedisStore, primary: RedisProcess, replica: RedisProcess
) -> None:
    await write(store, put("a"), namespace=A)
    cut_off(primary, replica)
    primary.kill()
    with pytest.raises(Refusal) as refused:
        await store.read(A, ("a",))
    assert refused.value.reason is Reason.ENGINE_UNAVAILABLE
    replica.promote()
    assert await get(store, "a", A) is not None


async def test_a_namespace_that_somebody_used_in_a_later_epoch_is_left_alone(
    store: RedisStore, primary: RedisProcess
) -> None:
    await write(store, put("a"), namespace=A)
    primary.ask("HSET", f"noosphere:{{{A.storage_id.hex()}}}:h", "e", f"{store.epoch + 1:06x}")
    for call in (commit(store, put("a"), namespace=A), store.read(A, ()), store.drop(A, None)):
        with pytest.raises(Refusal) as refused:
            await call
        assert refused.value.reason is Reason.ENGINE_UNAVAILABLE
    assert await write(store, put("a"), namespace=B)


async def test_names_that_a_failover_has_lost_are_noted_again(
    store: RedisStore, primary: RedisProcess, replica: RedisProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The note is made before, the commit after the failover: nobody would ever sweep the namespace."""
    await write(store, put("a"), namespace=A)
    cut_off(primary, replica)
    noting = store._catalogue.note

    async def note_and_fail_over(ref: NamespaceRef) -> None:
        await noting(ref)
        monkeypatch.undo()
        fail_over(primary, replica)
        # Somebody else's call finds the new primary, so that the commit is not lost on the way.
        await store.read(A, ())

    monkeypatch.setattr(store._catalogue, "note", note_and_fail_over)
    result = await store.commit(C, Commit(store.epoch + 1, 0, mutations=(put("a"),)))
    assert isinstance(result, Committed)
    assert [n.ref for n in await store.namespaces("", "", 10)] == [A, C]


async def test_calls_made_at_once_share_round_trips(store: RedisStore) -> None:
    await write(store, put("a"), namespace=A)
    connection = store._engine.present(b"x")
    assert connection is not None
    before = connection.wire.batch_count
    reads = [get(store, "a", A) for _ in range(200)]
    writes = [write(store, put(f"k{i}"), namespace=A) for i in range(200)]
    await asyncio.gather(*reads, *writes)
    assert connection.wire.batch_count - before <= 3


async def test_store_time_goes_on_from_what_was_told_on_a_machine_that_is_behind(
    store: RedisStore, primary: RedisProcess, replica: RedisProcess
) -> None:
    ahead_ms = time.time_ns() // 1_000_000 + 3_600_000
    store._time.heard(ahead_ms)
    made = await commit(store, put("a"), namespace=A)
    assert isinstance(made, Committed)
    assert made.now_ms >= ahead_ms
    cut_off(primary, replica)
    fail_over(primary, replica)
    assert (await store.read(A, ())).view.now_ms >= made.now_ms
