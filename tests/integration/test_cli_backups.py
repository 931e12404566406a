"""`noosphere dump` and `restore` from the command line: of a server that runs, offline, and how they fail."""

from __future__ import annotations

import gzip
import stat
from pathlib import Path

import pytest
from tests.support.cli import Cli, holds
from tests.support.process import ServerProcess

from noosphere.server.cli.backup_shapes import DumpedShape, RestoredShape

OPTIONS = ("--embedder", "none")


@pytest.fixture
def server(tmp_path: Path) -> ServerProcess:
    return ServerProcess(tmp_path / "data", options=OPTIONS)


@pytest.mark.campaign
def test_a_dump_of_a_running_server_makes_another_one(server: ServerProcess, tmp_path: Path) -> None:
    path, target = tmp_path / "noosphere.dump.gz", str(tmp_path / "other")
    server.start()
    try:
        cli = Cli(server.address)
        cli.ok("put", "shared/launch", "plan", '{"step": 1}')
        dumped = cli.ok("dump", str(path), "--json").json
    finally:
        server.close()
    holds(DumpedShape, dumped)
    assert dumped["bytes"] == path.stat().st_size
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with gzip.open(path) as lines:
        assert b'{\\"step\\":1}' in lines.read(), "a dump can be read"
    offline = Cli()
    verified = offline.ok("restore", str(path), "--verify", "--json").json
    restored = offline.ok("restore", str(path), "--data", target, "--json").json
    for document in (verified, restored):
        holds(RestoredShape, document)
        assert document["sha256"] == dumped["sha256"]
    assert (verified["epoch"], restored["epoch"]) == (None, restored["dump_epoch"] + 1)
    again = offline.run("restore", str(path), "--data", target)
    assert (again.code, "--replace" in again.error) == (3, True)
    other = ServerProcess(Path(target), options=OPTIONS)
    other.start()
    try:
        assert '{"step":1}' in Cli(other.address).ok("get", "shared/launch", "plan").text
    finally:
        other.close()


def test_what_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    cli = Cli("127.0.0.1:1")
    path = tmp_path / "noosphere.dump"
    gone = cli.run("dump", str(path), "--timeout", "0.5")
    none = cli.run("dump", "--offline", "--data", str(tmp_path / "none"), str(path))
    assert (gone.code, none.code) == (4, 3)
    assert "no data folder" in none.error
    path.write_bytes(b"{}\n")
    other = cli.run("restore", str(path), "--data", str(tmp_path / "none"), "--json")
    assert (other.code, other.json_error["reason"]) == (5, "UNUSABLE_DUMP")
    assert [one.name for one in tmp_path.iterdir()] == [path.name]
