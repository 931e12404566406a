"""The controller as agents meet it, in every world: what leaves working memory, what stays, and what is told of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.sessions import SessionAgent, caller, proposed, refusal, session_name, space
from tests.support.worlds import World

from noosphere.v1 import session_service_pb2 as pb
from noosphere.v1 import types_pb2

GOING = {pb.TRANSITION_ACTION_ARCHIVE, pb.TRANSITION_ACTION_COMPRESS, pb.TRANSITION_ACTION_DROP}


async def opened(world: World, **settings: Any) -> tuple[SessionAgent, str]:
    a = await caller(world)
    return a, (await a.open(session_name(a), settings=pb.SessionSettings(**settings))).id


async def outbox(a: SessionAgent, s: str) -> dict[str, dict[str, object]]:
    return {candidate["item"]: candidate for candidate in await proposed(a, s)}


async def test_what_nobody_asks_for_is_archived_with_its_candidate_and_an_event(world: World) -> None:
    a, s = await opened(world)
    await a.agent.put(space(s), "notes/old", "Oslo", attributes={"importance": 0.7})
    assert await a.turns(s, 11) == [], "ten idle turns are none too many"
    (gone,) = await a.turns(s)
    assert (gone.key, gone.action, gone.reason, gone.turn) == ("notes/old", pb.TRANSITION_ACTION_ARCHIVE, "idle", 12)
    assert gone.policy == "rules/1"
    assert "11 turns" in gone.explanation
    assert await a.items(s) == {}
    candidate = (await outbox(a, s))["notes/old"]
    assert candidate["value"]["json"] == "Oslo"  # type: ignore[index] # JSON
    assert candidate["reason"] == "idle"
    (event,) = await a.transitions(s)
    assert event == gone


async def test_what_is_asked_for_stays(world: World) -> None:
    a, s = await opened(world)
    for key in ("notes/read", "notes/written", "notes/left"):
        await a.agent.put(space(s), key, 0)
    for turn in range(20):
        if turn % 5 == 0:
            await a.agent.get(space(s), "notes/read")
            await a.agent.put(space(s), "notes/written", turn, blind=True)
        await a.turns(s)
    assert set(await a.items(s)) == {"notes/read", "notes/written"}


@pytest.mark.parametrize(
    ("key", "attributes"),
    [
        ("goals/main", {}),
        ("goals/main", {"status": "open"}),
        ("task/state", {}),
        ("profile/name", {}),
        ("notes/pinned", {"pinned": True}),
    ],
    ids=["goal", "open goal", "task", "profile", "pinned"],
)
async def test_what_is_protected_stays_whatever_anybody_says(
    world: World, key: str, attributes: dict[str, str | bool]
) -> None:
    a, s = await opened(world)
    await a.agent.put(space(s), key, 1, attributes=attributes)
    assert await a.turns(s, 30) == []
    run = await a.run(s, keys=[key], instruction=pb.TRANSITION_ACTION_DROP)
    assert run[key].action == pb.TRANSITION_ACTION_RETAIN
    assert "So it stays" in run[key].explanation
    assert set(await a.items(s)) == {key}


async def test_a_goal_that_is_done_leaves_like_any_item(world: World) -> None:
    a, s = await opened(world)
    await a.agent.put(space(s), "goals/main", 1, attributes={"status": "done"})
    assert [t.key for t in await a.turns(s, 12)] == ["goals/main"]


async def test_nothing_is_judged_before_the_grace_age(world: World) -> None:
    a, s = await opened(world, grace_turns=40)
    await a.agent.put(space(s), "notes/a", 1)
    assert await a.turns(s, 40) == []
    assert [t.key for t in await a.turns(s)] == ["notes/a"]


async def test_a_dry_run_tells_what_a_run_then_does_and_does_nothing(world: World) -> None:
    a, s = await opened(world, transitions_manual=True)
    for n in range(5):
        await a.agent.put(space(s), f"notes/{n}", n, attributes={"importance": n / 5})
    await a.turns(s, 15)
    before = await a.items(s)
    dry = await a.run(s, dry_run=True)
    assert await a.items(s) == before
    assert await a.transitions(s) == []
    wet = await a.run(s)
    assert {k: (t.action, t.reason, t.score) for k, t in dry.items()} == {
        k: (t.action, t.reason, t.score) for k, t in wet.items()
    }
    gone = {key for key, transition in wet.items() if transition.action in GOING}
    assert gone
    assert set(before) - set(await a.items(s)) == gone


async def test_an_instruction_is_followed_for_its_keys_only(world: World) -> None:
    a, s = await opened(world)
    for key in ("a", "b", "c"):
        await a.agent.put(space(s), key, 1)
    await a.run(s, keys=["a"], instruction=pb.TRANSITION_ACTION_DROP)
    await a.run(s, keys=["b"], instruction=pb.TRANSITION_ACTION_ARCHIVE)
    assert set(await a.items(s)) == {"c"}
    assert set(await outbox(a, s)) == {"b"}
    assert [(t.key, t.reason) for t in await a.transitions(s)] == [("b", "instructed"), ("a", "instructed")]


async def test_several_items_become_one_that_names_what_it_stands_for(world: World) -> None:
    a, s = await opened(world)
    for n in range(4):
        text = f"Flight {n} leaves Oslo at {n}:15 and costs {100 + n} dollars."
        await a.agent.put(space(s), f"flights/{n}", text)
    run = await a.run(s, keys=[f"flights/{n}" for n in range(4)], instruction=pb.TRANSITION_ACTION_COMPRESS)
    into = {transition.into for transition in run.values()}
    assert len(into) == 1
    items = await a.items(s)
    assert set(items) == into
    summary = json.loads(items[into.pop()])
    assert (summary["kind"], summary["items"]) == ("flights", 4)
    assert "Oslo" in summary["text"]
    assert set(await outbox(a, s)) == {f"flights/{n}" for n in range(4)}, "the whole text is kept as candidates"


async def test_a_retried_end_of_a_turn_tells_the_same_and_judges_once(world: World) -> None:
    a, s = await opened(world)
    await a.agent.put(space(s), "notes/a", 1)
    await a.turns(s, 11)
    turn = await a.begin_turn(s)
    request = pb.EndTurnRequest(session_id=s, turn=turn, call=a.agent.call())
    request.call.request_id.uuid = "5b8f0c43-98f4-4c9e-9d0e-2f6d3a1c7e55"
    first = await a.call("EndTurn", request, pb.EndTurnResponse)
    again = await a.call("EndTurn", request, pb.EndTurnResponse)
    assert [t.key for t in first.transitions] == ["notes/a"]
    assert again.transitions == first.transitions
    assert len(await a.transitions(s)) == 1


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"keys": ["a"]}, ("instruction", "keys")),
        ({"instruction": pb.TRANSITION_ACTION_DROP}, ("instruction", "keys")),
        ({"keys": ["a"], "instruction": pb.TRANSITION_ACTION_PROMOTE}, ("instruction", "promote")),
        ({"keys": ["a"], "instruction": 99}, ("instruction", "99")),
        ({"keys": ["a", ""], "instruction": pb.TRANSITION_ACTION_DROP}, ("keys[1]", "empty")),
        ({"keys": ["a\0b"], "instruction": pb.TRANSITION_ACTION_DROP}, ("keys[0]", "U+0000")),
        ({"keys": ["x" * 513], "instruction": pb.TRANSITION_ACTION_DROP}, ("keys[0]", "513", "512")),
        ({"keys": ["_session/info"], "instruction": pb.TRANSITION_ACTION_DROP}, ("keys[0]", "_session/info")),
        ({"keys": ["k"] * 257, "instruction": pb.TRANSITION_ACTION_DROP}, ("keys", "257", "256")),
    ],
    ids=["no instruction", "no keys", "promote", "unknown", "no key", "NUL", "a long key", "no item", "too many"],
)
async def test_a_bad_instruction_names_field_value_and_limit(
    world: World, fields: dict[str, Any], words: tuple[str, ...]
) -> None:
    a, s = await opened(world)
    with refusal("VALUE_TOO_LARGE" if {"257", "513"} & set(words) else "INVALID_FIELD", *words):
        await a.run(s, **fields)


async def test_health_of_a_new_session_is_unknown_and_counts_what_there_is(world: World) -> None:
    a, s = await opened(world)
    await a.agent.put(space(s), "notes/a", 1)
    await a.say(s, "hello")
    health = await a.health(s)
    assert [f.verdict for f in health.figures] == [pb.HEALTH_VERDICT_UNKNOWN] * 4
    assert all(f.advice for f in health.figures)
    assert (health.items, health.messages, health.pending_calls, health.outbox) == (1, 1, 0, 0)
    with refusal("SESSION_NOT_FOUND", "no-such"):
        await a.health("no-such")


async def test_a_lifespan_is_known_once_something_has_left(world: World) -> None:
    a, s = await opened(world)

    async def lifespan() -> tuple[float, pb.HealthVerdict.ValueType]:
        figures = {f.metric: f for f in (await a.health(s)).figures}
        return figures[pb.HEALTH_METRIC_STATE_LIFESPAN].value, figures[pb.HEALTH_METRIC_STATE_LIFESPAN].verdict

    await a.agent.put(space(s), "notes/a", 1)
    await a.turns(s, 12)
    assert await lifespan() == (11.0, pb.HEALTH_VERDICT_UNKNOWN), "one item is too few to judge by"
    for key in "bcde":
        await a.agent.put(space(s), f"notes/{key}", 1)
    await a.turns(s, 12)
    assert await lifespan() == (11.0, pb.HEALTH_VERDICT_GOOD)


async def test_a_long_session_stays_within_its_bounds(world: World) -> None:
    a, s = await opened(world, grace_turns=1)
    for turn in range(40):
        for n in range(8):
            await a.agent.put(space(s), f"results/{turn}-{n}", n, attributes={"importance": 0.5})
        await a.turns(s)
    items = await a.items(s)
    assert 50 <= len(items) <= 108
    left = set(await outbox(a, s))
    assert len(left) + len(items) == 320, "whatever left became a candidate"
    events = await a.transitions(s, page_size=7)
    assert {t.key for t in events} == left
    assert all(t.reason and t.explanation for t in events)


async def test_only_a_caller_with_a_name_has_the_controller_change_anything(world: World) -> None:
    a, s = await opened(world)
    await a.agent.put(space(s), "notes/a", 1)
    nobody = types_pb2.CallContext()
    asked: list[dict[str, Any]] = [{}, {"keys": ["notes/a"], "instruction": pb.TRANSITION_ACTION_DROP}]
    for fields in asked:
        request = pb.RunTransitionsRequest(session_id=s, call=nobody, **fields)
        with refusal("INVALID_FIELD", "call.actor"):
            await a.call("RunTransitions", request, pb.RunTransitionsResponse)
    request = pb.RunTransitionsRequest(session_id=s, call=nobody, dry_run=True)
    await a.call("RunTransitions", request, pb.RunTransitionsResponse)
    assert set(await a.items(s)) == {"notes/a"}
