"""BM25, for the index in memory and for what another engine has found alike."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...ports.factstore import TermStatistics

SATURATION = 1.2
LENGTH_SHARE = 0.75
"""BM25's k1 and b, the usual ones, which Weaviate has too."""

Number = TypeVar("Number", float, NDArray[np.float64])


def rarity(versions: int, having: int) -> float:
    """Returns how much a term counts that so many of so many versions have."""
    return math.log1p((versions - having + 0.5) / (having + 0.5))


def weight(rare: float, count: Number, length: Number, mean: float) -> Number:
    """Returns what a term adds to a score.

    Args:
        rare: the term's rarity.
        count: how often the version has it.
        length: how many terms the version has.
        mean: how many terms versions have on average.
    """
    fixed = SATURATION * (1 - LENGTH_SHARE + LENGTH_SHARE * length / mean)
    return rare * (SATURATION + 1) * count / (count + fixed)


class Rarities(NamedTuple):
    """What a question's terms are worth among what a filter leaves.

    Attributes:
        terms: each term that a version has, with its rarity, in the question's order.
        mean: how many terms versions have on average.
    """

    terms: tuple[tuple[str, float], ...]
    mean: float

    @classmethod
    def of(cls, terms: Sequence[str], known: TermStatistics) -> Rarities:
        """Returns them.

        Args:
            terms: each once.
            known: the statistics, in the same order.
        """
        found = zip(terms, known.frequencies, strict=True)
        return cls(
            tuple((term, rarity(known.versions, having)) for term, having in found if having), known.length_mean or 1.0
        )

    def score(self, terms: Sequence[str]) -> float:
        """Returns the BM25 of a version with these terms."""
        counts = Counter(terms)
        length, total = float(len(terms)), 0.0
        for term, rare in self.terms:
            if count := counts.get(term):
                total += weight(rare, float(count), length, self.mean)
        return total
