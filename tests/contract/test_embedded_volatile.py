"""Volatile namespaces of the embedded store: like others while they live, and nowhere but in memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.contract.build import commit, get, head, keys, logged, put, reap, remember, sequence, write
from tests.contract.lab import EmbeddedLab

from noosphere.consistency import Reason, Refusal
from noosphere.server.ports.store import Committed, Dropped, NamespaceRef, Replayed
from noosphere.server.storage.embedded import store as embedded_store
from noosphere.server.storage.embedded.registry import ENDED_MAX

CANARY = b"volatile-text-of-this-test"
SECRET = NamespaceRef("sessions/~4f1c")
DURABLE = NamespaceRef("sessions/4f1c")


def _files_with(folder: Path, text: bytes) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.is_file() and text in path.read_bytes()]


async def _fill(lab: EmbeddedLab, ref: NamespaceRef) -> None:
    for number in range(20):
        await write(
            lab.store,
            put(f"k{number}", CANARY),
            namespace=ref,
            request=remember(sequence(number + 1), CANARY, CANARY),
        )


async def test_it_reads_lists_logs_and_remembers_like_any_other(embedded: EmbeddedLab) -> None:
    await _fill(embedded, SECRET)
    store = embedded.store
    entry = await get(store, "k3", SECRET)
    assert entry is not None
    assert entry.data == CANARY
    assert len(await keys(store, namespace=SECRET)) == 20
    assert len(await logged(store, 0, SECRET)) == 20
    again = await commit(store, put("k0"), namespace=SECRET, request=remember(sequence(1), CANARY, CANARY))
    assert isinstance(again, Replayed)
    assert [n.ref for n in await store.namespaces("sessions/", "", 10)] == [SECRET]


async def test_nothing_of_it_is_in_any_file_not_even_after_a_fold(embedded: EmbeddedLab) -> None:
    await _fill(embedded, SECRET)
    await write(embedded.store, put("k", b"visible-77"), namespace=DURABLE)
    await embedded.store._keeper.fold_all()
    assert _files_with(embedded.folder, CANARY) == []
    assert _files_with(embedded.folder, SECRET.name.encode()) == []
    assert _files_with(embedded.folder, b"visible-77"), "the search finds what is there"


async def test_a_restart_and_a_crash_end_it_and_leave_the_others(embedded: EmbeddedLab) -> None:
    for again in (embedded.reopen, embedded.crash):
        await _fill(embedded, SECRET)
        revision = await write(embedded.store, put("k"), namespace=DURABLE)
        await again()
        assert await head(embedded.store, SECRET) == 0
        assert await keys(embedded.store, namespace=SECRET) == []
        assert await head(embedded.store, DURABLE) == revision
        await write(embedded.store, reap("k"), namespace=DURABLE)
        assert _files_with(embedded.folder, CANARY) == []


async def test_it_is_never_evicted(tmp_path: Path) -> None:
    lab = EmbeddedLab(tmp_path, memory_bytes_max=1)
    await lab.open()
    try:
        await _fill(lab, SECRET)
        await _fill(lab, DURABLE)
        lab.advance(60_000)
        await lab.store._keeper.evict()
        listed = {n.ref: n.loaded for n in await lab.store.namespaces("sessions/", "", 10)}
        assert listed == {SECRET: True, DURABLE: False}
        assert len(await keys(lab.store, namespace=SECRET)) == 20
    finally:
        await lab.close()


async def test_dropped_ones_are_forgotten_in_the_end(embedded: EmbeddedLab) -> None:
    await _fill(embedded, SECRET)
    dropped = await embedded.store.drop(SECRET, None)
    assert isinstance(dropped, Dropped)
    assert dropped.record_count == 20
    assert await head(embedded.store, SECRET) == dropped.head, "a watcher still learns that it was dropped"
    for number in range(ENDED_MAX):
        ref = NamespaceRef(f"sessions/~{number}")
        await write(embedded.store, put("k"), namespace=ref)
        await embedded.store.drop(ref, None)
    assert await head(embedded.store, SECRET) == 0
    assert (await embedded.store.totals()).namespace_count == ENDED_MAX


async def test_together_they_have_a_limit_and_can_be_emptied_above_it(
    embedded: EmbeddedLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded_store, "VOLATILE_BYTES_MAX", 1_000)
    await _fill(embedded, SECRET)
    await embedded.store._keeper.evict()
    with pytest.raises(Refusal) as refused:
        await write(embedded.store, put("more"), namespace=SECRET)
    assert refused.value.reason is Reason.LIMIT_EXCEEDED
    assert "1000" in refused.value.message
    await write(embedded.store, put("more"), namespace=DURABLE)
    assert isinstance(await commit(embedded.store, reap("k0"), namespace=SECRET), Committed)
