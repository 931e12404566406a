"""The conflict queue from the command line: what waits, since when, and putting one value in place of several."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path

import pytest
from tests.support.cli import Cli, holds
from tests.support.process import ServerProcess

from noosphere.client import CausalContext, Client, ConflictPolicy, NamespacePolicy, connect
from noosphere.server.cli import shapes


@pytest.fixture
def cli(binary: ServerProcess) -> Cli:
    return Cli(binary.address)


@pytest.fixture
def space() -> str:
    return f"shared/cli-{uuid.uuid4().hex[:12]}"


def as_agents(binary: ServerProcess, act: Callable[[Client, Client], Awaitable[None]]) -> None:
    """Lets two agents of this test act."""

    async def run() -> None:
        name = uuid.uuid4().hex[:8]
        async with (
            connect(binary.address, agent=f"one-{name}") as one,
            connect(binary.address, agent=f"two-{name}") as two,
        ):
            await act(one, two)

    asyncio.run(run())


def diverge(binary: ServerProcess, space: str, *keys: str) -> None:
    """Leaves two values on each key, by two agents, in this order."""

    async def act(one: Client, two: Client) -> None:
        await one.ensure_namespace(space, NamespacePolicy(conflict_policy=ConflictPolicy.SIBLINGS))
        for key in keys:
            first = await one.namespace(space).key(key).read()
            second = await two.namespace(space).key(key).read()
            await first.replace(f"{key} of one")
            await second.replace(f"{key} of two")

    as_agents(binary, act)


def test_the_queue_shows_what_waits_the_longest_first(cli: Cli, binary: ServerProcess, space: str) -> None:
    diverge(binary, space, "notes/b", "notes/a", "plan")
    table, lines, part, elsewhere = cli.run_all(
        ["conflicts", space],
        ["conflicts", space, "--json"],
        ["conflicts", space, "notes/", "--json"],
        ["conflicts", space, "other/"],
    )
    for document in lines.json_lines:
        holds(shapes.PendingShape, document)
    assert [document["key"] for document in lines.json_lines] == ["notes/b", "notes/a", "plan"]
    assert [document["key"] for document in part.json_lines] == ["notes/b", "notes/a"]
    assert elsewhere.text == "no record has several values\n"
    first = lines.json_lines[0]
    assert [value["value"] for value in first["record"]["values"]] == ["notes/b of one", "notes/b of two"]
    # It began to have several values when the second was written.
    assert first["since"] == first["record"]["values"][1]["dot"]
    assert first["since_time"] == first["record"]["values"][1]["write_time"]
    since = [datetime.fromisoformat(document["since_time"]) for document in lines.json_lines]
    assert since == sorted(since)
    head, *rows = [line.split() for line in table.lines]
    assert head == ["KEY", "SINCE", "VALUES", "WRITERS"]
    writers = [value["actor"] for value in first["record"]["values"]]
    assert rows[0] == ["notes/b", first["since_time"], "2", f"{writers[0]},", writers[1]]


@pytest.mark.parametrize("way", ["value", "text", "bytes", "keep", "delete"])
def test_one_value_or_none_takes_the_place_of_several(
    cli: Cli, binary: ServerProcess, space: str, tmp_path: Path, way: str
) -> None:
    diverge(binary, space, "plan")
    before = cli.ok("get", space, "plan", "--json").json
    kept = before["values"][0]
    options = {
        "value": ["--value", '{"joined": true}'],
        "text": ["--value", "-", "--text"],
        "bytes": ["--value", f"@{tmp_path / 'blob'}", "--bytes"],
        "keep": ["--keep", kept["dot"]],
        "delete": ["--delete"],
    }[way]
    (tmp_path / "blob").write_bytes(b"\xff\x00")
    done = cli.run("resolve", space, "plan", *options, "--json", stdin=b"joined by hand")
    assert (done.code, done.err) == (0, "")
    holds(shapes.ResolvedShape, done.json)
    assert done.json["resolved"] == before["values"]
    shown = cli.run("get", space, "plan", "--json")
    if way == "delete":
        assert done.json["version"] == "0"
        assert shown.json_error["reason"] == "VALUE_ABSENT"
    else:
        expected = {"value": {"joined": True}, "text": "joined by hand", "bytes": "/wA=", "keep": kept["value"]}
        assert [value["value"] for value in shown.json["values"]] == [expected[way]]
        assert shown.json["version"] == done.json["version"]
    assert cli.ok("conflicts", space).text == "no record has several values\n"


def test_people_see_what_was_resolved(cli: Cli, binary: ServerProcess, space: str) -> None:
    diverge(binary, space, "plan")
    done = cli.ok("resolve", space, "plan", "--value", "1")
    head, first, second, last = done.lines
    assert head.split() == ["REVISION", "BY", "TIME", "VALUE"]
    assert first.endswith('"plan of one"')
    assert second.endswith('"plan of two"')
    version = cli.ok("get", space, "plan", "--json").json["version"]
    assert last == f"2 values resolved at revision {version}, version {version}"


def test_what_came_since_one_looked_is_not_resolved_unseen(cli: Cli, binary: ServerProcess, space: str) -> None:
    diverge(binary, space, "plan")
    looked = cli.ok("get", space, "plan", "--json").json

    async def write_a_third(one: Client, _: Client) -> None:
        await one.namespace(space).put("plan", "third", seen=CausalContext(0))

    as_agents(binary, write_a_third)
    refused, for_programs = cli.run_all(
        ["resolve", space, "plan", "--value", "1", "--expected-version", looked["version"]],
        ["resolve", space, "plan", "--delete", "--expected-version", looked["version"], "--json"],
    )
    now = cli.ok("get", space, "plan", "--json").json
    assert len(now["values"]) == 3
    message = f"the version of 'plan' is {now['version']}, not {looked['version']}"
    assert (refused.code, refused.error) == (1, f"VERSION_MISMATCH: {message}")
    holds(shapes.ErrorShape, for_programs.json_error)
    assert for_programs.json_error["reason"] == "VERSION_MISMATCH"
    assert for_programs.json_error["outcome"] == "not_applied"
    assert cli.ok("resolve", space, "plan", "--value", "1", "--expected-version", now["version"]).code == 0


def test_a_record_with_one_value_has_nothing_to_resolve(cli: Cli, space: str) -> None:
    cli.ok("put", space, "plan", "1")
    version = cli.ok("get", space, "plan", "--json").json["version"]
    for options in (["--value", "2"], ["--delete"], ["--keep", version]):
        error = cli.run("resolve", space, "plan", *options, "--json").json_error
        assert (error["reason"], error["exit_code"], error["outcome"]) == ("NO_CONFLICT", 1, "not_applied")
    assert cli.ok("get", space, "plan", "--raw").out == b"1"


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ([], "give one of --value, --keep and --delete"),
        (["--value", "1", "--delete"], "give one of --value, --keep and --delete"),
        (["--delete", "--text"], "--text and --bytes say how to store --value"),
        (["--value", "1", "--text", "--bytes"], "--text and --bytes exclude each other"),
        (["--value", "nonsense"], "VALUE: is not JSON"),
        (["--value", "@/nowhere"], "VALUE: /nowhere: cannot be read"),
        (["--keep", "0"], "invalid value for '--keep'"),
    ],
)
def test_a_resolution_that_makes_no_sense_is_one_clear_line(
    cli: Cli, space: str, options: list[str], line: str
) -> None:
    done = cli.run("resolve", space, "plan", *options)
    assert done.code == 2
    assert done.error.startswith(line)


def test_only_a_value_that_is_there_can_be_kept(cli: Cli, binary: ServerProcess, space: str) -> None:
    diverge(binary, space, "plan")
    dots = [value["dot"] for value in cli.ok("get", space, "plan", "--json").json["values"]]
    done = cli.run("resolve", space, "plan", "--keep", "7")
    assert (done.code, done.error) == (2, f"--keep: no value was written at revision 7; there are {', '.join(dots)}")
