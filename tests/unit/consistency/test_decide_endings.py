"""Expiry, reaping and merges: the corners of the table that histories seldom reach."""

from __future__ import annotations

import json

import pytest
from tests.unit.consistency.key import Key
from tests.unit.consistency.support import refused

from noosphere.consistency import (
    NEVER_MS,
    CausalContext,
    ChangeKind,
    ConflictInfo,
    ConflictPolicy,
    Dot,
    LimitInfo,
    MergeType,
    Order,
    Precondition,
    Put,
    Reason,
    VersionClock,
    check_item_size,
    decide_expiry,
    decide_reap,
)
from noosphere.consistency.limits import MERGED_REPLY_BYTES_MAX
from noosphere.consistency.merge import CounterAdd, LogAppend, SetUpdate

REJECT, SIBLINGS, LAST = ConflictPolicy.REJECT, ConflictPolicy.SIBLINGS, ConflictPolicy.LAST_WRITER_WINS
NOTHING = CausalContext()
BLIND = Precondition(blind=True)


def seeing(context: CausalContext) -> Precondition:
    return Precondition(context=context)


# -- time ------------------------------------------------------------------------------------------


def test_a_value_ends_exactly_at_its_time_whether_or_not_anybody_swept() -> None:
    key = Key()
    ack = key.put(b"1", ttl_ms=10)
    key.now_ms += 9
    assert (key.values, key.version, key.read) == ([b"1"], ack.revision, CausalContext(ack.revision))
    assert decide_expiry(key.stored, key.now_ms) is None
    key.now_ms += 1
    assert (key.values, key.version) == ([], 0)
    key.head += 5
    assert key.read == CausalContext(key.head)
    refused(Reason.VERSION_MISMATCH, key.put, b"2", Precondition(ack.version))
    refused(Reason.VERSION_MISMATCH, key.delete, Precondition(ack.version))


def test_a_put_over_an_expired_record_is_an_expiry_and_a_put_in_one_revision() -> None:
    key = Key()
    first = key.put(b"1", ttl_ms=10, attributes=(("n", 1),))
    key.now_ms += 10
    ack = key.put(b"2", Precondition(0))
    kinds = [(event.kind, event.actor) for event in ack.decision.events]
    assert kinds == [(ChangeKind.EXPIRE, ""), (ChangeKind.PUT, "a#1")]
    assert ack.decision.members
    assert (key.stored.created_ms, key.stored.attributes) == (key.now_ms, ())
    assert ack.revision == first.revision + 1


def test_an_expired_value_is_a_tombstone_that_keeps_its_dot() -> None:
    for swept in (False, True):
        key = Key()
        unread = CausalContext(key.head)
        read = key.put(b"1", ttl_ms=10, attributes=(("n", 1),)).context
        key.now_ms += 10
        if swept:
            ack = key.sweep()
            assert [event.kind for event in ack.decision.events] == [ChangeKind.EXPIRE]
            assert (key.stored.stored, key.stored.siblings[0].dot) == (ack.revision, ack.revision - 1)
            assert (key.stored.deleted_ms, key.stored.attributes) == (key.now_ms, ())
        conflict = refused(Reason.CONFLICT, key.put, b"2", seeing(unread))
        assert isinstance(conflict.detail, ConflictInfo)
        assert [(d.dot, d.deleted) for d in conflict.detail.unseen] == [(read.prefix, True)]
        assert key.put(b"2", seeing(read)).version == key.version


def test_one_sibling_of_several_may_expire() -> None:
    key = Key(SIBLINGS)
    ending = key.put(b"1", seeing(NOTHING), ttl_ms=10, attributes=(("n", 1),))
    staying = key.put(b"2", seeing(NOTHING), attributes=(("n", 2),))
    assert (key.stored.next_expiry_ms, key.stored.live_until_ms) == (key.now_ms + 10, NEVER_MS)
    key.now_ms += 10
    assert (key.values, key.version) == ([b"2"], staying.revision)
    ack = key.sweep()
    assert not ack.decision.members
    assert ack.decision.live
    assert (key.stored.attributes, key.stored.deleted_ms) == ((("n", 2),), 0)
    assert (key.version, key.read) == (ack.revision, CausalContext(ack.revision))
    # The end of the first is unseen to who saw the second only.
    ack = key.put(b"3", seeing(CausalContext(0, (staying.revision,))))
    assert ack.decision.concurrent_delete
    assert key.values == [b"3"]
    assert not CausalContext(0, (staying.revision,)).covers(ending.revision)


def test_a_merge_keeps_the_time_of_what_it_changes_and_starts_anew_after_it() -> None:
    key = Key()
    key.put(b"1", ttl_ms=10)
    key.delete(BLIND)
    key.merge(CounterAdd(1))
    key.put(b"5", Precondition(key.version), ttl_ms=10)
    key.now_ms += 9
    key.merge(CounterAdd(1))
    assert key.values == [b"6"]
    assert key.stored.next_expiry_ms == key.now_ms + 1
    key.now_ms += 1
    ack = key.merge(LogAppend(("1",)))
    assert [event.kind for event in ack.decision.events] == [ChangeKind.EXPIRE, ChangeKind.MERGE]
    assert (key.stored.merge_type, key.stored.next_expiry_ms) == (MergeType.LOG, NEVER_MS)


# -- reaping ---------------------------------------------------------------------------------------


def test_delete_reap_recreate_and_write_with_the_old_context() -> None:
    key = Key(SIBLINGS)
    old = key.put(b"1").context
    gone = key.delete(BLIND)
    head = key.head
    assert decide_reap(key.stored, key.now_ms + 3_599_999, 3_600_000) is None
    ack = key.reap()
    assert (ack.decision.events, ack.decision.members, key.record) == ((), False, None)
    assert (key.head, key.floor) == (head + 1, gone.revision)
    for policy in ConflictPolicy:
        key.policy = policy
        refusal = refused(Reason.CONTEXT_TOO_OLD, key.put, b"2", seeing(old))
        assert refusal.detail == ConflictInfo("k", 0)
        refused(Reason.CONTEXT_TOO_OLD, key.put, b"2", Precondition(0, old))
    key.put(b"2", seeing(key.read))
    key.policy = REJECT
    refused(Reason.CONFLICT, key.put, b"3", seeing(old))


def test_a_context_at_the_floor_has_seen_the_end() -> None:
    key = Key()
    key.put(b"1")
    seen = key.delete(BLIND).context
    key.reap()
    assert seen.prefix == key.floor
    assert key.put(b"2", seeing(seen)).version == key.version


def test_only_what_has_no_value_is_reaped() -> None:
    key = Key()
    key.put(b"1", ttl_ms=10)
    key.now_ms += 10
    # Expired, but nobody has been told yet: the sweep comes first.
    assert decide_reap(key.stored, key.now_ms + 10**9, 3_600_000) is None
    key.sweep()
    assert decide_reap(key.stored, key.now_ms + 3_599_999, 3_600_000) is None
    key.reap()
    assert key.floor == key.head - 2


def test_the_clock_of_a_new_life_comes_after_that_of_the_reaped_one() -> None:
    key = Key()
    clocks: list[VersionClock] = []
    for actor in ("a#1", "b#1"):
        key.put(b"1", BLIND, actor=actor)
        clocks.append(key.stored.clock)
    key.delete(BLIND, actor="c#1")
    clocks.append(key.stored.clock)
    key.reap()
    key.put(b"2", actor="d#1")
    assert all(clock.compare(key.stored.clock) is Order.BEFORE for clock in clocks)
    assert clocks[-1].unseen_by(key.stored.clock) == ()


# -- merges ----------------------------------------------------------------------------------------


def test_merging_into_what_was_not_read_gives_no_right_to_replace_it() -> None:
    key = Key()
    key.merge(LogAppend((f'"{"x" * MERGED_REPLY_BYTES_MAX}"',)), actor="b#1")
    ack = key.merge(LogAppend(("1",)), actor="a#1")
    assert (ack.decision.merged, ack.version, ack.context) == (None, None, NOTHING)
    refused(Reason.PRECONDITION_REQUIRED, key.put, b"[]", seeing(ack.context))
    refused(Reason.CONFLICT, key.delete, seeing(ack.context))
    assert key.put(b"[]", Precondition(key.version)).version == key.version


def test_a_merge_whose_result_is_shown_has_read_it() -> None:
    key = Key()
    key.merge(CounterAdd(2), actor="b#1")
    ack = key.merge(CounterAdd(3))
    assert (ack.decision.merged, ack.version, ack.context) == (b"5", ack.revision, CausalContext(ack.revision))
    key.put(b"0", Precondition(ack.version))
    assert key.values == [b"0"]


@pytest.mark.parametrize("beyond", [0, 1])
def test_a_result_is_shown_up_to_128_bytes(beyond: int) -> None:
    key = Key()
    key.merge(LogAppend(("1",)))
    rest = MERGED_REPLY_BYTES_MAX - len('[1,""]') + beyond
    ack = key.merge(LogAppend((f'"{"x" * rest}"',)))
    assert (ack.decision.merged is None, ack.version is None) == (bool(beyond), bool(beyond))


def test_who_begins_a_record_knows_it_however_large() -> None:
    key = Key()
    ack = key.merge(LogAppend((f'"{"x" * MERGED_REPLY_BYTES_MAX}"',)))
    assert (ack.decision.merged, ack.version) == (None, ack.revision)


def test_what_was_read_before_a_merge_stays_read() -> None:
    key = Key()
    key.merge(SetUpdate(add=(f'"{"x" * MERGED_REPLY_BYTES_MAX}"', "1")))
    read = key.read
    key.merge(SetUpdate(add=("2",)), actor="b#1")
    ack = key.merge(SetUpdate(add=("3",), remove=("1",), context=read))
    assert (ack.version, ack.context) == (None, read)


def test_when_a_typed_record_ends_its_type_ends() -> None:
    for swept in (False, True):
        key = Key()
        key.merge(CounterAdd(1))
        key.put(b"2", Precondition(key.version), ttl_ms=10)
        key.now_ms += 10
        if swept:
            key.sweep()
            assert key.stored.merge_type is MergeType.NONE
        key.put(b'"plain"')
        assert (key.values, key.stored.merge_type) == ([b'"plain"'], MergeType.NONE)


def test_a_value_may_be_as_large_as_the_limit() -> None:
    assert check_item_size(Put(b"1234"), 4) is None
    refusal = check_item_size(Put(b"12345"), 4)
    assert refusal is not None
    assert (refusal.reason, refusal.detail) == (Reason.VALUE_TOO_LARGE, LimitInfo("value", 5, 4))


def test_a_plain_put_on_a_typed_record_fits_in_the_form_that_readers_see() -> None:
    key = Key(item_bytes_max=20)
    key.merge(LogAppend(("1",)))
    refused(Reason.VALUE_TOO_LARGE, key.put, b"[1e15,0]", Precondition(key.version))
    key.put(b"[1e15]", Precondition(key.version))
    assert key.values == [b'{"e":[1000000000000000.0],"t":0}']
    key.put(b"[ 1 , 2 , 3 ]", Precondition(key.version))
    assert key.values == [b'{"e":[1,2,3],"t":0}']


def test_a_merge_on_a_plain_value_or_another_type_is_refused() -> None:
    key = Key(SIBLINGS)
    key.put(b"1", seeing(NOTHING))
    key.put(b"2", seeing(NOTHING))
    assert "plain value" in refused(Reason.MERGE_TYPE_MISMATCH, key.merge, CounterAdd(1)).message
    key.delete(BLIND)
    key.merge(CounterAdd(1))
    assert "COUNTER record" in refused(Reason.MERGE_TYPE_MISMATCH, key.merge, SetUpdate()).message
    key.delete(BLIND)
    key.merge(SetUpdate(add=("1",)))
    assert key.stored.merge_type is MergeType.SET


def test_a_version_mismatch_names_what_came_after_the_expected_version() -> None:
    key = Key()
    first = key.put(b"1")
    second = key.put(b"2", BLIND, actor="b#1")
    refusal = refused(Reason.VERSION_MISMATCH, key.put, b"3", Precondition(first.version))
    assert refusal.detail == ConflictInfo("k", second.revision, (Dot(second.revision, "b#1", key.now_ms, False),))
    gone = key.delete(BLIND, actor="c#1")
    refusal = refused(Reason.VERSION_MISMATCH, key.put, b"3", Precondition(second.version))
    assert refusal.detail == ConflictInfo("k", 0, (Dot(gone.revision, "c#1", key.now_ms, True),))


def test_a_blind_write_cannot_say_what_it_has_seen() -> None:
    for when in (Precondition(0, blind=True), Precondition(context=NOTHING, blind=True)):
        assert "blind" in refused(Reason.INVALID_FIELD, when.check).message
    refused(Reason.VALUE_TOO_LARGE, seeing(CausalContext(0, tuple(range(17)))).check)
    Precondition(0, NOTHING).check()
    BLIND.check()


def test_placeholders_are_replaced_once_the_revision_is_known() -> None:
    key = Key()
    key.merge(SetUpdate(add=("1",)))
    key.merge(SetUpdate(add=("2",)))
    record = key.stored
    assert record.at(10**6) == record._replace(stored=10**6)
    assert record.clock.entries == (("a#1", key.head),)
    state = json.loads(record.siblings[0].data or b"")
    assert state == [[1, key.head - 1, 0], [2, key.head, 0]]
