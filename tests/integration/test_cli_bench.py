"""`noosphere bench` as people and programs use it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.cli import Cli, holds
from tests.support.traces import answered, called, said

from noosphere.server.cli import shapes


@pytest.fixture
def cli() -> Cli:
    # Nothing is asked of a server.
    return Cli("127.0.0.1:1")


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    rows = [{"code": f"ZX{place:04d}", "grams": 3 * place, "etag": "ab" * 20} for place in range(90)]
    run = [
        said("user", "How heavy is ZX0050?"),
        called("find", query="ZX0050"),
        answered("find", rows),
        said("assistant", "ZX0050 weighs 150 grams; ZX0071 is heavier."),
    ]
    file = tmp_path / "runs.json"
    file.write_text(json.dumps([{"traj": run}]))
    return file


def test_the_table_and_the_document_say_the_same(cli: Cli, traces: Path) -> None:
    arguments = ["bench", "compaction", "--traces", str(traces), "--tokens", "80", "--gate", "50"]
    for_people, for_programs = cli.run_all(arguments, [*arguments, "--json"])
    holds(shapes.CompactionShape, for_programs.json)
    document = for_programs.json
    assert (for_people.code, for_programs.code, document["ok"]) == (0, 0, True)
    assert (document["runs"], document["outputs"], document["outputs_over"], document["problems"]) == (1, 1, 1, [])
    *baselines, compress = document["methods"]
    assert len(baselines) == 3
    assert (compress["method"], compress["used"], compress["kept"], compress["percent"]) == ("compress", 3, 2, 66.67)
    assert baselines[0]["kept"] == 0
    assert for_people.lines[0].startswith("1 runs with 1 tool outputs; 1 are over 80 tokens of o200k_base, ")
    names = [line.split("  ")[0] for line in for_people.lines[3:7]]
    assert names == [method["method"] for method in document["methods"]]
    assert "66.7 % (2 of 3)" in for_people.lines[6]
    assert for_people.lines[-1] == "gate 50 %: reached; goal 92 %: missed"


def test_a_missed_gate_has_an_exit_code_of_its_own(cli: Cli, traces: Path) -> None:
    done = cli.run("bench", "compaction", "--traces", str(traces), "--tokens", "80")
    assert done.code == 5
    assert done.lines[-1] == "gate 89 %: missed; goal 92 %: missed"


@pytest.mark.campaign
def test_what_cannot_be_measured_is_refused_in_one_line(cli: Cli, traces: Path) -> None:
    command = ["bench", "compaction", "--traces", str(traces)]
    ends = cli.run_all(
        [*command, "--tokens", "15"],
        [*command, "--gate", "101"],
        [*command, "--tokenizer", "morse"],
        [*command, "--tokens", "16384"],
        ["bench", "compaction", "--traces", str(traces.parent / "none")],
        ["bench", "compaction"],
    )
    assert [end.code for end in ends] == [2] * 6
    assert [end.error for end in ends] == [
        "--tokens: 15 is not between 16 and 16384",
        "--gate: 101 is not between 0 and 100",
        "--tokenizer: 'morse' is unknown; known are cl100k_base, estimate, o200k_base",
        f"{traces}: no value of a tool output over 16384 tokens is used later; there is nothing to measure",
        f"{traces.parent / 'none'}: No such file or directory",
        "missing option '--traces' (see `noosphere bench compaction --help`)",
    ]
