"""Chooses the sentences that stand for all: near to what the whole is about, far from what is already said."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

CONSIDERED_MAX = 300
"""So many of the sentences nearest to the centre are looked at closely, which bounds the time."""

_NEARNESS = 0.7
_REPETITION = 0.9

Vector = dict[str, float]


class Candidate(NamedTuple):
    """A sentence that may be chosen.

    Attributes:
        terms: its words.
        weight: how much it counts, for who said it and when.
        tokens: what it costs.
    """

    terms: frozenset[str]
    weight: float
    tokens: int


def choose(candidates: Sequence[Candidate], tokens_max: int) -> list[int]:
    """Chooses by maximal marginal relevance to the TF-IDF centroid, as much as fits.

    Args:
        candidates: the sentences in their order.
        tokens_max: the budget.

    Returns:
        Places of the chosen, ascending; always the same for the same input.
    """
    vectors = _vectors(candidates)
    centre = _unit(_centre(candidates, vectors))
    nearness = [candidate.weight * _dot(vector, centre) for candidate, vector in zip(candidates, vectors, strict=True)]
    left = heapq.nlargest(CONSIDERED_MAX, range(len(candidates)), key=lambda place: (nearness[place], -place))
    likeness = dict.fromkeys(left, 0.0)
    chosen: list[int] = []
    while left:
        best = max(left, key=lambda place: (_NEARNESS * nearness[place] - (1 - _NEARNESS) * likeness[place], -place))
        left.remove(best)
        # One that is too long, or nothing but a repetition, is skipped; a shorter one may still fit.
        if candidates[best].tokens > tokens_max or likeness[best] > _REPETITION:
            continue
        tokens_max -= candidates[best].tokens
        chosen.append(best)
        for place in left:
            likeness[place] = max(likeness[place], _dot(vectors[place], vectors[best]))
    return sorted(chosen)


def _vectors(candidates: Sequence[Candidate]) -> list[Vector]:
    counts = Counter(term for candidate in candidates for term in candidate.terms)
    rarity = {term: math.log(1 + len(candidates) / count) for term, count in counts.items()}
    # Sorted, because sums of floats depend on their order, and that of a set on the process.
    return [_unit({term: rarity[term] for term in sorted(candidate.terms)}) for candidate in candidates]


def _centre(candidates: Sequence[Candidate], vectors: Sequence[Vector]) -> Vector:
    total: Vector = {}
    for candidate, vector in zip(candidates, vectors, strict=True):
        for term, value in vector.items():
            total[term] = total.get(term, 0.0) + value * candidate.weight
    return total


def _unit(vector: Vector) -> Vector:
    length = math.sqrt(math.fsum(value * value for value in vector.values()))
    return {term: value / length for term, value in vector.items()} if length else {}


def _dot(one: Vector, other: Vector) -> float:
    if len(one) > len(other):
        one, other = other, one
    return math.fsum(value * other[term] for term, value in one.items() if term in other)
