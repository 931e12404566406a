"""What is acknowledged survives: cut logs, killed processes, and disks that fail."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.contract.build import NS, change, commit, get, head, keys, logged, put, write
from tests.contract.lab import EmbeddedLab, expect_log, turns, until

from noosphere.consistency import Reason, Refusal, find_lost
from noosphere.server.ports.store import Committed, NamespaceRef
from noosphere.server.storage.embedded import EmbeddedCoordinator, EmbeddedStore, StoreFailed
from noosphere.server.storage.embedded.body import Body
from noosphere.server.storage.embedded.coordinator import FILE as COORDINATION
from noosphere.server.storage.embedded.opening import replay
from noosphere.server.storage.embedded.sqlite import FILE, SqliteJournal
from noosphere.server.storage.embedded.storetime import StoreTime
from noosphere.testing import ManualClock

OTHER = NamespaceRef("shared/other")


@contextlib.asynccontextmanager
async def opened(folder: Path, clock: ManualClock | None = None, **options: Any) -> AsyncIterator[EmbeddedStore]:
    """Opens the drivers on a folder."""
    clock = clock or ManualClock()
    coordinator = await EmbeddedCoordinator.open(folder, clock=clock)
    store = await EmbeddedStore.open(folder, coordinator, clock=clock, **{"durability": "os", **options})
    try:
        yield store
    finally:
        await store.close()
        await coordinator.close()


SMALL_PAGE = 512
FRAME = 24 + SMALL_PAGE
"""With small pages every byte of the last frames is a few hundred cuts, not ten thousand."""


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[EmbeddedLab]:
    """A store whose database has the smallest pages there are."""
    lab = EmbeddedLab(tmp_path)
    db = sqlite3.connect(lab.folder / FILE)
    db.execute(f"PRAGMA page_size = {SMALL_PAGE}")
    db.execute("VACUUM")
    db.close()
    # A working store without its coordinator would be refused.
    (lab.folder / COORDINATION).touch()
    await lab.open()
    yield lab
    await lab.close()


def cut_copy(image: Path, target: Path, cut: int) -> Path:
    """Copies an image with its log cut off at byte ``cut``."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(image, target)
    os.truncate(target / f"{FILE}-wal", cut)
    return target


async def test_a_log_cut_at_any_byte_of_its_last_records_opens_as_a_consistent_prefix(
    small: EmbeddedLab, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """SQLite drops a torn tail without a word. The store must say what it recovered, and begin an epoch."""
    revisions = [await write(small.store, put("count", str(i).encode()), put(f"k{i}")) for i in range(6)]
    image, epoch = small.copy("image"), small.store.epoch
    length = (image / f"{FILE}-wal").stat().st_size
    assert (length - 32) % FRAME == 0
    frames = (length - 32) // FRAME
    every_byte = range(length - 3 * FRAME - 1, length + 1)
    edges = {32 + FRAME * n + off for n in range(frames) for off in (-1, 0, 1, 23, 24, 25)} | {0, 1, 31}
    met: set[int] = set()
    for cut in sorted({*every_byte, *edges}):
        folder = cut_copy(image, tmp_path / "cut", cut)
        journal = SqliteJournal(folder, "os")
        recovery = replay(journal.recover())
        assert journal._writer is not None
        journal._writer.execute("PRAGMA synchronous = OFF")  # for closing, so that a thousand cuts take seconds
        journal.close()
        name, newest = recovery.newest
        assert newest in (0, *revisions)
        assert recovery.commit_count == revisions.index(newest) + 1 if newest else recovery.commit_count == 0
        words = recovery.describe()
        assert f"{recovery.commit_count} commits" in words
        assert not newest or (f"revision {newest}" in words and name == NS.name)
        if newest in met and cut % 97:
            continue
        met.add(newest)
        folder = cut_copy(image, tmp_path / "cut", cut)
        with expect_log(caplog, f"was not closed in order; recovered {words}"):
            async with opened(folder, small.clock) as store:
                await check_prefix(store, revisions, newest, epoch)
    assert met == {0, *revisions}, "every prefix was met"


async def check_prefix(store: EmbeddedStore, revisions: list[int], newest: int, epoch: int) -> None:
    """Checks that exactly the commits up to ``newest`` are there, and that the others are known as lost."""
    assert store.epoch > epoch
    view = (await store.read(NS, ())).view
    assert view.head == newest
    survived = [r for r in revisions if r <= newest]
    expected = {f"k{i}": b"value" for i in range(len(survived))}
    if survived:
        expected["count"] = str(len(survived) - 1).encode()
    page = await store.scan(NS, "", limit=100)
    assert {e.key: e.data for e in page.entries} == expected
    assert [b.revision for b in await logged(store)] == survived
    for revision in revisions:
        assert (find_lost(revision, view.cuts) is None) == (revision in survived)
    assert await write(store, change("count")) > revisions[-1]


@pytest.mark.parametrize("frame", range(1, 5))
async def test_a_damaged_frame_in_the_middle_ends_the_log_there(small: EmbeddedLab, frame: int) -> None:
    """A loss of power may keep later sectors and lose earlier ones."""
    revisions = [await write(small.store, put(f"k{i}")) for i in range(6)]
    image, epoch = small.copy("image"), small.store.epoch
    wal = bytearray((image / f"{FILE}-wal").read_bytes())
    start = 32 + FRAME * frame
    wal[start + 24 : start + FRAME] = b"\xa5" * SMALL_PAGE
    (image / f"{FILE}-wal").write_bytes(bytes(wal))
    async with opened(image, small.clock) as store:
        survived = await head(store)
        assert survived < revisions[-1]
        assert [b.revision for b in await logged(store)] == [r for r in revisions if r <= survived]
        assert store.epoch > epoch


async def test_a_log_lost_altogether_after_folding_does_not_hide_that_it_was_in_use(embedded: EmbeddedLab) -> None:
    await write(embedded.store, put("a"))
    await embedded.reopen()
    before = await head(embedded.store)
    lost = await write(embedded.store, put("a", b"lost"))
    image = embedded.copy("image")
    (image / f"{FILE}-wal").unlink()
    async with opened(image, embedded.clock) as store:
        assert store.epoch > embedded.store.epoch
        view = (await store.read(NS, ())).view
        assert view.head == before
        assert find_lost(lost, view.cuts) is not None
        assert await write(store, put("a")) > lost


SERVE = textwrap.dedent(
    """
    import asyncio, os, sys
    from pathlib import Path
    from noosphere.consistency import NEVER_MS
    from noosphere.server.ports.runtime import SystemClock
    from noosphere.server.ports.store import Commit, Committed, Mutation, NamespaceRef
    from noosphere.server.storage.embedded import DataFolder, EmbeddedCoordinator, EmbeddedStore

    async def main(folder, size):
        DataFolder.lock(folder)
        stopped = asyncio.Event()
        def on_fatal(failure):
            print("FATAL", failure, flush=True)
            stopped.set()
        coordinator = await EmbeddedCoordinator.open(folder, clock=SystemClock())
        store = await EmbeddedStore.open(folder, coordinator, clock=SystemClock(), on_fatal=on_fatal)
        print("EPOCH", store.epoch, flush=True)
        async def work(worker):
            ref, number = NamespaceRef(f"shared/{worker % 3}"), 0
            while True:
                number += 1
                data = str(number).encode().ljust(size, b".")
                mutation = Mutation(f"w{worker}/{number % 50}", data, NEVER_MS, NEVER_MS, True, b"put")
                result = await store.commit(ref, Commit(store.epoch, 0, (), (mutation,)))
                assert isinstance(result, Committed)
                os.write(1, f"ACK {worker} {number} {result.revision}\\n".encode())
        tasks = [asyncio.create_task(work(i)) for i in range(8)]
        await stopped.wait()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        print("REFUSED", *sorted({getattr(r, "reason", repr(r)) for r in results}), flush=True)
        await store.close()
        sys.exit(3)

    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
    """
)


def acknowledged(output: bytes) -> dict[tuple[int, int], tuple[int, int]]:
    """Returns the newest acknowledged write of each worker and key: ``{(worker, slot): (number, revision)}``."""
    newest: dict[tuple[int, int], tuple[int, int]] = {}
    for line in output.splitlines():
        if line.startswith(b"ACK "):
            worker, number, revision = map(int, line.split()[1:])
            newest[worker, number % 50] = (number, revision)
    return newest


async def check_acknowledged(store: EmbeddedStore, newest: dict[tuple[int, int], tuple[int, int]]) -> None:
    """Checks that every acknowledged write is there, or a later one of the same worker to the same key."""
    for (worker, slot), (number, revision) in newest.items():
        entry = await get(store, f"w{worker}/{slot}", NamespaceRef(f"shared/{worker % 3}"))
        assert entry is not None, f"acknowledged write {number} of worker {worker} is gone"
        found = int(entry.data.rstrip(b"."))
        assert (found, entry.revision) == (number, revision) or (found > number and entry.revision > revision)


def serve_until_killed(folder: Path, lines: int) -> bytes:
    """Runs writers in a process of their own and kills it after some output; returns its whole lines."""
    command = [sys.executable, "-c", SERVE, str(folder), "2000"]
    output = bytearray()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        while output.count(b"\n") < lines:
            chunk = os.read(process.stdout.fileno(), 65536)
            assert chunk, "the process ended by itself"
            output += chunk
        process.send_signal(signal.SIGKILL)
        output += process.stdout.read()
    return bytes(output[: output.rindex(b"\n") + 1])


async def test_killed_under_load_again_and_again_loses_nothing_acknowledged(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    newest: dict[tuple[int, int], tuple[int, int]] = {}
    epochs = []
    for round_ in range(4):
        # In the later rounds folds are under way: the moment is whatever the machine makes of it.
        output = await asyncio.to_thread(serve_until_killed, folder, 500 + 1_500 * round_)
        epochs.append(int(output.split()[1]))
        newest.update(acknowledged(output))
        image = tmp_path / f"image-{round_}"
        shutil.copytree(folder, image)
        async with opened(image) as store:
            await check_acknowledged(store, newest)
    assert epochs == sorted(set(epochs))


def serve_on_a_full_disk(folder: Path, limit: int) -> subprocess.CompletedProcess[bytes]:
    """Runs writers under a limit on the size of files, set by the kernel: writes fail as on a full disk."""

    def bound() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    command = [sys.executable, "-c", SERVE, str(folder), "2000"]
    return subprocess.run(command, capture_output=True, preexec_fn=bound, timeout=120)


@pytest.mark.parametrize("limit", [300_000, 1_000_000])
async def test_a_full_disk_stops_the_process_and_loses_nothing_acknowledged(tmp_path: Path, limit: int) -> None:
    folder = tmp_path / "data"
    process = await asyncio.to_thread(serve_on_a_full_disk, folder, limit)
    lines = process.stdout.splitlines()
    assert process.returncode == 3, process.stderr
    fatal = [line for line in lines if line.startswith(b"FATAL")]
    assert len(fatal) == 1
    assert str(folder / FILE).encode() in fatal[0]
    assert lines[-1] == b"REFUSED ENGINE_UNAVAILABLE"
    newest = acknowledged(process.stdout)
    assert newest
    async with opened(folder) as store:
        await check_acknowledged(store, newest)
        await write(store, put("there is room again"))


async def test_a_database_that_may_not_grow_stops_the_store(embedded: EmbeddedLab) -> None:
    await write(embedded.store, put("a", b"safe"))
    db = embedded.journal.inner._writer
    assert db is not None
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    db.execute(f"PRAGMA max_page_count = {pages + 4}")
    results = [await asyncio.gather(*(_try(embedded.store, f"k{i}") for i in range(4))) for _ in range(10)]
    made = [r for group in results for r in group if isinstance(r, Committed)]
    refused = [r for group in results for r in group if isinstance(r, Refusal)]
    assert refused
    assert all(r.reason is Reason.ENGINE_UNAVAILABLE for r in refused)
    (failure,) = embedded.fatal
    assert "database or disk is full" in str(failure)
    image = embedded.copy("image")
    async with opened(image, embedded.clock) as store:
        assert await head(store) >= max((r.revision for r in made), default=0)
        entry = await get(store, "a")
        assert entry is not None
        assert entry.data == b"safe"


async def _try(store: EmbeddedStore, key: str) -> object:
    try:
        return await commit(store, put(key, b"x" * 10_000))
    except Refusal as refusal:
        return refusal


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), sqlite3.OperationalError("disk I/O error")])
async def test_a_failed_sync_is_told_once_and_nothing_is_acknowledged_after_it(
    embedded: EmbeddedLab, error: Exception
) -> None:
    safe = await write(embedded.store, put("a", b"safe"))
    feed = embedded.store.heads()
    async with embedded.holding():
        making = [asyncio.create_task(commit(embedded.store, put(f"k{i}"))) for i in range(5)]
        await turns()
        later = [asyncio.create_task(commit(embedded.store, put(f"later{i}"))) for i in range(5)]
        refusing = asyncio.create_task(commit(embedded.store, change("a"), checks=[]))
        settling = asyncio.create_task(embedded.store.settle(NS))
        dropping = asyncio.create_task(embedded.store.drop(NS, None))
        await turns()
        embedded.journal.failure = error
    results = await asyncio.gather(*making, *later, refusing, settling, dropping, return_exceptions=True)
    assert all(isinstance(r, Refusal) and r.reason is Reason.ENGINE_UNAVAILABLE for r in results), results
    # What has failed, and where, is told to whoever runs the server and to nobody else.
    assert {str(r) for r in results} == {"the working store has failed, the outcome of this call is unknown"}
    (failure,) = embedded.fatal
    assert isinstance(failure, StoreFailed)
    assert "\n" not in str(failure)
    for stream in (feed, embedded.store.heads()):
        with pytest.raises(Refusal):
            await anext(stream)
    for call in (commit(embedded.store, put("x")), get(embedded.store, "a"), embedded.store.settle(NS)):
        with pytest.raises(Refusal) as refused:
            await call
        assert refused.value.reason is Reason.ENGINE_UNAVAILABLE
    assert len(embedded.fatal) == 1
    await embedded.crash()
    assert [b.revision for b in await logged(embedded.store)] == [safe]


async def test_callers_waiting_for_room_or_for_a_load_hear_of_the_failure_too(
    embedded: EmbeddedLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("noosphere.server.storage.embedded.pipeline.BACKLOG_ENTRIES_MAX", 3)
    async with embedded.holding():
        making = [asyncio.create_task(commit(embedded.store, put(f"k{i}"))) for i in range(10)]
        await turns()
        embedded.journal.failure = OSError(28, "No space left on device")
    results = await asyncio.gather(*making, return_exceptions=True)
    assert all(isinstance(r, Refusal) and r.reason is Reason.ENGINE_UNAVAILABLE for r in results), results


async def test_a_failure_in_the_background_stops_the_store_too(
    embedded: EmbeddedLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write(embedded.store, put("a"))

    def fold(*args: object) -> None:
        raise StoreFailed("cannot write: database or disk is full")

    monkeypatch.setattr(embedded.journal.inner, "fold", fold)
    for _ in range(10):
        embedded.advance(1_000)
        await turns()
    await until(lambda: bool(embedded.fatal))
    with pytest.raises(Refusal):
        await commit(embedded.store, put("b"))


async def test_a_mistake_in_the_tick_stops_the_store_instead_of_ending_all_background_work(
    embedded: EmbeddedLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write(embedded.store, put("a"))

    def overdue(_: StoreTime) -> bool:
        raise ZeroDivisionError("planted by the test")

    monkeypatch.setattr(StoreTime, "overdue", property(overdue))
    embedded.advance(1_000)
    await turns()
    (failure,) = embedded.fatal
    assert "ZeroDivisionError" in str(failure)
    with pytest.raises(Refusal):
        await commit(embedded.store, put("b"))


async def test_a_mistake_while_applying_stops_the_store_instead_of_hanging_it(
    embedded: EmbeddedLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write(embedded.store, put("a"))

    def apply(*args: object) -> None:
        raise ZeroDivisionError("planted by the test")

    monkeypatch.setattr(Body, "apply", apply)
    results = await asyncio.gather(*(commit(embedded.store, put(f"k{i}")) for i in range(5)), return_exceptions=True)
    assert all(isinstance(r, Refusal) and r.reason is Reason.ENGINE_UNAVAILABLE for r in results), results
    (failure,) = embedded.fatal
    assert "ZeroDivisionError" in str(failure)
    monkeypatch.undo()
    await embedded.crash()
    assert len(await keys(embedded.store)) == 6, "synced, though nobody was told"


async def test_a_namespace_that_cannot_be_read_any_more_stops_the_store(embedded: EmbeddedLab) -> None:
    await write(embedded.store, put("a"))
    await embedded.reopen()
    db = embedded.journal.inner._writer
    assert db is not None
    db.execute("UPDATE namespaces SET requests = X'00'")
    with pytest.raises(Refusal) as refused:
        await get(embedded.store, "a")
    assert refused.value.reason is Reason.ENGINE_UNAVAILABLE
    (failure,) = embedded.fatal
    assert FILE in str(failure)


async def test_closing_after_a_failure_leaves_the_folder_unclean(embedded: EmbeddedLab) -> None:
    await write(embedded.store, put("a"))
    epoch = embedded.store.epoch
    embedded.journal.failure = OSError(5, "Input/output error")
    with pytest.raises(Refusal):
        await commit(embedded.store, put("b"))
    await embedded.reopen()
    assert embedded.store.epoch > epoch
    assert await get(embedded.store, "a") is not None


async def test_durability_fsync_syncs_the_file_once_per_batch_and_os_never(tmp_path: Path) -> None:
    """Counted by the kernel, from outside: strace is not to be had everywhere, the pragma is what SQLite acts on."""
    for durability, expected in (("fsync", 2), ("os", 1)):
        folder = tmp_path / durability
        folder.mkdir()
        journal = SqliteJournal(folder, durability)  # type: ignore[arg-type]
        async with opened(folder, durability=durability, journal=journal) as store:
            await write(store, put("a"))
            db = journal._writer
            assert db is not None
            assert db.execute("PRAGMA synchronous").fetchone() == (expected,)
            assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
            await store._keeper.fold_all()
            assert db.execute("PRAGMA synchronous").fetchone() == (expected,), "folding gives it back"
            assert store.durability == durability
            assert (await store.totals()).sync_count == 1


async def test_deleted_values_are_overwritten_on_disk(embedded: EmbeddedLab) -> None:
    secret = b"the launch code is 0000 "
    await write(embedded.store, put("a", secret * 20))
    await embedded.store._keeper.fold_all()
    await write(embedded.store, change("a", b"public"))
    await embedded.store.compact(NS, await head(embedded.store))
    await embedded.reopen()
    assert secret not in (embedded.folder / FILE).read_bytes()
    assert not (embedded.folder / f"{FILE}-wal").read_bytes()


async def test_a_coordinator_that_cannot_write_says_so_and_stops(tmp_path: Path) -> None:
    fatal: list[BaseException] = []
    coordinator = await EmbeddedCoordinator.open(tmp_path, clock=ManualClock(), on_fatal=fatal.append)
    first = await coordinator.open_agent("a", False)
    await coordinator.begin_epoch("drill", "nothing", 1)
    db = coordinator._db
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    db.execute(f"PRAGMA max_page_count = {pages}")
    calls = [
        coordinator.begin_epoch("drill", "x" * 100_000, 1),
        *(coordinator.open_agent(f"b{i}", False) for i in range(5)),
    ]
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(r, Refusal) and r.reason is Reason.ENGINE_UNAVAILABLE for r in results), results
    await until(lambda: bool(fatal))
    (failure,) = fatal
    assert "database or disk is full" in str(failure)
    with pytest.raises(Refusal):
        await coordinator.open_agent("c", False)
    await coordinator.close()
    again = await EmbeddedCoordinator.open(tmp_path, clock=ManualClock())
    assert await again.latest("a") == first.number
    assert [await again.latest(f"b{i}") for i in range(5)] == [0] * 5
    await again.close()
