"""The keeper: when it folds by itself, what it evicts and loads, and what it bounds; nobody sees any of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.contract.build import (
    NS,
    change,
    commit,
    get,
    keys,
    logged,
    put,
    write,
)
from tests.contract.contents import OTHER, busy, snapshot
from tests.contract.lab import EmbeddedLab, turns, until

from noosphere.server.ports.store import Committed, Compacted, NamespaceRef
from noosphere.server.storage.embedded import EmbeddedStore, folding, keeper, pipeline
from noosphere.server.storage.embedded.folder import DataFolderError


async def test_a_fold_begins_by_itself_when_the_journal_has_grown(
    embedded: EmbeddedLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    folds = embedded.store._keeper
    started = asyncio.Event()
    original = folds.fold_all

    async def fold_all() -> None:
        started.set()
        await original()

    monkeypatch.setattr(folds, "fold_all", fold_all)
    for i in range(keeper.FOLD_BYTES // 500_000 + 2):
        await write(embedded.store, put(f"k{i}", b"x" * 500_000))
    await asyncio.wait_for(started.wait(), 60)


async def test_a_fold_begins_by_itself_after_some_time(embedded: EmbeddedLab) -> None:
    await write(embedded.store, put("a"))
    for _ in range(10):
        embedded.advance(1_000)
        await turns()
    await until(lambda: embedded.journal.inner.held_bytes == 0)


async def test_time_that_was_only_read_is_persisted(embedded: EmbeddedLab) -> None:
    await write(embedded.store, put("a"))
    for _ in range(30):
        embedded.advance(1_000)
        seen_ms = embedded.store.now_ms()
        await turns()
    await until(lambda: not embedded.store._time.overdue)
    embedded.set_wall_back(3_600_000)
    await embedded.crash()
    assert embedded.store.now_ms() >= seen_ms


async def test_nothing_is_written_while_nobody_asks(embedded: EmbeddedLab) -> None:
    await write(embedded.store, put("a"))
    embedded.advance(3_000)
    await turns()
    await embedded.store._pipeline.drain()
    syncs = embedded.journal.syncs
    for _ in range(20):
        embedded.advance(1_000)
        await turns()
    await embedded.store._pipeline.drain()
    assert embedded.journal.syncs == syncs


async def squeeze(embedded: EmbeddedLab) -> None:
    """Makes memory short and time pass."""
    embedded.store._keeper._memory_bytes_max = 0
    embedded.advance(keeper.EVICT_IDLE_MS + 1)
    await embedded.store._keeper.evict()
    await embedded.store._keeper.bury()


async def test_an_evicted_namespace_comes_back_as_it_was(embedded: EmbeddedLab) -> None:
    await busy(embedded.store)
    before = await snapshot(embedded.store, NS)
    listing = list(await embedded.store.namespaces("", "", 10))
    totals = await embedded.store.totals()
    for _ in range(3):
        await squeeze(embedded)
        after = await embedded.store.totals()
        assert after.loaded_count == 0
        assert (after.record_count, after.record_bytes) == (totals.record_count, totals.record_bytes)
        assert [n._replace(loaded=True) for n in await embedded.store.namespaces("", "", 10)] == listing
        assert await snapshot(embedded.store, NS) == before


async def test_only_idle_namespaces_are_evicted_and_only_when_memory_is_short(embedded: EmbeddedLab) -> None:
    for ref in (NS, OTHER):
        await busy(embedded.store, ref)
    embedded.advance(keeper.EVICT_IDLE_MS + 1)
    await embedded.store._keeper.evict()
    assert (await embedded.store.totals()).loaded_count == 2, "there is memory enough"
    await get(embedded.store, "a/1")
    embedded.store._keeper._memory_bytes_max = 0
    await embedded.store._keeper.evict()
    assert [n.loaded for n in await embedded.store.namespaces("", "", 10)] == [True, False]


async def test_the_longest_idle_go_first_and_no_more_than_needed(embedded: EmbeddedLab) -> None:
    refs = [NamespaceRef(f"shared/{i}") for i in range(6)]
    for ref in refs:
        await write(embedded.store, put("a", b"x" * 10_000), namespace=ref)
        embedded.advance(1)
    embedded.advance(keeper.EVICT_IDLE_MS)
    embedded.store._keeper._memory_bytes_max = 4 * 21_000
    await embedded.store._keeper.evict()
    assert [n.loaded for n in await embedded.store.namespaces("", "", 10)] == [False, False, True, True, True, True]


async def test_what_is_not_synced_is_not_evicted(embedded: EmbeddedLab) -> None:
    await write(embedded.store, put("a"))
    await embedded.store._keeper.fold_all()
    async with embedded.holding():
        making = asyncio.create_task(commit(embedded.store, change("a")))
        await turns()
        await squeeze(embedded)
        assert (await embedded.store.totals()).loaded_count == 1
        entry = await get(embedded.store, "a", accepted=True)
        assert entry is not None
        assert entry.data == b"changed"
    assert isinstance(await making, Committed)


async def test_concurrent_users_of_an_unloaded_namespace_share_one_load(
    embedded: EmbeddedLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    await busy(embedded.store)
    await embedded.reopen()
    loads = 0
    original = embedded.journal.inner.load

    def load(*args: Any) -> Any:
        nonlocal loads
        loads += 1
        return original(*args)

    monkeypatch.setattr(embedded.journal.inner, "load", load)
    users = [asyncio.create_task(get(embedded.store, f"a/{i}")) for i in range(50)]
    users += [asyncio.create_task(commit(embedded.store, put(f"n{i}"))) for i in range(50)]  # type: ignore[arg-type]
    await turns(2)
    for user in users[10:20]:
        user.cancel()
    results = await asyncio.gather(*users, return_exceptions=True)
    assert loads == 1
    assert not [r for r in results if isinstance(r, Exception)]
    assert sum(isinstance(r, Committed) for r in results) == 50


async def test_the_loop_goes_on_while_a_namespace_loads(embedded: EmbeddedLab, monkeypatch: pytest.MonkeyPatch) -> None:
    await write(embedded.store, put("a"))
    await write(embedded.store, put("a"), namespace=OTHER)
    await embedded.reopen()
    await get(embedded.store, "a", OTHER)
    gate = asyncio.Event()
    loop = asyncio.get_running_loop()
    original = embedded.journal.inner.load

    def load(*args: Any) -> Any:
        asyncio.run_coroutine_threadsafe(gate.wait(), loop).result(60)
        return original(*args)

    monkeypatch.setattr(embedded.journal.inner, "load", load)
    waiting = asyncio.create_task(get(embedded.store, "a"))
    await turns()
    # The lock around journal calls is the test's own; reads of what is loaded need no journal.
    assert await get(embedded.store, "a", OTHER) is not None
    assert not waiting.done()
    gate.set()
    assert await waiting is not None


async def test_a_log_above_its_hard_limit_loses_its_older_half(
    embedded: EmbeddedLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folding, "LOG_ITEMS_MAX", 50)
    revisions = [await write(embedded.store, put("a")) for _ in range(100)]
    await embedded.store._keeper.fold_all()
    for _ in range(2):
        result = await embedded.store.changes(NS, 0, 1)
        assert isinstance(result, Compacted)
        assert revisions[45] <= result.floor <= revisions[55]
        assert [b.revision for b in await logged(embedded.store, result.floor)] == [
            r for r in revisions if r > result.floor
        ]
        await embedded.crash()


async def test_commits_wait_for_room_instead_of_filling_memory(
    embedded: EmbeddedLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "BACKLOG_ENTRIES_MAX", 20)
    monkeypatch.setattr(pipeline, "BATCH_ENTRIES_MAX", 7)
    async with embedded.holding():
        making = [asyncio.create_task(commit(embedded.store, put(f"k{i:03}"))) for i in range(100)]
        await turns(50)
        assert len(await keys(embedded.store, accepted=True)) == 20, "the rest is not even accepted"
        for task in making[30:60]:
            task.cancel()
        await turns()
    results = await asyncio.gather(*making, return_exceptions=True)
    assert sum(isinstance(r, Committed) for r in results) == 70
    assert len(await keys(embedded.store)) == 70


async def test_a_batch_is_bounded_in_bytes(embedded: EmbeddedLab, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    original = embedded.journal.inner.append

    def append(number: int, blob: bytes) -> None:
        sizes.append(len(blob))
        original(number, blob)

    monkeypatch.setattr(embedded.journal.inner, "append", append)
    async with embedded.holding():
        making = [asyncio.create_task(commit(embedded.store, put(f"k{i}", b"x" * 200_000))) for i in range(20)]
        await turns()
    await asyncio.gather(*making)
    assert len(sizes) <= 11
    assert max(sizes) <= pipeline.BATCH_BYTES_MAX


async def test_a_store_without_its_folder_is_refused(tmp_path: Path, embedded: EmbeddedLab) -> None:
    with pytest.raises(DataFolderError):
        await EmbeddedStore.open(tmp_path / "nowhere", embedded.coordinator, clock=embedded.clock)
