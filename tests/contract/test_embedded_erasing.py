"""Writing the embedded store's journal anew: beside commits, whole or not at all, and finished by the next life."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.contract.build import NS, change, commit, get, keys, logged, put, reap, remember, sequence, write
from tests.contract.contents import OTHER, busy, snapshot
from tests.contract.lab import EmbeddedLab, expect_log, turns, until

from noosphere.consistency import Reason, Refusal
from noosphere.server.ports.store import NamespaceRef
from noosphere.server.storage.embedded import DataFolderError, EmbeddedCoordinator, EmbeddedStore, folding, rewriting
from noosphere.server.storage.embedded.sqlite import FILE
from noosphere.testing import ManualClock

CANARY = b"canary-of-this-erasure"
VOLATILE = NamespaceRef("sessions/~e1")


def files_with(folder: Path, text: bytes) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if text in path.read_bytes())


def bytes_in(folder: Path) -> bytes:
    return b"\n".join(path.read_bytes() for path in sorted(folder.iterdir()))


def copies_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if ".copy" in path.name)


async def fill(store: EmbeddedStore, ref: NamespaceRef = NS) -> None:
    """Leaves the canary in records, tables, journal, log and remembered calls."""
    for number in range(12):
        data = CANARY * (1, 30, 300)[number % 3]
        request = remember(sequence(number + 1), CANARY, CANARY)
        await write(store, put(f"k{number}", data, event=CANARY), namespace=ref, request=request)
        if number == 6:
            await store._keeper.fold_all()


async def redact(store: EmbeddedStore, ref: NamespaceRef = NS) -> None:
    for number in range(12):
        await write(store, change(f"k{number}", b"[redacted]"), namespace=ref)


async def finished(store: EmbeddedStore) -> None:
    """Waits until the store has nothing more to erase by itself."""
    await until(lambda: not store._keeper._eraser.owed and not store._keeper._folding.locked())


async def open_copy(path: Path, clock: ManualClock) -> tuple[EmbeddedStore, EmbeddedCoordinator]:
    coordinator = await EmbeddedCoordinator.open(path, clock=clock)
    return await EmbeddedStore.open(path, coordinator, clock=clock, durability="os"), coordinator


async def test_files_stay_the_same_and_what_they_hold_is_small(embedded: EmbeddedLab) -> None:
    before = {path.name for path in embedded.folder.iterdir()}
    await write(embedded.store, *(put(f"k{i}", b"x" * 900) for i in range(900)))
    await embedded.store._keeper.fold_all()
    await write(embedded.store, *(reap(f"k{i}") for i in range(900)))
    await embedded.store.erase(NS)
    assert {path.name for path in embedded.folder.iterdir()} == before
    assert (embedded.folder / FILE).stat().st_size < 100_000
    assert (embedded.folder / f"{FILE}-wal").stat().st_size < 100_000


async def test_removed_bytes_are_overwritten_in_every_life_of_the_file(embedded: EmbeddedLab) -> None:
    """Also where SQLite was built to do so only if it is asked to."""
    asked: list[str] = []

    def overwrites() -> bool:
        writer = embedded.journal.inner._writer
        assert writer is not None
        return bool(writer.execute("PRAGMA secure_delete").fetchone()[0])

    assert overwrites()
    connect = sqlite3.connect

    def listening(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        db: sqlite3.Connection = connect(*args, **kwargs)
        db.set_trace_callback(asked.append)
        return db

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite3, "connect", listening)
        await write(embedded.store, put("a"))
        await embedded.store.erase(NS)
    assert overwrites()
    assert "PRAGMA secure_delete = ON" in asked


async def test_nothing_in_memory_refers_to_it(embedded: EmbeddedLab) -> None:
    data, event, reply = (bytes(bytearray(CANARY + tail)) for tail in (b"1", b"2", b"3"))
    before = [sys.getrefcount(text) for text in (data, event, reply)]
    await write(embedded.store, put("a", data, event=event), request=remember(sequence(1), reply))
    await write(embedded.store, change("a", b"[redacted]"))
    assert [sys.getrefcount(text) for text in (data, event, reply)] != before
    await embedded.store.erase(NS)
    await until(lambda: [sys.getrefcount(text) for text in (data, event, reply)] == before)


async def test_commits_and_loads_go_on_while_the_copy_is_made(embedded: EmbeddedLab) -> None:
    await fill(embedded.store)
    await busy(embedded.store, OTHER)
    await embedded.reopen()
    await redact(embedded.store)
    begun, go_on = threading.Event(), threading.Event()
    copy = embedded.journal.inner.copy

    def slow() -> None:
        begun.set()
        assert go_on.wait(60)
        copy()

    embedded.journal.inner.copy = slow  # type: ignore[method-assign]
    erasing = asyncio.create_task(embedded.store.erase(NS))
    await until(begun.is_set)
    during = await write(embedded.store, put("during", b"kept"), request=remember(sequence(100)))
    assert len(await keys(embedded.store, "a/", OTHER)) == 300, "loaded from the file that is being copied"
    assert not erasing.done()
    go_on.set()
    await erasing
    for _ in range(2):
        entry = await get(embedded.store, "during")
        assert entry is not None
        assert (entry.revision, entry.data) == (during, b"kept")
        assert files_with(embedded.folder, CANARY) == []
        assert len(await keys(embedded.store, "a/", OTHER)) == 300
        await embedded.crash()


async def test_what_is_committed_between_copy_and_swap_is_in_the_new_file(embedded: EmbeddedLab) -> None:
    await fill(embedded.store)
    await redact(embedded.store)
    copied, go_on = threading.Event(), threading.Event()
    copy = embedded.journal.inner.copy

    def early() -> None:
        copy()
        copied.set()
        assert go_on.wait(60)

    embedded.journal.inner.copy = early  # type: ignore[method-assign]
    erasing = asyncio.create_task(embedded.store.erase(NS))
    await until(copied.is_set)
    revisions = [await write(embedded.store, put(f"late/{number}", b"kept")) for number in range(200)]
    go_on.set()
    floor = (await erasing).floor
    await embedded.crash()
    assert [batch.revision for batch in await logged(embedded.store, floor)] == revisions
    assert files_with(embedded.folder, CANARY) == []


async def test_erasures_at_once_share_a_copy_and_one_that_comes_later_gets_its_own(embedded: EmbeddedLab) -> None:
    copies = 0
    begun, go_on = threading.Event(), threading.Event()
    copy = embedded.journal.inner.copy

    def counted() -> None:
        nonlocal copies
        copies += 1
        begun.set()
        assert go_on.wait(60)
        copy()

    embedded.journal.inner.copy = counted  # type: ignore[method-assign]
    for ref in (NS, OTHER):
        await fill(embedded.store, ref)
        await redact(embedded.store, ref)
    first = asyncio.create_task(embedded.store.erase(NS))
    await until(begun.is_set)
    later = [asyncio.create_task(embedded.store.erase(ref)) for ref in (NS, OTHER) for _ in range(10)]
    await turns()
    go_on.set()
    await first
    await asyncio.gather(*later)
    assert copies == 2
    assert files_with(embedded.folder, CANARY) == []


async def test_volatile_namespaces_are_erased_without_touching_a_file(embedded: EmbeddedLab) -> None:
    def never() -> None:
        raise AssertionError("nothing of it is in a file")

    embedded.journal.inner.copy = never  # type: ignore[method-assign]
    await write(embedded.store, put("a", CANARY), namespace=VOLATILE, request=remember(sequence(1), CANARY, CANARY))
    assert (await embedded.store.erase(VOLATILE))[1:] == (1, 1)
    stats = await embedded.store.stats(VOLATILE)
    assert (stats.log_count, stats.record_count) == (0, 1)


# What happens if it is cut off.


@contextmanager
def copied_at_every_step(embedded: EmbeddedLab) -> Iterator[list[Path]]:
    """Copies the files before each step of the journal, and at every point of the swap."""
    copies: list[Path] = []

    def note() -> None:
        copies.append(embedded.copy(f"step-{len(copies)}"))

    def before(original: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **kwargs: Any) -> Any:
            note()
            return original(*args, **kwargs)

        return step

    with pytest.MonkeyPatch.context() as patch:
        for name in ("append", "mark_erasing", "fold", "trim_log", "purge", "trim", "copy", "swap", "_reopen"):
            patch.setattr(embedded.journal.inner, name, before(getattr(embedded.journal.inner, name)))
        for name in ("_open_copy", "_catch_up", "_sync", "put_in_place", "sync_folder"):
            patch.setattr(rewriting, name, before(getattr(rewriting, name)))
        patch.setattr("noosphere.server.storage.embedded.sqlite.put_in_place", rewriting.put_in_place)
        yield copies
        note()


@pytest.mark.parametrize("dropped", [False, pytest.param(True, marks=pytest.mark.campaign)])
async def test_cut_off_at_any_step_it_is_finished_by_the_next_life(
    embedded: EmbeddedLab, monkeypatch: pytest.MonkeyPatch, dropped: bool
) -> None:
    monkeypatch.setattr(folding, "CHUNK_BYTES", 4_000)
    await fill(embedded.store)
    await busy(embedded.store, OTHER)
    if dropped:
        await embedded.store.drop(NS, None)
    else:
        await redact(embedded.store)
    others = await snapshot(embedded.store, OTHER)
    with copied_at_every_step(embedded) as copies:
        await embedded.store.erase(NS)
    erased = await snapshot(embedded.store, NS)
    begun = 0
    assert len(copies) > 15
    for path in copies:
        store, coordinator = await open_copy(path, embedded.clock)
        if store._keeper._eraser.owed:
            begun += 1
            await finished(store)
            assert files_with(path, CANARY) == [], f"{path.name}: it finishes by itself"
        assert await snapshot(store, OTHER) == others
        await store.erase(NS)
        assert await snapshot(store, NS) == erased
        assert files_with(path, CANARY) == []
        assert copies_in(path) == []
        await store.close()
        await coordinator.close()
        shutil.rmtree(path)
    assert begun > 8


async def test_a_copy_that_cannot_be_made_is_refused_and_harms_nothing(
    embedded: EmbeddedLab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(embedded.store)
    await redact(embedded.store)

    def full(path: Path) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch, expect_log(caplog, "database or disk is full"):
        patch.setattr("noosphere.server.storage.embedded.sqlite.write_copy", full)
        with pytest.raises(Refusal, match="erasing again finishes") as refused:
            await embedded.store.erase(NS)
        assert refused.value.reason is Reason.ENGINE_UNAVAILABLE
    assert embedded.fatal == []
    revision = await write(embedded.store, put("after"))
    await embedded.store.erase(NS)
    assert files_with(embedded.folder, CANARY) == []
    await embedded.crash()
    entry = await get(embedded.store, "after")
    assert entry is not None
    assert entry.revision == revision


async def test_a_copy_leaves_room_for_commits(
    embedded: EmbeddedLab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(embedded.store)
    await redact(embedded.store)
    size = (embedded.folder / FILE).stat().st_size
    usage = shutil.disk_usage(embedded.folder)
    with monkeypatch.context() as patch, expect_log(caplog, "bytes are free"):
        patch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=size + 64 * 1024 * 1024 - 1))
        with pytest.raises(Refusal):
            await embedded.store.erase(NS)
        assert copies_in(embedded.folder) == []
    await embedded.store.erase(NS)
    assert files_with(embedded.folder, CANARY) == []


@pytest.mark.parametrize("step", ["complete_copy", "put_in_place"])
async def test_a_swap_that_fails_leaves_the_old_file_in_use(
    embedded: EmbeddedLab, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    await fill(embedded.store)
    await redact(embedded.store)

    def failing(*args: object) -> None:
        raise OSError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(f"noosphere.server.storage.embedded.sqlite.{step}", failing)
        with pytest.raises(Refusal) as refused:
            await embedded.store.erase(NS)
        assert refused.value.reason is Reason.ENGINE_UNAVAILABLE
    await write(embedded.store, put("after", b"kept"))
    assert len(await keys(embedded.store)) == 13
    assert copies_in(embedded.folder) == []
    await embedded.reopen()
    await finished(embedded.store)
    assert files_with(embedded.folder, CANARY) == []
    assert len(await keys(embedded.store)) == 13


@pytest.mark.parametrize("begin", ["", "BEGIN"], ids=["idle", "reading"])
async def test_while_another_program_has_the_file_open_it_is_not_replaced(embedded: EmbeddedLab, begin: str) -> None:
    """Who closes a file last takes the log of that name along, whosever it is by then."""
    await fill(embedded.store)
    await redact(embedded.store)
    other = sqlite3.connect(embedded.folder / FILE, isolation_level=None)
    try:
        other.execute(begin)
        other.execute("SELECT count(*) FROM store").fetchall()
        with pytest.raises(Refusal) as refused:
            await embedded.store.erase(NS)
        assert refused.value.reason is Reason.ENGINE_UNAVAILABLE
        await write(embedded.store, put("during", b"kept"))
    finally:
        other.close()
    await embedded.store.erase(NS)
    assert files_with(embedded.folder, CANARY) == []
    await embedded.crash()
    assert len(await keys(embedded.store)) == 13


async def test_a_file_that_cannot_be_opened_again_stops_the_store(
    embedded: EmbeddedLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(embedded.store)

    def gone(path: Path) -> sqlite3.Connection:
        raise sqlite3.OperationalError("unable to open database file")

    with monkeypatch.context() as patch:
        patch.setattr("noosphere.server.storage.embedded.sqlite.connect", gone)
        with pytest.raises(Refusal) as refused:
            await embedded.store.erase(NS)
        assert refused.value.reason is Reason.ENGINE_UNAVAILABLE
    (failure,) = embedded.fatal
    assert "unable to open" in str(failure)
    with pytest.raises(Refusal):
        await commit(embedded.store, put("more"))
    await embedded.reopen()
    assert len(await keys(embedded.store)) == 12


async def test_closing_ends_a_copy_under_way_and_refuses_who_waits_for_another(embedded: EmbeddedLab) -> None:
    await fill(embedded.store)
    await redact(embedded.store)
    begun, go_on = threading.Event(), threading.Event()
    copy = embedded.journal.inner.copy

    def slow() -> None:
        begun.set()
        assert go_on.wait(60)
        copy()

    embedded.journal.inner.copy = slow  # type: ignore[method-assign]
    first = asyncio.create_task(embedded.store.erase(NS))
    await until(begun.is_set)
    second = asyncio.create_task(embedded.store.erase(NS))
    await until(lambda: bool(embedded.store._keeper._eraser._waiting))
    closing = asyncio.create_task(embedded.store.close())
    await turns()
    go_on.set()
    await first
    with pytest.raises(Refusal) as refused:
        await second
    assert refused.value.reason is Reason.ENGINE_UNAVAILABLE
    await closing
    assert files_with(embedded.folder, CANARY) == []
    await embedded.reopen()
    await finished(embedded.store)


async def test_what_stands_in_the_way_of_a_copy_is_said_when_the_store_is_opened(embedded: EmbeddedLab) -> None:
    await embedded.store.close()
    (embedded.folder / f"{FILE}.copy").mkdir()
    with pytest.raises(DataFolderError, match=f"cannot remove .*{FILE}.copy"):
        await EmbeddedStore.open(embedded.folder, embedded.coordinator, clock=embedded.clock)
    (embedded.folder / f"{FILE}.copy").rmdir()


ERASE = textwrap.dedent(
    """
    import asyncio, os, sys
    from pathlib import Path
    from tests.contract.build import change, put, remember, sequence, write
    from noosphere.server.ports.store import NamespaceRef
    from noosphere.server.storage.embedded import EmbeddedCoordinator, EmbeddedStore
    from noosphere.testing import ManualClock

    async def main(folder, life):
        clock = ManualClock()
        coordinator = await EmbeddedCoordinator.open(folder, clock=clock)
        store = await EmbeddedStore.open(folder, coordinator, clock=clock)
        def tell(*words):
            os.write(1, (" ".join(map(str, words)) + "\\n").encode())
        async def commit(worker):
            ref = NamespaceRef(f"sessions/kept-{life}-{worker}")
            for number in range(1, 1_000_000):
                await write(store, put(f"k{number}", b"kept" * 200), namespace=ref)
                tell("KEPT", ref.name, number)
        async def erase(worker):
            for number in range(1, 1_000_000):
                ref = NamespaceRef(f"sessions/gone-{life}-{worker}-{number}")
                secret = f"s3cr3t-{life}-{worker}-{number}-".encode()
                for at in range(5):
                    data, told = secret * 10 ** (at % 4), remember(sequence(at + 1), secret, secret)
                    await write(store, put(f"k{at}", data, event=secret), namespace=ref, request=told)
                for at in range(5):
                    await write(store, change(f"k{at}", b"[redacted]"), namespace=ref)
                if number % 3 == 0:
                    await store.drop(ref, None)
                await store.erase(ref)
                tell("GONE", secret.decode())
        await asyncio.gather(*(commit(worker) for worker in range(2)), *(erase(worker) for worker in range(3)))

    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
    """
)


def told_until_killed(folder: Path, life: int, erasures: int) -> list[list[str]]:
    """Runs writers and erasures in a process of their own and kills it after some; returns what it has acknowledged."""
    root = Path(__file__).resolve().parents[2]
    process = subprocess.Popen(
        [sys.executable, "-c", ERASE, str(folder), str(life)],
        stdout=subprocess.PIPE,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert process.stdout is not None
    output = bytearray()
    while output.count(b"GONE") < erasures:
        read = os.read(process.stdout.fileno(), 65_536)
        assert read, "the process ended by itself"
        output += read
    process.send_signal(signal.SIGKILL)
    output += process.stdout.read()
    process.stdout.close()
    process.wait()
    return [line.decode().split() for line in bytes(output).split(b"\n")[:-1]]


@pytest.mark.campaign
async def test_killed_at_any_moment_no_commit_is_lost_and_nothing_erased_comes_back(tmp_path: Path) -> None:
    kept: dict[str, int] = {}
    gone: list[bytes] = []
    for life, erasures in enumerate((7, 20, 33)):
        for what, name, *counts in told_until_killed(tmp_path, life, erasures):
            if what == "GONE":
                gone.append(name.encode())
            else:
                kept[name] = int(counts[0])
        rest = bytes_in(tmp_path)
        assert [secret for secret in gone if secret in rest] == []
        clock = ManualClock()
        store, coordinator = await open_copy(tmp_path, clock)
        for name, number in kept.items():
            stats = await store.stats(NamespaceRef(name))
            assert stats.record_count >= number
        await finished(store)
        await store.close()
        await coordinator.close()
        rest = bytes_in(tmp_path)
        assert [secret for secret in gone if secret in rest] == []
    assert len(kept) == 6
    assert len(gone) >= 60
