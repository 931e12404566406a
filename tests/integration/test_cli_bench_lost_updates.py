"""`noosphere bench lost-updates` as people and programs use it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from tests.support.cli import Cli, holds
from tests.support.etcd import needs_etcd
from tests.support.process import NOOSPHERE
from tests.support.redis import needs_redis

from noosphere.server.cli.lost_updates_shapes import LostUpdatesShape


@pytest.fixture
def cli() -> Cli:
    # Nothing is asked of a server that runs already.
    return Cli("127.0.0.1:1")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--agents", "1"], "--agents: 1 is not between 2 and 32"),
        (["--agents", "33"], "--agents: 33 is not between 2 and 32"),
        (["--think-ms", "0"], "--think-ms: 0 is not above 0 and at most 1000"),
    ],
)
def test_what_cannot_be_played_is_refused_in_one_line(cli: Cli, words: list[str], said: str) -> None:
    done = cli.run("bench", "lost-updates", *words)
    assert done.code == 2
    assert said in done.error


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--peers", "redis,nobody"], "'redis,nobody' is neither all nor none"),
        (["--scenarios", "plan,dance"], "unknown 'dance'"),
    ],
)
def test_unknown_names_are_told_with_those_that_there_are(words: list[str], said: str) -> None:
    done = subprocess.run([NOOSPHERE, "bench", "lost-updates", *words], capture_output=True, text=True)
    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.campaign
@pytest.mark.timeout(600)
@needs_redis
@needs_etcd
def test_ours_reaches_its_gates(tmp_path: Path) -> None:
    words = ["--quick", "--peers", "none", "--json", "--out", str(tmp_path / "found.json")]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NOOSPHERE_")}
    command = [str(NOOSPHERE), "bench", "lost-updates", *words]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    result = json.loads(done.stdout)
    holds(LostUpdatesShape, result)
    assert [gate for gate in result["gates"] if not gate["ok"]] == [], done.stderr
    assert done.returncode == 0
    assert {run["scenario"] for run in result["runs"]} == {"plan", "notes", "tasks", "decide", "late", "failover"}
    found = {(run["variant"], run["scenario"]): run for run in result["runs"]}
    # The failover has lost something, or it has shown nothing.
    assert found["noosphere-redis-merge", "failover"]["signalled"] > 0
