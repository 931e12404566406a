"""Facts from the command line: what is refused before a server is asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from noosphere.server.cli.exits import ExitCode
from noosphere.server.cli.main import run

GOOD = {"text": "Owns a cat", "owner": "user/42"}


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Runs a command that is called wrongly; returns what it says."""
    assert run(["facts", *arguments, "--json"]) == ExitCode.USAGE
    printed = capsys.readouterr()
    assert printed.out == ""
    error: dict[str, Any] = json.loads(printed.err)["error"]
    assert error["reason"] == "USAGE"
    return str(error["message"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["search", "units"], "--owner"),
        (["search", "units", "--owner", "user/42", "--as-of", "noon"], "--as-of: 'noon' is not a moment"),
        (["search", "units", "--owner", "user/42", "--type", "long"], "'long'"),
        (["forget"], "give one of FACT, --query, --producer and --all"),
        (["forget", "--all", "--yes"], "--owner is needed with --all"),
        (["forget", "x", "--query", "y"], "give one of"),
        (["review", "user/42#c000000000000000000000000", "perhaps"], "'perhaps'"),
        (["extract", "--owner", "user/42"], "give one of --session and --document"),
        (["extract", "--owner", "user/42", "--document", "/nowhere/page"], "/nowhere/page: cannot be read"),
        (["policy", "user/42", "--set", "["], "--set: is not JSON"),
        (["policy", "user/42", "--set", "[]"], "--set: is not a JSON object"),
        (
            ["policy", "user/42", "--set", '{"ttl": {"episodic": "soon"}}'],
            "--set: ttl.episodic: 'soon' is not a duration",
        ),
        (["policy", "user/42", "--set", '{"trust": 1}'], "there is no rule 'trust'; the rules are memory_types"),
        (["upkeep", "--run", "--dry-run"], "--run and --dry-run exclude each other"),
        (["import", "/nowhere/facts"], "/nowhere/facts: cannot be read"),
    ],
    ids=lambda value: "-".join(part.partition("/")[0] for part in value) if isinstance(value, list) else "",
)
def test_a_wrong_call_names_what_is_wrong(capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    assert said in refusal(capsys, *arguments)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"text": None}, "text: is missing"),
        ({"text": " "}, "text: is missing"),
        ({"text": 7}, "text: 7 is not a text"),
        ({"owner": None}, "owner: is missing (--owner names one for all lines)"),
        ({"trust": 2}, "trust: 2 is not a number from 0 to 1"),
        ({"confidence": True}, "confidence: True is not a number from 0 to 1"),
        ({"memory_type": "long"}, "memory_type: 'long' is not one of working, episodic, semantic, procedural"),
        ({"valid_from": "noon"}, "valid_from: 'noon' is not a moment such as"),
        ({"expire_time": "2026-05-01"}, "expire_time: '2026-05-01' has no time zone"),
        ({"evidence": ["msg:s9/1"]}, "evidence: is not an array of FactEvidence"),
        ({"evidence": [{"quote": "x"}]}, "evidence: is not an array of FactEvidence"),
        ({"evidence": [{"reference": "doc:1", "content_hash": "xy"}]}, "evidence: is not an array of FactEvidence"),
    ],
    ids=lambda value: "-".join(f"{name}-{kind}" for name, kind in value.items()) if isinstance(value, dict) else "",
)
def test_a_field_that_is_none_is_named_with_its_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    file = tmp_path / "facts.jsonl"
    file.write_text(f"{json.dumps(GOOD)}\n{json.dumps({**GOOD, **change})}\n")
    message = refusal(capsys, "import", str(file))
    assert message.startswith(f"{file}:2: ")
    assert said in message


@pytest.mark.parametrize(
    ("line", "said"),
    [(b"{", "is not JSON"), (b"[]", "is not a JSON object"), (b" " * 70_000, "is longer than 65536 bytes")],
    ids=["json", "array", "long"],
)
def test_a_line_that_is_none_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, line: bytes, said: str
) -> None:
    file = tmp_path / "facts.jsonl"
    file.write_bytes(json.dumps(GOOD).encode() + b"\n\n" + line + b"\n")
    message = refusal(capsys, "import", str(file))
    assert message.startswith(f"{file}:3: ")
    assert said in message


def test_a_document_is_text_of_bounded_size(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page = tmp_path / "page.txt"
    page.write_bytes(b"\xff\xfe")
    extract = ("extract", "--owner", "user/42", "--document", str(page))
    assert "is not UTF-8" in refusal(capsys, *extract)
    page.write_bytes(b"x" * (512 * 1024 + 1))
    assert "is larger than 524288 bytes" in refusal(capsys, *extract)
