"""`noosphere bench updates` as people and programs use it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.cli import Cli, holds
from tests.support.updates import SMALL, written

from noosphere.server.cli import shapes


@pytest.fixture
def cli() -> Cli:
    # Nothing is asked of a server.
    return Cli("127.0.0.1:1")


def test_the_table_and_the_document_say_the_same(cli: Cli, tmp_path: Path) -> None:
    file = written(tmp_path, SMALL, {"What is the capital of Peru?": "Lima"})
    arguments = ["bench", "updates", "--set", str(file), "--embedder", "none"]
    for_people, for_programs = cli.run_all(arguments, [*arguments, "--json"])
    holds(shapes.UpdatesShape, for_programs.json)
    document = for_programs.json
    assert (for_people.code, for_programs.code, document["ok"]) == (0, 0, True)
    assert document["reached"] == {"current_first": 100.0, "stale_first": 0.0, "false_supersessions": 0.0}
    [one] = document["sets"]
    assert (one["name"], one["facts"], one["supersessions"], one["false_supersessions"]) == ("set", 7, 1, [])
    assert for_people.lines[0].startswith("set: 7 facts: 1 contested, 1 superseded, 5 written;")
    assert for_people.lines[-3] == "current_first 100.0 %: gate 95 % reached, goal 98 % reached"
    assert for_people.err == for_programs.err == ""


def test_a_missed_gate_has_an_exit_code_of_its_own(cli: Cli, tmp_path: Path) -> None:
    written(tmp_path, ["The capital of Peru is Lima."], {"Who has a parrot?": "Anna"})
    done = cli.run("bench", "updates", "--set", str(tmp_path), "--embedder", "none")
    assert done.code == 5
    assert "current_first 0.0 %: gate 95 % missed, goal 98 % missed" in done.lines


def test_what_cannot_be_measured_is_refused_in_one_line(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "set.json").write_text("[]")
    done = cli.run("bench", "updates", "--set", str(tmp_path))
    assert done.code == 2
    assert "set.json: is no set of updates" in done.error
