"""Counts of callers: exact for few names, bounded for many, and never without the busiest."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noosphere.consistency import Reason
from noosphere.server.security.usage import NAME_CHARS_MAX, By, Order, Tallies, Usage


@given(st.lists(st.integers(0, 30), max_size=400), st.integers(1, 12))
def test_busy_names_are_kept_and_no_count_is_too_low(names: list[int], names_max: int) -> None:
    tallies = Tallies(names_max)
    for number in names:
        tallies.count(f"n{number}", 0)
    true = Counter(f"n{name}" for name in names)
    assert len(tallies) == min(names_max, len(true))
    for name, calls in true.items():
        kept = tallies.get(name)
        assert kept is not None or calls <= len(names) / names_max
        if kept is not None:
            assert kept.calls - kept.calls_over <= calls <= kept.calls
    assert sum(tally.calls for tally in tallies.top(100)) == len(names)


@given(st.lists(st.integers(0, 9), max_size=100))
def test_as_long_as_all_names_fit_counts_are_exact(names: list[int]) -> None:
    tallies = Tallies(10)
    for name in names:
        tallies.count(str(name), 0)
    assert {tally.name: tally.calls for tally in tallies.top(10)} == Counter(map(str, names))
    assert all(tally.calls_over == 0 for tally in tallies.top(10))


def test_a_call_counts_for_everybody_whom_it_names() -> None:
    now = iter(range(100, 200))
    usage = Usage(lambda: next(now))
    usage.count("p", "a", "shared/x", bytes_in=10, bytes_out=20)
    usage.count("p", "b", "shared/x", bytes_in=1, reason=Reason.CONFLICT, conflict=True)
    usage.count("", "", "", reason=Reason.PERMISSION_DENIED)
    (p, nobody) = usage.by(By.PRINCIPAL).top(9)
    assert (p.name, p.calls, p.conflicts, p.bytes_in, p.bytes_out) == ("p", 2, 1, 11, 20)
    assert (p.since_ms, p.last_ms, p.refusals) == (101, 102, {Reason.CONFLICT: 1})
    assert (nobody.name, nobody.refusals) == ("", {Reason.PERMISSION_DENIED: 1})
    assert [tally.name for tally in usage.by(By.AGENT).top(9)] == ["a", "b"]
    assert [tally.calls for tally in usage.by(By.NAMESPACE).top(9)] == [2]


@pytest.mark.parametrize(
    ("order", "first"),
    [
        (Order.CALLS, "often"),
        (Order.REFUSALS, "refused"),
        (Order.CONFLICTS, "late"),
        (Order.BYTES, "large"),
        (Order.RECENT, "new"),
    ],
)
def test_each_order_puts_another_name_first(order: Order, first: str) -> None:
    now = iter(range(100))
    usage = Usage(lambda: next(now))
    for _ in range(5):
        usage.count("often", "", "")
    for _ in range(2):
        usage.count("refused", "", "", reason=Reason.INVALID_FIELD)
    usage.count("late", "", "", reason=Reason.CONFLICT, conflict=True)
    usage.count("large", "", "", bytes_out=1_000)
    usage.count("new", "", "")
    assert usage.by(By.PRINCIPAL).top(1, order)[0].name == first


def test_names_too_long_to_be_anybodys_are_not_kept() -> None:
    usage = Usage(lambda: 0)
    usage.count("p" * 10_000, "a" * (NAME_CHARS_MAX + 1), "n" * (NAME_CHARS_MAX + 1))
    assert not len(usage.by(By.AGENT))
    assert not len(usage.by(By.NAMESPACE))
    assert [len(tally.name) for tally in usage.by(By.PRINCIPAL).top(1)] == [NAME_CHARS_MAX]
