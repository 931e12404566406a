"""Sessions and contexts from the command line: every command in both forms, and errors that name what is wrong."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest
from tests.support.cli import Cli, holds
from tests.support.process import ServerProcess

from noosphere.client import Append, Client, Evidence, LatePolicy, Session, SessionSettings, connect
from noosphere.server.cli import session_shapes as shapes

BAR = set("█░#.")


@pytest.fixture
def cli(binary: ServerProcess) -> Cli:
    return Cli(binary.address)


@pytest.fixture
def name() -> str:
    return f"cli-{uuid.uuid4().hex[:12]}"


def as_agent(binary: ServerProcess, name: str, act: Callable[[Client, Session], Awaitable[None]]) -> None:
    """Lets an agent of this test act in a session."""

    async def run() -> None:
        settings = SessionSettings(window_turns=2, window_steps=6)
        async with (
            connect(binary.address, agent=f"agent-{name}") as client,
            client.session(name, title="Price hunt", labels={"team": "blue"}, settings=settings) as session,
        ):
            await act(client, session)

    asyncio.run(run())


async def work(client: Client, session: Session) -> None:
    """Two turns with tools, notes and contexts."""
    await session.append({"role": "system", "content": "Be brief."})
    await session.goal().put({"text": "find the price"})
    await session.control.set(next_node="compare", data={"shops": 2})
    for turn in range(2):
        async with session.turn():
            await session.append({"role": "user", "content": f"What does shop {turn} ask?\nTell me all."})
            call = await session.start_tool("search", {"q": turn}, call_id=f"call_{turn}")
            use = {"id": f"call_{turn}", "function": {"name": "search", "arguments": f'{{"q": {turn}}}'}}
            await session.append({"role": "assistant", "content": None, "tool_calls": [use]})
            await call.finish(f"{turn}0 euros", append_message=True)
            await session.items.put(f"notes/{turn}", "lorem ipsum " * 60)
            context = await session.context(tokens=500)
            await context.commit(Append({"role": "assistant", "content": f"It asks {turn}0."}))
    await session.start_tool("order", call_id="call_9", side_effects=True)


@pytest.fixture
def filled(binary: ServerProcess, name: str) -> str:
    as_agent(binary, name, work)
    return name


def test_what_a_session_holds_is_listed(cli: Cli, filled: str) -> None:
    listed, shown, said, tools, saved, health = cli.run_all(
        ["session", "list", "--owner", f"agent-{filled}", "--label", "team=blue", "--json"],
        ["session", "show", filled, "--json"],
        ["session", "messages", filled, "--json"],
        ["session", "tools", filled, "--json"],
        ["session", "checkpoints", filled, "--json"],
        ["session", "health", filled, "--json"],
    )
    holds(shapes.SessionShape, listed.json)
    holds(shapes.SessionDetailShape, shown.json)
    assert shown.json["session"] == listed.json
    assert (listed.json["id"], listed.json["status"], listed.json["turn"]) == (filled, "open", 2)
    assert listed.json["settings"]["idle_timeout"] == 7 * 86_400
    assert (shown.json["control"]["next_node"], shown.json["control"]["data"]) == ("compare", {"shops": 2})
    assert shown.json["control"]["pending_calls"] == ["call_9"]
    for document in said.json_lines:
        holds(shapes.MessageShape, document)
    assert Counter(document["role"] for document in said.json_lines) == {
        "system": 1,
        "user": 2,
        "assistant": 4,
        "tool": 2,
    }
    for document in tools.json_lines:
        holds(shapes.ToolCallShape, document)
    assert [(d["call_id"], d["status"]) for d in tools.json_lines] == [
        ("call_0", "done"),
        ("call_1", "done"),
        ("call_9", "pending"),
    ]
    for document in saved.json_lines:
        holds(shapes.CheckpointShape, document)
    assert [document["cause"] for document in saved.json_lines] == ["turn_end", "turn_end"]
    holds(shapes.SessionHealthShape, health.json)
    assert (health.json["items"], health.json["messages"], health.json["pending_calls"]) == (3, 9, 1)


def test_people_see_tables(cli: Cli, filled: str) -> None:
    listed, shown, said, last, turn, whole, tools, pending, health = cli.run_all(
        ["session", "list", "--owner", f"agent-{filled}"],
        ["session", "show", filled],
        ["session", "messages", filled],
        ["session", "messages", filled, "--last", "1"],
        ["session", "messages", filled, "--turn", "1"],
        ["session", "messages", filled, "--last", "4", "--full"],
        ["session", "tools", filled],
        ["session", "tools", filled, "--status", "pending", "--last", "5"],
        ["session", "health", filled],
    )
    head, row = listed.lines
    assert head.split() == ["SESSION", "STATUS", "OWNER", "TURN", "OPENED", "TITLE"]
    assert row.split()[:4] == [filled, "open", f"agent-{filled}", "2"]
    fields = dict(line.split("  ", 1) for line in shown.lines)
    assert fields["closed when idle"].strip() == "for 7 d, and purged 30 d later"
    assert fields["window"].strip() == "2 turns, 6 steps, by o200k_base"
    assert len(said.lines) == 10
    assert [line.split(maxsplit=4)[-1] for line in said.lines[2:5]] == [
        "What does shop 0 ask? Tell me all.",
        '→ search({"q": 0})',
        "call_0: 00 euros",
    ]
    assert [line.split(maxsplit=4)[-1] for line in last.lines[1:]] == ["It asks 10."]
    assert {line.split()[0] for line in turn.lines[1:]} == {"1"}
    assert whole.lines[1:3] == ["What does shop 1 ask?", "Tell me all."]
    assert [line.split()[:3] for line in tools.lines[1:]] == [
        ["call_0", "search", "done"],
        ["call_1", "search", "done"],
        ["call_9", "order", "pending"],
    ]
    assert [line.split()[0] for line in pending.lines[1:]] == ["call_9"]
    assert health.lines[0].split() == ["FIGURE", "VALUE", "BOUNDS", "VERDICT", "WHAT", "IT", "MEANS"]
    assert [line.split("  ")[0] for line in health.lines[1:5]] == [
        "context utilization",
        "state hit rate",
        "state lifespan",
        "token growth",
    ]
    assert health.lines[5] == "3 items, 9 messages, 1 pending calls, 0 fact candidates in the outbox"


def test_a_context_is_explained(cli: Cli, filled: str) -> None:
    document = cli.ok("context", "explain", filled, "--json").json
    holds(shapes.ManifestShape, document)
    assert document["tokens_used"] <= document["tokens_max"] == 500
    dropped = [entry for entry in document["entries"] if entry["fate"] == "dropped"]
    assert dropped
    assert all(entry["reason"] for entry in dropped)
    again, plain = cli.run_all(["context", "explain", filled, document["context_id"]], ["context", "explain", filled])
    assert again.text == plain.text
    text = plain.text
    fields = dict(line.split("  ", 1) for line in plain.lines[:6])
    assert fields["tokens"].strip().startswith(f"{document['tokens_used']} of 500 (")
    sections = text.split("\n\n")[1].splitlines()
    assert sections[0].split() == ["SECTION", "IN", "ALLOWED", "LEFT", "OUT", "TOKENS"]
    bars = {line.split()[0]: line.split()[-1] for line in sections[1:] if not line.startswith("nothing")}
    assert all(set(bar) <= BAR and len(bar) <= 24 for bar in bars.values())
    for section in document["sections"]:
        missing = [e for e in document["entries"] if e["section"] == section["kind"] and e["fate"] != "included"]
        assert section["tokens_left_out"] == sum(entry["tokens_full"] - entry["tokens"] for entry in missing)
        bar = bars.get(section["kind"], "")
        assert ("█" in bar) is (section["tokens_used"] > 0)
        assert ("░" in bar) is (section["tokens_left_out"] > 0)
    assert max(len(bar) for bar in bars.values()) >= 23
    for entry in document["entries"]:
        assert entry["id"] in text
        assert entry["reason"].replace("_", " ") in text


def test_a_context_is_explained_on_any_terminal(cli: Cli, filled: str) -> None:
    done = cli.run("context", "explain", filled, environment={"PYTHONIOENCODING": "ascii"})
    assert done.code == 0
    assert done.out.isascii()
    assert "###" in done.text


def test_late_results_and_carried_evidence_say_so(cli: Cli, binary: ServerProcess, name: str) -> None:
    async def act(client: Client, session: Session) -> None:
        await session.goal().put("fly")
        policies: tuple[LatePolicy, ...] = ("park", "apply_flagged")
        calls = [await session.start_tool("search", call_id=policy, late=policy) for policy in policies]
        for call in calls:
            asked = {"id": call.call_id, "type": "function", "function": {"name": "search", "arguments": "{}"}}
            await session.append({"role": "assistant", "content": None, "tool_calls": [asked]})
        await session.goal().put("walk", blind=True)
        for call in calls:
            await call.finish({"fare": 7}, append_message=True)
        for _ in range(2):
            await session.context(evidence=[Evidence("Bags cost $30.", id="page")], carry_evidence=1)
        await session.context()

    as_agent(binary, name, act)
    document = cli.ok("context", "explain", name, "--json").json
    entries = {entry["id"]: entry for entry in document["entries"]}
    assert (entries["call:park"]["reason"], entries["call:park"]["late"]) == ("parked", True)
    [flagged] = [entry for entry in document["entries"] if entry["late"] and entry["fate"] == "included"]
    assert flagged["changed"] == ["goals/main"]
    origin = entries["evidence:page"]["carried_from"]
    shown, first = cli.run_all(["context", "explain", name], ["context", "explain", name, origin])
    assert f"fits, carried from {origin}" in shown.text
    assert "parked, late: goals/main changed" in shown.text
    assert origin in first.text


def test_much_that_was_left_out_is_only_counted(cli: Cli, binary: ServerProcess, name: str) -> None:
    async def act(client: Client, session: Session) -> None:
        for number in range(40):
            await session.items.put(f"notes/{number}", "lorem ipsum " * 60)
        await session.context(input="hi", tokens=500)

    as_agent(binary, name, act)
    short, whole = cli.run_all(["context", "explain", name], ["context", "explain", name, "--all"])
    left_out = sum("dropped" in line for line in whole.lines)
    assert left_out > 20
    assert short.lines[-1] == f"{left_out - 20} more were left out (--all lists them)"
    assert "more were left out" not in whole.text
    sections = cli.ok("context", "explain", name, "--json").json["sections"]
    held = {section["kind"]: section["tokens_max"] for section in sections}["tool_results"]
    assert held > 0
    assert f"tool_results ({held} kept free)" in short.text


def test_going_back_and_forking(cli: Cli, filled: str) -> None:
    first = cli.ok("session", "checkpoints", filled, "--json").json_lines[-1]["id"]
    done = cli.ok("session", "restore", filled, first, "--json").json
    holds(shapes.RestoredShape, done)
    assert (done["session"]["branch"], done["abandoned_branch"], done["removed"]) == (1, 0, 1)
    now, before = cli.run_all(
        ["session", "messages", filled, "--json"], ["session", "messages", filled, "--branch", "0", "--json"]
    )
    assert (len(now.json_lines), len(before.json_lines)) == (5, 9)
    made = cli.ok("session", "fork", filled, f"{filled}-2", "--title", "Other way", "--json").json
    holds(shapes.SessionShape, made)
    assert (made["id"], made["parent"], made["title"]) == (f"{filled}-2", filled, "Other way")
    earlier = cli.ok("session", "fork", filled, f"{filled}-3", "--at", first)
    assert earlier.text == f"{filled}-3 is a fork of {filled}, at turn 1\n"
    again = cli.ok("session", "restore", filled, first)
    assert again.text.startswith(f"{filled} is back at {first}, on branch 2: ")


def test_the_controllers_decisions(cli: Cli, binary: ServerProcess, filled: str) -> None:
    would = cli.ok("session", "transitions", filled, "--dry-run", "--json").json_lines
    for document in would:
        holds(shapes.TransitionShape, document)
    assert {document["key"]: document["action"] for document in would} == {
        "goals/main": "retain",
        "notes/0": "retain",
        "notes/1": "retain",
    }
    assert cli.ok("session", "transitions", filled).text == "no decisions\n"

    async def act(client: Client, session: Session) -> None:
        await session.run_transitions("notes/0", "notes/1", instruction="archive")

    as_agent(binary, filled, act)
    did, last = cli.run_all(
        ["session", "transitions", filled, "--json"], ["session", "transitions", filled, "--last", "1"]
    )
    assert {(document["key"], document["action"]) for document in did.json_lines} == {
        ("notes/0", "archive"),
        ("notes/1", "archive"),
    }
    assert len(last.lines) == 2


def test_an_export_has_everything(cli: Cli, binary: ServerProcess, filled: str) -> None:
    async def act(client: Client, session: Session) -> None:
        await session.run_transitions("notes/0", instruction="archive")
        [first] = [one async for one in session.checkpoints() if one.turn == 1]
        await session.restore(first)
        await session.append({"role": "user", "content": "another way"})

    as_agent(binary, filled, act)
    plain, flagged = cli.run_all(["session", "export", filled], ["session", "export", filled, "--json"])
    assert plain.out == flagged.out
    for document in plain.json_lines:
        holds(shapes.ExportShape, document)
    found = Counter((document["kind"], document["branch"]) for document in plain.json_lines)
    assert found["message", 0] == 9
    assert found["message", 1] == 1
    counts = Counter(document["kind"] for document in plain.json_lines)
    assert (counts["session"], counts["control"], counts["tool_call"]) == (1, 1, 3)
    assert counts["checkpoint"] >= 3
    assert counts["transition"] >= 1
    assert counts["candidate"] <= 1, "it may have been taken over by now"
    items = {document["data"]["key"] for document in plain.json_lines if document["kind"] == "item"}
    assert items == {"goals/main", "notes/0"}


def test_the_end_of_a_session(cli: Cli, filled: str) -> None:
    refused = cli.run("session", "close", filled, "--pending", "refuse")
    assert (refused.code, refused.error.split(":")[0]) == (1, "CALLS_PENDING")
    early = cli.run("session", "purge", filled, "--yes")
    assert (early.code, early.error.split(":")[0]) == (1, "SESSION_OPEN")
    closed = cli.ok("session", "close", filled, "--items", "keep", "--json").json
    holds(shapes.ClosedShape, closed)
    assert closed == {"session": filled, "archived": 0, "dropped": 0, "failed_calls": 1}
    asked = cli.run("session", "purge", filled)
    assert (asked.code, "give --yes" in asked.error) == (2, True)
    gone = cli.ok("session", "purge", filled, "--yes", "--json").json
    holds(shapes.PurgedShape, gone)
    assert gone["records"] > 10
    assert cli.run("session", "show", filled).error.startswith("SESSION_NOT_FOUND: ")


@pytest.mark.parametrize(
    ("arguments", "reason", "said"),
    [
        (["session", "show", "nothing"], "SESSION_NOT_FOUND", "session 'nothing' does not exist"),
        (["session", "restore", "{}", "nothing"], "ENTRY_NOT_FOUND", "has no checkpoint 'nothing'"),
        (["session", "fork", "{}", "a/b"], "INVALID_FIELD", "'a/b' contains '/'"),
        (["context", "explain", "{}", "nothing"], "ENTRY_NOT_FOUND", "has no context 'nothing'"),
        (["session", "messages", "{}", "--branch", "7"], "ENTRY_NOT_FOUND", "7"),
        (["session", "list", "--label", "team"], "USAGE", "--label: 'team'"),
        (["session", "messages", "{}", "--last", "0"], "USAGE", "0"),
        (["session", "close", "{}", "--items", "burn"], "USAGE", "'burn'"),
    ],
    ids=["session", "checkpoint", "fork", "context", "branch", "label", "last", "items"],
)
def test_an_error_names_what_is_wrong(cli: Cli, filled: str, arguments: list[str], reason: str, said: str) -> None:
    failed = cli.run(*(argument.format(filled) for argument in arguments), "--json").json_error
    assert failed["reason"] == reason
    assert said in failed["message"]
