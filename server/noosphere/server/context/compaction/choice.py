"""Finds what of a document to keep, so that its text just fits a budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

from .candidates import Candidates
from .parts import Leaf, Part, Record, Several, inner_parts, walk
from .pricing import Built, Nothing, build, decide

_PRICE_LOG_MIN, _PRICE_LOG_MAX = -9.0, 3.0
_STEPS = 12
# How many elements of each array are considered: a few with many fields may be better than many with few.
_ROWS = (3, 9, 27, 81)
_ADDITIONS_MAX = 16


class _Choice(NamedTuple):
    worth: float
    price: float
    rows: int


def choose(candidates: Candidates, size: Callable[[Built], int], tokens_max: int) -> Built | None:
    """Returns the most useful part of a document that fits.

    Args:
        candidates: what may be kept.
        size: how many tokens the text of a part has.
        tokens_max: the budget.

    Returns:
        The part, or None if no part both fits and has a value in it.
    """
    fitting = _Fitting(candidates, size, tokens_max)
    longest = max((len(part.parts) for part in walk(candidates.root) if isinstance(part, Several)), default=0)
    best = fitting.price(longest)
    for rows in _ROWS:
        if rows < longest:
            best = max(best, fitting.price(rows))
    kept = decide(candidates, best.price, best.rows)
    fitting.fill(kept)
    built = build(candidates, kept)
    # No price is so high that nothing could stay: the budget is checked at the end, too.
    return built if built.values and size(built) <= tokens_max else None


class _Fitting:
    def __init__(self, candidates: Candidates, size: Callable[[Built], int], tokens_max: int) -> None:
        self._candidates = candidates
        self._size = size
        self._tokens_max = tokens_max

    def price(self, rows: int) -> _Choice:
        """Finds the lowest price at which what is kept of so many elements fits."""
        low, high = _PRICE_LOG_MIN, _PRICE_LOG_MAX
        for _ in range(_STEPS):
            middle = (low + high) / 2
            if self._fits(decide(self._candidates, math.exp(middle), rows)):
                high = middle
            else:
                low = middle
        kept = decide(self._candidates, math.exp(high), rows)
        return _Choice(_total(self._candidates.root, kept)[0], math.exp(high), rows)

    def fill(self, kept: list[bool]) -> None:
        """Spends what is left of the budget: one step of the price may have been too large for it."""
        additions: list[tuple[float, list[bool], int]] = []
        for number, column in enumerate(self._candidates.columns):
            worth = sum(leaf.worth for leaf in column.leaves)
            if not kept[number] and worth > 0:
                tokens = column.tokens + sum(leaf.tokens for leaf in column.leaves)
                additions.append((worth / tokens, kept, number))
        for several in _open(self._candidates.root):
            for place, part in enumerate(several.parts):
                worth, tokens = _total(part, kept)
                if not several.kept[place] and worth > 0:
                    additions.append((worth / (tokens + 1), several.kept, place))
        additions.sort(key=lambda addition: -addition[0])
        for _, switches, place in additions[:_ADDITIONS_MAX]:
            switches[place] = True
            if not self._fits(kept):
                switches[place] = False

    def _fits(self, kept: list[bool]) -> bool:
        built = build(self._candidates, kept)
        return isinstance(built.node, Nothing) or self._size(built) <= self._tokens_max


def _open(part: Part) -> Iterator[Several]:
    """Yields everything of which elements are kept or not, and that is itself kept."""
    if isinstance(part, Record):
        for _, inner in part.entries:
            yield from _open(inner)
    elif isinstance(part, Several):
        yield part
        for inner, kept in zip(part.parts, part.kept, strict=True):
            if kept:
                yield from _open(inner)


def _total(part: Part, kept: list[bool]) -> tuple[float, int]:
    """Returns worth and tokens of what is kept of a part."""
    if isinstance(part, Leaf):
        return (part.worth, part.tokens) if kept[part.field] else (0.0, 0)
    inner = inner_parts(part)
    if isinstance(part, Several):
        inner = [each for each, yes in zip(inner, part.kept, strict=True) if yes]
    totals = [_total(each, kept) for each in inner]
    return sum(worth for worth, _ in totals), sum(tokens for _, tokens in totals)
