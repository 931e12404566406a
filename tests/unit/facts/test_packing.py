"""Packing against the exact optimum, and against what it must never be worse than."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.effort import examples

from noosphere.server.facts.ranking import Choice, pack

SIZES = st.integers(1, 60)
VALUES = st.floats(0.01, 1.0)


@st.composite
def choices(draw: st.DrawFn) -> Choice:
    size = draw(SIZES)
    shorter = sorted(draw(st.sets(st.integers(1, size), max_size=2)) - {size}, reverse=True)
    worths = sorted(draw(st.lists(st.floats(0.05, 0.95), min_size=len(shorter), max_size=len(shorter))), reverse=True)
    return Choice(draw(VALUES), (size, *shorter), (1.0, *worths))


problems = st.tuples(st.lists(choices(), min_size=1, max_size=12), st.integers(1, 250))


def optimum(found: Sequence[Choice], budget: int) -> float:
    """The exact solution, by dynamic programming over tokens."""
    best = [0.0] * (budget + 1)
    for choice in found:
        before = list(best)
        for pick, size in enumerate(choice.sizes):
            for room in range(size, budget + 1):
                best[room] = max(best[room], before[room - size] + choice.worth(pick))
    return best[budget]


def value(found: Sequence[Choice], picks: Sequence[int]) -> float:
    return sum(choice.worth(pick) for choice, pick in zip(found, picks, strict=True))


@settings(max_examples=examples(300), deadline=None)
@given(problems)
def test_a_packing_fits_and_is_worth_nearly_the_optimum(problem: tuple[list[Choice], int]) -> None:
    found, budget = problem
    picks = pack(found, budget)
    assert len(picks) == len(found)
    assert sum(choice.size(pick) for choice, pick in zip(found, picks, strict=True)) <= budget
    assert value(found, picks) >= 0.9 * optimum(found, budget)


@settings(max_examples=examples(300), deadline=None)
@given(problems)
def test_a_packing_is_never_worth_less_than_stopping_at_the_first_misfit(problem: tuple[list[Choice], int]) -> None:
    found, budget = problem
    picks = pack(found, budget)
    for order in (
        found,
        sorted(found, key=lambda choice: -choice.value),
        sorted(found, key=lambda choice: -choice.value / choice.sizes[0]),
    ):
        worth, room = 0.0, budget
        for choice in order:
            if choice.sizes[0] > room:
                break
            room -= choice.sizes[0]
            worth += choice.value
        assert value(found, picks) >= worth - 1e-9


@pytest.mark.parametrize("count", [5, 12, 25, 60])
@pytest.mark.parametrize("uneven", [False, True])
def test_on_average_at_least_98_percent_of_the_optimum(count: int, uneven: bool) -> None:
    """Long uneven entries and short even ones, from a fixed sequence."""
    state = 12_345

    def draw(below: int) -> int:
        nonlocal state
        state = (state * 1_103_515_245 + 12_345) % 2**31
        return state // 65_536 % below

    ratios = []
    for _ in range(12):
        sizes = [1 + draw(20) if not uneven else 1 + draw(8) ** 3 for _ in range(count)]
        found = [Choice(((1 + draw(100)) / 100) ** 2, (size,), (1.0,)) for size in sizes]
        budget = max(1, sum(sizes) * (10 + draw(50)) // 100)
        best = optimum(found, budget)
        ratios.append(value(found, pack(found, budget)) / best if best else 1.0)
    assert mean(ratios) >= 0.98
    assert min(ratios) >= 0.9


def test_what_is_too_large_is_shortened_or_skipped_and_the_next_one_tried() -> None:
    found = [Choice(0.9, (100,), (1.0,)), Choice(0.8, (90, 30), (1.0, 0.6)), Choice(0.1, (10,), (1.0,))]
    assert pack(found, 45) == (-1, 1, 0)
    assert pack(found, 12) == (-1, -1, 0)
    assert pack(found, 200) == (0, 0, 0)
    assert pack(found, 0) == (-1, -1, -1)
    assert pack([], 10) == ()


def test_worthless_candidates_take_no_room_from_others() -> None:
    found = [Choice(0.0, (10,), (1.0,)), Choice(0.5, (10,), (1.0,))]
    assert pack(found, 10) == (-1, 0)
