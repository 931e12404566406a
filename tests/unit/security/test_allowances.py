"""What one caller may do at a time: token buckets, calls under way, streams, and who is forgotten."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noosphere.consistency import Reason, Refusal
from noosphere.server.security.allowances import CROWDED_RETRY_MS, Allowance, Meter, Meters, Subject


def call(meter: Meter, now_ms: int, *, stream: bool = False) -> int | None:
    """Makes a call that ends at once; returns after how many milliseconds it may be made instead."""
    try:
        meter.begin(Subject.AGENT, "a", now_ms, stream=stream)
    except Refusal as refusal:
        found = refusal
    else:
        meter.end(stream=stream)
        return None
    assert found.reason is Reason.LIMIT_EXCEEDED
    assert found.retry_after_ms is not None
    return found.retry_after_ms


RATES = st.tuples(st.integers(1, 100_000), st.integers(1, 5_000))
STEPS_MS = st.lists(st.integers(0, 5_000), min_size=1, max_size=200)


@given(RATES, STEPS_MS)
def test_no_span_of_time_sees_more_calls_than_the_bucket_and_what_fills_it(
    bucket: tuple[int, int], steps: list[int]
) -> None:
    rate, burst = bucket
    meter = Meter(Allowance(rate, burst), None)
    now_ms, granted = 0, []
    for step in steps:
        now_ms += step
        for _ in range(20):
            if call(meter, now_ms) is None:
                granted.append(now_ms)
    for index, begin_ms in enumerate(granted):
        for count, end_ms in enumerate(granted[index:], 1):
            assert count <= burst + (end_ms - begin_ms) * rate / 1000 + 1e-6


@given(RATES, STEPS_MS)
def test_whoever_waits_as_told_is_let_in_and_a_moment_earlier_is_not(bucket: tuple[int, int], steps: list[int]) -> None:
    rate, burst = bucket
    now_ms = 0
    meter = Meter(Allowance(rate, burst), None)
    for step in steps:
        now_ms += step
        if (wait_ms := call(meter, now_ms)) is not None:
            assert wait_ms <= 1000 / rate + 1
            if wait_ms > 1:
                assert call(meter, now_ms + wait_ms - 2) is not None
            assert call(meter, now_ms + wait_ms) is None
            now_ms += wait_ms


def test_a_full_bucket_is_a_burst_and_no_more() -> None:
    meter = Meter(Allowance(calls_per_second=10, calls_burst=5), None)
    assert [call(meter, 1_000) for _ in range(5)] == [None] * 5
    assert call(meter, 1_000) == 101
    assert call(meter, 1_101) is None
    # Half an hour later it is as full as it gets.
    assert [call(meter, 2_000_000) for _ in range(5)] == [None] * 5
    assert call(meter, 2_000_000) is not None


def test_calls_under_way_and_streams_are_counted_apart() -> None:
    meter = Meter(Allowance(calls_in_flight_max=2, streams_max=1), None)
    for _ in range(2):
        meter.begin(Subject.AGENT, "a", 0, stream=False)
    meter.begin(Subject.AGENT, "a", 0, stream=True)
    with pytest.raises(Refusal, match="calls_in_flight_max: 2 calls at a time are allowed for agent 'a'") as crowded:
        meter.begin(Subject.AGENT, "a", 0, stream=False)
    assert crowded.value.retry_after_ms == CROWDED_RETRY_MS
    with pytest.raises(Refusal, match="streams_max: 1 streams at a time") as open_streams:
        meter.begin(Subject.AGENT, "a", 0, stream=True)
    # Nobody knows when a watch will end; asking again and again would not help.
    assert open_streams.value.retry_after_ms is None
    meter.end(stream=False)
    meter.begin(Subject.AGENT, "a", 0, stream=False)
    assert not meter.idle


def test_a_refused_call_costs_nothing() -> None:
    meter = Meter(Allowance(calls_per_second=1, calls_burst=1), None)
    assert call(meter, 0) is None
    assert {call(meter, 0) for _ in range(1_000)} == {1_001}
    assert call(meter, 1_001) is None


@given(st.lists(st.integers(0, 9), max_size=60))
def test_no_more_callers_are_remembered_than_there_is_room_and_the_newest_are(names: list[int]) -> None:
    meters = Meters(lambda _: Allowance(), lambda: None, size=4)
    for name in names:
        meters.of(("", str(name)))
    newest = list(dict.fromkeys(reversed(names)))[:4]
    assert all(meters.get(("", str(name))) is not None for name in newest)
    assert len(meters) == len(newest)


def test_a_caller_with_calls_under_way_is_not_forgotten_for_one_without() -> None:
    meters = Meters(lambda _: Allowance(), lambda: None, size=2)
    meters.of(("", "busy")).begin(Subject.AGENT, "busy", 0, stream=False)
    for name in ("b", "c", "d"):
        meters.of(("", name))
    assert meters.get(("", "busy")) is not None
    assert len(meters) == 2


def test_new_rules_hold_for_callers_that_are_known() -> None:
    rules = {"a": Allowance(calls_per_second=1, calls_burst=1)}
    version = [1]
    meters = Meters(lambda key: rules[key[1]], lambda: version[0])
    assert call(meters.of(("", "a")), 0) is None
    rules["a"] = Allowance(calls_per_second=1_000, calls_burst=1_000)
    assert call(meters.of(("", "a")), 0) is not None
    version[0] = 2
    assert call(meters.of(("", "a")), 0) is None


def test_calls_without_an_agent_are_told_so() -> None:
    meter = Meter(Allowance(streams_max=1), None)
    meter.begin(Subject.AGENT, "\0ipv4:127.0.0.1:1", 0, stream=True)
    with pytest.raises(Refusal, match="for calls without an agent"):
        meter.begin(Subject.AGENT, "\0ipv4:127.0.0.1:1", 0, stream=True)
