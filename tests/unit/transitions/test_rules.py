"""The controller's rules: who is a candidate, what is protected, and that memory stays within its bounds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noosphere.server.sessions.types import TransitionAction
from noosphere.server.transitions.facts import WINDOW_TURNS, ItemState, Situation
from noosphere.server.transitions.rules import ACTIVE_MAX, ACTIVE_MIN, judge, score

TURN = 100
AT = Situation(TURN, grace_turns=3)
GOES = {TransitionAction.ARCHIVE, TransitionAction.COMPRESS, TransitionAction.DROP}


def item(key: str = "notes/a", **known: Any) -> ItemState:
    """An item that was made long ago and is in use."""
    state = ItemState(key, "note", 50, 0.5, created_turn=10, access_turn=TURN, accesses=10)
    return state._replace(**known)


@st.composite
def states(draw: st.DrawFn) -> ItemState:
    created = draw(st.integers(0, TURN))
    return ItemState(
        key=f"k/{draw(st.integers(0, 10**6))}",
        kind=draw(st.sampled_from(["note", "result", "scratch", "summary"])),
        tokens=draw(st.integers(0, 400)),
        importance=draw(st.floats(0, 1)),
        created_turn=created,
        access_turn=draw(st.integers(created, TURN)),
        accesses=draw(st.integers(0, WINDOW_TURNS)),
        relevance=draw(st.floats(0, 1)),
        pinned=draw(st.booleans()),
        open_goal=draw(st.booleans()),
        awaited=draw(st.booleans()),
        control=draw(st.sampled_from([False, False, False, True])),
    )


MEMORIES = st.lists(states(), max_size=160, unique_by=lambda state: state.key)
SITUATIONS = st.builds(
    Situation,
    st.just(TURN),
    st.integers(1, 20),
    st.integers(0, 20_000),
    st.lists(st.floats(0, 1.2), max_size=5).map(tuple),
)


@given(MEMORIES, SITUATIONS)
def test_every_item_gets_one_verdict_with_a_reason(items: list[ItemState], at: Situation) -> None:
    verdicts = judge(items, at)
    assert [verdict.key for verdict in verdicts] == sorted(state.key for state in items)
    for verdict in verdicts:
        assert verdict.reason
        assert verdict.explanation.endswith(".")
        assert 0 <= verdict.score <= 1


@given(MEMORIES, SITUATIONS)
def test_what_is_new_or_protected_stays(items: list[ItemState], at: Situation) -> None:
    by_key = {state.key: state for state in items}
    for verdict in judge(items, at):
        state = by_key[verdict.key]
        if state.pinned or state.open_goal or state.awaited or state.control:
            assert verdict.action is TransitionAction.RETAIN
        if TURN - state.created_turn < at.grace_turns:
            assert verdict.action is TransitionAction.RETAIN


@pytest.mark.parametrize(("age", "words"), [(0, "0 turns"), (1, "1 turn"), (2, "2 turns")])
def test_the_age_of_what_is_new_is_told(age: int, words: str) -> None:
    (verdict,) = judge([item(created_turn=TURN - age)], AT)
    assert verdict.explanation == f"It is {words} old, and none is judged before 3."


@given(MEMORIES, SITUATIONS)
def test_no_more_stay_than_the_limit_unless_they_must(items: list[ItemState], at: Situation) -> None:
    staying = {v.key for v in judge(items, at) if v.action is TransitionAction.RETAIN}
    if len(staying) > ACTIVE_MAX:
        for state in items:
            if state.key in staying:
                new = TURN - state.created_turn < at.grace_turns
                assert new or state.pinned or state.open_goal or state.awaited or state.control


@given(MEMORIES, SITUATIONS, st.randoms(use_true_random=False))
def test_the_order_of_the_items_does_not_matter(items: list[ItemState], at: Situation, rng: object) -> None:
    shuffled = list(items)
    rng.shuffle(shuffled)  # type: ignore[attr-defined] # hypothesis types its randoms as object
    assert judge(shuffled, at) == judge(items, at)


@given(MEMORIES, SITUATIONS)
def test_compressed_items_come_in_groups_of_one_kind(items: list[ItemState], at: Situation) -> None:
    kinds = {state.key: state.kind for state in items}
    groups: dict[str, list[str]] = {}
    for verdict in judge(items, at):
        assert bool(verdict.group) is (verdict.action is TransitionAction.COMPRESS)
        if verdict.group:
            groups.setdefault(verdict.group, []).append(verdict.key)
    for group, keys in groups.items():
        assert len(keys) >= 2
        assert {kinds[key] for key in keys} == {group}


@pytest.mark.parametrize(
    ("idle", "accesses", "action"),
    [
        (10, 2, TransitionAction.RETAIN),
        (11, 2, TransitionAction.ARCHIVE),
        (11, 0, TransitionAction.ARCHIVE),
    ],
)
def test_eleven_idle_turns_make_a_candidate(idle: int, accesses: int, action: TransitionAction) -> None:
    (verdict,) = judge([item(access_turn=TURN - idle, accesses=accesses)], AT)
    assert verdict.action is action


def test_asked_for_rarely_it_goes_only_if_there_is_no_room() -> None:
    rare = item("notes/rare", accesses=1)
    (verdict,) = judge([rare], AT)
    assert (verdict.action, verdict.reason) == (TransitionAction.RETAIN, "room")
    others = [item(f"notes/{n:03d}") for n in range(ACTIVE_MIN)]
    verdicts = {v.key: v for v in judge([rare, *others], AT)}
    assert (verdicts["notes/rare"].action, verdicts["notes/rare"].reason) == (TransitionAction.ARCHIVE, "rarely_used")
    assert all(verdicts[other.key].action is TransitionAction.RETAIN for other in others)


@pytest.mark.parametrize("change", [{"importance": 0.1}, {"kind": "scratch"}], ids=["unimportant", "scratch"])
def test_what_would_be_no_fact_is_dropped(change: dict[str, Any]) -> None:
    (verdict,) = judge([item(access_turn=TURN - 30, accesses=0, **change)], AT)
    assert verdict.action is TransitionAction.DROP


def test_what_is_close_to_a_goal_stays_while_there_is_room() -> None:
    idle = item(access_turn=TURN - 30, accesses=0, relevance=0.8)
    (verdict,) = judge([idle], AT)
    assert (verdict.action, verdict.reason) == (TransitionAction.RETAIN, "near_goal")
    (verdict,) = judge([idle], AT._replace(budget_tokens=60))
    assert verdict.action is TransitionAction.ARCHIVE


def test_over_the_limit_the_lowest_scored_go() -> None:
    items = [item(f"notes/{n:03d}", importance=0.3 + n / 1000) for n in range(ACTIVE_MAX + 5)]
    gone = [v.key for v in judge(items, AT) if v.action in GOES]
    assert gone == [f"notes/{n:03d}" for n in range(5)]


@pytest.mark.parametrize(
    "at",
    [AT._replace(budget_tokens=250), AT._replace(utilizations=(0.2, 0.95, 0.91, 0.99))],
    ids=["tokens", "utilization"],
)
def test_when_memory_is_short_quiet_items_become_one(at: Situation) -> None:
    items = [item(f"notes/{n}", access_turn=TURN - 3) for n in range(3)] + [item("notes/busy")]
    actions = {v.key: v.action for v in judge(items, at)}
    assert actions.pop("notes/busy") is TransitionAction.RETAIN
    assert set(actions.values()) == {TransitionAction.COMPRESS}


def test_an_instruction_is_followed_and_nothing_else_is_done() -> None:
    items = [item("a", pinned=True), item("b"), item("c", access_turn=0, accesses=0)]
    wanted = {"a": TransitionAction.DROP, "b": TransitionAction.DROP}
    verdicts = {v.key: (v.action, v.reason) for v in judge(items, AT, wanted)}
    assert verdicts == {
        "a": (TransitionAction.RETAIN, "pinned"),
        "b": (TransitionAction.DROP, "instructed"),
        "c": (TransitionAction.RETAIN, "not_asked"),
    }


@given(states(), st.integers(0, 50))
def test_use_and_importance_never_lower_a_score(state: ItemState, later: int) -> None:
    used = state._replace(access_turn=min(TURN, state.access_turn + later), accesses=WINDOW_TURNS)
    assert score(used, TURN) >= score(state, TURN)
    assert score(state._replace(importance=1.0), TURN) >= score(state, TURN)
