"""Folding and trimming, also when they are torn or disturbed: none of it may change what anybody sees."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.contract.build import (
    NS,
    bury,
    change,
    commit,
    keys,
    logged,
    put,
    reap,
    remember,
    sequence,
    write,
)
from tests.contract.contents import OTHER, busy, snapshot
from tests.contract.lab import EmbeddedLab, turns, until

from noosphere.server.ports.store import Committed, NamespaceRef
from noosphere.server.storage.embedded import EmbeddedCoordinator, EmbeddedStore, folding, keeper, sqlite


async def test_folding_and_trimming_change_nothing(embedded: EmbeddedLab) -> None:
    await busy(embedded.store)
    before = await snapshot(embedded.store, NS)
    assert (await embedded.store.totals()).journal_bytes > 0
    await embedded.store._keeper.fold_all()
    assert (await embedded.store.totals()).journal_bytes == 0
    assert await snapshot(embedded.store, NS) == before
    await embedded.crash()
    assert await snapshot(embedded.store, NS) == before


async def _steps(embedded: EmbeddedLab, act: Callable[[], Any]) -> AsyncIterator[Path]:
    """Runs ``act`` and yields a copy of the files before each of the journal's steps."""
    copies: list[Path] = []
    inner = embedded.journal.inner
    names = ["fold", "trim_log", "purge", "trim"]
    for name in names:
        original = getattr(inner, name)

        def step(*args: Any, original: Any = original) -> Any:
            copies.append(embedded.copy(f"step-{len(copies)}"))
            return original(*args)

        setattr(inner, name, step)
    await act()
    for name in names:
        delattr(inner, name)
    copies.append(embedded.copy(f"step-{len(copies)}"))
    for path in copies:
        yield path


async def _check_steps(embedded: EmbeddedLab, refs: list[NamespaceRef], act: Callable[[], Any]) -> int:
    before = [await snapshot(embedded.store, ref) for ref in refs]
    count = 0
    async for path in _steps(embedded, act):
        count += 1
        for life in range(2):
            coordinator = await EmbeddedCoordinator.open(path, clock=embedded.clock)
            store = await EmbeddedStore.open(path, coordinator, clock=embedded.clock, durability="os")
            found = [await snapshot(store, ref) for ref in refs]
            assert _comparable(found) == _comparable(before), f"step {path.name}, life {life}"
            await store.close()
            await coordinator.close()
        shutil.rmtree(path)
    assert _comparable([await snapshot(embedded.store, ref) for ref in refs]) == _comparable(before)
    return count


def _comparable(snapshots: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Leaves out the stamps of collections without records: how much of them is kept is the fold's business."""
    found = []
    for parts in snapshots:
        if len(parts) > 1:
            names = [entry.key for entry in parts[1]]
            stamps = [
                stamps if any(name.startswith(collection) for name in names) else None
                for collection, stamps in zip(("", "a/", "b/", "c/", "c/d/"), parts[2], strict=True)
            ]
            parts = (*parts[:2], stamps, *parts[3:])
        found.append(parts)
    return found


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes a fold consist of many jobs."""
    monkeypatch.setattr(folding, "CHUNK_BYTES", 8_000)


@pytest.mark.usefixtures("small_steps")
async def test_a_fold_torn_at_any_step_changes_nothing(embedded: EmbeddedLab) -> None:
    await busy(embedded.store)
    await busy(embedded.store, OTHER)
    await embedded.store._keeper.fold_all()
    floor = (await logged(embedded.store))[5].revision
    await embedded.store.compact(NS, floor)
    await write(embedded.store, reap("c/d/e"), put("b/new"), request=remember(sequence(3, 2)))
    await write(embedded.store, *(change(f"a/{i}", b"again") for i in range(100, 290)))
    await write(embedded.store, put("fresh"), namespace=NamespaceRef("shared/fresh"))
    refs = [NS, OTHER, NamespaceRef("shared/fresh")]
    assert await _check_steps(embedded, refs, embedded.store._keeper.fold_all) > 10


@pytest.mark.usefixtures("small_steps")
async def test_a_drop_torn_at_any_step_stays_a_drop(embedded: EmbeddedLab) -> None:
    for ref in (NS, OTHER):
        await busy(embedded.store, ref)
    await embedded.store._keeper.fold_all()
    last = (await embedded.store.scan(NS, "", limit=1)).view.head
    await embedded.store.drop(NS, None)
    await embedded.store.drop(OTHER, None)
    newer = NamespaceRef(OTHER.name, 2, last)
    await write(embedded.store, put("new"), namespace=newer)
    assert await _check_steps(embedded, [NS, OTHER, newer], embedded.store._keeper.fold_all) > 5


async def test_a_stamp_that_was_forgotten_in_a_torn_fold_is_not_shown_as_older(
    embedded: EmbeddedLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folding, "CHUNK_BYTES", 1)
    await write(embedded.store, put("c/x"), put("kept"))
    await write(embedded.store, bury("c/x"))
    await embedded.store._keeper.fold_all()
    await write(embedded.store, reap("c/x"))
    emptied = (await embedded.store.scan(NS, "c/", limit=1)).stamps
    count = 0
    async for path in _steps(embedded, embedded.store._keeper.fold_all):
        count += 1
        coordinator = await EmbeddedCoordinator.open(path, clock=embedded.clock)
        store = await EmbeddedStore.open(path, coordinator, clock=embedded.clock, durability="os")
        for _ in range(2):
            stamps = (await store.scan(NS, "c/", limit=1)).stamps
            assert min(stamps) >= min(emptied)
            await store._keeper.fold_all()
        await store.close()
        await coordinator.close()
    assert count >= 4
    # What was forgotten is not kept anywhere, or every collection that ever was would stay for good.
    await embedded.reopen()
    await embedded.store.scan(NS, "c/", limit=1)
    body = next(iter(embedded.store._registry)).body
    assert body is not None
    assert "c/" not in body.stamps


async def test_many_small_namespaces_are_folded_in_few_jobs(
    embedded: EmbeddedLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    refs = [NamespaceRef(f"sessions/{i}") for i in range(300)]
    await asyncio.gather(*(write(embedded.store, put("a"), namespace=ref) for ref in refs))
    jobs = 0
    original = embedded.journal.inner.fold

    def fold(*args: Any) -> None:
        nonlocal jobs
        jobs += 1
        original(*args)

    monkeypatch.setattr(embedded.journal.inner, "fold", fold)
    await embedded.store._keeper.fold_all()
    assert jobs < 30
    await embedded.crash()
    assert len(await embedded.store.namespaces("", "", 1_000)) == 300


async def test_the_write_ahead_log_begins_anew_when_it_has_grown(
    embedded: EmbeddedLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "_RELIEVE_BYTES", 200_000)
    monkeypatch.setattr(keeper, "FOLD_BYTES", 100_000)
    wal = embedded.folder / f"{sqlite.FILE}-wal"
    written = 0
    for i in range(400):
        await write(embedded.store, put(f"k{i % 20}", bytes(10_000)))
        written += 10_000
        if i % 10 == 9:
            # The writer may be faster than the background: wait until that has had its turn.
            await until(lambda: not embedded.store._keeper._wake.is_set())
            embedded.advance(1_000)
            await until(lambda: embedded.journal.inner.held_bytes < 100_000)
    assert wal.stat().st_size < written / 2
    await embedded.crash()
    assert len(await keys(embedded.store)) == 20


async def test_what_is_synced_during_a_fold_is_not_taken_for_folded(embedded: EmbeddedLab) -> None:
    await write(embedded.store, put("before"))
    async with embedded.holding():
        making = asyncio.create_task(commit(embedded.store, put("during"), request=remember(sequence(1))))
        await turns()
        # Its jobs queue up behind the sync that is held, so the row is stored after it.
        folding = asyncio.create_task(embedded.store._keeper.fold_all())
        await turns()
    await asyncio.gather(making, folding)
    before = await snapshot(embedded.store, NS)
    assert await keys(embedded.store) == ["before", "during"]
    await embedded.crash()
    assert await snapshot(embedded.store, NS) == before


async def test_a_request_that_is_lost_with_its_commit_is_not_remembered_by_a_fold(
    embedded: EmbeddedLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise its retry would be answered with a success that never was."""
    await write(embedded.store, put("before"))
    folds: list[object] = []
    original = embedded.journal.inner.fold

    def fold(*args: Any) -> None:
        original(*args)
        folds.append(args)

    monkeypatch.setattr(embedded.journal.inner, "fold", fold)
    request = remember(sequence(1))
    async with embedded.holding() as gate:
        first = asyncio.create_task(commit(embedded.store, put("first")))
        await turns()
        lost = asyncio.create_task(commit(embedded.store, put("lost"), request=request))
        await turns()
        folding = asyncio.create_task(embedded.store._keeper.fold_all())
        await turns()
        await gate.let_one()
        await first
        await until(lambda: bool(folds))
        assert not lost.done()
        await embedded.crash()
    await asyncio.gather(lost, folding, return_exceptions=True)
    assert await keys(embedded.store) == ["before", "first"]
    for accepted in (False, True):
        assert (await embedded.store.read(NS, (), request=request.ref, accepted=accepted)).remembered is None
    assert isinstance(await commit(embedded.store, put("lost"), request=request), Committed)


@pytest.mark.usefixtures("small_steps")
async def test_a_namespace_may_be_dropped_in_the_middle_of_its_fold(
    embedded: EmbeddedLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    await busy(embedded.store)
    loop = asyncio.get_running_loop()
    dropping: list[asyncio.Task[Any]] = []
    original = embedded.journal.inner.fold

    def fold(*args: Any) -> None:
        if not dropping:
            loop.call_soon_threadsafe(lambda: dropping.append(asyncio.create_task(embedded.store.drop(NS, None))))
        original(*args)

    monkeypatch.setattr(embedded.journal.inner, "fold", fold)
    await embedded.store._keeper.fold_all()
    await dropping[0]
    for _ in range(2):
        view = (await embedded.store.read(NS, ())).view
        assert (view.exists, view.deleted) == (True, True)
        assert await keys(embedded.store) == []
        await embedded.crash()
    await embedded.store._keeper.fold_all()
    db = embedded.journal.inner._writer
    assert db is not None
    for table in ("records", "marks", "log", "journal"):
        assert db.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table


async def test_folding_runs_beside_commits_and_drops(embedded: EmbeddedLab) -> None:
    """Folds follow each other without a pause while two namespaces change and one comes and goes."""
    chance = random.Random(5)
    finished = False

    async def folder() -> None:
        while not finished:
            await embedded.store._keeper.fold_all()
            await asyncio.sleep(0)

    folding = asyncio.create_task(folder())
    generation, origin = 1, 0
    for i in range(300):
        ref = chance.choice((NS, OTHER))
        key = f"{chance.choice('abc')}/{chance.randrange(40)}"
        await write(embedded.store, chance.choice((put, bury, reap))(key), namespace=ref)
        passing = NamespaceRef("shared/passing", generation, origin)
        origin = max(origin, await write(embedded.store, put(str(i)), namespace=passing))
        if chance.random() < 0.1:
            await embedded.store.drop(passing, None)
            generation += 1
    finished = True
    await folding
    last = NamespaceRef("shared/passing", generation, origin)
    refs = [NS, OTHER, last]
    before = [await snapshot(embedded.store, ref) for ref in refs]
    listing = [n.ref for n in await embedded.store.namespaces("", "", 10)]
    await embedded.crash()
    assert _comparable([await snapshot(embedded.store, ref) for ref in refs]) == _comparable(before)
    assert [n.ref for n in await embedded.store.namespaces("", "", 10)] == listing
