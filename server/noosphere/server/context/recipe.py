"""Recipes: which sections a context has, in which order, and how each is filled.

The order is the placement. ``SYSTEM`` comes first and ``INPUT`` last. What stands before ``TRANSCRIPT`` is sent before
the conversation and should change least; what stands after it is sent just before the current input. So the order runs
from stable to volatile, the middle holds what matters least, and recalled facts lie near the end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from noosphere.consistency import invalid

from .types import Form, SectionKind

NAME_BYTES_MAX = 64
TOKENS_MAX = 10_000_000
PRIORITY_MAX = 100
FACTS_MAX = 50
FACTS_DEFAULT = 10
# Shares are given as binary fractions: ten times 0.1 is a little more than 1.
_SHARES_SLACK = 1e-9

VERBATIM = frozenset({SectionKind.SYSTEM, SectionKind.TRANSCRIPT, SectionKind.TOOL_RESULTS, SectionKind.INPUT})
"""Sections that are sent as they are."""

_FORM_OF: Mapping[SectionKind, Form] = {
    SectionKind.SUMMARY: Form.SUMMARY,
    SectionKind.TOOLS: Form.JSON,
}


class SectionRule(NamedTuple):
    """How one section is filled.

    Attributes:
        kind: which section.
        share: of the budget, 0 to 1.
        tokens_min: what it gets in any case, if it has that much to show.
        tokens_max: what it never exceeds; 0: no limit but the budget.
        priority: who gets unused tokens first: 0 before 1.
        form: how its entries are written.
    """

    kind: SectionKind
    share: float
    tokens_min: int = 0
    tokens_max: int = 0
    priority: int = 50
    form: Form = Form.DEFAULT

    @property
    def written(self) -> Form:
        """The form in force."""
        return self.form if self.form is not Form.DEFAULT else _FORM_OF.get(self.kind, Form.FULL)


class Recipe(NamedTuple):
    """What a context is made of.

    Attributes:
        name: for people.
        rules: one for each section, in the order of the context.
        trust_min: facts below it stay out.
        facts_max: most facts.
    """

    name: str
    rules: tuple[SectionRule, ...]
    trust_min: float = 0.0
    facts_max: int = FACTS_DEFAULT

    def rule(self, kind: SectionKind) -> SectionRule | None:
        """Returns a section's rule, None if the recipe leaves it out."""
        return next((rule for rule in self.rules if rule.kind is kind), None)

    def before_transcript(self) -> tuple[SectionKind, ...]:
        """Returns the sections of data that are sent before the conversation, in order."""
        return self._data()[0]

    def after_transcript(self) -> tuple[SectionKind, ...]:
        """Returns the sections of data that are sent just before the current input, in order."""
        return self._data()[1]

    def _data(self) -> tuple[tuple[SectionKind, ...], tuple[SectionKind, ...]]:
        kinds = [rule.kind for rule in self.rules]
        split = kinds.index(SectionKind.TRANSCRIPT) if SectionKind.TRANSCRIPT in kinds else len(kinds)
        data = [(at, kind) for at, kind in enumerate(kinds) if kind not in VERBATIM and kind is not SectionKind.TOOLS]
        return tuple(kind for at, kind in data if at < split), tuple(kind for at, kind in data if at > split)


DEFAULT_RECIPE = Recipe(
    "default",
    (
        SectionRule(SectionKind.SYSTEM, 0.08, priority=0),
        SectionRule(SectionKind.TOOLS, 0.10, priority=1),
        SectionRule(SectionKind.PROFILE, 0.03, tokens_max=1_000, priority=4),
        SectionRule(SectionKind.SUBAGENTS, 0.04, priority=8),
        SectionRule(SectionKind.SUMMARY, 0.08, tokens_max=2_000, priority=3),
        # The last to get what others leave: as a turn grows it is the window that gives way, and what stands before
        # it keeps its bytes.
        SectionRule(SectionKind.TRANSCRIPT, 0.22, priority=9),
        SectionRule(SectionKind.WORKING, 0.08, priority=6),
        SectionRule(SectionKind.EVIDENCE, 0.10, priority=7),
        SectionRule(SectionKind.TASK, 0.08, priority=2),
        # Ten facts of 500 tokens.
        SectionRule(SectionKind.FACTS, 0.08, tokens_max=5_000, priority=5),
        SectionRule(SectionKind.TOOL_RESULTS, 0.08, priority=0),
        SectionRule(SectionKind.INPUT, 0.03, priority=0),
    ),
    trust_min=0.3,
)
"""Working memory for an agent that talks and calls tools, within some 20,000 tokens."""


def section_kind(value: int, field: str) -> SectionKind:
    """Returns the section of a number of the contract.

    Raises:
        Refusal: INVALID_FIELD.
    """
    try:
        return SectionKind(value)
    except ValueError:
        names = ", ".join(f"{kind.value} = {kind.name}" for kind in SectionKind)
        raise invalid(field, f"{value} is no section; sections are {names}") from None


def check_recipe(recipe: Recipe, field: str = "recipe") -> Recipe:
    """Returns a recipe that can be used.

    Raises:
        Refusal: INVALID_FIELD, naming field, value and limit.
    """
    if len(recipe.name.encode()) > NAME_BYTES_MAX:
        raise invalid(f"{field}.name", f"has {len(recipe.name.encode())} bytes, the limit is {NAME_BYTES_MAX}")
    _check_fraction(recipe.trust_min, f"{field}.trust_min")
    if not 0 <= recipe.facts_max <= FACTS_MAX:
        raise invalid(f"{field}.facts_max", f"{recipe.facts_max} is not between 0 and {FACTS_MAX}")
    _check_order(recipe, f"{field}.sections")
    for index, rule in enumerate(recipe.rules):
        _check_rule(rule, f"{field}.sections[{index}]")
    together = math.fsum(rule.share for rule in recipe.rules)
    if together > 1 + _SHARES_SLACK:
        raise invalid(f"{field}.sections", f"the shares add up to {together!r}, the limit is 1")
    return recipe._replace(facts_max=recipe.facts_max or FACTS_DEFAULT)


def _check_order(recipe: Recipe, field: str) -> None:
    kinds = [rule.kind for rule in recipe.rules]
    for index, kind in enumerate(kinds):
        if kind in kinds[:index]:
            raise invalid(f"{field}[{index}].kind", f"{kind.name} is there already, as entry {kinds.index(kind)}")
    for kind in (SectionKind.SYSTEM, SectionKind.INPUT):
        if kind not in kinds:
            raise invalid(field, f"{kind.name} is missing; every recipe has SYSTEM and INPUT")
    if kinds[0] is not SectionKind.SYSTEM:
        raise invalid(f"{field}[0].kind", f"{kinds[0].name} stands first; hard constraints (SYSTEM) must")
    if kinds[-1] is not SectionKind.INPUT:
        raise invalid(f"{field}[{len(kinds) - 1}].kind", f"{kinds[-1].name} stands last; the current INPUT must")


def _check_rule(rule: SectionRule, field: str) -> None:
    _check_fraction(rule.share, f"{field}.share")
    for name, value in (("tokens_min", rule.tokens_min), ("tokens_max", rule.tokens_max)):
        if not 0 <= value <= TOKENS_MAX:
            raise invalid(f"{field}.{name}", f"{value} is not between 0 and {TOKENS_MAX}")
    if rule.tokens_max and rule.tokens_min > rule.tokens_max:
        raise invalid(f"{field}.tokens_min", f"{rule.tokens_min} is above tokens_max, {rule.tokens_max}")
    if not 0 <= rule.priority <= PRIORITY_MAX:
        raise invalid(f"{field}.priority", f"{rule.priority} is not between 0 and {PRIORITY_MAX}")
    if rule.kind in VERBATIM and rule.written is not Form.FULL:
        raise invalid(f"{field}.form", f"{rule.form.name} is not possible: {rule.kind.name} is sent as it is (FULL)")
    if rule.kind is SectionKind.TOOLS and rule.written is not Form.JSON:
        raise invalid(f"{field}.form", f"{rule.form.name} is not possible: TOOLS are sent as JSON")


def _check_fraction(value: float, field: str) -> None:
    if not 0 <= value <= 1:
        raise invalid(field, f"{value:g} is not between 0 and 1")
