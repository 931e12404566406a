"""Medians with spread, and ratios of paired samples."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """A median with the quartiles around it.

    Attributes:
        median: the middle of the samples.
        low: the first quartile.
        high: the third quartile.
        count: how many samples there were.
    """

    median: float
    low: float
    high: float
    count: int


def spread(samples: Sequence[float]) -> Spread:
    """Returns the median and quartiles of at least one sample."""
    if len(samples) == 1:
        return Spread(samples[0], samples[0], samples[0], 1)
    low, median, high = statistics.quantiles(samples, n=4, method="inclusive")
    return Spread(median, low, high, len(samples))


def ratios(numerators: Sequence[float], denominators: Sequence[float]) -> Spread:
    """Returns the spread of the ratios of samples that were taken in pairs.

    What slows the whole machine for a while slows both samples of a pair, so their ratio stands while
    the ratio of two medians over the whole run would not.
    """
    return spread([ours / theirs for ours, theirs in zip(numerators, denominators, strict=True)])


def percentile(samples: Sequence[float], share: float) -> float:
    """Returns the smallest sample that at least ``share`` (above 0, at most 1) of all do not exceed."""
    ordered = sorted(samples)
    rank = -(-len(ordered) * round(share * 1_000_000) // 1_000_000)
    return ordered[max(rank, 1) - 1]
