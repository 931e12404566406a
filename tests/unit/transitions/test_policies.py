"""A policy beside the rules: it decides about candidates, and nothing that it does harms a session."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from tests.unit.transitions.items import live

from noosphere.server.ports.models import PolicyError, PolicyItem, PolicySession
from noosphere.server.sessions.types import TransitionAction
from noosphere.server.transitions import policies
from noosphere.server.transitions.facts import ItemState, Situation
from noosphere.server.transitions.policies import GOALS_MAX, TEXT_CHARS_MAX, Adviser
from noosphere.server.transitions.rules import NAME, judge

AT = Situation(100, grace_turns=3, utilizations=(0.2, 0.7), tokens_spent=5_000, accessed=4)


class Model:
    """Answers as it is told, and keeps what it was asked."""

    name = "model/1"

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.session: PolicySession | None = None
        self.asked: list[str] = []
        self.calls = 0

    async def decide(self, session: PolicySession, items: Sequence[PolicyItem]) -> Mapping[str, str]:
        self.session, self.asked = session, [item.key for item in items]
        self.calls += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        if self.answer is None:
            await asyncio.Event().wait()
        found: Mapping[str, str] = self.answer
        return found


def state(key: str, **known: Any) -> ItemState:
    """A candidate that the rules leave where it is, since there is room."""
    made = ItemState(key, "note", 5, 0.5, created_turn=10, access_turn=100, accesses=1)
    return made._replace(**known)


async def decided(
    model: Model | None, *states: ItemState, adviser: Adviser | None = None
) -> tuple[str, dict[str, tuple[TransitionAction, str]]]:
    ordered = sorted(states)
    items = [live(one.key, goal=one.open_goal) for one in ordered]
    name, verdicts = await (adviser or Adviser(model)).advised(items, ordered, judge(ordered, AT), AT)
    return name, {verdict.key: (verdict.action, verdict.reason) for verdict in verdicts}


async def test_it_decides_about_candidates_and_is_told_how_the_session_stands() -> None:
    model = Model({"notes/a": "drop", "notes/b": "compress", "notes/d": "compress", "unknown": "drop"})
    goal = state("goals/main", open_goal=True)
    name, found = await decided(model, goal, *(state(f"notes/{letter}") for letter in "abcd"))
    assert name == "model/1"
    assert found["notes/a"] == (TransitionAction.DROP, "policy")
    assert found["notes/b"] == (TransitionAction.COMPRESS, "policy")
    assert found["notes/c"][0] is TransitionAction.RETAIN
    assert set(found) == {"goals/main", "notes/a", "notes/b", "notes/c", "notes/d"}
    assert model.session == PolicySession(100, ("text of goals/main",), 5_000, 0.7, 4)


@pytest.mark.parametrize(
    "protected",
    [
        {"pinned": True},
        {"open_goal": True},
        {"awaited": True},
        {"control": True},
        {"created_turn": 99},
        {"accesses": 2},
    ],
    ids=["pinned", "goal", "pending call", "control", "new", "in use"],
)
async def test_what_is_protected_new_or_in_use_is_not_asked_about_and_stays(protected: dict[str, Any]) -> None:
    model = Model({"notes/a": "drop", "notes/b": "drop"})
    _, found = await decided(model, state("notes/a", **protected), state("notes/b"))
    assert model.asked == ["notes/b"]
    assert found["notes/a"][0] is TransitionAction.RETAIN
    assert found["notes/b"] == (TransitionAction.DROP, "policy")


@pytest.mark.parametrize(
    "answer",
    [PolicyError("away"), None, {"notes/a": "burn"}, {"notes/a": ["drop"]}, ["notes/a"]],
    ids=["away", "slow", "an unknown action", "no text", "no mapping"],
)
async def test_if_it_is_slow_wrong_or_away_the_rules_decide(answer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies, "TIMEOUT_SECONDS", 0.01)
    idle = state("notes/a", access_turn=50, accesses=0)
    name, found = await decided(Model(answer), idle)
    assert name == NAME
    assert found == (await decided(None, idle))[1]
    assert found["notes/a"] == (TransitionAction.ARCHIVE, "idle")


async def test_without_a_candidate_it_is_not_asked() -> None:
    model = Model({})
    assert (await decided(model, state("notes/a", pinned=True), state("notes/b", accesses=9)))[0] == NAME
    assert model.session is None


async def test_what_else_the_rules_let_go_is_asked_about_too() -> None:
    """So that a policy may keep what over 100 items would push out though it is in use."""
    many = [state(f"notes/{n:03}", accesses=9, importance=1.0) for n in range(101)]
    many[7] = many[7]._replace(importance=0.4)
    model = Model({"notes/007": "retain"})
    assert (await decided(None, *many))[1]["notes/007"] == (TransitionAction.ARCHIVE, "over_limit")
    _, found = await decided(model, *many)
    assert model.asked == ["notes/007"]
    assert found["notes/007"] == (TransitionAction.RETAIN, "policy")


@pytest.mark.parametrize(
    "answer", [{"notes/a": "archive", "notes/b": "archive"}, PolicyError("away")], ids=["decided", "away"]
)
async def test_a_run_that_begins_anew_asks_once_and_leaves_what_changed_to_the_rules(answer: Any) -> None:
    model = Model(answer)
    adviser = Adviser(model)
    first = await decided(model, state("notes/a"), state("notes/b"), adviser=adviser)
    name, found = await decided(model, state("notes/a"), state("notes/b", tokens=6), adviser=adviser)
    assert model.calls == 1
    assert name == first[0]
    assert found["notes/a"] == first[1]["notes/a"]
    assert found["notes/b"] == (TransitionAction.RETAIN, "room")


async def test_what_it_is_given_is_bounded() -> None:
    model = Model({})
    goals = [state(f"goals/{n:02}-{'x' * TEXT_CHARS_MAX}", open_goal=True) for n in range(GOALS_MAX + 1)]
    await decided(model, state("notes/a"), *goals)
    assert model.session is not None
    assert len(model.session.goals) == GOALS_MAX
    assert {len(goal) for goal in model.session.goals} == {TEXT_CHARS_MAX}


@pytest.mark.parametrize(
    ("kinds", "wanted"),
    [("ab", ("compress", "compress")), (["summary"] * 2, ("compress", "compress")), ("aa", ("compress", "retain"))],
    ids=["of different kinds", "summaries", "one of two"],
)
async def test_nothing_is_compressed_by_itself_nor_again(kinds: Sequence[str], wanted: tuple[str, str]) -> None:
    model = Model(dict(zip(("notes/a", "notes/b"), wanted, strict=True)))
    _, found = await decided(model, *(state(f"notes/{at}", kind=kind) for at, kind in zip("ab", kinds, strict=True)))
    assert set(found.values()) == {(TransitionAction.RETAIN, "room")}


async def test_what_the_rules_would_compress_with_others_stays_if_the_policy_keeps_these() -> None:
    short = AT._replace(budget_tokens=10)
    states = [state("notes/a"), state("notes/b")]
    items = [live(one.key) for one in states]
    judged = judge(states, short)
    assert [verdict.action for verdict in judged] == [TransitionAction.COMPRESS] * 2
    _, found = await Adviser(Model({"notes/a": "retain"})).advised(items, states, judged, short)
    assert [(verdict.action, verdict.reason, verdict.group) for verdict in found] == [
        (TransitionAction.RETAIN, "policy", "")
    ] * 2
