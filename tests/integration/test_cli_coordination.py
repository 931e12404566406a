"""The command line about locks and groups: real processes against a real server."""

from __future__ import annotations

import asyncio
import uuid

import pytest
from tests.support.cli import Cli, holds
from tests.support.process import ServerProcess

from noosphere.client import connect
from noosphere.server.cli import shapes


@pytest.fixture(scope="module")
def cli(binary: ServerProcess) -> Cli:
    return Cli(binary.address)


async def test_locks_are_listed_shown_and_released(cli: Cli) -> None:
    name = f"deploy-{uuid.uuid4().hex[:8]}"
    async with connect(cli.server) as worker:
        async with worker.lock(name, data={"host": "a\n"}, lease=60) as lock:
            table, lines, shown, shown_json, wrong, none = await asyncio.to_thread(
                cli.run_all,
                ["lock", "list", name],
                ["lock", "list", name, "--json"],
                ["lock", "show", name],
                ["lock", "show", name, "--json"],
                ["lock", "release", name, "--token", str(lock.token + 1)],
                ["lock", "release", name],
            )
            assert table.lines[0].split() == ["LOCK", "HOLDER", "TOKEN", "LEASE", "DATA"]
            assert table.lines[1].split()[:5] == [name, worker.actor, str(lock.token), "60", "s"]
            holds(shapes.LockShape, lines.json)
            assert shown_json.json == lines.json
            assert lines.json == {
                "lock": name,
                "holder": worker.actor,
                "token": str(lock.token),
                "lease_seconds": 60.0,
                "data": {"host": "a\n"},
            }
            assert shown.lines[1].split() == ["holder", worker.actor]
            assert wrong.code == 1
            assert wrong.error == f"lock {name!r} is not held under token {lock.token + 1}"
            assert none.code == 2
            assert "--token is required" in none.error
            (done,) = await asyncio.to_thread(
                cli.run_all, ["lock", "release", name, "--token", str(lock.token), "--json"]
            )
            holds(shapes.ReleasedShape, done.json)
            # The holder has given it back, as far as it knows.
            await lock.release()
        free, empty, own = await asyncio.to_thread(
            cli.run_all, ["lock", "show", name], ["lock", "list", name], ["lock", "show", "~upkeep"]
        )
    assert (free.code, free.error) == (1, f"nobody holds the lock {name!r}")
    assert empty.text == "no lock is held\n"
    assert own.code == 1
    assert "'~'" in own.error


async def test_members_of_a_group_are_listed(cli: Cli) -> None:
    name = f"crawlers-{uuid.uuid4().hex[:8]}"
    async with connect(cli.server) as worker, worker.group(name).join(data=[1, 2], lease=60) as membership:
        table, lines, nobody = await asyncio.to_thread(
            cli.run_all,
            ["group", "members", name],
            ["group", "members", name, "--json"],
            ["group", "members", f"{name}/other"],
        )
    assert table.lines[0].split() == ["AGENT", "LEASE", "DATA"]
    assert table.lines[1].split() == [worker.agent, "60", "s", "[1,2]"]
    holds(shapes.MemberShape, lines.json)
    assert (lines.json["agent"], lines.json["number"]) == (worker.agent, str(membership.number))
    assert nobody.text == "nobody is there\n"
