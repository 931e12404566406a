"""A disk that fails: the process says so in one line and stops, and nothing acknowledged is lost."""

from __future__ import annotations

import contextlib
import resource
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

import grpc
import pytest
from tests.faults.conftest import connected
from tests.support.api import Agent, contents
from tests.support.process import NOOSPHERE, ServerProcess
from tests.support.statuses import Refused
from tests.support.workers import ROOT

from noosphere.consistency import Reason
from noosphere.server.app import EXIT_FAILED

SPACE = "shared/s"
ROUNDS_MAX = 4_000
QUIET = ("--log-level", "warning")


async def write_until_it_fails(
    server: ServerProcess, break_disk: Callable[[], None] | None, writes_before: int = 20
) -> dict[str, bytes]:
    """Writes until the disk fails; returns what was acknowledged."""
    acknowledged: dict[str, bytes] = {}

    async def write(agent: Agent) -> None:
        for number in range(ROUNDS_MAX):
            if number == writes_before and break_disk is not None:
                break_disk()
            value = b"%d" % number
            await agent.put(SPACE, f"k{number:04}", value, attributes={"filler": "x" * 250})
            acknowledged[f"k{number:04}"] = value

    async with connected(server) as api:
        with pytest.raises(Refused) as failed:
            await write(await api.agent("a"))
    # Either it was still told why, or the process was gone before it could be.
    assert failed.value.code is grpc.StatusCode.UNAVAILABLE
    assert failed.value.reason in (Reason.ENGINE_UNAVAILABLE, "")
    # Callers may be anybody: where the data lies is no business of theirs.
    assert str(server.data) not in failed.value.message
    return acknowledged


async def check_stopped_and_whole(
    server: ServerProcess, acknowledged: dict[str, bytes], restart: Callable[[], Awaitable[None]]
) -> None:
    """The process ended with one clear line, and the next one finds everything that was acknowledged."""
    assert server.wait() == EXIT_FAILED
    lines = server.stderr.splitlines()
    assert len(lines) == 1, server.stderr
    assert "storage failed" in lines[0]
    assert str(server.data) in lines[0]
    assert "Traceback" not in server.stderr
    await restart()
    async with connected(server) as api:
        reader = Agent(api, (await api.agent("reader")).actor)
        found = contents(await reader.listing(SPACE, page_size=1000))
        # What was under way when the disk failed has an unknown outcome: at most that one is there too.
        assert found.items() >= acknowledged.items()
        assert len(found) <= len(acknowledged) + 1
        assert [epoch.epoch for epoch in await api.epochs()] == [1, 2]
        await reader.put(SPACE, "after", 1)


@pytest.mark.parametrize("fault", ["sync", "read-only"])
async def test_an_error_of_the_disk_stops_the_process(tmp_path: Path, fault: str) -> None:
    trigger = tmp_path / "trigger"
    command = (sys.executable, "-m", "tests.support.failing_disk", str(trigger))
    server = ServerProcess(tmp_path / "data", QUIET, command=command, cwd=ROOT)
    try:
        server.start()
        acknowledged = await write_until_it_fails(server, partial(_write, trigger, fault))
        assert len(acknowledged) >= 20

        async def restart() -> None:
            trigger.unlink()
            server.restart()

        await check_stopped_and_whole(server, acknowledged, restart)
    finally:
        server.close()


async def test_a_file_that_may_not_grow_stops_the_process(tmp_path: Path) -> None:
    """A quota, without needing a file system of one's own: the kernel refuses every write beyond a size."""
    server = ServerProcess(tmp_path / "data", QUIET)
    try:
        server.start()
        wal = server.data / "working.sqlite3-wal"

        def limit() -> None:
            size = wal.stat().st_size + 64 * 1024
            resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (size, size))

        acknowledged = await write_until_it_fails(server, limit)

        async def restart() -> None:
            server.restart()

        await check_stopped_and_whole(server, acknowledged, restart)
    finally:
        server.close()


async def test_a_coordinator_that_cannot_write_stops_the_process(tmp_path: Path) -> None:
    """Otherwise it would live on, and refuse every agent for ever."""
    server = ServerProcess(tmp_path / "data", QUIET)
    try:
        server.start()
        async with connected(server) as api:
            await api.agent("a")
            size = (server.data / "coordination.sqlite3-wal").stat().st_size
            resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (size, size))
            with pytest.raises(Refused) as failed:
                await api.agent("b")
        assert failed.value.code is grpc.StatusCode.UNAVAILABLE
        assert "coordination" not in failed.value.message
        assert server.wait() == EXIT_FAILED
        (line,) = server.stderr.splitlines()
        assert "storage failed" in line
        assert "coordination.sqlite3" in line
        server.restart()
        async with connected(server) as api:
            await api.agent("b")
    finally:
        server.close()


def _write(path: Path, text: str) -> None:
    path.write_text(text)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[tuple[Path, tuple[str, ...], Callable[[str], None]]]:
    """A file system of 2 MiB in a mount namespace of its own: its folder, a command prefix, and a resizer."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if shutil.which("unshare") is None or shutil.which("nsenter") is None:
        pytest.skip("needs unshare and nsenter (util-linux) to make a file system of its own")
    script = f"mount -t tmpfs -o size=2m tmpfs {folder} && echo mounted && exec cat"
    holder = subprocess.Popen(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        if holder.stdout.readline() != "mounted\n":
            pytest.skip("this machine allows no mounts in a user namespace")
        enter = ("nsenter", "--target", str(holder.pid), "--user", "--mount", "--preserve-credentials")

        def resize(size: str) -> None:
            subprocess.run([*enter, "mount", "-o", f"remount,size={size}", str(folder)], check=True)

        yield folder, enter, resize
    finally:
        holder.stdin.close()
        holder.wait(30)
        holder.stdout.close()


async def test_a_full_disk_stops_the_process(
    small_disk: tuple[Path, tuple[str, ...], Callable[[str], None]],
) -> None:
    folder, enter, resize = small_disk
    server = ServerProcess(folder / "data", QUIET, command=(*enter, str(NOOSPHERE)))
    try:
        server.start()
        acknowledged = await write_until_it_fails(server, None)
        assert len(acknowledged) >= 20

        async def restart() -> None:
            resize("64m")
            server.restart()

        await check_stopped_and_whole(server, acknowledged, restart)
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.close()
