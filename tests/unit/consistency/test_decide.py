"""Put, delete, merge, expiry and reaping: the corners of the table that histories seldom reach."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import NamedTuple

import pytest
from tests.unit.consistency.support import refused

from noosphere.consistency import (
    NEVER_MS,
    CausalContext,
    ChangeKind,
    Circumstances,
    ConflictInfo,
    ConflictPolicy,
    Decision,
    Dot,
    Encoding,
    LimitInfo,
    MergeType,
    Order,
    Precondition,
    Put,
    Reason,
    Record,
    Scalar,
    VersionClock,
    check_item_size,
    decide_claim,
    decide_delete,
    decide_expiry,
    decide_merge,
    decide_put,
    decide_reap,
    make_revision,
    seen_by_reader,
)
from noosphere.consistency.limits import MERGED_REPLY_BYTES_MAX, SIBLINGS_MAX
from noosphere.consistency.merge import CounterAdd, LogAppend, MergeOp, SetUpdate

REJECT, SIBLINGS, LAST = ConflictPolicy.REJECT, ConflictPolicy.SIBLINGS, ConflictPolicy.LAST_WRITER_WINS
NOTHING = CausalContext()
BLIND = Precondition(blind=True)


def seeing(context: CausalContext) -> Precondition:
    return Precondition(context=context)


class Ack(NamedTuple):
    """What the writer is told, and the decision behind it."""

    version: int | None
    context: CausalContext
    revision: int
    decision: Decision


@dataclass
class Key:
    """One key of a namespace, changed by the rules alone."""

    policy: ConflictPolicy = REJECT
    private: bool = False
    record: Record | None = None
    head: int = make_revision(9_000, 0)
    floor: int = 0
    now_ms: int = 1_000
    item_bytes_max: int = 1_024

    def at(self, actor: str = "a#1") -> Circumstances:
        return Circumstances(self.now_ms, actor, self.policy, self.private, self.floor, self.item_bytes_max)

    def apply(self, decision: Decision | None) -> Ack:
        assert decision is not None
        if not decision.noop:
            self.head += 1
            self.record = decision.record.at(self.head) if decision.record is not None else None
            self.floor = max(self.floor, decision.raise_floor_context)
        return Ack(*decision.ack(self.head), self.head, decision)

    def put(
        self,
        data: bytes,
        when: Precondition | None = None,
        actor: str = "a#1",
        ttl_ms: int | None = None,
        attributes: tuple[tuple[str, Scalar], ...] = (),
    ) -> Ack:
        put = Put(data, Encoding.JSON, attributes, ttl_ms, precondition=when or Precondition())
        return self.apply(decide_put(self.record, "k", put, self.at(actor)))

    def delete(self, when: Precondition | None = None, actor: str = "a#1") -> Ack:
        return self.apply(decide_delete(self.record, "k", when or Precondition(), self.at(actor)))

    def merge(self, op: MergeOp, actor: str = "a#1") -> Ack:
        return self.apply(decide_merge(self.record, "k", op, self.at(actor)))

    def sweep(self) -> Ack:
        assert self.record is not None
        return self.apply(decide_expiry(self.record, self.now_ms))

    def reap(self) -> Ack:
        assert self.record is not None
        self.now_ms += 3_600_000
        return self.apply(decide_reap(self.record, self.now_ms, 3_600_000))

    @property
    def values(self) -> list[bytes | None]:
        return [] if self.record is None else [s.data for s in self.record.live(self.now_ms)]

    @property
    def version(self) -> int:
        return self.record.version(self.now_ms) if self.record is not None else 0

    @property
    def read(self) -> CausalContext:
        return seen_by_reader(self.record, self.now_ms, self.head)

    @property
    def stored(self) -> Record:
        assert self.record is not None
        return self.record


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
