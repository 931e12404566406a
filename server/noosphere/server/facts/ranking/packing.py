"""Packing: the highest value that a budget can hold, over all candidates.

Value is the calibrated likelihood that a candidate helps, so values add up and the aim is a knapsack's. The rule is
value per token, in steps: a candidate may enter shortened and be lengthened later, if that is worth its tokens. The
result is compared with taking candidates by value and in the order given, and improved by exchanges. What does not fit
is shortened or skipped and the next one tried, so the result is never worth less than taking candidates in any of these
orders up to the first that does not fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

PACKED_MAX = 50
"""A search packs from so many of the best: what ranks lower is worth no tokens."""

_EXCHANGES_MAX = 8
_EXCHANGED_MAX = 24
"""Of the candidates that are out, the most valuable so many are tried against as many that are in."""
_SEARCHED_MAX = 14
"""Up to so many candidates, combinations are searched as far as the steps below reach."""
_STEPS_MAX = 400
# Below this a gain is rounding.
_TINY = 1e-12


class Choice(NamedTuple):
    """A candidate for packing.

    Attributes:
        value: what it is worth in full, 0 or more.
        sizes: tokens of its variants, the fullest first.
        worths: the share of ``value`` that each variant keeps.
    """

    value: float
    sizes: tuple[int, ...]
    worths: tuple[float, ...]

    def size(self, pick: int) -> int:
        """Returns the tokens of a variant; -1 is none."""
        return self.sizes[pick] if pick >= 0 else 0

    def worth(self, pick: int) -> float:
        """Returns the value of a variant; -1 is none."""
        return self.value * self.worths[pick] if pick >= 0 else 0.0


def pack(choices: Sequence[Choice], budget: int) -> tuple[int, ...]:
    """Chooses variants within a budget.

    Args:
        choices: the candidates.
        budget: tokens that the chosen variants may have together.

    Returns:
        For each choice the index of the variant taken, -1 for none.
    """
    if sum(choice.sizes[0] for choice in choices) <= budget:
        return (0,) * len(choices)
    indexes = range(len(choices))
    by_value = sorted(indexes, key=lambda at: -choices[at].value)
    by_density = sorted(indexes, key=lambda at: -choices[at].value / max(1, choices[at].sizes[0]))
    tried = [
        _by_steps(choices, budget),
        *(_in_order(choices, order, budget) for order in (by_density, by_value, indexes)),
    ]
    best = _exchanged(choices, max(tried, key=lambda picks: _total(choices, picks)), budget)
    if len(choices) <= _SEARCHED_MAX:
        best = _searched(choices, best, budget)
    return tuple(best)


def _total(choices: Sequence[Choice], picks: Sequence[int]) -> float:
    return sum(choice.worth(pick) for choice, pick in zip(choices, picks, strict=True))


def _room(choices: Sequence[Choice], picks: Sequence[int], budget: int) -> int:
    return budget - sum(choice.size(pick) for choice, pick in zip(choices, picks, strict=True))


def _in_order(choices: Sequence[Choice], order: Iterable[int], budget: int) -> list[int]:
    """Takes what fits in full, in order, and then what fits shortened."""
    picks = [-1] * len(choices)
    left = budget
    skipped = []
    for at in order:
        size = choices[at].sizes[0]
        if size <= left:
            picks[at] = 0
            left -= size
        else:
            skipped.append(at)
    for at in skipped:
        picks[at] = next((variant for variant, size in enumerate(choices[at].sizes) if size <= left), -1)
        left -= choices[at].size(picks[at])
    return picks


class _Step(NamedTuple):
    rate: float
    at: int
    variant: int


def _by_steps(choices: Sequence[Choice], budget: int) -> list[int]:
    """Takes the step of the highest rate first: a candidate's entry, or the lengthening of one that is in."""
    picks = [-1] * len(choices)
    left = budget
    for step in sorted((step for at, choice in enumerate(choices) for step in _steps(at, choice)), reverse=True):
        choice = choices[step.at]
        cost = choice.sizes[step.variant] - choice.size(picks[step.at])
        if 0 <= cost <= left and choice.worth(step.variant) > choice.worth(picks[step.at]):
            picks[step.at] = step.variant
            left -= cost
    return picks


def _steps(at: int, choice: Choice) -> list[_Step]:
    """Returns the steps along the upper hull of a candidate's variants, the steepest first."""
    steps: list[_Step] = []
    size, worth = 0, 0.0
    variants = [(choice.sizes[pick], choice.worth(pick), pick) for pick in reversed(range(len(choice.sizes)))]
    while variants:
        rates = [((gain - worth) / max(1, cost - size), cost, gain, pick) for cost, gain, pick in variants]
        rate, size, worth, pick = max(rates)
        if rate <= 0 and steps:
            break
        steps.append(_Step(rate, at, pick))
        variants = [variant for variant in variants if variant[2] < pick]
    return steps


def _exchanged(choices: Sequence[Choice], picks: list[int], budget: int) -> list[int]:
    """Exchanges one candidate that is in for a better one that is out, as long as that helps."""
    left = _room(choices, picks, budget)
    better = sorted((at for at, pick in enumerate(picks) if pick != 0), key=lambda at: -choices[at].value)
    better = better[:_EXCHANGED_MAX]
    for _ in range(_EXCHANGES_MAX):
        gain, move = 0.0, None
        inside = sorted((at for at, pick in enumerate(picks) if pick >= 0), key=lambda at: choices[at].worth(picks[at]))
        for at in better:
            choice = choices[at]
            for variant, size in enumerate(choice.sizes):
                more = choice.worth(variant) - choice.worth(picks[at])
                if more <= gain + _TINY:
                    break
                need = size - choice.size(picks[at]) - left
                if need <= 0:
                    gain, move = more, (at, variant, -1)
                    break
                for out in inside[:_EXCHANGED_MAX]:
                    net = more - choices[out].worth(picks[out])
                    if net <= gain + _TINY:
                        break
                    if out != at and choices[out].size(picks[out]) >= need:
                        gain, move = net, (at, variant, out)
        if move is None:
            break
        at, variant, out = move
        picks[at] = variant
        if out >= 0:
            picks[out] = -1
        left = _room(choices, picks, budget)
    return picks


def _searched(choices: Sequence[Choice], picks: list[int], budget: int) -> list[int]:
    """Searches combinations, the densest first, within a fixed number of steps; exact if it ends before."""
    # The best rate that any variant gives makes the bound hold for all of them.
    rates = [max(w * c.value / max(1, s) for s, w in zip(c.sizes, c.worths, strict=True)) for c in choices]
    order = sorted(range(len(choices)), key=lambda at: -rates[at])
    best, best_value = list(picks), _total(choices, picks)
    trial = [-1] * len(choices)
    steps = 0

    def bound(depth: int, room: int) -> float:
        total = 0.0
        for at in order[depth:]:
            size = choices[at].sizes[0]
            if size >= room:
                return total + rates[at] * room
            total += rates[at] * size
            room -= size
        return total

    def visit(depth: int, value: float, room: int) -> None:
        nonlocal best, best_value, steps
        steps += 1
        if value > best_value + _TINY:
            best, best_value = list(trial), value
        if depth == len(order) or steps > _STEPS_MAX or value + bound(depth, room) <= best_value + _TINY:
            return
        at = order[depth]
        choice = choices[at]
        for variant, size in enumerate(choice.sizes):
            if size <= room:
                trial[at] = variant
                visit(depth + 1, value + choice.worth(variant), room - size)
        trial[at] = -1
        visit(depth + 1, value, room)

    visit(0, 0.0, budget)
    return best
