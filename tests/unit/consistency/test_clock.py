"""Clocks: the order they tell is that of the history, however many agents wrote and were folded away."""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noosphere.consistency import Order, VersionClock
from noosphere.consistency.limits import CLOCK_ENTRIES_MAX

OPPOSITE = {
    Order.EQUAL: Order.EQUAL,
    Order.BEFORE: Order.AFTER,
    Order.AFTER: Order.BEFORE,
    Order.CONCURRENT: Order.CONCURRENT,
}


class Write(NamedTuple):
    actor: str
    revision: int


EMPTY = VersionClock()


def clocks_of(writes: list[Write], start: VersionClock = EMPTY) -> list[VersionClock]:
    """Returns the record's clock after each write."""
    clocks, clock = [], start
    for write in writes:
        clock = clock.written_by(write.actor).at(write.revision)
        clocks.append(clock)
    return clocks


@st.composite
def histories(draw: st.DrawFn, first: int = 1) -> list[Write]:
    """Writes to one record by up to 300 agents; revisions in between belong to other records."""
    actors = draw(st.sampled_from([1, 2, 5, CLOCK_ENTRIES_MAX, CLOCK_ENTRIES_MAX + 1, 40, 300]))
    count = draw(st.integers(1, 80))
    chance = random.Random(draw(st.integers(0, 2**32)))
    writes, revision = [], first
    for _ in range(count):
        writes.append(Write(f"agent-{chance.randrange(actors)}#{chance.randrange(1, 3)}", revision))
        revision += chance.choice((1, 1, 2, 50))
    return writes


@given(histories())
def test_the_order_of_a_record_s_clocks_is_the_order_of_its_history(writes: list[Write]) -> None:
    clocks = clocks_of(writes)
    for i, earlier in enumerate(clocks):
        assert earlier.compare(earlier) is Order.EQUAL
        assert EMPTY.compare(earlier) is Order.BEFORE
        for later in clocks[i + 1 :]:
            assert earlier.compare(later) is Order.BEFORE
            assert later.compare(earlier) is Order.AFTER


@given(histories())
def test_a_clock_includes_the_writes_before_it_and_none_after_it(writes: list[Write]) -> None:
    for i, clock in enumerate(clocks_of(writes)):
        assert all(clock.includes(*write) for write in writes[: i + 1])
        assert not any(clock.includes(*write) for write in writes[i + 1 :])


@given(histories())
def test_a_clock_has_at_most_16_entries_one_per_actor_newest_last(writes: list[Write]) -> None:
    for i, clock in enumerate(clocks_of(writes)):
        newest = {write.actor: write.revision for write in writes[: i + 1]}
        assert len(clock.entries) == min(len(newest), CLOCK_ENTRIES_MAX)
        assert clock.entries == tuple(sorted(newest.items(), key=lambda entry: entry[1]))[-CLOCK_ENTRIES_MAX:]
        folded = [revision for actor, revision in newest.items() if actor not in dict(clock.entries)]
        assert clock.base >= max(folded, default=0)
        assert clock.base < clock.entries[0][1]


@given(histories())
def test_unseen_writes_are_named(writes: list[Write]) -> None:
    clocks = clocks_of(writes)
    for i, earlier in enumerate(clocks):
        for j, later in enumerate(clocks[i:], i):
            newest = {write.actor: write.revision for write in writes[i + 1 : j + 1]}
            wanted = sorted(newest.items(), key=lambda entry: entry[1])[-CLOCK_ENTRIES_MAX:]
            assert later.unseen_by(earlier) == tuple(wanted)
            assert earlier.unseen_by(later) == ()


@given(histories(), histories(first=10_000), histories(first=20_000))
def test_branches_of_a_history_that_was_cut_are_concurrent(
    common: list[Write], lost: list[Write], kept: list[Write]
) -> None:
    """As long as the branch that went on names its writers: what was folded away is no longer told apart."""
    fork = clocks_of(common)[-1]
    lost_clock = clocks_of([Write(f"lost-{actor}", revision) for actor, revision in lost], fork)[-1]
    for clock in clocks_of(kept, fork):
        allowed = {Order.CONCURRENT} if clock.base < lost[0].revision else {Order.CONCURRENT, Order.AFTER}
        assert clock.compare(lost_clock) in allowed
        assert fork.compare(clock) is Order.BEFORE


@given(histories(), histories(first=10_000), histories(first=20_000), st.randoms())
def test_comparison_is_a_partial_order(
    common: list[Write], lost: list[Write], kept: list[Write], chance: random.Random
) -> None:
    fork = clocks_of(common)
    clocks = [*fork, *clocks_of(lost, fork[-1]), *clocks_of(kept, fork[-1])]
    for _ in range(60):
        one, two, three = (chance.choice(clocks) for _ in range(3))
        assert one.compare(two) is OPPOSITE[two.compare(one)]
        up_to = (Order.EQUAL, Order.BEFORE)
        if one.compare(two) in up_to and two.compare(three) in up_to:
            assert one.compare(three) in up_to
            if one.compare(three) is Order.EQUAL:
                assert one.compare(two) is two.compare(three) is Order.EQUAL


def clocks(actors: str = "abc", revision_max: int = 6) -> st.SearchStrategy[VersionClock]:
    """Any clock at all, of whatever history."""
    entries = st.dictionaries(st.sampled_from(actors), st.integers(1, revision_max), max_size=len(actors))
    return st.builds(
        lambda held, base: VersionClock(tuple(sorted(held.items(), key=lambda entry: entry[1])), base),
        entries,
        st.integers(0, revision_max),
    )


@given(clocks(), clocks(), clocks())
def test_comparison_is_a_partial_order_of_any_clocks(one: VersionClock, two: VersionClock, three: VersionClock) -> None:
    """A client may compare clocks of different records and of lost histories: the answer must make sense in itself."""
    up_to = (Order.EQUAL, Order.BEFORE)
    assert one.compare(one) is Order.EQUAL
    assert one.compare(two) is OPPOSITE[two.compare(one)]
    if one.compare(two) in up_to and two.compare(three) in up_to:
        assert one.compare(three) in up_to


@given(clocks(), clocks())
def test_a_later_clock_includes_all_of_an_earlier_one(one: VersionClock, two: VersionClock) -> None:
    everything = [(actor, revision) for actor in "abcd" for revision in range(1, 8)]
    if one.compare(two) in (Order.EQUAL, Order.BEFORE):
        assert all(two.includes(*write) for write in everything if one.includes(*write))
        assert one.unseen_by(two) == ()


def test_a_base_alone_stands_for_everything_before_it() -> None:
    named = VersionClock((("a#1", 3),))
    folded = VersionClock((), base=5)
    after = VersionClock((("b#1", 7),), base=5)
    assert named.compare(folded) is Order.BEFORE
    assert folded.compare(after) is Order.BEFORE
    assert named.compare(after) is Order.BEFORE
    assert folded.compare(VersionClock((), base=5)) is Order.EQUAL


@pytest.mark.parametrize("actors", [1, CLOCK_ENTRIES_MAX, 500])
def test_the_clock_s_size_does_not_grow_with_the_number_of_agents(actors: int) -> None:
    writes = [Write(f"agent-{n % actors}#1", n + 1) for n in range(1_000)]
    assert len(clocks_of(writes)[-1].entries) == min(actors, CLOCK_ENTRIES_MAX)


def test_a_clock_without_a_placeholder_stays_as_it_is() -> None:
    clock = VersionClock((("a#1", 3),), base=1)
    assert clock.at(9) == clock
    assert EMPTY.at(9) == EMPTY
    assert clock.written_by("a#1").at(9) == VersionClock((("a#1", 9),), base=1)
