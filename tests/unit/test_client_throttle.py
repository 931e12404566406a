"""A client that was asked to slow down does, and speeds up again; one that was not never waits."""

from __future__ import annotations

import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from noosphere.client._throttle import CALM_SECONDS, DELAY_SECONDS_MAX, RATE_MIN, Throttle


class Time:
    """Seconds that a test moves on."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        """Returns the time."""
        return self.now


def _send(throttle: Throttle, time: Time, count: int, rate: float) -> None:
    for _ in range(count):
        throttle.turn(1e9)
        time.now += 1 / rate


def _answer(throttle: Throttle, time: Time, *, seconds: float) -> None:
    end = time.now + seconds
    while time.now < end:
        time.now += throttle.turn(1e9)
        throttle.answered()
        time.now += 1e-9


@given(st.lists(st.floats(0, 10), max_size=200))
def test_without_a_refusal_nobody_waits(gaps: list[float]) -> None:
    time = Time()
    throttle = Throttle(time)
    for gap in gaps:
        time.now += gap
        assert throttle.turn(1e9) == 0
        throttle.answered()
    assert throttle.rate == math.inf


def test_after_a_refusal_calls_wait_as_told_and_go_on_one_by_one() -> None:
    time = Time()
    throttle = Throttle(time)
    _send(throttle, time, 300, rate=100)
    throttle.slow_down(2.0, time.now)
    assert 70 < throttle.rate < 90
    waits = [throttle.turn(1e9) for _ in range(10)]
    assert waits[0] == 2.0
    gaps = [later - earlier for earlier, later in itertools.pairwise(waits)]
    assert all(math.isclose(gap, 1 / throttle.rate) for gap in gaps)


def test_refusals_of_calls_that_were_sent_before_the_last_one_do_not_count_again() -> None:
    time = Time()
    throttle = Throttle(time)
    _send(throttle, time, 200, rate=100)
    sent = time.now - 0.1
    throttle.slow_down(0.1, sent)
    rate = throttle.rate
    time.now += 0.05
    for _ in range(50):
        throttle.slow_down(0.1, sent)
    assert throttle.rate == rate
    throttle.slow_down(0.1, time.now)
    assert throttle.rate == rate, "at most once a second"
    time.now += 1.0
    throttle.slow_down(0.1, time.now)
    assert throttle.rate < rate


def test_a_rate_that_is_answered_grows_by_a_fifth_a_second_and_ends_after_a_calm() -> None:
    time = Time()
    throttle = Throttle(time)
    _send(throttle, time, 200, rate=100)
    throttle.slow_down(0.1, time.now)
    began = throttle.rate
    _answer(throttle, time, seconds=1)
    # Less the tenth of a second that the server had asked for.
    assert 2.3 * began < throttle.rate < 2.8 * began
    ceiling = throttle.rate
    time.now += 1.0
    throttle.slow_down(0.1, time.now)
    began = throttle.rate
    assert began < ceiling
    _answer(throttle, time, seconds=2)
    # Beyond what was too much it grows by a fifth a second, compounded.
    assert 1.3 * began < throttle.rate < 1.6 * began
    time.now += CALM_SECONDS
    assert throttle.turn(1e9) == 0
    assert throttle.rate == math.inf


def test_a_turn_that_comes_too_late_is_left_to_others() -> None:
    time = Time()
    throttle = Throttle(time)
    _send(throttle, time, 200, rate=100)
    throttle.slow_down(5.0, time.now)
    for _ in range(1_000):
        assert throttle.turn(0.5) == 5.0
    time.now += 5.0
    assert throttle.turn(0.5) == 0.0


def test_a_short_delay_is_the_refused_calls_alone() -> None:
    time = Time()
    throttle = Throttle(time)
    _send(throttle, time, 200, rate=100)
    throttle.slow_down(0.5, time.now)
    assert throttle.turn(1.0) == 0.0


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 100)), min_size=1, max_size=100))
def test_no_server_can_stop_a_client(refusals: list[tuple[float, float]]) -> None:
    time = Time()
    throttle = Throttle(time)
    for delay, gap in refusals:
        throttle.turn(1e9)
        time.now += gap
        throttle.slow_down(delay, time.now)
        assert throttle.rate >= RATE_MIN
    # Whoever has taken no turn meanwhile waits for no more than was believed.
    waited = throttle.turn(1e9)
    assert waited <= DELAY_SECONDS_MAX + len(refusals) / RATE_MIN
