"""What the driver of Weaviate decides without one: names, and when it asks again."""

from __future__ import annotations

import string

from hypothesis import given
from hypothesis import strategies as st
from tests.contract.factlab import ODD

from noosphere.consistency import NEVER_MS
from noosphere.server.ports.factstore import FactKey
from noosphere.server.storage.weaviate.breaker import FAILURES_MAX, PAUSE_MS_MAX, Breaker
from noosphere.server.storage.weaviate.counted import KEPT_MAX, KEPT_MS_MAX, Counted
from noosphere.server.storage.weaviate.naming import (
    SLICES,
    bucket_name,
    bucket_of,
    key_of,
    key_text,
    moment,
    object_id,
    slice_of,
    text_of,
    word,
)
from noosphere.testing import ManualClock

TEXTS = st.sampled_from(ODD) | st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
KEYS = st.builds(FactKey, TEXTS, TEXTS, st.integers(1, (1 << 63) - 1))
PLAIN = frozenset(string.ascii_lowercase + string.digits + "=")


@given(TEXTS, TEXTS)
def test_a_word_stands_for_one_text_and_is_syntax_nowhere(one: str, other: str) -> None:
    assert text_of(word(one)) == one
    assert (word(one) == word(other)) == (one == other)
    assert set(word(one)) <= PLAIN


@given(KEYS, KEYS)
def test_texts_of_keys_are_ordered_as_keys_are(one: FactKey, other: FactKey) -> None:
    assert key_of(key_text(one)) == one
    assert (key_text(one) < key_text(other)) == (one < other)
    assert (object_id(one) == object_id(other)) == (one == other)


def test_parts_of_a_key_cannot_be_taken_for_each_other() -> None:
    keys = [FactKey("a", "bc", 1), FactKey("ab", "c", 1), FactKey("a", "b", 1), FactKey("a", "b1", 1)]
    keys += [FactKey("a", "b", 11), FactKey("1:a", "b", 1), FactKey("a1:b", "b", 1)]
    assert len({object_id(key) for key in keys}) == len(keys)


@given(TEXTS, st.integers(1, 256))
def test_a_scope_is_always_in_the_same_bucket_which_there_is(scope: str, buckets: int) -> None:
    assert bucket_of(scope, buckets) in {bucket_name(number) for number in range(buckets)}
    assert bucket_of(scope, buckets) == bucket_of(scope, buckets)


def test_slices_are_about_as_large_as_each_other() -> None:
    counts = [0] * 8
    for at in range(8_000):
        counts[slice_of(object_id(FactKey("shared/a", f"f{at}", 1))) * 8 // SLICES] += 1
    assert all(800 <= count <= 1_200 for count in counts)


@given(st.integers(0, NEVER_MS), st.integers(0, NEVER_MS))
def test_moments_are_ordered_as_times_are(one: int, other: int) -> None:
    if one <= other:
        assert moment(one) <= moment(other)
    if one < other and (one < 1 << 52 or other == NEVER_MS):
        assert moment(one) < moment(other)
    assert float(moment(one)) == moment(one)


STEPS = st.lists(st.sampled_from(["answered", "failed", "given up"]) | st.integers(1, 20_000), max_size=60)


@given(STEPS)
def test_an_engine_that_does_not_answer_is_asked_one_call_at_a_time_and_never_forgotten(steps: list[str | int]) -> None:
    clock = ManualClock()
    breaker = Breaker(clock)
    failures = 0
    for step in steps:
        if isinstance(step, int):
            clock.advance(step)
            continue
        wait_ms = breaker.wait_ms()
        assert 0 <= wait_ms <= PAUSE_MS_MAX
        assert wait_ms == 0 or failures >= FAILURES_MAX
        if wait_ms:
            continue
        probes = breaker.began()
        assert probes == (failures >= FAILURES_MAX)
        assert not probes or breaker.wait_ms() > 0, "a second call waits for the first one after a pause"
        if step == "answered":
            breaker.succeeded()
            failures = 0
        elif step == "failed":
            breaker.failed()
            failures += 1
        else:
            breaker.given_up()
        assert breaker.open == (failures >= FAILURES_MAX)
    clock.advance(PAUSE_MS_MAX)
    assert breaker.wait_ms() == 0


def test_what_was_counted_is_kept_for_a_moment_unless_something_changes() -> None:
    clock = ManualClock()
    counted: Counted[str, int] = Counted(clock)
    counted.put("a", 1, counted.changes)
    clock.advance(KEPT_MS_MAX - 1)
    assert counted.get("a") == 1
    clock.advance(1)
    assert counted.get("a") is None
    since = counted.changes
    counted.put("a", 2, since)
    counted.forget()
    assert counted.get("a") is None
    counted.put("a", 3, since)
    assert counted.get("a") is None, "it was counted before the change"
    for at in range(KEPT_MAX + 1):
        counted.put(str(at), at, counted.changes)
    assert (counted.get("0"), counted.get(str(KEPT_MAX))) == (None, KEPT_MAX)
