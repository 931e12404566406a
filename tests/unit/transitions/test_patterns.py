"""Recurring calls of tools: what the search finds is what looking at everything finds, within its bounds."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noosphere.server.transitions.patterns import (
    GAP,
    RUNS_MAX,
    RUNS_PER_SESSION_MAX,
    SESSIONS_MIN,
    STEPS_MAX,
    CallStep,
    Pattern,
    Place,
    Run,
    recurring,
    run_of,
    with_run,
)

A, B, C, D = 1, 2, 3, 4


def run(session: str, *steps: int, turn: int = 1) -> Run:
    """One turn, step by step."""
    ids = tuple("" if step == GAP else f"c{n}" for n, step in enumerate(steps))
    return Run(session, turn, steps, ids, (1,) * len(steps))


def spread(*turns: Sequence[int]) -> list[Run]:
    """One turn in each of as many sessions."""
    return [run(f"s{n}", *steps) for n, steps in enumerate(turns)]


@st.composite
def some_runs(draw: st.DrawFn) -> list[Run]:
    """A few turns of few sessions with few steps, so that much recurs."""
    turns = draw(st.lists(st.tuples(st.integers(0, 4), st.lists(st.integers(GAP, 3), max_size=7)), max_size=9))
    return [run(f"s{session}", *steps, turn=n) for n, (session, steps) in enumerate(turns)]


KNOWN = st.frozensets(st.lists(st.integers(1, 3), min_size=2, max_size=4).map(tuple), max_size=3)


def places_of(runs: Sequence[Run], length: int) -> dict[Pattern, list[Place]]:
    found: dict[Pattern, list[Place]] = {}
    for n, one in enumerate(runs):
        for start in range(len(one.steps) - length + 1):
            steps = one.steps[start : start + length]
            if GAP not in steps:
                found.setdefault(steps, []).append(Place(n, start))
    return found


def by_looking_at_everything(runs: Sequence[Run], known: Collection[Pattern]) -> dict[Pattern, tuple[Place, ...]]:
    """The definition, without any thrift: place by place, the longest first."""
    found: dict[Pattern, tuple[Place, ...]] = {}
    covering: list[tuple[Place, int]] = []
    for length in range(8, 1, -1):
        standing: list[tuple[Place, int]] = []
        for pattern, places in places_of(runs, length).items():
            free = [
                p
                for p in places
                if not any(
                    p.run == c.run and c.start <= p.start and p.start + length <= c.start + m for c, m in covering
                )
            ]
            enough = len({runs[p.run].session for p in free}) >= SESSIONS_MIN
            if pattern in known or enough:
                standing += [(p, length) for p in places]
            if enough and pattern not in known:
                found[pattern] = tuple(free)
        covering += standing
    return found


@given(some_runs(), KNOWN)
def test_the_search_finds_what_looking_at_everything_finds(runs: list[Run], known: frozenset[Pattern]) -> None:
    found = recurring(runs, known)
    assert found == by_looking_at_everything(runs, known)
    lengths = [len(pattern) for pattern in found]
    assert lengths == sorted(lengths, reverse=True), "the longest first"


@given(some_runs(), st.randoms(use_true_random=False))
def test_the_order_of_turns_does_not_matter(runs: list[Run], random: object) -> None:
    shuffled = list(runs)
    random.shuffle(shuffled)  # type: ignore[attr-defined] # Hypothesis's Random
    assert set(recurring(shuffled)) == set(recurring(runs))


@pytest.mark.parametrize(
    ("runs", "patterns"),
    [
        (spread((A, B, C), (A, B, C), (A, B, C)), [(A, B, C)]),
        (spread((A, B, C), (A, B, C)), []),
        (spread((D, A, B), (A, B, C), (C, A, B)), [(A, B)]),
        (spread((A, GAP, B), (A, GAP, B), (A, GAP, B)), []),
        (spread(*[(A, B, C)] * 3, (A, B)), [(A, B, C)]),
        (spread(*[(A, B, C)] * 3, *[(A, B)] * 3), [(A, B, C), (A, B)]),
        (spread((A, B, C, A, B), (A, B, C, A, B), (A, B, C, A, B)), [(A, B, C, A, B)]),
        ([run("s", A, B, turn=n) for n in range(9)], []),
    ],
    ids=[
        "three sessions",
        "two sessions",
        "among others",
        "gaps",
        "a part alone once",
        "a part alone in three",
        "a part twice in the whole",
        "one session",
    ],
)
def test_a_pattern_recurs_in_three_sessions_and_stands_for_its_parts(runs: list[Run], patterns: list[Pattern]) -> None:
    assert list(recurring(runs)) == patterns


def test_what_is_known_is_not_found_again_and_stands_for_its_parts() -> None:
    assert recurring(spread(*[(A, B, C)] * 3), {(A, B, C)}) == {}
    two_and_one = spread((A, B, C), (A, B, C), (A, B))
    assert list(recurring(two_and_one)) == [(A, B)]
    assert recurring(two_and_one, {(A, B, C)}) == {}


def test_the_same_step_several_times_in_a_row_is_one() -> None:
    made = run_of("s", 7, [CallStep("c1", A), CallStep("c2", B), CallStep("c3", B), CallStep("c4", A)])
    assert made == Run("s", 7, (A, B, A), ("c1", "c2", "c4"), (1, 2, 1))
    assert not run_of("s", 7, [CallStep("c1", A), CallStep("c2", A)]).has_patterns


def test_of_a_turn_the_newest_steps_count() -> None:
    made = run_of("s", 7, [CallStep(f"c{n}", n + 1) for n in range(STEPS_MAX + 5)])
    assert (len(made.steps), made.steps[-1], made.call_ids[0]) == (STEPS_MAX, STEPS_MAX + 5, "c5")


@pytest.mark.parametrize("steps", [(), (A,), (A, GAP, B), (GAP, A, GAP)], ids=str)
def test_steps_that_do_not_follow_each_other_have_no_patterns(steps: Pattern) -> None:
    assert not run("s", *steps).has_patterns


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9), st.lists(st.integers(1, 3), min_size=2)), max_size=120)
)
def test_what_is_remembered_is_bounded_and_each_turn_is_there_once(turns: list[tuple[int, int, list[int]]]) -> None:
    runs: tuple[Run, ...] = ()
    for session, turn, steps in turns:
        newest = run(f"s{session}", *steps[:STEPS_MAX], turn=turn)
        runs = with_run(runs, newest)
        assert with_run(runs, newest) == runs, "again changes nothing"
        assert any(r.session == newest.session and len(r.steps) >= len(newest.steps) for r in runs)
    assert len(runs) <= RUNS_MAX
    own = [(r.session, r.turn) for r in runs]
    assert len(set(own)) == len(own)
    assert all(sum(r.session == name for r in runs) <= RUNS_PER_SESSION_MAX for name, _ in own)


def test_a_turn_that_went_on_takes_the_place_of_its_beginning_and_never_the_other_way_round() -> None:
    beginning, whole = run("s", A, B), run("s", A, B, C)
    assert with_run(with_run((), beginning), whole) == (whole,)
    assert with_run((whole,), beginning) == (whole,)


def test_what_a_session_has_done_before_takes_no_place() -> None:
    first = run("s", A, B, turn=1)
    assert with_run((first,), run("s", A, B, turn=2)) == (first,)
    assert with_run((first, run("s", A, C, turn=2)), run("s", A, C, B, turn=2)) == (first, run("s", A, C, B, turn=2))


def test_the_oldest_turn_gives_way() -> None:
    runs: tuple[Run, ...] = ()
    for n in range(RUNS_MAX + 1):
        runs = with_run(runs, run(f"s{n}", A, B))
    assert (len(runs), runs[0].session) == (RUNS_MAX, "s1")
