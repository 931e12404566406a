"""Procedures that are learned from how tools are used: which, where they lie, and that each is told once."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.api import Agent
from tests.support.engine import LocalServer, local_server
from tests.support.interleaving import interleave
from tests.support.sessions import SessionAgent, caller, outbox_puts, proposed, refusal, session_name, space
from tests.support.toolcalls import finish, start
from tests.support.worlds import World

from noosphere.consistency import Reason, Refusal
from noosphere.server.memory.types import Call
from noosphere.server.sessions import Scribe
from noosphere.server.sessions.scribe import Intent, Written
from noosphere.server.sessions.types import Transition
from noosphere.server.transitions import Learner
from noosphere.server.transitions.events import EVENTS_MAX
from noosphere.server.transitions.learning import HABITS
from noosphere.v1 import session_service_pb2 as pb

RESEARCH = ("search", "open", "summarise")
ARGUMENTS = {
    "search": '{"query": "the price of SECRET-7", "limit": 3}',
    "open": '{"url": "https://example.org/SECRET-7"}',
    "summarise": '{"text": "SECRET-7 costs 3 dollars"}',
}


async def work(a: SessionAgent, s: str, tools: Sequence[str] = RESEARCH, *, failing: Sequence[str] = ()) -> int:
    """Begins a turn and calls tools in it; returns the turn."""
    turn = await a.begin_turn(s)
    for tool in tools:
        call = await start(a, s, name=tool, arguments=ARGUMENTS.get(tool, ""))
        await finish(a, call.ticket, **({"failure": "no"} if tool in failing else {}))
    return turn


async def worked(
    a: SessionAgent, s: str, tools: Sequence[str] = RESEARCH, *, failing: Sequence[str] = (), **fields: Any
) -> list[pb.Transition]:
    """Opens a session, works for one turn; returns what was learned at its end."""
    await a.open(s, **fields)
    turn = await work(a, s, tools, failing=failing)
    return learned((await a.end_turn(s, turn)).transitions)


def learned(transitions: Sequence[pb.Transition]) -> list[pb.Transition]:
    return [t for t in transitions if t.action == pb.TRANSITION_ACTION_LEARN]


async def procedures(a: SessionAgent, *sessions: str) -> list[tuple[str, dict[str, Any]]]:
    """Returns the procedures that the outboxes of sessions ever had, with the session of each."""
    return [(s, candidate) for s in sessions for candidate in await proposed(a, s) if candidate.get("memory_type")]


async def local_agent(server: LocalServer, name: str) -> SessionAgent:
    return SessionAgent(Agent(server.api, await server.api.open_agent(name)))


async def test_what_three_sessions_do_alike_becomes_one_procedure_in_the_third(world: World) -> None:
    a = await caller(world)
    names = [session_name(a, f"s{n}") for n in range(4)]
    told = [await worked(a, s) for s in names]
    assert [len(t) for t in told] == [0, 0, 1, 0]
    ((where, candidate),) = await procedures(a, *names)
    (decision,) = told[2]
    assert where == names[2]
    assert candidate["memory_type"] == "procedural"
    assert candidate["item"] == decision.key
    assert candidate["item"].startswith("procedures/")
    assert (candidate["reason"], candidate["turn"], candidate["attributes"]) == ("recurring", 1, {"kind": "procedure"})
    steps = candidate["value"]["json"]["steps"]
    assert [(step["tool"], step["arguments"], step["repeated"]) for step in steps] == [
        ("search", ["limit", "query"], False),
        ("open", ["url"], False),
        ("summarise", ["text"], False),
    ]
    assert (decision.reason, decision.policy, decision.turn) == ("recurring", "patterns/1", 1)
    assert "3 sessions: search(limit, query) → open(url) → summarise(text)" in decision.explanation
    assert await a.transitions(names[2]) == [decision]
    assert "SECRET-7" not in json.dumps(candidate) + decision.explanation, "no values of arguments, no results"


async def test_the_evidence_names_the_calls_it_rests_on(world: World) -> None:
    a = await caller(world)
    names = [session_name(a, f"s{n}") for n in range(3)]
    for s in names:
        await worked(a, s)
    ((_, candidate),) = await procedures(a, *names)
    expected = set()
    for s in names:
        listed = await a.call("ListToolCalls", pb.ListToolCallsRequest(session_id=s), pb.ListToolCallsResponse)
        expected |= {f"tool:{s}/{call.call_id}" for call in listed.tool_calls}
    assert set(candidate["evidence"]) == expected
    assert len(candidate["evidence"]) == 9


@pytest.mark.parametrize(
    "turns",
    [
        [("search", "open"), ("open", "search"), ("search", "summarise")],
        [("search",), ("search",), ("search",)],
        [("search", "search"), ("search", "search"), ("search", "search")],
        [RESEARCH, RESEARCH],
    ],
    ids=["different orders", "one call", "one call again and again", "two sessions"],
)
async def test_nothing_is_learned_from_what_does_not_recur(world: World, turns: list[tuple[str, ...]]) -> None:
    a = await caller(world)
    names = [session_name(a, f"s{n}") for n in range(len(turns))]
    for s, tools in zip(names, turns, strict=True):
        assert await worked(a, s, tools) == []
    assert await procedures(a, *names) == []


async def test_many_turns_of_one_session_do_not_make_a_procedure(world: World) -> None:
    a = await caller(world)
    s = session_name(a)
    await worked(a, s)
    for _ in range(5):
        assert learned((await a.end_turn(s, await work(a, s))).transitions) == []
    assert await procedures(a, s) == []


async def test_other_names_of_arguments_are_another_pattern(world: World) -> None:
    a = await caller(world)
    for n, arguments in enumerate(['{"q": 1}', '{"query": 1}', '{"terms": 1}']):
        await a.open(s := session_name(a, f"s{n}"))
        turn = await a.begin_turn(s)
        for tool in ("search", "open"):
            await finish(a, (await start(a, s, name=tool, arguments=arguments)).ticket)
        assert learned((await a.end_turn(s, turn)).transitions) == []


async def test_failed_and_pending_calls_do_not_count(world: World) -> None:
    a = await caller(world)
    names = [session_name(a, f"s{n}") for n in range(6)]
    for s in names[:3]:
        assert await worked(a, s, failing=["open"]) == []
    for s in names[3:]:
        await a.open(s)
        turn = await a.begin_turn(s)
        await finish(a, (await start(a, s, name="search", arguments=ARGUMENTS["search"])).ticket)
        await start(a, s, name="open", arguments=ARGUMENTS["open"])
        assert learned((await a.end_turn(s, turn)).transitions) == []
    assert await procedures(a, *names) == []


async def test_calls_outside_any_turn_do_not_count(world: World) -> None:
    a = await caller(world)
    for n in range(3):
        await a.open(s := session_name(a, f"s{n}"))
        for tool in RESEARCH:
            await finish(a, (await start(a, s, name=tool)).ticket)
        assert learned(list((await a.run(s)).values())) == []


async def test_the_longest_pattern_stands_for_its_parts_until_one_recurs_by_itself(world: World) -> None:
    a = await caller(world)
    names = [session_name(a, f"s{n}") for n in range(6)]
    for s in names[:3]:
        await worked(a, s)
    assert len(await procedures(a, *names[:3])) == 1, "the whole, none of its parts"
    told = [await worked(a, s, ("search", "open")) for s in names[3:]]
    assert [len(t) for t in told] == [0, 0, 1], "three sessions without the rest"
    assert len(await procedures(a, *names)) == 2


async def test_another_owner_s_sessions_do_not_count(world: World) -> None:
    a, b = await caller(world, "a"), await caller(world, "b")
    for n in range(2):
        assert await worked(a, session_name(a, f"s{n}")) == []
        assert await worked(b, session_name(b, f"s{n}")) == []


async def test_ephemeral_sessions_neither_count_nor_learn(world: World) -> None:
    a = await caller(world)
    ephemeral = []
    for n in range(4):
        session = await a.open("", ephemeral=True)
        ephemeral.append(session.id)
        turn = await work(a, session.id)
        assert learned((await a.end_turn(session.id, turn)).transitions) == [], n
    assert await procedures(a, *ephemeral) == []
    assert await worked(a, session_name(a, "s0")) == []
    assert await worked(a, session_name(a, "s1")) == [], "the ephemeral ones were not counted"


async def test_a_dry_run_tells_what_the_end_of_the_turn_then_learns_and_changes_nothing(world: World) -> None:
    a = await caller(world)
    names = [session_name(a, f"s{n}") for n in range(3)]
    for s in names[:2]:
        await worked(a, s)
    await a.open(names[2])
    turn = await work(a, names[2])
    for _ in range(2):
        (dry,) = learned(list((await a.run(names[2], dry_run=True)).values()))
    assert await procedures(a, *names) == []
    (told,) = learned((await a.end_turn(names[2], turn)).transitions)
    assert (dry.key, dry.reason, dry.explanation, dry.turn) == (told.key, told.reason, told.explanation, told.turn)


async def test_a_session_that_is_left_to_its_agents_learns_when_they_ask(world: World) -> None:
    a = await caller(world)
    manual = pb.SessionSettings(transitions_manual=True)
    names = [session_name(a, f"s{n}") for n in range(3)]
    for s in names:
        assert await worked(a, s, settings=manual) == []
    for s in names[:2]:
        assert learned(list((await a.run(s)).values())) == []
    request = pb.RunTransitionsRequest(session_id=names[2])
    response = await a.call("RunTransitions", request, pb.RunTransitionsResponse)
    (told,) = learned(response.transitions)
    ((made_at, _),) = await outbox_puts(a, names[2])
    # Not equal: the sweeper may have come by, and it commits as well.
    assert response.head >= made_at, "what was learned is not behind it"
    assert await a.transitions(names[2]) == [told]
    assert learned(list((await a.run(names[2])).values())) == [], "once"
    assert len(await procedures(a, *names)) == 1


async def test_a_retried_end_of_a_turn_tells_the_same_and_learns_once(world: World) -> None:
    a = await caller(world)
    names = [session_name(a, f"s{n}") for n in range(3)]
    two = ("search", "open", "list", "open", "summarise")
    for s in names[:2]:
        await worked(a, s, two, failing=["list"])
    await a.open(names[2])
    turn = await work(a, names[2], two, failing=["list"])
    request = pb.EndTurnRequest(session_id=names[2], turn=turn, call=a.agent.call())
    request.call.request_id.uuid = "5b8f0c43-98f4-4c9e-9d0e-2f6d3a1c7e66"
    first = await a.call("EndTurn", request, pb.EndTurnResponse)
    again = await a.call("EndTurn", request, pb.EndTurnResponse)
    assert len(learned(first.transitions)) == 2
    assert again.transitions == first.transitions
    assert len(await procedures(a, *names)) == 2


async def test_a_retry_learns_what_the_first_attempt_at_ending_the_turn_had_no_time_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with local_server(tmp_path) as server:
        a = await local_agent(server, "a")
        for n in range(2):
            await worked(a, f"s{n}")
        await a.open("s2")
        request = pb.EndTurnRequest(session_id="s2", turn=await work(a, "s2"), call=a.agent.call())
        request.call.request_id.uuid = "5b8f0c43-98f4-4c9e-9d0e-2f6d3a1c7e77"

        async def interrupted(self: Learner, session_id: str, turn: int = 0) -> tuple[Transition, ...]:
            raise Refusal(Reason.ENGINE_UNAVAILABLE, "interrupted")

        with monkeypatch.context() as patch:
            patch.setattr(Learner, "learn", interrupted)
            with refusal("ENGINE_UNAVAILABLE"):
                await a.call("EndTurn", request, pb.EndTurnResponse)
        assert len(learned((await a.call("EndTurn", request, pb.EndTurnResponse)).transitions)) == 1
        assert [s for s, _ in await procedures(a, "s0", "s1", "s2")] == ["s2"]


async def test_a_step_may_take_many_calls(tmp_path: Path) -> None:
    async with local_server(tmp_path) as server:
        a = await local_agent(server, "a")
        for n, pages in enumerate((1, 5, 70)):
            await worked(a, f"s{n}", ("search", *["open"] * pages, "summarise"))
        ((_, candidate),) = await procedures(a, "s0", "s1", "s2")
        steps = candidate["value"]["json"]["steps"]
        assert [(step["tool"], step["repeated"]) for step in steps] == [
            ("search", False),
            ("open", True),
            ("summarise", False),
        ]
        assert candidate["value"]["json"]["sessions"] == 3


@pytest.mark.parametrize("crash", [False, True], ids=["in order", "by a crash"])
async def test_a_restart_keeps_what_was_seen_and_what_was_learned(tmp_path: Path, *, crash: bool) -> None:
    async with local_server(tmp_path) as server:

        async def life() -> SessionAgent:
            await (server.crash() if crash else server.restart())
            return await local_agent(server, "a")

        a = await local_agent(server, "a")
        assert await worked(a, "s0") == []
        a = await life()
        assert await worked(a, "s1") == []
        a = await life()
        assert len(await worked(a, "s2")) == 1
        a = await life()
        assert await worked(a, "s3") == []
        assert [s for s, _ in await procedures(a, "s0", "s1", "s2", "s3")] == ["s2"]


@pytest.mark.parametrize("seed", range(6))
async def test_sessions_in_which_it_comes_to_recur_at_once_make_one_procedure(tmp_path: Path, seed: int) -> None:
    async with local_server(tmp_path) as server:
        a = await local_agent(server, "a")
        for n in range(2):
            await worked(a, f"s{n}")
        names = [f"s{n}" for n in range(2, 8)]
        turns = []
        for s in names:
            await a.open(s)
            turns.append(await work(a, s))
        interleave(server, random.Random(seed))
        ends = await asyncio.gather(*(a.end_turn(s, turn) for s, turn in zip(names, turns, strict=True)))
        assert sum(len(learned(end.transitions)) for end in ends) == 1
        assert len(await procedures(a, *names)) == 1


@pytest.mark.parametrize("seed", range(3))
async def test_sessions_that_end_turns_at_once_are_all_counted(tmp_path: Path, seed: int) -> None:
    async with local_server(tmp_path) as server:
        a = await local_agent(server, "a")
        names = [f"s{n}" for n in range(3)]
        turns = []
        for s in names:
            await a.open(s)
            turns.append(await work(a, s))
        interleave(server, random.Random(seed))
        await asyncio.gather(*(a.end_turn(s, turn) for s, turn in zip(names, turns, strict=True)))
        assert len(await procedures(a, *names)) == 1


class Interrupted(Exception):
    """Stands for the end of a process."""


class InterruptedScribe(Scribe):
    """Is interrupted when a candidate is on its way: before it is written, or after that."""

    def __init__(self, scribe: Scribe, *, written: bool) -> None:
        super().__init__(scribe.core, scribe.hooks)
        self._written = written

    async def write(self, call: Call, session_id: str, intent: Intent, decide: Any) -> Written[Any]:
        if self._written:
            await super().write(call, session_id, intent, decide)
        raise Interrupted


@pytest.mark.parametrize("written", [False, True], ids=["before", "after"])
async def test_whoever_comes_next_delivers_what_a_crash_left_on_its_way(tmp_path: Path, *, written: bool) -> None:
    async with local_server(tmp_path) as server:
        a = await local_agent(server, "a")
        for n in range(2):
            await worked(a, f"s{n}")
        await a.open("s2", settings=pb.SessionSettings(transitions_manual=True))
        await a.end_turn("s2", await work(a, "s2"))
        learner = Learner(InterruptedScribe(server.engine.sessions.scribe, written=written))
        with pytest.raises(Interrupted):
            await learner.learn("s2", 1)
        assert len(await procedures(a, "s2")) == written
        await server.crash()
        a = await local_agent(server, "a")
        assert await worked(a, "s3") == [], "it was learned in another"
        assert [s for s, _ in await procedures(a, "s2", "s3")] == ["s2"]
        assert len(learned(await a.transitions("s2"))) == 1
        assert await worked(a, "s4") == []
        assert len(await procedures(a, "s2", "s3", "s4")) == 1


async def test_what_cannot_reach_its_session_any_more_is_learned_in_another(tmp_path: Path) -> None:
    async with local_server(tmp_path) as server:
        a = await local_agent(server, "a")
        for n in range(2):
            await worked(a, f"s{n}")
        await a.open("s2", settings=pb.SessionSettings(transitions_manual=True))
        await a.end_turn("s2", await work(a, "s2"))
        with pytest.raises(Interrupted):
            await Learner(InterruptedScribe(server.engine.sessions.scribe, written=False)).learn("s2", 1)
        await a.close("s2")
        await a.purge("s2")
        assert await worked(a, "s3") == []
        assert len(await worked(a, "s4")) == 1
        assert [s for s, _ in await procedures(a, "s3", "s4")] == ["s4"]


async def test_nothing_of_it_is_shown_as_a_namespace(tmp_path: Path) -> None:
    async with local_server(tmp_path) as server:
        a = await local_agent(server, "a")
        for n in range(3):
            await worked(a, f"s{n}")
        listed, _ = await server.engine.memory.namespaces.list("", page_size=100, after="", show_deleted=True)
        assert [described.ref.name for described in listed] == ["sessions/s0", "sessions/s1", "sessions/s2"]


async def test_what_is_learned_takes_the_oldest_decision_s_place(tmp_path: Path) -> None:
    async with local_server(tmp_path) as server:
        a = await local_agent(server, "a")
        for n in range(2):
            await worked(a, f"s{n}")
        await a.open("s2")
        for n in range(EVENTS_MAX):
            await a.agent.put(space("s2"), f"notes/{n}", n)
            await a.run("s2", keys=[f"notes/{n}"], instruction=pb.TRANSITION_ACTION_DROP)
        assert len(learned((await a.end_turn("s2", await work(a, "s2"))).transitions)) == 1
        kept = await a.transitions("s2")
        assert len(kept) == EVENTS_MAX
        assert (kept[0].action, kept[-1].key) == (pb.TRANSITION_ACTION_LEARN, "notes/1")


async def test_an_owner_whose_habits_were_erased_begins_anew(tmp_path: Path) -> None:
    async with local_server(tmp_path) as server:
        a = await local_agent(server, "a")
        for n in range(3):
            await worked(a, f"s{n}")
        core = server.engine.sessions.scribe.core
        await core.store.drop(await core.locate(f"{HABITS}{a.agent.actor.agent_id}"), None)
        assert [len(await worked(a, f"s{n}")) for n in range(3, 6)] == [0, 0, 1]


async def test_a_closed_session_still_takes_what_it_is_owed(tmp_path: Path) -> None:
    async with local_server(tmp_path) as server:
        a = await local_agent(server, "a")
        for n in range(2):
            await worked(a, f"s{n}")
        await a.open("s2", settings=pb.SessionSettings(transitions_manual=True))
        await a.end_turn("s2", await work(a, "s2"))
        scribe = server.engine.sessions.scribe
        with pytest.raises(Interrupted):
            await Learner(InterruptedScribe(scribe, written=False)).learn("s2", 1)
        await a.close("s2")
        await worked(a, "s3")
        ref = await scribe.living("s2")
        outbox = await server.engine.store.scan(ref, "_session/outbox/", limit=10)
        assert len(outbox.entries) == 1
