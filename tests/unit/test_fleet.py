"""A fleet's processes are told apart for good, and what cannot be done is said in one line."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from noosphere.server.fleet import Fleet, FleetError, Member, bring_down, bring_up, changing, read_fleet, supervisor
from noosphere.server.fleet.__main__ import main
from noosphere.server.fleet.processes import Identity, end, free_address, identify, is_alive, send, spawn, usable


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[Identity]:
    found = spawn([sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"], tmp_path / "log")
    yield found
    end(found, 10)


def test_a_process_outlives_its_starter_and_is_ended(sleeper: Identity) -> None:
    assert is_alive(sleeper)
    assert os.getsid(sleeper.pid) == sleeper.pid, "Ctrl-C does not reach it"
    assert end(sleeper, 10)
    assert not is_alive(sleeper)
    assert not end(sleeper, 10), "nobody is there any more"


def test_a_process_that_ignores_the_request_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    text = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
    )
    stubborn = spawn([sys.executable, "-c", text], log)
    while "up" not in log.read_text():
        assert is_alive(stubborn)
    assert end(stubborn, 0.1)
    assert not is_alive(stubborn)


def test_a_pid_that_was_used_again_is_left_alone(sleeper: Identity) -> None:
    former = Identity(sleeper.pid, "the start of a process that had this number before")
    assert not is_alive(former)
    assert not send(former, signal.SIGKILL)
    assert not end(former, 10)
    assert is_alive(sleeper)


def test_what_a_dead_process_leaves_is_no_process() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert identify(child.pid) is None, "it waits to be reaped"
    assert identify(child.pid) is None


def test_a_program_that_is_missing_is_named_with_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    folder = tmp_path / "fleet"
    assert main(["up", "--folder", str(folder)]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == "fleet: error: redis-server is not installed (Debian: apt-get install redis-server)\n"
    assert not folder.exists()
    (tmp_path / "redis-server").touch(mode=0o700)
    with pytest.raises(FleetError, match=r"^etcd is not installed \(Debian: apt-get install etcd-server\)$"):
        bring_up(folder, print)


def test_down_without_a_fleet_says_so(tmp_path: Path) -> None:
    told: list[str] = []
    bring_down(tmp_path, told.append)
    assert told == [f"there is no fleet in {tmp_path}"]


def test_down_stops_what_is_recorded_and_nothing_else(tmp_path: Path, sleeper: Identity) -> None:
    with changing(tmp_path) as fleet:
        fleet.redis = [
            Member("redis-1", free_address(), str(tmp_path), sleeper),
            Member("redis-2", free_address(), str(tmp_path), Identity(os.getpid(), "another start")),
        ]
    told: list[str] = []
    bring_down(tmp_path, told.append)
    assert told == [f"stopped redis-1 (pid {sleeper.pid})"]
    assert [member.process for member in read_fleet(tmp_path / "fleet.json").redis] == [None, None]
    told.clear()
    bring_down(tmp_path, told.append)
    assert told == [f"nothing of the fleet in {tmp_path} was running"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"{", "is no description of a fleet"),
        (b'{"redis": 3}', "is no description of a fleet"),
        (msgspec.json.encode(Fleet(format=2)), "has format 2, this program knows 1"),
    ],
)
def test_a_file_that_describes_no_fleet_is_refused(tmp_path: Path, content: bytes, problem: str) -> None:
    file = tmp_path / "fleet.json"
    with pytest.raises(FleetError, match="there is no fleet"):
        read_fleet(file)
    file.write_bytes(content)
    with pytest.raises(FleetError, match=problem):
        read_fleet(file)


def test_a_change_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    with changing(tmp_path) as fleet:
        fleet.primary = "redis-1"

    def fail() -> None:
        with changing(tmp_path) as fleet:
            fleet.primary = "redis-2"
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert read_fleet(tmp_path / "fleet.json").primary == "redis-1"


def test_an_address_that_somebody_listens_at_is_not_usable() -> None:
    address = free_address()
    assert usable(address)
    host, port = address.split(":")
    with socket.create_server((host, int(port))):
        assert not usable(address)


async def test_a_server_that_does_not_last_is_started_ever_more_rarely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    starts: list[float] = []

    async def end_at_once(folder: Path, name: str, stopping: asyncio.Event) -> None:
        starts.append(loop.time())
        if len(starts) == 6:
            stopping.set()

    monkeypatch.setattr(supervisor, "_run", end_at_once)
    monkeypatch.setattr(supervisor, "FIRST_DELAY_SECONDS", 0.01)
    monkeypatch.setattr(supervisor, "DELAY_SECONDS_MAX", 0.04)
    await supervisor.keep(tmp_path, "server-1", stopping)
    waits = [after - before for before, after in itertools.pairwise(starts)]
    for wait, least in zip(waits, (0.01, 0.02, 0.04, 0.04, 0.04), strict=True):
        # The clock of the loop may be a little coarser than its timers.
        assert wait >= 0.9 * least
