"""The data folder: whatever is wrong with it, one clear line, and nothing destroyed."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.contract.build import put, write
from tests.contract.lab import EmbeddedLab

from noosphere.server.storage.embedded import DataFolder, DataFolderError, EmbeddedCoordinator, EmbeddedStore
from noosphere.server.storage.embedded.coordinator import FILE as COORDINATION
from noosphere.server.storage.embedded.sqlite import FILE as WORKING
from noosphere.testing import ManualClock

FILES = [WORKING, COORDINATION]


def contents(folder: Path) -> dict[str, bytes]:
    """Returns every file in a folder, except the one that says who uses it."""
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file() and p.name != "LOCK"}


def problem(path: Path) -> str:
    """Returns the one line that says why a folder cannot be used; checks that nothing in it was changed."""
    before = contents(path) if path.is_dir() else None
    with pytest.raises(DataFolderError) as refused:
        DataFolder.lock(path)
    assert (contents(path) if path.is_dir() else None) == before
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_folder_is_created_with_its_parents_and_stamped(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "größe"
    with DataFolder.lock(path) as folder:
        assert folder.path == path
        assert (path / "FORMAT").read_text() == "noosphere 1\n"
        assert path.stat().st_mode & 0o077 == 0, "what agents write is nobody else's business"
    with DataFolder.lock(path):
        pass


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    assert problem(tmp_path / "file") == f"{tmp_path / 'file'} is not a folder"
    assert "not a folder" in problem(tmp_path / "file" / "below")
    assert (tmp_path / "file").read_text() == "mine"


def test_somebody_elses_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    assert "is not empty and has no FORMAT file" in problem(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_folder_in_use_says_by_whom(tmp_path: Path) -> None:
    with DataFolder.lock(tmp_path):
        assert problem(tmp_path) == f"{tmp_path} is already in use by process {os.getpid()}"
    with DataFolder.lock(tmp_path):
        pass


def test_a_folder_in_use_by_another_process_is_free_again_when_that_is_killed(tmp_path: Path) -> None:
    code = "import sys, pathlib\nfrom noosphere.server.storage.embedded import DataFolder\n"
    code += "held = DataFolder.lock(pathlib.Path(sys.argv[1]))\nprint('held', flush=True)\nsys.stdin.read()\n"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        assert str(other.pid) in problem(tmp_path)
        other.kill()
        other.wait()
        with DataFolder.lock(tmp_path):
            pass


@pytest.mark.parametrize(
    ("stamp", "expected"),
    [
        (b"noosphere 2\n", "has format 2, this version of noosphere reads up to 1"),
        (b"noosphere x\n", "is damaged"),
        (b"other 1\n", "is damaged"),
        (b"", "is damaged"),
        (b"\xff\xfe", "cannot read"),
    ],
)
def test_a_stamp_that_is_newer_or_damaged_is_refused(tmp_path: Path, stamp: bytes, expected: str) -> None:
    (tmp_path / "FORMAT").write_bytes(stamp)
    assert expected in problem(tmp_path)


def test_an_interrupted_first_start_can_be_repeated(tmp_path: Path) -> None:
    (tmp_path / "LOCK").touch()
    (tmp_path / "FORMAT.new").touch()
    with DataFolder.lock(tmp_path):
        pass
    assert not (tmp_path / "FORMAT.new").exists()


def _as_nobody(path: Path, answer: multiprocessing.queues.Queue[str]) -> None:
    os.seteuid(65534)
    try:
        DataFolder.lock(path)
    except DataFolderError as error:
        answer.put(str(error))
    else:
        answer.put("it worked")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody who may not")
@pytest.mark.parametrize("mode", [0o000, 0o555])
def test_a_folder_without_permission_is_refused(tmp_path: Path, mode: int) -> None:
    for parent in (tmp_path, *tmp_path.parents[:3]):
        parent.chmod(parent.stat().st_mode | 0o055)
    path = tmp_path / "data"
    path.mkdir()
    path.chmod(mode)
    answer: multiprocessing.queues.Queue[str] = multiprocessing.get_context("fork").Queue()
    process = multiprocessing.get_context("fork").Process(target=_as_nobody, args=(path, answer))
    process.start()
    assert "Permission denied" in answer.get(timeout=30)
    process.join()


async def _open(folder: Path) -> None:
    coordinator = await EmbeddedCoordinator.open(folder, clock=ManualClock())
    try:
        await EmbeddedStore.open(folder, coordinator, clock=ManualClock())
    finally:
        await coordinator.close()


async def open_problem(folder: Path) -> str:
    """Returns the one line that says why the drivers cannot open their files; checks that nothing was changed."""
    before = contents(folder)
    with pytest.raises(DataFolderError) as refused:
        await _open(folder)
    after = contents(folder)
    assert {name: after[name] for name in FILES if name in after} == {n: before[n] for n in FILES if n in before}
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.fixture
async def used(embedded: EmbeddedLab, tmp_path: Path) -> Path:
    """A folder that was used and closed."""
    await write(embedded.store, *(put(f"k{i}", bytes(500)) for i in range(200)))
    await embedded.coordinator.open_agent("a", False)
    await embedded.store.close()
    await embedded.coordinator.close()
    copy = tmp_path / "used"
    shutil.copytree(embedded.folder, copy)
    return copy


def _garbage(path: Path) -> None:
    path.write_bytes(b"this is no database at all " * 400)


def _foreign(path: Path) -> None:
    path.unlink()
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE mine(x)")
    db.commit()
    db.close()


def _newer(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 2")
    db.close()


def _cut(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def _scratched(path: Path) -> None:
    """Overwrites every page but the first."""
    with path.open("r+b") as file:
        size = path.stat().st_size
        file.seek(4096)
        file.write(b"\xa5" * (size - 4096))


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (_garbage, "is damaged"),
        (_foreign, "is a database of another program"),
        (_newer, "has format 2, this version of noosphere reads up to 1"),
        (_cut, "is damaged"),
        (_scratched, "is damaged"),
    ],
)
async def test_a_damaged_file_is_named_and_left_as_it_is(
    used: Path, name: str, damage: Callable[[Path], None], expected: str
) -> None:
    damage(used / name)
    message = await open_problem(used)
    assert str(used / name) in message
    assert expected in message


@pytest.mark.parametrize("how", ["format", "checksum", "structure"])
async def test_a_batch_that_cannot_be_understood_is_damage(embedded: EmbeddedLab, how: str) -> None:
    await write(embedded.store, put("a"))
    folder = embedded.copy("crashed")
    db = sqlite3.connect(folder / WORKING)
    ((number, blob),) = db.execute("SELECT batch, data FROM journal").fetchall()
    blob = {
        "format": bytes([9]) + blob[1:],
        "checksum": blob[:-1] + bytes([blob[-1] ^ 1]),
        "structure": b"\x01" + (0).to_bytes(4, "big"),
    }[how]
    db.execute("UPDATE journal SET data = ? WHERE batch = ?", (blob, number))
    db.commit()
    db.close()
    clock = ManualClock()
    coordinator = await EmbeddedCoordinator.open(folder, clock=clock)
    epochs = await coordinator.epochs()
    with pytest.raises(DataFolderError) as refused:
        await EmbeddedStore.open(folder, coordinator, clock=clock)
    assert str(refused.value).startswith(f"{folder / WORKING} is damaged: ")
    assert await coordinator.epochs() == epochs
    await coordinator.close()
    db = sqlite3.connect(folder / WORKING)
    assert db.execute("SELECT batch, data FROM journal").fetchall() == [(number, blob)]
    db.close()


async def test_a_lost_working_file_does_not_reuse_an_epoch(used: Path) -> None:
    """The coordinator still knows: whatever was acknowledged before is then told as lost."""
    (used / WORKING).unlink()
    coordinator = await EmbeddedCoordinator.open(used, clock=ManualClock())
    known = (await coordinator.epochs())[-1].epoch
    store = await EmbeddedStore.open(used, coordinator, clock=ManualClock())
    assert store.epoch == known + 1
    await store.close()
    await coordinator.close()


@pytest.mark.parametrize("clean", [True, False])
async def test_a_lost_coordination_file_is_told(embedded: EmbeddedLab, clean: bool) -> None:
    """Incarnations would be numbered anew, so that a new client's calls pass for retries of an old one's."""
    await write(embedded.store, put("a"))
    if clean:
        await embedded.store.close()
        await embedded.coordinator.close()
    folder = embedded.copy("copy")
    for path in folder.glob(f"{COORDINATION}*"):
        path.unlink()
    for _ in range(2):
        assert f"{COORDINATION} is missing" in await open_problem(folder)


async def test_an_older_coordination_file_is_told(used: Path, tmp_path: Path) -> None:
    (tmp_path / "young").mkdir()
    coordinator = await EmbeddedCoordinator.open(tmp_path / "young", clock=ManualClock())
    await coordinator.begin_epoch("created", "", 1)
    await coordinator.close()
    shutil.copy(tmp_path / "young" / COORDINATION, used / COORDINATION)
    message = await open_problem(used)
    assert f"{COORDINATION} knows epochs up to 1, the working store has reached" in message


@pytest.mark.parametrize("value", ["'text'", "9223372036854775807"])
async def test_an_epoch_that_cannot_be_is_damage(used: Path, value: str) -> None:
    db = sqlite3.connect(used / WORKING)
    db.execute(f"UPDATE store SET value = {value} WHERE name = 'epoch'")
    db.commit()
    db.close()
    assert "is not a value of epoch" in await open_problem(used)


def test_a_stamp_of_many_digits_is_damage(tmp_path: Path) -> None:
    (tmp_path / "FORMAT").write_text(f"noosphere {'9' * 5000}\n")
    assert "FORMAT is damaged" in problem(tmp_path)
