"""Recipes: the default one is good, and each fault of another one is named with field, value and limit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.context.stories import recipes

from noosphere.consistency import Reason, Refusal
from noosphere.server.context.recipe import DEFAULT_RECIPE, Recipe, SectionRule, check_recipe, section_kind
from noosphere.server.context.types import Form, SectionKind

SYSTEM = SectionRule(SectionKind.SYSTEM, 0.2)
INPUT = SectionRule(SectionKind.INPUT, 0.2)
FACTS = SectionRule(SectionKind.FACTS, 0.2)


def test_the_default_recipe_has_every_section_and_splits_all() -> None:
    assert check_recipe(DEFAULT_RECIPE) is not None
    assert {rule.kind for rule in DEFAULT_RECIPE.rules} == set(SectionKind)
    assert sum(rule.share for rule in DEFAULT_RECIPE.rules) == pytest.approx(1.0)


def test_the_default_runs_from_stable_to_volatile() -> None:
    """The profile and summaries lie before the conversation; what each input brings anew just before it, facts last."""
    assert DEFAULT_RECIPE.before_transcript() == (SectionKind.PROFILE, SectionKind.SUBAGENTS, SectionKind.SUMMARY)
    assert DEFAULT_RECIPE.after_transcript()[-1] is SectionKind.FACTS
    assert DEFAULT_RECIPE.rules[0].kind is SectionKind.SYSTEM
    assert DEFAULT_RECIPE.rules[-1].kind is SectionKind.INPUT


@given(recipes())
def test_valid_recipes_are_taken(recipe: Recipe) -> None:
    checked = check_recipe(recipe)
    assert checked.rules == recipe.rules
    assert checked.facts_max == 10


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (Recipe("n" * 65, (SYSTEM, INPUT)), "recipe.name: has 65 bytes, the limit is 64"),
        (Recipe("r", (SYSTEM, INPUT), trust_min=1.5), "recipe.trust_min: 1.5 is not between 0 and 1"),
        (Recipe("r", (SYSTEM, INPUT), trust_min=float("nan")), "recipe.trust_min: nan is not between 0 and 1"),
        (Recipe("r", (SYSTEM, INPUT), facts_max=51), "recipe.facts_max: 51 is not between 0 and 50"),
        (Recipe("r", ()), "recipe.sections: SYSTEM is missing; every recipe has SYSTEM and INPUT"),
        (Recipe("r", (SYSTEM,)), "recipe.sections: INPUT is missing; every recipe has SYSTEM and INPUT"),
        (Recipe("r", (FACTS, SYSTEM, INPUT)), "recipe.sections[0].kind: FACTS stands first; hard constraints (SYSTEM)"),
        (Recipe("r", (SYSTEM, INPUT, FACTS)), "recipe.sections[2].kind: FACTS stands last; the current INPUT must"),
        (Recipe("r", (SYSTEM, FACTS, FACTS, INPUT)), "recipe.sections[2].kind: FACTS is there already, as entry 1"),
        (
            Recipe("r", (SYSTEM, FACTS._replace(share=0.7), INPUT)),
            "recipe.sections: the shares add up to 1.1, the limit is 1",
        ),
        (Recipe("r", (SYSTEM, FACTS._replace(share=-0.1), INPUT)), "recipe.sections[1].share: -0.1 is not between 0"),
        (
            Recipe("r", (SYSTEM, FACTS._replace(tokens_min=9, tokens_max=8), INPUT)),
            "recipe.sections[1].tokens_min: 9 is above tokens_max, 8",
        ),
        (Recipe("r", (SYSTEM, FACTS._replace(tokens_max=-1), INPUT)), "recipe.sections[1].tokens_max: -1 is not"),
        (
            Recipe("r", (SYSTEM, FACTS._replace(priority=101), INPUT)),
            "recipe.sections[1].priority: 101 is not between 0 and 100",
        ),
        (
            Recipe("r", (SYSTEM._replace(form=Form.SUMMARY), INPUT)),
            "recipe.sections[0].form: SUMMARY is not possible: SYSTEM is sent as it is (FULL)",
        ),
        (
            Recipe("r", (SYSTEM, SectionRule(SectionKind.TOOLS, 0.1, form=Form.YAML), INPUT)),
            "recipe.sections[1].form: YAML is not possible: TOOLS are sent as JSON",
        ),
    ],
    ids=lambda value: value.split(":")[0] if isinstance(value, str) else "recipe",
)
def test_a_bad_recipe_is_refused_with_field_value_and_limit(recipe: Recipe, message: str) -> None:
    with pytest.raises(Refusal) as caught:
        check_recipe(recipe)
    assert caught.value.reason is Reason.INVALID_FIELD
    assert message in caught.value.message


@given(st.integers().filter(lambda value: value not in set(SectionKind)))
def test_an_unknown_section_is_named(value: int) -> None:
    with pytest.raises(Refusal, match=rf"sections\[3\]\.kind: {value} is no section; sections are 1 = SYSTEM"):
        section_kind(value, "sections[3].kind")


def test_ten_times_a_tenth_is_one() -> None:
    kinds = [SectionKind.SYSTEM, *list(SectionKind)[2:10], SectionKind.INPUT]
    assert len(kinds) == 10
    check_recipe(Recipe("r", tuple(SectionRule(kind, 0.1) for kind in kinds)))
