"""The four figures of a session's health and when they raise an alarm."""

from __future__ import annotations

import pytest

from noosphere.server.transitions.health import Figure, Metric, Signs, Source, Verdict, figures


def figure(metric: Metric, signs: Signs) -> Figure:
    found = {f.metric: f for f in figures(signs)}
    return found[metric]


def test_of_a_new_session_nothing_is_known_and_nothing_alarms() -> None:
    found = figures(Signs())
    assert [f.metric for f in found] == list(Metric)
    for f in found:
        assert (f.value, f.verdict, f.source) == (None, Verdict.UNKNOWN, Source.UNKNOWN)
        assert f.advice


@pytest.mark.parametrize(
    ("utilization", "verdict"),
    [(0.29, Verdict.TOO_LOW), (0.3, Verdict.GOOD), (0.9, Verdict.GOOD), (0.91, Verdict.TOO_HIGH)],
)
def test_utilization_over_the_last_five_contexts(utilization: float, verdict: Verdict) -> None:
    assert figure(Metric.CONTEXT_UTILIZATION, Signs(utilizations=(1.0, *[utilization] * 5))).verdict is verdict
    assert figure(Metric.CONTEXT_UTILIZATION, Signs(utilizations=(utilization,) * 4)).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(("used", "verdict"), [(3, Verdict.TOO_LOW), (4, Verdict.GOOD), (10, Verdict.GOOD)])
@pytest.mark.parametrize("reported", [True, False], ids=["reported", "estimated"])
def test_hit_rate_says_where_it_comes_from(used: int, verdict: Verdict, reported: bool) -> None:
    signs = Signs(recalled=(3, 1, 2, 3, 1), used=(used, 0, 0, 0, 0), reported=reported)
    found = figure(Metric.STATE_HIT_RATE, signs)
    assert (found.value, found.verdict) == (used / 10, verdict)
    assert found.source is (Source.REPORTED if reported else Source.ESTIMATED)


@pytest.mark.parametrize(
    ("turns", "verdict"), [(1, Verdict.TOO_LOW), (2, Verdict.GOOD), (15, Verdict.GOOD), (16, Verdict.TOO_HIGH)]
)
def test_lifespan(turns: int, verdict: Verdict) -> None:
    assert figure(Metric.STATE_LIFESPAN, Signs(lifespans=(turns,) * 5)).verdict is verdict


@pytest.mark.parametrize(
    ("metric", "signs", "value"),
    [
        (Metric.STATE_HIT_RATE, Signs(recalled=(4,) * 4, used=(0,) * 4), 0.0),
        (Metric.STATE_LIFESPAN, Signs(lifespans=(1,) * 4), 1.0),
    ],
    ids=["hit rate", "lifespan"],
)
def test_what_rests_on_few_is_said_and_raises_no_alarm(metric: Metric, signs: Signs, value: float) -> None:
    found = figure(metric, signs)
    assert (found.value, found.verdict) == (value, Verdict.UNKNOWN)
    assert "judged from 5 on" in found.advice


@pytest.mark.parametrize(
    ("tokens", "verdict"),
    [
        ((1000, 1100, 1210, 1331, 1464, 1610), Verdict.TOO_HIGH),
        ((1000, 1100, 1210, 1331, 1464), Verdict.UNKNOWN),
        ((1000, 2000, 2000, 2000, 2000, 2000), Verdict.GOOD),
        ((1000, 1000, 1000, 900, 900, 900), Verdict.GOOD),
    ],
    ids=["sustained", "too short", "one jump", "shrinking"],
)
def test_growth_alarms_only_if_it_is_sustained(tokens: tuple[int, ...], verdict: Verdict) -> None:
    assert figure(Metric.TOKEN_GROWTH, Signs(turn_tokens=tokens)).verdict is verdict
