"""Splitting a budget among sections, before anything is retrieved.

The order of gifts: what is required; each section's minimum; each section's share; and what is then left over, which
flows to whoever still has something to show. Within each step sections are served by priority.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from noosphere.consistency import LimitInfo, Reason, Refusal, invalid

from .recipe import Recipe, SectionRule
from .types import SectionKind

WINDOW_TOKENS_DEFAULT = 128_000
WINDOW_TOKENS_MAX = 10_000_000
EPHEMERAL_SHARE = 0.18
"""The part of a model's window that a context takes unless told otherwise."""
EPHEMERAL_SHARE_LOW = 0.10
EPHEMERAL_SHARE_HIGH = 0.25
UNLIMITED = 1 << 60
"""The demand of a section that would take whatever it gets."""


class Budget(NamedTuple):
    """How large a context may be.

    Attributes:
        tokens: what it may take.
        window_tokens: the model's window.
        warnings: ``WINDOW_SHARE_LOW`` and ``WINDOW_SHARE_HIGH``.
    """

    tokens: int
    window_tokens: int
    warnings: tuple[str, ...] = ()


def choose_budget(tokens: int, window_tokens: int, reserve_output_tokens: int) -> Budget:
    """Returns the budget of a request.

    Args:
        tokens: what was asked for; 0 leaves it to the window, of which 18 % is taken.
        window_tokens: the model's window; 0 means 128,000.
        reserve_output_tokens: kept free in the window for the answer.

    Raises:
        Refusal: INVALID_FIELD.
    """
    window = window_tokens or WINDOW_TOKENS_DEFAULT
    if not 1 <= window <= WINDOW_TOKENS_MAX:
        raise invalid("budget.window_tokens", f"{window} is not between 1 and {WINDOW_TOKENS_MAX}")
    if not 0 <= reserve_output_tokens < window:
        raise invalid(
            "budget.reserve_output_tokens", f"{reserve_output_tokens} leaves nothing of a window of {window} tokens"
        )
    room = window - reserve_output_tokens
    if not 0 <= tokens <= room:
        raise invalid(
            "budget.tokens",
            f"{tokens} is not between 0 and {room}: a window of {window} tokens, {reserve_output_tokens} kept for the "
            "answer",
        )
    chosen = tokens or min(room, max(1, int(window * EPHEMERAL_SHARE)))
    warnings: tuple[str, ...] = ()
    if chosen < EPHEMERAL_SHARE_LOW * window:
        warnings = ("WINDOW_SHARE_LOW",)
    elif chosen > EPHEMERAL_SHARE_HIGH * window:
        warnings = ("WINDOW_SHARE_HIGH",)
    return Budget(chosen, window, warnings)


def too_small(needed: int, limit: int) -> Refusal:
    """Returns the refusal of a budget that cannot hold what every context must show."""
    return Refusal(
        Reason.BUDGET_TOO_SMALL,
        f"budget.tokens: hard constraints, input and newest messages need {needed} tokens, the budget is {limit}",
        LimitInfo("budget.tokens", needed, limit),
    )


class Split(NamedTuple):
    """How a budget is split.

    Attributes:
        allowed: the most that each section may take; together at most the budget.
        spare: what nobody asked for.
    """

    allowed: Mapping[SectionKind, int]
    spare: int


def split_budget(
    budget: int,
    recipe: Recipe,
    *,
    required: Mapping[SectionKind, int],
    demand: Mapping[SectionKind, int],
    held: frozenset[SectionKind] = frozenset(),
) -> Split:
    """Splits a budget.

    Args:
        budget: tokens.
        recipe: the sections.
        required: what must be shown, whatever the shares say.
        demand: what each section could show, ``required`` included; :data:`UNLIMITED` if that is not known yet.
        held: sections whose share is theirs even if they ask for less now. They have no part in the overflow.

    Raises:
        Refusal: BUDGET_TOO_SMALL, if ``required`` alone exceeds the budget.
    """
    allowed = {rule.kind: required.get(rule.kind, 0) for rule in recipe.rules}
    left = budget - sum(allowed.values())
    if left < 0:
        raise too_small(budget - left, budget)
    by_priority = sorted(recipe.rules, key=lambda rule: rule.priority)

    def give(rule: SectionRule, upto: int) -> None:
        nonlocal left
        gift = min(left, max(0, upto - allowed[rule.kind]))
        allowed[rule.kind] += gift
        left -= gift

    wants = {rule.kind: _wanted(rule, demand.get(rule.kind, 0)) for rule in recipe.rules}
    for rule in by_priority:
        give(rule, min(rule.tokens_min, wants[rule.kind]))
    for rule in by_priority:
        share = _wanted(rule, int(rule.share * budget))
        give(rule, share if rule.kind in held else min(share, wants[rule.kind]))
    for rule in by_priority:
        if rule.kind not in held:
            give(rule, wants[rule.kind])
    return Split(allowed, left)


def _wanted(rule: SectionRule, demand: int) -> int:
    # Never above the section's own limit.
    return min(demand, rule.tokens_max) if rule.tokens_max else demand
