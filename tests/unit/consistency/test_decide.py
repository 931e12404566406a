"""Put and delete: the corners of the table that histories seldom reach."""

from __future__ import annotations

from tests.unit.consistency.key import Key
from tests.unit.consistency.support import refused

from noosphere.consistency import (
    NEVER_MS,
    CausalContext,
    ConflictInfo,
    ConflictPolicy,
    Dot,
    MergeType,
    Precondition,
    Reason,
    decide_claim,
)
from noosphere.consistency.limits import SIBLINGS_BYTES_MAX, SIBLINGS_MAX
from noosphere.consistency.merge import CounterAdd

REJECT, SIBLINGS, LAST = ConflictPolicy.REJECT, ConflictPolicy.SIBLINGS, ConflictPolicy.LAST_WRITER_WINS
NOTHING = CausalContext()
BLIND = Precondition(blind=True)


def seeing(context: CausalContext) -> Precondition:
    return Precondition(context=context)


# -- what a write has seen -------------------------------------------------------------------------


def test_two_writers_who_saw_nothing_and_a_write_from_an_acknowledgement_keep_both() -> None:
    key = Key(SIBLINGS)
    key.put(b"1", seeing(NOTHING))
    second = key.put(b"2", seeing(NOTHING))
    assert second.version is None
    assert second.context == CausalContext(0, (second.revision,))
    third = key.put(b"3", seeing(second.context))
    assert key.values == [b"1", b"3"]
    assert third.context == CausalContext(0, (third.revision,))
    assert key.put(b"4", seeing(key.read)).version == key.version
    assert key.values == [b"4"]


def test_a_context_from_an_acknowledgement_does_not_cover_what_came_before_it_unread() -> None:
    key = Key(REJECT, private=True)
    key.put(b"1")
    key.policy, key.private = SIBLINGS, False
    mine = key.put(b"2", seeing(NOTHING))
    key.policy = REJECT
    conflict = refused(Reason.CONFLICT, key.put, b"3", seeing(mine.context))
    assert isinstance(conflict.detail, ConflictInfo)
    assert [dot.dot for dot in conflict.detail.unseen] == [mine.revision - 1]


def test_version_and_context_together_must_both_hold_under_every_policy() -> None:
    for policy in ConflictPolicy:
        key = Key(policy)
        first = key.put(b"1")
        assert first.version is not None
        assert first.decision.base == NOTHING
        both = Precondition(first.version, NOTHING)
        refused(Reason.CONFLICT, key.put, b"2", both)
        refused(Reason.CONFLICT, key.delete, both)
        refused(Reason.VERSION_MISMATCH, key.put, b"2", Precondition(first.version - 1, key.read))
        assert key.put(b"2", Precondition(first.version, key.read)).version == key.version
        assert key.values == [b"2"]


def test_version_and_context_together_on_an_absent_key_see_its_tombstone() -> None:
    for policy in ConflictPolicy:
        key = Key(policy)
        before = key.put(b"1").context
        key.delete(BLIND)
        refused(Reason.CONFLICT, key.put, b"2", Precondition(0, before))
        key.put(b"2", Precondition(0))
        assert key.values == [b"2"]


def test_compare_and_set_on_a_deleted_key() -> None:
    key = Key()
    version = key.put(b"1").version
    tombstone = key.delete(Precondition(version)).revision
    for expected in (version, tombstone):
        refused(Reason.VERSION_MISMATCH, key.put, b"2", Precondition(expected))
        refused(Reason.VERSION_MISMATCH, key.delete, Precondition(expected))
    assert key.put(b"2", Precondition(0)).version == key.version


def test_without_a_precondition_nobody_overwrites_what_they_never_read() -> None:
    for policy in ConflictPolicy:
        key = Key(policy)
        key.put(b"1", actor="b#1")
        for write in (lambda key=key: key.put(b"2"), lambda key=key: key.delete()):
            refusal = refused(Reason.PRECONDITION_REQUIRED, write)
            assert refusal.detail == ConflictInfo("k", key.version, (Dot(key.version, "b#1", 1_000, False),))
        key.delete(BLIND)
        key.put(b"3")
        assert key.values == [b"3"]


def test_in_a_private_namespace_the_last_writer_wins_and_is_told() -> None:
    key = Key(private=True)
    first = key.put(b"1")
    second = key.put(b"2")
    assert [dot.dot for dot in second.decision.overwritten] == [first.revision]
    assert second.version == second.revision
    assert [dot.dot for dot in key.delete().decision.overwritten] == [second.revision]
    # A context is judged there as anywhere.
    refused(Reason.CONFLICT, key.put, b"3", seeing(NOTHING))


def test_a_blind_write_lists_every_value_that_it_replaces() -> None:
    key = Key(SIBLINGS)
    dots = [key.put(b"1", seeing(NOTHING), actor=f"{n}#1").revision for n in range(3)]
    ack = key.put(b"2", BLIND)
    assert [(d.dot, d.actor, d.deleted) for d in ack.decision.overwritten] == [
        (dots[n], f"{n}#1", False) for n in (2, 1, 0)
    ]
    assert ack.decision.events[-1].overwritten == ack.decision.overwritten
    assert (ack.version, ack.context) == (ack.revision, CausalContext(ack.revision))


def test_the_last_writer_lists_the_unseen_delete_that_it_undoes() -> None:
    key = Key(LAST)
    before = key.put(b"1").context
    gone = key.delete(BLIND, actor="b#1")
    ack = key.put(b"2", seeing(before))
    assert [(d.dot, d.actor, d.deleted) for d in ack.decision.overwritten] == [(gone.revision, "b#1", True)]


def test_an_unseen_delete_yields_to_a_value_among_siblings_and_is_reported() -> None:
    key = Key(SIBLINGS)
    before = key.put(b"1").context
    key.delete(BLIND)
    ack = key.put(b"2", seeing(before))
    assert ack.decision.concurrent_delete
    assert (key.values, ack.version) == ([b"2"], ack.revision)
    assert not key.put(b"3", seeing(ack.context)).decision.concurrent_delete


# -- the limit of siblings -------------------------------------------------------------------------


def test_there_are_at_most_16_siblings_and_none_is_dropped() -> None:
    key = Key(SIBLINGS)
    dots = [key.put(b"1", seeing(NOTHING), actor=f"{n}#1").revision for n in range(SIBLINGS_MAX)]
    refusal = refused(Reason.SIBLING_LIMIT, key.put, b"2", seeing(NOTHING))
    assert isinstance(refusal.detail, ConflictInfo)
    assert refusal.detail.unseen == tuple(Dot(dots[n], f"{n}#1", 1_000, False) for n in reversed(range(SIBLINGS_MAX)))
    assert len(key.values) == SIBLINGS_MAX
    # Who has seen one of them may replace it; who has seen all may replace all.
    ack = key.put(b"2", seeing(CausalContext(0, (dots[3],))))
    assert (len(key.values), ack.version) == (SIBLINGS_MAX, None)
    assert key.put(b"3", seeing(key.read)).version == key.version


def test_siblings_are_at_most_so_large_together_and_none_is_dropped() -> None:
    key = Key(SIBLINGS, item_bytes_max=SIBLINGS_BYTES_MAX)
    half = b"1" * (SIBLINGS_BYTES_MAX // 2)
    first = key.put(half, seeing(NOTHING))
    second = key.put(half, seeing(NOTHING))
    refusal = refused(Reason.SIBLING_LIMIT, key.put, b"2", seeing(NOTHING))
    assert "has 2 siblings" in refusal.message
    assert "with this value 917505 bytes, the limit is 917504" in refusal.message
    assert isinstance(refusal.detail, ConflictInfo)
    assert [dot.dot for dot in refusal.detail.unseen] == [second.revision, first.revision]
    assert key.values == [half, half]
    # Who has seen one of them may replace it, and who has seen all may write as much as any value may have.
    key.put(half, seeing(first.context))
    assert key.put(half + half, seeing(key.read)).version == key.version


def test_a_context_may_name_all_siblings_one_by_one() -> None:
    key = Key(SIBLINGS)
    dots = [key.put(b"1", seeing(NOTHING), actor=f"{n}#1").revision for n in range(SIBLINGS_MAX)]
    context = CausalContext(0, tuple(dots))
    context.check()
    assert key.put(b"2", seeing(context)).version == key.version


# -- delete ----------------------------------------------------------------------------------------


def test_among_siblings_a_delete_removes_what_was_observed() -> None:
    key = Key(SIBLINGS)
    seen = key.put(b"1", seeing(NOTHING), attributes=(("n", 1),))
    key.put(b"2", seeing(NOTHING), attributes=(("n", 2),))
    ack = key.delete(seeing(seen.context))
    assert (key.values, ack.version, ack.context) == ([b"2"], None, CausalContext(seen.revision))
    assert not ack.decision.members
    assert key.stored.attributes == (("n", 2),)
    assert key.stored.deleted_ms == 0
    # What survived is not covered by the acknowledgement.
    key.policy = REJECT
    refused(Reason.CONFLICT, key.delete, seeing(ack.context))


def test_a_delete_takes_attributes_type_and_claim_with_it() -> None:
    key = Key()
    key.merge(CounterAdd(1))
    key.delete(BLIND)
    key.put(b"1", attributes=(("n", 1),))
    key.apply(decide_claim(key.stored, "a#1", key.now_ms, 1_000))
    assert key.stored.claim is not None
    ack = key.delete(BLIND)
    tombstone = key.stored
    assert (tombstone.attributes, tombstone.merge_type, tombstone.claim) == ((), MergeType.NONE, None)
    assert (tombstone.deleted_ms, tombstone.live_until_ms, tombstone.next_expiry_ms) == (key.now_ms, 0, NEVER_MS)
    assert ack.decision.members
    assert (ack.version, ack.context) == (0, CausalContext(ack.revision))


def test_a_delete_that_nobody_saw_conflicts_or_is_listed() -> None:
    key = Key()
    before = key.put(b"1").context
    key.put(b"2", BLIND)
    refused(Reason.CONFLICT, key.delete, seeing(before))
    key.policy = LAST
    assert [d.dot for d in key.delete(seeing(before)).decision.overwritten] == [key.head - 1]
