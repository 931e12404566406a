"""The session demo: it holds as users run it, what it leaves can be read back, and a bad script is one clear line."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.test_demo import LIMIT_S, environment, processes_that_name
from tests.support.cli import Cli, holds
from tests.support.process import ServerProcess
from tests.support.warm import WarmProcess

from noosphere.server.cli import demo_shapes
from noosphere.server.demo.session import default_script


def demo(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    process = WarmProcess(["demo", "session", *words], environment(folder), cwd=folder)
    out, err = process.finish(LIMIT_S)
    return subprocess.CompletedProcess(words, process.wait(), out.decode(), err.decode())


def test_thirty_turns_hold_and_are_read_back_from_another_shell(tmp_path: Path) -> None:
    done = demo(tmp_path, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert processes_that_name(tmp_path) == []
    found = json.loads(done.stdout)
    holds(demo_shapes.SessionDemoShape, found)
    assert (found["ok"], found["failures"], len(found["turns"])) == (True, [], 30)
    events = [event for turn in found["turns"] for event in turn["events"]]
    for what in ("parked, because goals/main changed", "bytes became", "archive ", "restored ", "summary of "):
        assert any(what in event for event in events), what
    assert all(0 < turn["tokens_used"] <= turn["tokens_max"] <= 900 for turn in found["turns"])
    assert {figure["metric"] for figure in found["health"] if figure["verdict"] != "unknown"}
    words = found["serve"].split()
    assert words[:3] == ["noosphere", "serve", "--data"]
    server = ServerProcess(tmp_path / words[3])
    try:
        server.start()
        cli = Cli(server.address)
        assert len(cli.ok("session", "messages", found["session"], "--json").json_lines) >= 50
        explained = cli.ok("context", "explain", found["session"])
        assert "%" in explained.text
    finally:
        server.close()


@pytest.mark.campaign
def test_people_see_turns_health_and_how_to_read_it_back(tmp_path: Path) -> None:
    done = demo(tmp_path, "--data", "kept")
    assert (done.returncode, done.stderr) == (0, "")
    for text in (
        "search_hotels: parked",
        "context utilization",
        "All of it holds",
        "noosphere serve --data kept/data",
        "noosphere session show demo-",
        "noosphere context explain demo-",
    ):
        assert text in done.stdout
    assert "NO  " not in done.stdout


@pytest.mark.campaign
def test_a_script_of_ones_own_is_played(tmp_path: Path) -> None:
    script = {"turns": [{"user": "Hello", "reply": "Hello.", "steps": [{"do": "put", "key": "notes/a", "value": 1}]}]}
    (tmp_path / "mine.json").write_text(json.dumps(script))
    done = demo(tmp_path, "--script", "mine.json", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(json.loads(done.stdout)["turns"]) == 1


@pytest.mark.campaign
def test_an_expectation_that_is_not_met_ends_with_5(tmp_path: Path) -> None:
    tool = {"do": "tool", "name": "look", "result": 1, "expect": "parked"}
    (tmp_path / "mine.json").write_text(json.dumps({"turns": [{"user": "u", "reply": "r", "steps": [tool]}]}))
    done = demo(tmp_path, "--script", "mine.json")
    assert done.returncode == 5
    assert "NO  The call of 'look' is parked (it is done)" in done.stdout


TURN = {"user": "u", "reply": "r"}


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("{", ("is no JSON",)),
        ({"turns": []}, ("turns", "at least 1")),
        ({"turns": [TURN], "tokens": 7}, ("tokens", "100", "7")),
        ({"turns": [{**TURN, "steps": [{"do": "fly"}]}]}, ("turns.0.steps.0", "'fly'")),
        ({"turns": [{**TURN, "stepps": []}]}, ("turns.0.stepps",)),
        ({"turns": [{**TURN, "steps": [{"do": "restore", "name": "x"}]}]}, ("turns.0.steps.0.name", "'x'", "none was")),
        ({"turns": [TURN] * 1001}, ("turns", "1000")),
    ],
    ids=["no JSON", "no turns", "few tokens", "unknown step", "unknown field", "no such checkpoint", "too many"],
)
def test_a_bad_script_names_file_field_and_value(tmp_path: Path, script: Any, words: tuple[str, ...]) -> None:
    (tmp_path / "bad.json").write_text(script if isinstance(script, str) else json.dumps(script))
    done = demo(tmp_path, "--script", "bad.json")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    for word in ("bad.json", *words):
        assert word in line
    assert [path.name for path in tmp_path.iterdir()] == ["bad.json"], "nothing was made"


@pytest.mark.campaign
def test_a_script_that_is_not_there_and_a_folder_that_cannot_be(tmp_path: Path) -> None:
    assert "none.json: No such file" in demo(tmp_path, "--script", "none.json").stderr
    (tmp_path / "file").touch()
    done = demo(tmp_path, "--data", "file")
    assert done.returncode == 2
    assert "--data: file: File exists" in done.stderr
    done = demo(tmp_path, "--data", "x", "--server", "127.0.0.1:1")
    assert done.returncode == 2
    assert "--data" in done.stderr


@pytest.mark.campaign
def test_a_folder_that_is_still_served_is_said_in_words(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "kept" / "data")
    try:
        server.start()
        done = demo(tmp_path, "--data", "kept")
    finally:
        server.close()
    assert (done.returncode, done.stdout) == (3, "")
    assert re.fullmatch(
        r"noosphere: error: the server did not start: kept/data is already in use by process \d+\n", done.stderr
    )


def test_the_script_that_comes_along_has_thirty_turns() -> None:
    assert len(default_script().turns) == 30
