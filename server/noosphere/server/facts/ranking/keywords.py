"""BM25 over weighted terms, as a share of the most that a question can reach."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple


class Bag(NamedTuple):
    """The terms of something, weighted, and the sum of their weights."""

    terms: Mapping[str, float]
    length: float


class Statistics(NamedTuple):
    """What is known of everything that is searched, candidates or not.

    Attributes:
        documents: how many there are.
        length_mean: their mean length.
        frequencies: how many have a term, for the terms of the question at least.
    """

    documents: int
    length_mean: float
    frequencies: Mapping[str, int]


def statistics(bags: Sequence[Bag], words: Iterable[str]) -> Statistics:
    """Counts what has each of ``words``."""
    wanted = frozenset(words)
    counts = Counter(word for bag in bags for word in wanted & bag.terms.keys())
    return Statistics(len(bags), math.fsum(bag.length for bag in bags) / max(1, len(bags)), counts)


def shares(
    words: Sequence[str], bags: Sequence[Bag], known: Statistics, *, saturation: float, length_share: float
) -> tuple[float, ...]:
    """Returns for each bag its BM25 over the most that is possible, 0 to 1.

    Args:
        words: the question's terms, each once. Those that nothing has do not count: nobody could say them.
        bags: what is scored.
        known: the statistics of everything.
        saturation: BM25's k1.
        length_share: BM25's b.
    """
    rarity = {
        word: math.log1p((max(known.documents, count) - count + 0.5) / (count + 0.5))
        for word in words
        if (count := known.frequencies.get(word, 0))
    }
    most = math.fsum(rarity.values()) * (saturation + 1)
    if not most:
        return (0.0,) * len(bags)
    mean = known.length_mean or 1.0
    found = []
    for bag in bags:
        fixed = saturation * (1 - length_share + length_share * bag.length / mean)
        total = 0.0
        for word, rare in rarity.items():
            often = bag.terms.get(word)
            if often:
                total += rare * often * (saturation + 1) / (often + fixed)
        found.append(total / most)
    return tuple(found)
