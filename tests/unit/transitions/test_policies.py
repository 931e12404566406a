"""A policy beside the rules: it decides about what may leave, and nothing that it does harms a session."""

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
from noosphere.server.transitions.policies import advised
from noosphere.server.transitions.rules import NAME, judge

AT = Situation(100, grace_turns=3, utilizations=(0.2, 0.7), tokens_spent=5_000, accessed=4)


class Model:
    """Answers as it is told, and keeps what it was asked."""

    name = "model/1"

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.session: PolicySession | None = None
        self.asked: list[str] = []

    async def decide(self, session: PolicySession, items: Sequence[PolicyItem]) -> Mapping[str, str]:
        self.session, self.asked = session, [item.key for item in items]
        if isinstance(self.answer, Exception):
            raise self.answer
        if self.answer is None:
            await asyncio.Event().wait()
        found: Mapping[str, str] = self.answer
        return found


def state(key: str, **known: Any) -> ItemState:
    made = ItemState(key, "note", 5, 0.5, created_turn=10, access_turn=100, accesses=10)
    return made._replace(**known)


async def decided(model: Model | None, *states: ItemState) -> tuple[str, dict[str, tuple[TransitionAction, str]]]:
    ordered = sorted(states)
    items = [live(one.key, goal=one.open_goal) for one in ordered]
    name, verdicts = await advised(model, items, ordered, judge(ordered, AT), AT)
    return name, {verdict.key: (verdict.action, verdict.reason) for verdict in verdicts}


async def test_it_decides_about_what_may_leave_and_is_told_how_the_session_stands() -> None:
    model = Model({"notes/a": "drop", "notes/b": "compress", "unknown": "drop"})
    goal = state("goals/main", open_goal=True)
    name, found = await decided(model, goal, state("notes/a"), state("notes/b"), state("notes/c"))
    assert name == "model/1"
    assert found["notes/a"] == (TransitionAction.DROP, "policy")
    assert found["notes/b"] == (TransitionAction.COMPRESS, "policy")
    assert found["notes/c"][0] is TransitionAction.RETAIN
    assert set(found) == {"goals/main", "notes/a", "notes/b", "notes/c"}
    assert model.session == PolicySession(100, ("text of goals/main",), 5_000, 0.7, 4)


@pytest.mark.parametrize(
    "protected",
    [{"pinned": True}, {"open_goal": True}, {"awaited": True}, {"control": True}, {"created_turn": 99}],
    ids=["pinned", "goal", "pending call", "control", "new"],
)
async def test_what_is_protected_or_new_is_not_asked_about_and_stays(protected: dict[str, Any]) -> None:
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


async def test_without_anything_that_may_leave_it_is_not_asked() -> None:
    model = Model({})
    assert (await decided(model, state("notes/a", pinned=True)))[0] == NAME
    assert model.session is None
