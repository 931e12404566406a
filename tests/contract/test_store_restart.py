"""Restarts: what was acknowledged is there, time does not go back, and what was lost is told."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from tests.contract.build import (
    NS,
    absent,
    bury,
    change,
    commit,
    failures,
    get,
    head,
    keys,
    logged,
    put,
    reap,
    remember,
    sequence,
    uuid,
    write,
)
from tests.contract.lab import StoreLab, turns

from noosphere.consistency import Reason, Refusal, find_lost
from noosphere.server.ports.store import Fence, NamespaceRef, WorkingStore

OTHER = NamespaceRef("sessions/größe")
GONE = NamespaceRef("shared/gone")


async def _snapshot(store: WorkingStore) -> dict[str, Any]:
    """Returns everything that can be asked about three namespaces, except times and cuts."""
    found: dict[str, Any] = {}
    for ref in (NS, OTHER, GONE):
        page = await store.scan(ref, "", limit=1000)
        stats = await store.stats(ref)
        found[ref.name] = (
            page.view._replace(now_ms=0, epoch=0, cuts=()),
            page.entries,
            page.stamps,
            [(await store.scan(ref, c, limit=1)).stamps for c in ("a/", "a/b/", "c/")],
            await store.due(ref, 10**15, 100),
            stats._replace(view=page.view._replace(now_ms=0, epoch=0, cuts=())),
            (await store.read(ref, (), locks=("l", "m"))).fences,
            [(await store.read(ref, (), request=r)).remembered for r in (sequence(1), sequence(2), uuid("u"))],
            None if page.view.deleted else await logged(store, page.view.floor, ref),
        )
    # Asked last, with everything loaded: when the next key is due may be told too early for what is not.
    found["list"] = [n._replace(loaded=True) for n in await store.namespaces("", "", 100)]
    return found


async def _fill(store: WorkingStore) -> None:
    for ref in (NS, OTHER, GONE):
        await write(store, put("a/b/x"), put("a/y", due_ms=77), put("z"), namespace=ref, config_version=2)
        await write(store, bury("a/y", due_ms=55), namespace=ref, config_version=3, request=remember(sequence(1)))
        await write(store, put("c/d"), namespace=ref, config_version=3, fences=(Fence("l", 5),))
        await write(store, reap("a/y", raise_floor_context=3), namespace=ref, config_version=3)
        await write(store, change("z"), namespace=ref, config_version=3, request=remember(uuid("u"), b"reply"))
        await write(store, put("log/", rev_slot=True), namespace=ref, config_version=3)
    first = (await logged(store, 0, NS))[0].revision
    await store.compact(NS, first)
    await store.drop(GONE, None)


@pytest.mark.parametrize("how", ["reopen", "crash"])
async def test_everything_is_as_it_was(lab: StoreLab, how: str) -> None:
    await _fill(lab.store)
    before = await _snapshot(lab.store)
    for _ in range(3):
        await (lab.reopen() if how == "reopen" else lab.crash())
        assert await _snapshot(lab.store) == before


async def test_writing_goes_on_where_it_was_after_any_mix_of_restarts(lab: StoreLab) -> None:
    chance = random.Random(4)
    expected: dict[str, bytes] = {}
    revisions: list[int] = []
    for i in range(60):
        key = f"k{chance.randrange(6)}"
        revisions.append(await write(lab.store, put(key, str(i).encode())))
        expected[key] = str(i).encode()
        if chance.random() < 0.3:
            await (lab.reopen() if chance.random() < 0.5 else lab.crash())
    assert revisions == sorted(set(revisions))
    page = await lab.store.scan(NS, "", limit=100)
    assert {e.key: e.data for e in page.entries} == expected
    assert [b.revision for b in await logged(lab.store)] == revisions


async def test_a_clean_restart_begins_no_epoch_and_an_unclean_one_does(lab: StoreLab) -> None:
    await write(lab.store, put("a"))
    epoch = lab.store.epoch
    await lab.reopen()
    assert lab.store.epoch == epoch
    await lab.crash()
    assert lab.store.epoch > epoch
    records = await lab.coordinator.epochs()
    assert records[-1].epoch == lab.store.epoch
    assert "unclean" in records[-1].cause
    assert "1 namespaces" in records[-1].recovered
    if lab.loads_when_asked:
        # Who does not read everything at a start knows how much there is, not what.
        assert str(await head(lab.store)) in records[-1].recovered


async def test_an_unacknowledged_commit_that_is_lost_makes_its_revision_known_as_lost(lab: StoreLab) -> None:
    survived = await write(lab.store, put("a"))
    async with lab.holding():
        making = asyncio.create_task(commit(lab.store, put("a", b"lost")))
        await turns()
        lost = await head(lab.store, accepted=True)
        assert lost == survived + 1
        await lab.crash()
        with pytest.raises(Refusal) as refused:
            await making
        assert refused.value.reason is Reason.ENGINE_UNAVAILABLE
    view = (await lab.store.read(NS, ())).view
    assert view.head == survived
    for _ in range(2):
        range_ = find_lost(lost, view.cuts)
        assert range_ is not None
        assert range_.after == survived
        assert find_lost(survived, view.cuts) is None
        entry = await get(lab.store, "a")
        assert entry is not None
        assert entry.data == b"value"
        newer = await write(lab.store, put("b"))
        assert newer > lost, "a revision is never reused"
        view = (await lab.store.read(NS, ())).view
        assert find_lost(newer, view.cuts) is None


async def test_a_namespace_that_was_lost_altogether_knows_its_revisions_as_lost(lab: StoreLab) -> None:
    async with lab.holding():
        making = asyncio.create_task(commit(lab.store, put("a")))
        await turns()
        lost = await head(lab.store, accepted=True)
        await lab.crash()
        with pytest.raises(Refusal):
            await making
    view = (await lab.store.read(NS, ())).view
    assert not view.exists
    assert find_lost(lost, view.cuts) is not None


async def test_store_time_never_goes_back_over_restarts_with_the_wall_clock_set_back(lab: StoreLab) -> None:
    seen_ms = lab.store.now_ms()
    until_ms = seen_ms + 10_000
    await write(lab.store, put("short", live_until_ms=until_ms))
    for how in ("reopen", "crash", "reopen", "crash"):
        lab.advance(3_000)
        last = await write(lab.store, put("a"))
        seen_ms = max(seen_ms, lab.store.now_ms())
        lab.set_wall_back(3_600_000)
        assert lab.store.now_ms() >= seen_ms
        await (lab.reopen() if how == "reopen" else lab.crash())
        assert lab.store.now_ms() >= seen_ms
        times = [b.time_ms for b in await logged(lab.store)]
        assert times == sorted(times)
        assert await head(lab.store) == last
    await failures(lab.store, put("x"), checks=[absent("short")])


@pytest.mark.parametrize("passed_ms", [1, 500, 1_999, 2_000, 3_999])
async def test_a_time_that_was_only_looked_at_does_not_come_again_after_a_crash(lab: StoreLab, passed_ms: int) -> None:
    """Nothing was written since, so nothing on disk says how late it was."""
    await write(lab.store, put("a"))
    lab.advance(passed_ms)
    seen_ms = lab.store.now_ms()
    lab.set_wall_back(3_600_000)
    await lab.crash()
    assert lab.store.now_ms() >= seen_ms


async def test_writers_in_the_same_millisecond_are_ordered_by_revision(lab: StoreLab) -> None:
    results = await asyncio.gather(*(write(lab.store, put(f"k{i}")) for i in range(50)))
    assert sorted(results) == list(range(min(results), min(results) + 50))
    batches = await logged(lab.store)
    assert len({b.time_ms for b in batches}) == 1
    assert [b.revision for b in batches] == sorted(results)


async def test_after_closing_every_call_is_refused(lab: StoreLab) -> None:
    await write(lab.store, put("a"))
    store = lab.store
    await store.close()
    await store.close()
    for call in (
        store.read(NS, ("a",)),
        store.scan(NS, "", limit=1),
        commit(store, put("a")),
        store.settle(NS),
        store.changes(NS, 0, 1),
        store.namespaces("", "", 1),
        store.drop(NS, None),
        store.due(NS, 0, 1),
        store.compact(NS, 1),
        store.erase(NS),
        store.stats(NS),
        store.totals(),
        store.forget_client("x"),
    ):
        with pytest.raises(Refusal) as refused:
            await call
        assert refused.value.reason is Reason.ENGINE_UNAVAILABLE


async def test_closing_waits_for_what_is_accepted(lab: StoreLab) -> None:
    store = lab.store
    async with lab.holding():
        making = [asyncio.create_task(commit(store, put(f"k{i}"))) for i in range(10)]
        await turns()
        closing = asyncio.create_task(store.close())
        await turns()
        assert not closing.done()
    await closing
    assert all(task.done() and task.exception() is None for task in making)
    await lab.reopen()
    assert len(await keys(lab.store)) == 10


async def test_any_number_of_namespaces_loads_when_asked_for(lab: StoreLab) -> None:
    refs = [NamespaceRef(f"shared/{i}") for i in range(50)]
    for ref in refs:
        await write(lab.store, put("a", ref.name.encode()), namespace=ref)
    await lab.reopen()
    assert (await lab.store.totals()).loaded_count == (0 if lab.loads_when_asked else 50)
    entries = await asyncio.gather(*(get(lab.store, "a", ref) for ref in refs for _ in range(3)))
    assert [e.data for e in entries if e is not None] == [ref.name.encode() for ref in refs for _ in range(3)]
    assert (await lab.store.totals()).loaded_count == 50
