"""The client for Node, made from the protos alone, does with the real server what its page says.

It needs Node, npm and, once, the packages of its lock file. Where these cannot be had the tests are skipped and
say why; with ``NODE_CLIENT_TEST=required`` in the environment, as in CI, they fail instead.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from tests.support.process import ServerProcess
from tests.support.proxy import Fault, proxied

from noosphere.client import connect

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "docs" / "clients" / "node"
SECONDS_MAX = 120
NODE_MIN = 20

# What npm says when there is no way to a registry, as opposed to a lock file that is wrong.
UNREACHABLE = re.compile(
    r"\b(ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|ERR_SOCKET)"
)

LOST_REPLY = """
import readline from "node:readline/promises";
import { Agent } from "./client.mjs";

const [address, space] = process.argv.slice(2);
const agent = await Agent.open(address, space.replace("shared", "node"));
await agent.get(space, "k");
console.log("ready");
await readline.createInterface({ input: process.stdin }).question("");
console.log(JSON.stringify(await agent.put(space, "k", 1)));
await agent.close();
process.exit();
"""


def give_up(reason: str) -> NoReturn:
    if os.environ.get("NODE_CLIENT_TEST") == "required":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the client with its packages installed."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        give_up(f"{'node' if node is None else 'npm'} is not installed")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if int(version.removeprefix("v").split(".")[0]) < NODE_MIN:
        give_up(f"node {version} is too old: {NODE_MIN} or newer is needed")
    copy = tmp_path_factory.mktemp("node") / "client"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("node_modules"))
    done = subprocess.run(
        [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
        cwd=copy,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    if done.returncode != 0 and (found := UNREACHABLE.search(done.stderr)) is not None:
        give_up(f"npm cannot reach a registry: {found[0]}")
    assert done.returncode == 0, done.stderr
    (copy / "lost_reply.mjs").write_text(LOST_REPLY)
    return copy


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path / "data")
    try:
        process.start()
        yield process
    finally:
        process.close()


def environment() -> dict[str, str]:
    return {**os.environ, "PROTOS_FOLDER": str(ROOT / "protos")}


@pytest.mark.parametrize("before", ["", "127.0.0.1:1,"], ids=["one address", "a dead one first"])
async def test_the_example_does_what_it_says_and_others_see_it(
    folder: Path, server: ServerProcess, before: str
) -> None:
    space = f"shared/node-{uuid.uuid4().hex}"
    process = await asyncio.create_subprocess_exec(
        "node",
        "example.mjs",
        before + server.address,
        space,
        cwd=folder,
        env=environment(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(SECONDS_MAX):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    told = {step.pop("step"): step for step in map(json.loads, out.decode().splitlines())}
    assert list(told) == ["put and get", "conflict", "request id", "watch", "commit", "causal"]
    assert told["conflict"]["reason"] == "CONFLICT"
    assert told["commit"]["refused"] == "STALE_READ_SET"
    # What it wrote is there for a client of another language, by whom it says.
    async with connect(server.address) as client:
        records = {record.key: record async for record in client.namespace(space).list()}
        assert records["plan"].value == {"steps": ["another"]}
        assert records["plan"].writers[0].actor == told["commit"]["by"]
        assert [records[key].value for key in ("next", "after next", "log")] == ["on the new plan", "and further", 1]
        assert records["log"].change_count == 1


async def test_a_lost_reply_is_asked_for_again_under_the_same_id(folder: Path, server: ServerProcess) -> None:
    space = f"shared/node-{uuid.uuid4().hex}"
    with proxied(server.address) as proxy:
        async with asyncio.timeout(SECONDS_MAX):
            process = await asyncio.create_subprocess_exec(
                "node",
                "lost_reply.mjs",
                proxy.address,
                space,
                cwd=folder,
                env=environment(),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                assert await process.stdout.readline() == b"ready\n"
                with proxy.during(Fault.DROP_REPLIES):
                    process.stdin.write(b"\n")
                    await proxy.happened()
                applied = json.loads(await process.stdout.readline())
                assert await process.wait() == 0
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
    assert applied["replayed"] is True
    async with connect(server.address) as client:
        history = [entry async for entry in client.namespace(space).history("k")]
    assert [str(entry.revision) for entry in history] == [applied["revision"]]


def test_versions_are_pinned_and_the_lock_names_no_registry() -> None:
    package = json.loads((SOURCE / "package.json").read_text())
    lock = json.loads((SOURCE / "package-lock.json").read_text())
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in package["dependencies"].values())
    installed = {path: found for path, found in lock["packages"].items() if path}
    assert len(installed) > len(package["dependencies"])
    for path, found in installed.items():
        assert "integrity" in found, path
        assert "resolved" not in found, path
    for name, version in package["dependencies"].items():
        assert installed[f"node_modules/{name}"]["version"] == version


def test_every_command_of_the_page_exists() -> None:
    page = (SOURCE / "README.md").read_text()
    assert "npm ci --ignore-scripts" in page
    assert all(
        (SOURCE / name).exists() for name in re.findall(r"\b[\w-]+\.(?:mjs|proto)\b", page) if name != "errors.proto"
    )
