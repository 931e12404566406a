"""A fleet of `make cluster`: servers that are kept up, and the demo that has Redis lose what it acknowledged."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.etcd import needs_etcd
from tests.support.redis import needs_redis

from noosphere.client import connect
from noosphere.server.checking import check_history
from noosphere.server.fleet import Fleet, bring_down, bring_up_servers, catch_up, info, read_fleet, roll_servers
from noosphere.server.fleet.manage import serves
from noosphere.server.fleet.processes import kill

pytestmark = [needs_redis, needs_etcd, pytest.mark.campaign, pytest.mark.timeout(600)]

CLI = (sys.executable, "-m", "noosphere.server.cli")
SECONDS_MAX = 240


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    found = tmp_path_factory.mktemp("cluster") / "run"
    try:
        bring_up_servers(found, print)
        yield found
    finally:
        bring_down(found, print)


def demo(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NOOSPHERE_")}
    return subprocess.run(
        [*CLI, "demo", "--min-conflicts", "10", *options],
        cwd=folder.parent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )


async def test_a_server_that_dies_comes_back_while_its_clients_go_on(folder: Path) -> None:
    before = read_fleet(folder / "fleet.json")
    victim = before.servers[0]
    async with connect(before.server, agent="chaos/steady", in_order=True) as client:
        space = client.shared("steady")
        counts: list[object] = []
        async with space.watch("counts/") as batches:
            assert kill(victim.process)
            for number in range(20):
                await space.put(f"counts/{number:02}", number)
            while len(counts) < 20:
                counts += [event.key for event in (await anext(batches)).events]
        assert counts == [f"counts/{number:02}" for number in range(20)]
    deadline = time.monotonic() + 60
    while not (after := read_fleet(folder / "fleet.json").servers[0]).alive or not serves(after.address):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    assert after.address == victim.address
    assert after.pid != victim.pid


def test_the_cluster_can_be_brought_up_twice(folder: Path) -> None:
    before = check_whole(folder)
    assert bring_up_servers(folder, print) == before


async def test_servers_that_are_restarted_in_turn_fail_no_call(folder: Path) -> None:
    before = check_whole(folder)
    async with connect(before.server, agent="chaos/rolled") as client:
        rolling = asyncio.create_task(asyncio.to_thread(roll_servers, folder, print))
        written = 0
        while not rolling.done():
            written += 1
            await client.shared("rolled").key("count").increment(1)
        after = await rolling
        record = await client.shared("rolled").get("count", int)
        assert record is not None
        assert record.value == written > 0
    assert [member.address for member in after.servers] == [member.address for member in before.servers]
    assert not {member.pid for member in after.servers} & {member.pid for member in before.servers}


def check_whole(folder: Path) -> Fleet:
    fleet = read_fleet(folder / "fleet.json")
    assert all(member.alive for member in fleet.members)
    assert all(serves(member.address) for member in fleet.servers)
    primary, replica = sorted(fleet.redis, key=lambda member: member.name != fleet.primary)
    assert info(primary.address, "replication")["role"] == "master"
    catch_up(primary.address, replica.address)
    return fleet


def test_no_loss_is_unsignalled_and_the_fleet_is_whole_again_twice(folder: Path, tmp_path: Path) -> None:
    primaries = []
    for number in range(2):
        history = tmp_path / f"history-{number}"
        given = ("--chaos", "--lose", "60", "--sections", "60", "--fleet", str(folder / "fleet.json"))
        done = demo(folder, *given, "--json", "--history", str(history))
        assert done.returncode == 0, done.stdout + done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        assert found["ok"]
        assert found["servers"] == 3
        assert found["serial"] == found["shared"]
        assert (found["lost_updates"], found["duplicate_completions"]) == (0, 0)
        chaos = found["chaos"]
        assert chaos["lost"] >= 60
        assert (chaos["unsignalled"], chaos["false_alarms"]) == (0, 0)
        assert len(chaos["writes"]) == chaos["lost"] <= chaos["only_in_old"]
        assert all(write["told"] for write in chaos["writes"])
        assert check_history(history).ok
        assert check_whole(folder).primary == chaos["new_primary"]
        primaries.append((chaos["old_primary"], chaos["new_primary"]))
    assert primaries[0] == primaries[1][::-1], "they have changed places twice"


def test_whoever_interrupts_it_gets_a_whole_fleet_back(folder: Path) -> None:
    options = ("--chaos", "--lose", "500", "--fleet", str(folder / "fleet.json"))
    running = subprocess.Popen(
        [*CLI, "demo", *options], cwd=folder.parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert running.stdout is not None
        told = ""
        while "will be lost" not in told:
            line = running.stdout.readline()
            assert line, told
            told += line
        running.send_signal(signal.SIGINT)
        _, problem = running.communicate(timeout=SECONDS_MAX)
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 130, problem
    assert "interrupted" in problem
    check_whole(folder)


def test_too_few_writes_to_lose_are_a_failure(folder: Path) -> None:
    done = demo(folder, "--chaos", "--lose", "500", "--sections", "30", "--fleet", str(folder / "fleet.json"), "--json")
    assert done.returncode == 5, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert any("acknowledged writes, at least 500 were wanted" in failure for failure in found["failures"])
    assert found["chaos"]["unsignalled"] == 0
    check_whole(folder)


@pytest.mark.parametrize(
    ("options", "code", "problem"),
    [
        (("--chaos",), 3, "there is no fleet (make cluster starts one)"),
        (("--chaos", "--lose", "0"), 2, "--lose: 0 is not between 1 and 500"),
        (("--lose", "5"), 2, "--lose: is for --chaos"),
        (("--chaos", "--server", "127.0.0.1:1", "--fleet", "run/fleet.json"), 2, "is not of the fleet in"),
    ],
)
def test_what_cannot_be_damaged_is_said(folder: Path, options: tuple[str, ...], code: int, problem: str) -> None:
    done = demo(folder, *options)
    assert (done.returncode, done.stdout) == (code, "")
    assert problem in done.stderr
