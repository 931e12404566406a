"""How a session fares: four figures with their bounds, in numbers and in words. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

RECENT = 5
"""Contexts and turns that the figures look back on; no alarm rests on fewer observations."""

UTILIZATION_LOW, UTILIZATION_HIGH = 0.3, 0.9
HIT_RATE_LOW = 0.4
LIFESPAN_LOW, LIFESPAN_HIGH = 2.0, 15.0
GROWTH_HIGH = 0.05


class Metric(StrEnum):
    """The four figures."""

    CONTEXT_UTILIZATION = "context_utilization"
    STATE_HIT_RATE = "state_hit_rate"
    STATE_LIFESPAN = "state_lifespan"
    TOKEN_GROWTH = "token_growth"


class Verdict(StrEnum):
    """How a figure is judged."""

    UNKNOWN = "unknown"
    GOOD = "good"
    TOO_LOW = "too_low"
    TOO_HIGH = "too_high"


class Source(StrEnum):
    """Where a figure comes from."""

    MEASURED = "measured"
    REPORTED = "reported"
    ESTIMATED = "estimated"
    UNKNOWN = "unknown"


class Figure(NamedTuple):
    """One figure of a session's health, with its bounds.

    ``value`` is None if too little is known to say one; a value that rests on little is said, and not judged.
    """

    metric: Metric
    value: float | None
    verdict: Verdict
    low: float
    high: float
    source: Source
    advice: str


class Signs(NamedTuple):
    """What is known of a session.

    Attributes:
        utilizations: tokens used over tokens allowed, of the newest contexts, the oldest first.
        recalled: how many entries the newest contexts with a report recalled, by context.
        used: how many of these were used, by context.
        reported: whether the use was reported; else it was estimated.
        lifespans: how many turns items lived that have left working memory lately.
        turn_tokens: tokens of the newest context of each of the newest turns, the oldest first.
    """

    utilizations: tuple[float, ...] = ()
    recalled: tuple[int, ...] = ()
    used: tuple[int, ...] = ()
    reported: bool = False
    lifespans: tuple[int, ...] = ()
    turn_tokens: tuple[int, ...] = ()


def figures(signs: Signs) -> tuple[Figure, ...]:
    """Returns the four figures."""
    return (_utilization(signs), _hit_rate(signs), _lifespan(signs), _growth(signs))


def _utilization(signs: Signs) -> Figure:
    newest = signs.utilizations[-RECENT:]
    return _judged(
        Metric.CONTEXT_UTILIZATION,
        _mean(newest) if len(newest) == RECENT else None,
        UTILIZATION_LOW,
        UTILIZATION_HIGH,
        Source.MEASURED,
        too_low="Contexts are nearly empty: give the model more to work with, or a smaller budget.",
        too_high="Contexts are full: raise the budget, summarise sooner, or let items go.",
        good="Contexts are well filled.",
        unknown=f"Fewer than {RECENT} contexts have been assembled.",
    )


def _hit_rate(signs: Signs) -> Figure:
    recalled = sum(signs.recalled)
    source = Source.REPORTED if signs.reported else Source.ESTIMATED
    figure = _judged(
        Metric.STATE_HIT_RATE,
        sum(signs.used) / recalled if recalled else None,
        HIT_RATE_LOW,
        1.0,
        source,
        too_low="Most of what contexts recall is not used: narrow the recipe's shares, or drop what nobody needs.",
        too_high="",
        good="What contexts recall is used.",
        unknown="Nobody has reported what was used; ReportUsage does.",
    )
    return _unless_few(figure, len(signs.recalled), "contexts")


def _lifespan(signs: Signs) -> Figure:
    figure = _judged(
        Metric.STATE_LIFESPAN,
        _mean(signs.lifespans) if signs.lifespans else None,
        LIFESPAN_LOW,
        LIFESPAN_HIGH,
        Source.MEASURED,
        too_low="Items leave almost at once: keep them in the prompt instead, or raise the grace age.",
        too_high="Items stay for long: archive what is settled, or pin what is meant to stay.",
        good="Items stay as long as they are needed.",
        unknown="No item has left working memory yet.",
    )
    return _unless_few(figure, len(signs.lifespans), "items that have left")


def _growth(signs: Signs) -> Figure:
    newest = signs.turn_tokens[-RECENT - 1 :]
    rates = [(after - before) / before for before, after in pairwise(newest) if before > 0]
    figure = _judged(
        Metric.TOKEN_GROWTH,
        _mean(rates) if len(rates) == RECENT else None,
        -1.0,
        GROWTH_HIGH,
        Source.MEASURED,
        too_low="",
        too_high="Contexts grow with every turn: summarise sooner, or compact tools' results harder.",
        good="Contexts keep their size.",
        unknown=f"Fewer than {RECENT + 1} turns have had a context.",
    )
    if figure.verdict is Verdict.TOO_HIGH and min(rates) <= GROWTH_HIGH:
        return figure._replace(verdict=Verdict.GOOD, advice="Contexts have grown, but not in each of the last turns.")
    return figure


def _judged(
    metric: Metric,
    value: float | None,
    low: float,
    high: float,
    source: Source,
    *,
    too_low: str,
    too_high: str,
    good: str,
    unknown: str,
) -> Figure:
    if value is None:
        return Figure(metric, None, Verdict.UNKNOWN, low, high, Source.UNKNOWN, unknown)
    if value < low:
        return Figure(metric, value, Verdict.TOO_LOW, low, high, source, too_low)
    if value > high:
        return Figure(metric, value, Verdict.TOO_HIGH, low, high, source, too_high)
    return Figure(metric, value, Verdict.GOOD, low, high, source, good)


def _unless_few(figure: Figure, count: int, what: str) -> Figure:
    if figure.value is None or count >= RECENT:
        return figure
    return figure._replace(verdict=Verdict.UNKNOWN, advice=f"Known of {count} {what}; it is judged from {RECENT} on.")


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
