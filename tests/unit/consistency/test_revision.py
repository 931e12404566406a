"""Revisions: one order in numbers and in text, never reused, and lost ones are known as lost."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noosphere.consistency import (
    EPOCH_MAX,
    REVISION_MAX,
    SEQ_BITS,
    Cut,
    LostRange,
    epoch_of,
    find_lost,
    make_revision,
    next_revision,
    revisions_back,
    seq_of,
    to_hex,
)
from noosphere.consistency.revision import SEQ_MAX

epochs = st.integers(0, EPOCH_MAX)
seqs = st.integers(0, SEQ_MAX)
revisions = st.builds(make_revision, epochs, seqs)


@given(revisions, revisions)
def test_the_order_of_the_hex_text_is_the_order_of_the_numbers(one: int, other: int) -> None:
    assert (to_hex(one) < to_hex(other)) == (one < other)
    assert len(to_hex(one)) == 16
    assert int(to_hex(one), 16) == one


def test_order_where_naive_texts_and_floats_go_wrong() -> None:
    assert to_hex(9) < to_hex(10)
    beyond_float = make_revision(9_000, 1)
    assert float(beyond_float) == float(beyond_float - 1)
    assert to_hex(beyond_float - 1) < to_hex(beyond_float)
    assert to_hex(REVISION_MAX) == "7fffffffffffffff" > to_hex(REVISION_MAX - 1)


@given(epochs, seqs)
def test_a_revision_consists_of_epoch_and_sequence(epoch: int, seq: int) -> None:
    revision = make_revision(epoch, seq)
    assert (epoch_of(revision), seq_of(revision)) == (epoch, seq)
    assert 0 <= revision <= REVISION_MAX


@pytest.mark.parametrize(("epoch", "seq"), [(-1, 0), (EPOCH_MAX + 1, 0), (0, -1), (0, SEQ_MAX + 1)])
def test_parts_out_of_range_are_refused(epoch: int, seq: int) -> None:
    with pytest.raises(ValueError, match="out of range"):
        make_revision(epoch, seq)


@given(revisions, epochs)
def test_the_next_revision_is_above_the_head_and_in_the_newer_epoch(head: int, epoch: int) -> None:
    following = next_revision(head, epoch)
    assert following > head
    if epoch > epoch_of(head):
        assert following == make_revision(epoch, 1)
    else:
        assert following == head + 1


# -- what was lost ---------------------------------------------------------------------------------


histories = st.lists(
    st.tuples(
        st.integers(0, 4).map(lambda commits: ("commit", commits))
        | st.tuples(st.just("crash"), st.integers(0, 3))
        | st.just(("unused epoch", 0))
    ).map(lambda only: only[0]),
    max_size=12,
)


class Lived(NamedTuple):
    """What became of a namespace's revisions."""

    cuts: list[Cut]
    issued: set[int]
    lineage: list[int]


def live(history: list[tuple[str, int]]) -> Lived:
    """Lets a namespace live through crashes that cut off its newest commits; some epochs never touch it."""
    epoch, head = 1, 0
    cuts = [Cut(1, 0)]
    issued: set[int] = set()
    lineage: list[int] = []
    for event, count in history:
        if event == "commit":
            for _ in range(count):
                head = next_revision(head, epoch)
                assert head not in issued
                issued.add(head)
                lineage.append(head)
        elif event == "crash":
            lineage = lineage[: max(0, len(lineage) - count)]
            head = lineage[-1] if lineage else 0
            epoch += 1
            cuts.append(Cut(epoch, head))
        else:
            epoch += 1
            cuts.append(Cut(epoch, head))
    return Lived(cuts, issued, lineage)


@given(histories)
def test_exactly_the_revisions_that_did_not_survive_are_lost(history: list[tuple[str, int]]) -> None:
    cuts, issued, lineage = live(history)
    for revision in issued:
        lost = find_lost(revision, cuts)
        assert (lost is None) == (revision in lineage)
        if lost is not None:
            assert lost.after < revision <= lost.through
            assert not any(lost.after < survivor <= lost.through for survivor in lineage)
    assert find_lost(0, cuts) is None


@given(histories, st.integers(0, 20))
def test_going_back_counts_what_was_issued_and_survived(history: list[tuple[str, int]], count: int) -> None:
    cuts, _, lineage = live(history)
    start = revisions_back(lineage[-1] if lineage else 0, count, cuts)
    assert start >= 0
    assert [revision for revision in lineage if revision > start] == lineage[max(0, len(lineage) - count) :]


def test_the_edges_of_a_lost_range() -> None:
    cut = make_revision(1, 7)
    cuts = (Cut(1, 0), Cut(3, cut))
    assert find_lost(cut, cuts) is None
    lost = LostRange(cut, 3 << SEQ_BITS)
    assert find_lost(cut + 1, cuts) == find_lost(make_revision(2, 1), cuts) == find_lost(3 << SEQ_BITS, cuts) == lost
    assert find_lost(make_revision(3, 1), cuts) is None
