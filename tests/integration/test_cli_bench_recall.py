"""`noosphere bench recall` as people and programs use it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.cli import Cli, holds
from tests.support.conversations import asked, talked

from noosphere.server.cli import shapes


@pytest.fixture
def cli() -> Cli:
    # Nothing is asked of a server.
    return Cli("127.0.0.1:1")


@pytest.fixture
def talks(tmp_path: Path) -> Path:
    talk = talked(
        [asked("Where is the bicycle of Ben?", "D1:2", category=4), asked("Who has a parrot?", "D1:3", category=1)],
        (
            "8 May, 2026",
            [("Anna", "Hello Ben!"), ("Ben", "My bicycle is in the cellar."), ("Anna", "I have a parrot.")],
        ),
    )
    file = tmp_path / "talks.json"
    file.write_text(json.dumps([talk]))
    return file


def test_the_tables_and_the_document_say_the_same(cli: Cli, talks: Path) -> None:
    arguments = ["bench", "recall", "--locomo", str(talks), "--embedder", "none", "--ablation"]
    for_people, for_programs = cli.run_all(arguments, [*arguments, "--json"])
    holds(shapes.RecallShape, for_programs.json)
    document = for_programs.json
    assert (for_people.code, for_programs.code, document["ok"]) == (0, 0, True)
    assert document["overall"] == {"n": 2, "recall@5": 100.0, "recall@10": 100.0, "mrr": 100.0}
    assert (document["embedder"], sorted(document["categories"])) == ("", ["1", "4"])
    assert {(one["form"], one["tokens"]) for one in document["kept"]} == {
        (form, tokens) for form in ("turns", "merged", "attached") for tokens in (500, 1_000, 2_000)
    }
    assert document["ablation"]["all signals"] == document["overall"]
    assert "keywords alone" in for_people.lines[0]
    assert document["weights_sha256"][:12] in for_people.lines[0]
    assert any(line.split() == ["all", "2", "100.0", "100.0", "100.0"] for line in for_people.lines)
    assert for_people.lines[-2] == "mrr 100.0 %: gate 60 % reached, goal 65 % reached"


def test_a_missed_gate_has_an_exit_code_of_its_own(cli: Cli, tmp_path: Path) -> None:
    turns = [("Anna", f"The weather is fine, I think, number {place}.") for place in range(20)]
    talk = talked([asked("Who has a parrot?", "D1:20")], ("8 May, 2026", turns))
    (tmp_path / "talks.json").write_text(json.dumps([talk]))
    done = cli.run("bench", "recall", "--locomo", str(tmp_path), "--embedder", "none")
    assert done.code == 5
    assert "recall@5 0.0 %: gate 72 % missed, goal 77 % missed" in done.lines


def test_what_cannot_be_measured_is_refused_in_one_line(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "talks.json").write_text("{}")
    done = cli.run("bench", "recall", "--locomo", str(tmp_path))
    assert done.code == 2
    [line] = done.err.splitlines()
    assert "talks.json: is no array of conversations" in line
