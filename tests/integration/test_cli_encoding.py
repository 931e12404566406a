"""The command line where the terminal knows few characters: everything is told all the same, and JSON stays JSON."""

from __future__ import annotations

import json
import uuid

import pytest
from tests.support.cli import Cli
from tests.support.process import ServerProcess

KEY, VALUE = "план/👩", {"título": "naïve 👩"}


@pytest.fixture
def cli(binary: ServerProcess) -> Cli:
    return Cli(binary.address)


@pytest.fixture
def space() -> str:
    return f"shared/名-{uuid.uuid4().hex[:12]}"


@pytest.mark.parametrize(
    "encoding", ["ascii", *(pytest.param(one, marks=pytest.mark.campaign) for one in ("latin-1", "utf-8"))]
)
def test_names_and_values_are_shown_in_any_encoding(cli: Cli, space: str, encoding: str) -> None:
    terminal = {"PYTHONIOENCODING": encoding}
    written = cli.run("put", space, KEY, json.dumps(VALUE), environment=terminal)
    assert (written.code, written.err) == (0, "")
    shown = {
        name: cli.run(*command, environment=terminal)
        for name, command in {
            "get": ["get", space, KEY],
            "history": ["history", space],
            "ns list": ["ns", "list"],
        }.items()
    }
    assert {name: (done.code, done.err) for name, done in shown.items()} == dict.fromkeys(shown, (0, ""))
    for name, text in {"get": json.dumps(VALUE, ensure_ascii=False)[1:-1], "history": KEY, "ns list": space}.items():
        printed = shown[name].out.decode(encoding)
        escaped = text.encode(encoding, "backslashreplace").decode(encoding)
        assert escaped.replace(" ", "") in printed.replace(" ", "")


@pytest.mark.parametrize(
    "encoding", ["ascii", *(pytest.param(one, marks=pytest.mark.campaign) for one in ("latin-1", "utf-8"))]
)
def test_json_is_utf_8_wherever_it_goes(cli: Cli, space: str, encoding: str) -> None:
    terminal = {"PYTHONIOENCODING": encoding}
    assert cli.run("put", space, KEY, json.dumps(VALUE), "--json", environment=terminal).json["key"] == KEY
    found = cli.run("get", space, KEY, "--json", environment=terminal).json
    assert (found["key"], found["values"][0]["value"]) == (KEY, VALUE)
    refused = cli.run("put", space, KEY, "1", "--json", environment=terminal)
    assert refused.code == 1
    assert refused.json_error["conflict"]["key"] == KEY


def test_an_error_is_one_line_in_any_encoding(cli: Cli, space: str) -> None:
    refused = cli.run("get", space, "👩", environment={"PYTHONIOENCODING": "ascii"})
    assert refused.code == 1
    assert refused.error == rf"'\U0001f469' in shared/\u540d-{space[-12:]} has no value"
