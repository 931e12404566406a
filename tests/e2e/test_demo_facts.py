"""The facts demo: it holds as users run it, what it leaves can be read back, and it says so where something fails."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.test_demo import LIMIT_S, environment, processes_that_name
from tests.support.cli import Cli, holds
from tests.support.process import ServerProcess
from tests.support.warm import WarmProcess

from noosphere.server.cli import demo_shapes
from noosphere.server.demo.facts import default_script


def demo(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    process = WarmProcess(["demo", "facts", *words], environment(folder), cwd=folder)
    out, err = process.finish(LIMIT_S)
    return subprocess.CompletedProcess(words, process.wait(), out.decode(), err.decode())


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server for all tests that play as somebody new."""
    server = ServerProcess(tmp_path_factory.mktemp("facts") / "data")
    server.start()
    yield server.address
    server.close()


def play(address: str, folder: Path, *steps: Any, **script: Any) -> dict[str, Any]:
    """Plays steps as one session on a server; returns what came of it."""
    (folder / "mine.json").write_text(json.dumps({"sessions": [{"days_ago": 0, "steps": steps}], **script}))
    done = demo(folder, "--server", address, "--script", "mine.json", "--json")
    assert (done.returncode in (0, 5), done.stderr) == (True, ""), done.stderr
    assert [path.name for path in folder.iterdir()] == ["mine.json"], "nothing is left beside the server's data"
    found: dict[str, Any] = json.loads(done.stdout)
    assert (done.returncode == 0) == found["ok"]
    return found


def test_three_sessions_hold_and_are_read_back_from_another_shell(tmp_path: Path) -> None:
    done = demo(tmp_path, "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, done.stderr, found["failures"]) == (0, "", [])
    assert processes_that_name(tmp_path) == []
    holds(demo_shapes.FactsDemoShape, found)
    assert found["ok"]
    days = [told["day"] for told in found["sessions"]]
    assert len(set(days)) == 3
    assert days == sorted(days)
    known = {one["text"]: one for one in found["known"]}
    lyon, grenoble = known["The user lives in Lyon"], known["The user lives in Grenoble"]
    assert (
        (lyon["superseded_by"], lyon["until"]) == (grenoble["fact"], grenoble["since"]) == (grenoble["fact"], days[1])
    )
    assert known["The user prefers metric units"]["sources"] == 2
    statuses = [one["status"] for one in found["refused"]]
    assert sorted(statuses) == ["quarantined", "rejected", "rejected", "suppressed", "suppressed"]
    assert sum(one["text"] is None for one in found["refused"]) == 2, "what was forgotten has no words"
    for word in ("knee surgery", "Gr3nache"):
        assert {"text": f"{word!r} stands in no file of the server", "holds": True} in found["checks"]
    words = found["serve"].split()
    server = ServerProcess(tmp_path / words[3])
    try:
        server.start()
        cli = Cli(server.address)
        owner = found["owner"]
        searched = cli.ok("facts", "search", "Where does the user live?", "--owner", owner, "--json").json
        assert searched["hits"][0]["fact"]["text"] == "The user lives in Grenoble"
        path = cli.ok("facts", "why", grenoble["fact"], "--query", "Where does the user live?", "--json").json
        assert path["rank"] == 1
        assert [one["decision"]["status"] for one in path["candidates"]] == ["superseded"]
        history = cli.ok("facts", "history", grenoble["fact"]).text
        assert "The user lives in Lyon" in history
        assert "low_trust" in cli.ok("facts", "candidates", owner, "--json").text
        assert "knee" not in cli.ok("facts", "list", owner, "--superseded", "--json").text
    finally:
        server.close()


@pytest.mark.campaign
def test_people_see_what_is_known_why_and_what_was_refused(tmp_path: Path) -> None:
    done = demo(tmp_path, "--data", "kept and safe")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    for text in (
        "What is known",
        "Why",
        "What was refused",
        "rank 1",
        "All of it holds",
        "noosphere serve --data 'kept and safe/data'",
        "noosphere facts search 'Which units does the user prefer?' --owner user/demo-",
        "noosphere facts candidates user/demo-",
    ):
        assert text in done.stdout
    assert "NO  " not in done.stdout
    commands = [line.strip() for line in done.stdout.splitlines() if line.startswith("  noosphere facts ")]
    server = ServerProcess(tmp_path / "kept and safe" / "data")
    try:
        server.start()
        for command in commands:
            Cli(server.address).ok(*shlex.split(command)[1:])
    finally:
        server.close()


def test_a_running_server_is_used_and_named_in_the_commands(tmp_path: Path, address: str) -> None:
    done = demo(tmp_path, "--server", address)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert f"--server {address}" in done.stdout
    assert "noosphere serve" not in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_script_of_ones_own_is_played(tmp_path: Path, address: str) -> None:
    found = play(
        address,
        tmp_path,
        {"do": "user", "text": "My dog is called Rex."},
        {"do": "remember", "text": "The user's dog is called Rex"},
        {"do": "ask", "query": "the dog's name", "first": "The user's dog is called Rex"},
        owner=f"user/{tmp_path.name}",
    )
    assert (found["ok"], found["owner"]) == (True, f"user/{tmp_path.name}")
    assert [answer["rank"] for answer in found["answers"]] == [1]


@pytest.mark.parametrize(
    ("steps", "failure"),
    [
        (
            [{"do": "remember", "text": "Likes tea", "rests_on": "nothing"}],
            "'Likes tea' is written (it is rejected: new, low_trust)",
        ),
        (
            [
                {"do": "user", "text": "I like tea"},
                {"do": "remember", "text": "Likes tea", "because": "low_trust"},
            ],
            "'Likes tea' is written, because of low_trust (it is written: new, written)",
        ),
        ([{"do": "ask", "query": "tea", "first": "Likes tea"}], "'tea' finds 'Likes tea' first (it is nothing)"),
        (
            [
                {"do": "user", "text": "I like tea"},
                {"do": "remember", "text": "Likes tea"},
                {"do": "ask", "query": "tea", "never": ["Likes tea"]},
            ],
            "'tea' does not find 'Likes tea'",
        ),
        ([{"do": "forget", "query": "tea", "facts": 1}], "forget 'tea': 1 fact (it is 0)"),
        (
            [
                {"do": "user", "text": "I like tea"},
                {"do": "remember", "text": "Likes tea"},
                {"do": "forget", "query": "coffee", "gone": ["tea"]},
            ],
            "'tea' stands in no fact, no candidate and no message (it is in fact ",
        ),
        (
            [{"do": "user", "text": "I like tea"}, {"do": "forget", "query": "coffee", "gone": ["tea"]}],
            "'tea' stands in no fact, no candidate and no message (it is in session ",
        ),
        (
            [
                {"do": "user", "text": "I like tea"},
                {"do": "remember", "text": "Likes tea", "supersedes": "Likes milk"},
            ],
            "'Likes milk' is history, and was so until 'Likes tea' was",
        ),
        (
            [
                {"do": "user", "text": "My name is Ada."},
                {"do": "extract", "learns": ["The user's name is Ada"]},
                {"do": "ask", "query": "name", "never": ["The user's name is Ada"]},
            ],
            "'name' does not find \"The user's name is Ada\"",
        ),
        (
            # What is extracted ends like a sentence; a script need not know that.
            [{"do": "user", "text": "My name is Ada."}, {"do": "extract", "never": ["The user's name is Ada"]}],
            'The extraction has not learned "The user\'s name is Ada"',
        ),
    ],
    ids=[
        "status",
        "reason",
        "first",
        "never",
        "forgotten",
        "in a fact",
        "in a message",
        "superseded",
        "asked",
        "extracted",
    ],
)
def test_what_does_not_hold_ends_with_5_and_is_named(
    tmp_path: Path, address: str, steps: list[Any], failure: str
) -> None:
    found = play(address, tmp_path, *steps)
    assert not found["ok"]
    assert any(told.startswith(failure) for told in found["failures"]), found["failures"]
    assert not [told for told in found["failures"] if "has learned" in told]


def test_where_nothing_is_known_nor_refused_people_are_told(tmp_path: Path, address: str) -> None:
    (tmp_path / "mine.json").write_text(json.dumps({"sessions": [{"days_ago": 0, "steps": [SAYS]}]}))
    told = demo(tmp_path, "--server", address, "--script", "mine.json").stdout.splitlines()
    for heading in ("What is known", "What was refused"):
        assert told[told.index(heading) + 1] == " nothing"
    assert "Why" not in told


@pytest.mark.campaign
def test_a_word_that_stands_in_a_file_of_the_server_is_found(tmp_path: Path) -> None:
    steps = [{"do": "user", "text": "Perseids"}, {"do": "forget", "query": "coffee", "gone": ["Perseids"]}]
    (tmp_path / "mine.json").write_text(json.dumps({"sessions": [{"days_ago": 0, "steps": steps}]}))
    done = demo(tmp_path, "--script", "mine.json", "--data", "own")
    assert done.returncode == 5, done
    assert "NO  'Perseids' stands in no file of the server (it is in " in done.stdout


SAYS = {"do": "user", "text": "u"}


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("{", ("is no JSON",)),
        ({"sessions": []}, ("sessions", "at least 1")),
        ({"sessions": [{"days_ago": -1, "steps": [SAYS]}]}, ("sessions.0.days_ago", "-1")),
        (
            {"sessions": [{"days_ago": 1, "steps": [SAYS]}, {"days_ago": 2, "steps": [SAYS]}]},
            ("sessions.1.days_ago", "2"),
        ),
        ({"sessions": [{"days_ago": 0, "steps": [{"do": "fly"}]}]}, ("sessions.0.steps.0", "'fly'")),
        (
            {"sessions": [{"days_ago": 0, "steps": [{"do": "remember", "text": "x"}]}]},
            ("sessions.0.steps.0.rests_on", "'user'", "'nothing'"),
        ),
        (
            {"sessions": [{"days_ago": 0, "steps": [{**SAYS, "name": "a"}, {**SAYS, "name": "a"}]}]},
            ("sessions.0.steps.1.name", "'a'"),
        ),
        (
            {"sessions": [{"days_ago": 0, "steps": [{"do": "forget", "query": "x", "everything": True}]}]},
            ("sessions.0.steps.0", "2 of query"),
        ),
    ],
    ids=["no JSON", "no sessions", "tomorrow", "back in time", "unknown step", "no evidence", "taken", "two of three"],
)
def test_a_bad_script_names_file_field_and_value(tmp_path: Path, script: Any, words: tuple[str, ...]) -> None:
    (tmp_path / "bad.json").write_text(script if isinstance(script, str) else json.dumps(script))
    done = demo(tmp_path, "--script", "bad.json")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    for word in ("bad.json", *words):
        assert word in line
    assert [path.name for path in tmp_path.iterdir()] == ["bad.json"], "nothing was made"


def test_a_folder_beside_a_server_is_refused(tmp_path: Path) -> None:
    done = demo(tmp_path, "--data", "x", "--server", "127.0.0.1:1")
    assert done.returncode == 2
    assert "--data" in done.stderr


def test_the_script_that_comes_along_has_three_days() -> None:
    assert [day.days_ago for day in default_script().sessions] == [30, 12, 0]
