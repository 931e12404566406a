"""Every field of what the rules decide, and every word of what they refuse: others rely on all of it."""

from __future__ import annotations

import json

import pytest
from tests.unit.consistency.key import Key
from tests.unit.consistency.support import refused

from noosphere.consistency import (
    NEVER_MS,
    CausalContext,
    Claim,
    ConflictInfo,
    ConflictPolicy,
    Decision,
    DeleteAll,
    Dot,
    Encoding,
    KeepDot,
    MergeType,
    Precondition,
    Put,
    Reason,
    Record,
    Sibling,
    decide_delete,
    decide_merge,
    decide_put,
    decide_resolve,
)
from noosphere.consistency.decide import ChangeKind, Event, decide_expiry, decide_reap
from noosphere.consistency.limits import SIBLINGS_BYTES_MAX, SIBLINGS_MAX
from noosphere.consistency.merge import CounterAdd, SetUpdate

ATTRIBUTES = (("kind", "task"),)
NOTHING = CausalContext()


def stored(key: Key, **changes: object) -> Record:
    return key.stored._replace(**changes)  # type: ignore[arg-type] # Each name is a field, of its type.


def two_values(*, ttl_ms: int | None = None) -> Key:
    """A key with two values side by side, written by a#1 and b#2; the first with attributes."""
    key = Key(ConflictPolicy.SIBLINGS)
    key.put(b"1", Precondition(context=NOTHING), attributes=ATTRIBUTES)
    key.put(b"2", Precondition(context=NOTHING), actor="b#2", ttl_ms=ttl_ms, attributes=ATTRIBUTES)
    return key


# -- put -------------------------------------------------------------------------------------------


def test_a_first_put() -> None:
    key = Key()
    decision = decide_put(None, "k", Put(b"1", attributes=ATTRIBUTES, ttl_ms=500), key.at("b#2"))
    assert decision == Decision(
        Record(
            stored=0,
            siblings=(Sibling(0, "b#2", 1_000, b"1", Encoding.JSON, 1_500),),
            clock=decision.record.clock if decision.record else None,  # type: ignore[arg-type] # It is there.
            created_ms=1_000,
            change_count=1,
            attributes=ATTRIBUTES,
        ),
        members=True,
        events=(Event(ChangeKind.PUT, "b#2"),),
        conflict_anew=True,
    )


def test_a_put_beside_what_was_not_seen() -> None:
    key = Key(ConflictPolicy.SIBLINGS)
    first = key.put(b"1", Precondition(context=NOTHING))
    before = key.stored
    key.now_ms += 10
    decision = decide_put(before, "k", Put(b"2", precondition=Precondition(context=NOTHING)), key.at("b#2"))
    assert decision.record == before._replace(
        stored=0,
        siblings=(
            Sibling(first.revision, "a#1", 1_000, b"1"),
            Sibling(0, "b#2", 1_010, b"2"),
        ),
        clock=before.clock.written_by("b#2"),
        change_count=2,
    )
    assert (
        decision[1:]
        == Decision(None, events=(Event(ChangeKind.PUT, "b#2"),), base=NOTHING, sole=False, conflict_anew=True)[1:]
    )


def test_a_put_over_what_was_not_seen_tells_of_it() -> None:
    key = Key(ConflictPolicy.LAST_WRITER_WINS)
    first = key.put(b"1", Precondition(context=NOTHING), actor="b#2")
    decision = decide_put(key.stored, "k", Put(b"2", precondition=Precondition(context=NOTHING)), key.at())
    lost = (Dot(first.revision, "b#2", 1_000, False),)
    assert decision.overwritten == lost
    assert decision.events == (Event(ChangeKind.PUT, "a#1", lost),)


def test_the_end_of_what_had_expired_comes_before_what_replaces_it() -> None:
    key = Key()
    key.put(b"1", ttl_ms=10)
    key.now_ms += 10
    decision = decide_put(key.stored, "k", Put(b"2"), key.at("b#2"))
    assert decision.events == (Event(ChangeKind.EXPIRE, ""), Event(ChangeKind.PUT, "b#2"))
    assert decision.members
    assert decision.record is not None
    assert decision.record.created_ms == key.now_ms


# -- delete ----------------------------------------------------------------------------------------


def test_a_delete_of_all() -> None:
    key = Key()
    first = key.put(b"1", attributes=ATTRIBUTES)
    before = key.stored
    key.now_ms += 10
    seen = CausalContext(first.revision)
    assert decide_delete(before, "k", Precondition(context=seen), key.at("b#2")) == Decision(
        before._replace(
            stored=0,
            siblings=(Sibling(0, "b#2", 1_010, None),),
            clock=before.clock.written_by("b#2"),
            change_count=2,
            attributes=(),
            deleted_ms=1_010,
        ),
        members=True,
        events=(Event(ChangeKind.DELETE, "b#2"),),
        base=seen,
        live=False,
    )


def test_a_delete_leaves_what_was_not_seen_as_it_was() -> None:
    key = Key(ConflictPolicy.SIBLINGS)
    first = key.put(b"1", Precondition(context=NOTHING), attributes=ATTRIBUTES)
    key.put(b"2", Precondition(context=NOTHING), actor="b#2", attributes=ATTRIBUTES)
    before = key.stored
    seen = CausalContext(first.revision)
    assert decide_delete(before, "k", Precondition(context=seen), key.at("c#3")) == Decision(
        before._replace(stored=0, siblings=before.siblings[1:], clock=before.clock.written_by("c#3"), change_count=3),
        members=False,
        events=(Event(ChangeKind.DELETE, "c#3"),),
        base=seen,
        sole=False,
        live=False,
    )


def test_a_delete_of_nothing_changes_nothing() -> None:
    seen = CausalContext(7)
    assert decide_delete(None, "k", Precondition(context=seen), Key().at()) == Decision(
        None, base=seen, live=False, noop=True
    )


# -- merge -----------------------------------------------------------------------------------------


def test_a_first_merge_and_a_second() -> None:
    key = Key()
    first = decide_merge(None, "k", CounterAdd(2), key.at("b#2"))
    assert first.record is not None
    state = first.record.siblings[0].data
    assert first == Decision(
        Record(
            stored=0,
            siblings=(Sibling(0, "b#2", 1_000, state),),
            clock=first.record.clock,
            created_ms=1_000,
            change_count=1,
            merge_type=MergeType.COUNTER,
        ),
        members=True,
        events=(Event(ChangeKind.MERGE, "b#2"),),
        merged=b"2",
    )
    key.put(b"1", attributes=ATTRIBUTES)
    key.record = stored(
        key, merge_type=MergeType.COUNTER, siblings=(Sibling(5, "a#1", 1_000, state, expires_at_ms=9_000),)
    )
    second = decide_merge(key.stored, "k", CounterAdd(3), key.at("c#3"))
    assert second.record is not None
    assert second.record.attributes == ATTRIBUTES
    assert second.record.siblings[0][:3] == (0, "c#3", 1_000)
    assert second.record.siblings[0].expires_at_ms == 9_000
    assert (second.members, second.merged, second.base) == (False, b"5", NOTHING)
    assert second.events == (Event(ChangeKind.MERGE, "c#3"),)


def test_a_merge_says_what_it_has_seen() -> None:
    seen = CausalContext(3)
    assert decide_merge(None, "k", SetUpdate(add=('"x"',), context=seen), Key().at()).base == seen


def test_a_merge_into_what_is_something_else_says_what_that_is() -> None:
    key = Key()
    key.put(b"1")
    assert refused(Reason.MERGE_TYPE_MISMATCH, key.merge, CounterAdd(1)).message == (
        "'k' holds a plain value, not a COUNTER record"
    )
    other = Key()
    other.merge(SetUpdate(add=('"x"',)))
    assert refused(Reason.MERGE_TYPE_MISMATCH, other.merge, CounterAdd(1)).message == (
        "'k' holds a SET record, not a COUNTER record"
    )


# -- endings ---------------------------------------------------------------------------------------


def test_an_expiry_of_one_value_of_two_and_of_the_last() -> None:
    key = two_values(ttl_ms=10)
    before = key.stored
    assert decide_expiry(before, 1_009) is None
    one = decide_expiry(before, 1_010)
    assert one == Decision(
        before._replace(
            stored=0,
            siblings=(before.siblings[0], before.siblings[1]._replace(data=None, expires_at_ms=NEVER_MS)),
            change_count=3,
        ),
        members=False,
        events=(Event(ChangeKind.EXPIRE, ""),),
        live=True,
    )
    last = Key()
    last.put(b"1", ttl_ms=10, attributes=ATTRIBUTES)
    last.record = stored(last, claim=Claim("a#1", 5_000, 3, 1))
    alone = last.stored
    assert decide_expiry(alone, 1_010) == Decision(
        alone._replace(
            stored=0,
            siblings=(alone.siblings[0]._replace(data=None, expires_at_ms=NEVER_MS),),
            change_count=2,
            deleted_ms=1_010,
            claim=None,
            attributes=(),
        ),
        members=True,
        events=(Event(ChangeKind.EXPIRE, ""),),
        live=False,
    )


def test_a_reaping() -> None:
    key = Key()
    key.put(b"1")
    gone = key.delete(Precondition(context=key.read))
    record = key.stored
    assert decide_reap(record, record.deleted_ms + 99, 100) is None
    assert decide_reap(record, record.deleted_ms + 100, 100) == Decision(
        None, live=False, raise_floor_context=gone.revision
    )


# -- resolve ---------------------------------------------------------------------------------------


def test_a_value_in_the_place_of_all_that_were_seen() -> None:
    key = two_values()
    before, seen = key.stored, key.read
    decision = decide_resolve(before, "k", Put(b"3"), seen, key.at("c#3"))
    assert decision == Decision(
        before._replace(
            stored=0,
            siblings=(Sibling(0, "c#3", 1_000, b"3"),),
            clock=before.clock.written_by("c#3"),
            change_count=3,
        ),
        events=(Event(ChangeKind.PUT, "c#3"),),
        base=seen,
    )
    other = (("kind", "note"),)
    chosen = decide_resolve(before, "k", Put(b"3", attributes=other), seen, key.at("c#3"))
    assert chosen.record is not None
    assert chosen.record.attributes == other


def test_one_of_the_values_is_kept_as_it_is() -> None:
    key = two_values(ttl_ms=500)
    first, second = (sibling.dot for sibling in key.stored.siblings)
    kept = decide_resolve(key.record, "k", KeepDot(first), key.read, key.at("c#3"))
    assert kept.record is not None
    assert kept.record.siblings == (Sibling(0, "c#3", 1_000, b"1"),)
    assert kept.record.attributes == ATTRIBUTES
    assert kept.base == key.read
    other = decide_resolve(key.record, "k", KeepDot(second), key.read, key.at("c#3"))
    assert other.record is not None
    assert other.record.siblings == (Sibling(0, "c#3", 1_000, b"2", Encoding.JSON, 1_500),)
    wrong = refused(Reason.INVALID_FIELD, decide_resolve, key.record, "k", KeepDot(7), key.read, key.at())
    assert wrong.message == "resolution.keep_dot: 7 is not a live value of 'k'"


def test_the_encoding_of_a_kept_value_stays() -> None:
    key = two_values()
    siblings = (key.stored.siblings[0]._replace(encoding=Encoding.BYTES), key.stored.siblings[1])
    key.record = stored(key, siblings=siblings)
    kept = decide_resolve(key.record, "k", KeepDot(siblings[0].dot), key.read, key.at())
    assert kept.record is not None
    assert kept.record.siblings[0].encoding is Encoding.BYTES


def test_nothing_is_kept() -> None:
    key = two_values()
    decision = decide_resolve(key.record, "k", DeleteAll(), key.read, key.at("c#3"))
    assert decision.record is not None
    assert decision.record.siblings == (Sibling(0, "c#3", 1_000, None),)
    assert decision.events == (Event(ChangeKind.DELETE, "c#3"),)
    assert decision.base == key.read


def test_what_cannot_be_resolved() -> None:
    key = Key(ConflictPolicy.SIBLINGS)
    none = refused(Reason.NO_CONFLICT, decide_resolve, None, "k", DeleteAll(), NOTHING, key.at())
    assert none.message == "'k' has 0 live values: nothing is to be resolved"
    key.put(b"1")
    one = refused(Reason.NO_CONFLICT, decide_resolve, key.record, "k", DeleteAll(), key.read, key.at())
    assert one.message == "'k' has 1 live values: nothing is to be resolved"
    key = two_values(ttl_ms=10)
    seen = key.read
    key.now_ms += 10
    refused(Reason.NO_CONFLICT, decide_resolve, key.record, "k", DeleteAll(), seen, key.at())


@pytest.mark.parametrize("resolution", [Put(b"3"), DeleteAll()])
def test_what_the_resolver_has_not_seen_is_a_conflict_under_every_policy(resolution: Put | DeleteAll) -> None:
    key = two_values()
    seen = CausalContext(key.stored.siblings[0].dot)
    for policy in ConflictPolicy:
        key.policy = policy
        conflict = refused(Reason.CONFLICT, decide_resolve, key.record, "k", resolution, seen, key.at())
        assert conflict.message == "'k' has changes that the writer has not seen"
        second = key.stored.siblings[1]
        assert conflict.detail == ConflictInfo("k", key.version, (Dot(second.dot, "b#2", 1_000, False),))


# -- words -----------------------------------------------------------------------------------------


def test_what_a_writer_is_told() -> None:
    key = Key()
    key.put(b"1")
    info = (Dot(key.head, "a#1", 1_000, False),)
    told = {
        Reason.VERSION_MISMATCH: (Precondition(expected_version=3), "'k' has version {0}, not 3", info),
        Reason.PRECONDITION_REQUIRED: (
            Precondition(),
            "'k' has a live value: say what you have seen of it (context or expected_version), or write blind",
            info,
        ),
        Reason.CONFLICT: (Precondition(context=NOTHING), "'k' has changes that the writer has not seen", info),
    }
    for reason, (when, message, unseen) in told.items():
        for call in (lambda when=when: key.put(b"2", when), lambda when=when: key.delete(when)):
            refusal = refused(reason, call)
            assert refusal.message == message.format(key.version)
            assert refusal.detail == ConflictInfo("k", key.version, unseen)
    key = Key(floor=9)
    old = refused(Reason.CONTEXT_TOO_OLD, key.put, b"1", Precondition(context=CausalContext(8)))
    assert old.message == "'k' was deleted and reaped after this context was read; read it again"
    assert old.detail == ConflictInfo("k", 0)
    key.put(b"1", Precondition(context=CausalContext(9)))


def test_a_typed_record_says_how_it_may_be_put() -> None:
    key = Key()
    key.merge(CounterAdd(1))
    refusal = refused(Reason.PRECONDITION_REQUIRED, key.put, b"2")
    assert refusal.message == "'k' is a COUNTER record: a plain put on it needs expected_version"
    assert refusal.detail == ConflictInfo("k", key.version, (Dot(key.head, "a#1", 1_000, False),))
    put = Put(b"2", Encoding.BYTES, precondition=Precondition(key.version))
    refusal = refused(Reason.MERGE_TYPE_MISMATCH, decide_put, key.record, "k", put, key.at())
    assert refusal.message == "'k' is a COUNTER record: its value is JSON"


def test_an_expiry_in_the_past_is_told() -> None:
    refusal = refused(Reason.INVALID_FIELD, decide_put, None, "k", Put(b"1", expires_at_ms=1_000), Key().at())
    assert refusal.message == "put.expire_time: 1000 ms is not after store time 1000 ms"
    decision = decide_put(None, "k", Put(b"1", expires_at_ms=1_001), Key().at())
    assert decision.record is not None
    assert decision.record.siblings[0].expires_at_ms == 1_001


def test_a_blind_write_with_a_condition_contradicts_itself() -> None:
    for when in (Precondition(1, None, True), Precondition(None, NOTHING, True)):
        refusal = refused(Reason.INVALID_FIELD, when.check)
        assert refusal.message == "precondition.blind: a blind write cannot have an expected version or a context"
        assert refused(Reason.INVALID_FIELD, when.check, "put").message.startswith("put.blind: ")
    refusal = refused(Reason.INVALID_FIELD, Precondition(context=CausalContext(-1)).check)
    assert refusal.message.startswith("precondition.context")
    assert refused(Reason.INVALID_FIELD, Precondition(context=CausalContext(-1)).check, "put").message.startswith(
        "put.context"
    )
    Precondition(blind=True).check()


def test_too_many_values_side_by_side_are_told() -> None:
    key = Key(ConflictPolicy.SIBLINGS, item_bytes_max=SIBLINGS_BYTES_MAX)
    for _ in range(SIBLINGS_MAX):
        key.put(b"1", Precondition(context=NOTHING))
    full = refused(Reason.SIBLING_LIMIT, key.put, b"2", Precondition(context=NOTHING))
    assert full.message == f"'k' has {SIBLINGS_MAX} siblings that the writer has not seen, the limit is {SIBLINGS_MAX}"
    assert isinstance(full.detail, ConflictInfo)
    assert [dot.dot for dot in full.detail.unseen] == [s.dot for s in reversed(key.stored.siblings)]
    key = Key(ConflictPolicy.SIBLINGS, item_bytes_max=SIBLINGS_BYTES_MAX)
    key.put(json.dumps("x" * (SIBLINGS_BYTES_MAX - 10)).encode(), Precondition(context=NOTHING))
    size = SIBLINGS_BYTES_MAX - 8 + 9
    big = refused(Reason.SIBLING_LIMIT, key.put, b"123456789", Precondition(context=NOTHING))
    assert big.message == (
        f"'k' has 1 siblings that the writer has not seen, with this value {size} bytes, the limit is "
        f"{SIBLINGS_BYTES_MAX}"
    )
    key.put(b"12345678", Precondition(context=NOTHING))
