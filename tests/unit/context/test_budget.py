"""Splitting: never over budget, in the stated order, and one refusal with figures."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.context.stories import recipes

from noosphere.consistency import LimitInfo, Reason, Refusal
from noosphere.server.context.budget import UNLIMITED, choose_budget, split_budget
from noosphere.server.context.recipe import DEFAULT_RECIPE, Recipe, SectionRule
from noosphere.server.context.types import SectionKind

S, F, E, T, W, IN = (
    SectionKind.SYSTEM,
    SectionKind.FACTS,
    SectionKind.EVIDENCE,
    SectionKind.TOOL_RESULTS,
    SectionKind.TRANSCRIPT,
    SectionKind.INPUT,
)
RECIPE = Recipe(
    "r",
    (
        SectionRule(S, 0.1, priority=0),
        SectionRule(F, 0.3, priority=1, tokens_max=400),
        SectionRule(E, 0.3, priority=2, tokens_min=50),
        SectionRule(T, 0.1, priority=3),
        SectionRule(W, 0.1, priority=4),
        SectionRule(IN, 0.1, priority=0),
    ),
)
kinds = st.sampled_from(list(SectionKind))


@given(
    st.integers(0, 5_000),
    st.one_of(st.just(RECIPE), recipes()),
    st.dictionaries(kinds, st.integers(0, 300), max_size=4),
    st.dictionaries(kinds, st.one_of(st.integers(0, 5_000), st.just(UNLIMITED))),
)
def test_a_split_is_within_the_budget_and_the_limits(
    budget: int, recipe: Recipe, required: dict[SectionKind, int], more: dict[SectionKind, int]
) -> None:
    required = {kind: tokens for kind, tokens in required.items() if recipe.rule(kind) is not None}
    demand = {kind: required.get(kind, 0) + more.get(kind, 0) for kind in SectionKind}
    if sum(required.values()) > budget:
        with pytest.raises(Refusal) as caught:
            split_budget(budget, recipe, required=required, demand=demand)
        assert caught.value.detail == LimitInfo("budget.tokens", sum(required.values()), budget)
        return
    split = split_budget(budget, recipe, required=required, demand=demand)
    assert sum(split.allowed.values()) + split.spare == budget
    assert split.spare >= 0
    for rule in recipe.rules:
        least, got = required.get(rule.kind, 0), split.allowed[rule.kind]
        assert least <= got <= max(least, min(demand[rule.kind], rule.tokens_max or UNLIMITED))
        if split.spare:
            assert got >= min(demand[rule.kind], rule.tokens_max or UNLIMITED)


def test_unused_shares_flow_by_priority() -> None:
    split = split_budget(1_000, RECIPE, required={}, demand={F: UNLIMITED, E: UNLIMITED, W: UNLIMITED})
    # 300 each by share, 100 for the window. Of the 300 that nobody uses facts take 100, their limit, evidence the rest.
    assert dict(split.allowed) == {S: 0, F: 400, E: 500, T: 0, W: 100, IN: 0}


def test_a_held_share_is_nobody_elses() -> None:
    split = split_budget(1_000, RECIPE, required={}, demand={F: UNLIMITED, E: UNLIMITED, T: 0}, held=frozenset({T}))
    assert split.allowed[T] == 100
    more = split_budget(1_000, RECIPE, required={}, demand={F: UNLIMITED, E: UNLIMITED, T: 90}, held=frozenset({T}))
    assert more == split


def test_minima_come_before_shares() -> None:
    split = split_budget(120, RECIPE, required={S: 60}, demand={S: 60, F: UNLIMITED, E: UNLIMITED})
    assert (split.allowed[F], split.allowed[E]) == (10, 50)


def test_a_window_gives_eighteen_percent() -> None:
    assert choose_budget(0, 0, 0).tokens == int(128_000 * 0.18)
    assert choose_budget(0, 1_000, 900).tokens == 100
    assert choose_budget(5_000, 128_000, 0).warnings == ("WINDOW_SHARE_LOW",)
    assert choose_budget(60_000, 128_000, 0).warnings == ("WINDOW_SHARE_HIGH",)
    assert choose_budget(20_000, 128_000, 0).warnings == ()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((10, 10_000_001, 0), "budget.window_tokens: 10000001 is not between 1 and 10000000"),
        ((10, 100, 100), "budget.reserve_output_tokens: 100 leaves nothing of a window of 100 tokens"),
        ((91, 100, 10), "budget.tokens: 91 is not between 0 and 90: a window of 100 tokens, 10 kept for the answer"),
    ],
)
def test_bad_sizes_are_named(arguments: tuple[int, int, int], message: str) -> None:
    with pytest.raises(Refusal) as caught:
        choose_budget(*arguments)
    assert caught.value.reason is Reason.INVALID_FIELD
    assert caught.value.message == message


def test_facts_have_room_for_what_is_to_be_recalled() -> None:
    """Five to ten facts of 200 to 500 tokens each, in a context of the usual size."""
    split = split_budget(23_000, DEFAULT_RECIPE, required={S: 1_000}, demand={S: 1_000, F: UNLIMITED, W: UNLIMITED})
    assert 2_500 <= split.allowed[F] <= 5_000
