"""What decisions keep, show and name at their edges: the conflict queue, expected versions, floors, long results."""

from __future__ import annotations

from tests.unit.consistency.key import Key
from tests.unit.consistency.support import refused

from noosphere.consistency import (
    NEVER_MS,
    CausalContext,
    ConflictInfo,
    ConflictPolicy,
    DeleteAll,
    Encoding,
    KeepDot,
    MergeType,
    Precondition,
    Put,
    Reason,
    decide_delete,
    decide_put,
    decide_resolve,
)
from noosphere.consistency.decide import ChangeKind, Event, Settled, decide_expiry, settle_expiry
from noosphere.consistency.errors import LimitInfo
from noosphere.consistency.limits import SIBLINGS_MAX
from noosphere.consistency.merge import Extreme, LogAppend

NOTHING = CausalContext()
UNSEEN = Precondition(context=NOTHING)


def several(count: int = 2, *, ttl_ms: int | None = None) -> Key:
    """A key with values side by side, the last of which ends after ``ttl_ms``."""
    key = Key(ConflictPolicy.SIBLINGS)
    for n in range(count):
        key.put(b"%d" % n, UNSEEN, actor=f"a#{n}", ttl_ms=ttl_ms if n == count - 1 else None)
    return key


def test_a_record_keeps_its_place_in_the_conflict_queue() -> None:
    key = several()
    key.record = key.stored._replace(queued=(7, 1))
    key.put(b"9", Precondition(context=key.read))
    assert key.stored.queued == (7, 1)
    key.delete(Precondition(context=key.read))
    assert key.stored.queued == (7, 1)


def test_too_many_siblings_are_refused_by_key_and_version() -> None:
    key = several(SIBLINGS_MAX)
    refusal = refused(Reason.SIBLING_LIMIT, key.put, b"1", UNSEEN)
    infos = tuple(s.info(key.now_ms) for s in reversed(key.stored.siblings))
    assert refusal.detail == ConflictInfo("k", key.version, infos)


def test_another_version_shows_what_came_after_the_expected_one() -> None:
    key = several(3)
    _, second, third = key.stored.siblings
    for expected, later in ((second.dot, [third]), (third.dot - 10, list(reversed(key.stored.siblings)))):
        refusal = refused(Reason.VERSION_MISMATCH, key.put, b"9", Precondition(expected))
        assert refusal.detail == ConflictInfo("k", key.version, tuple(s.info(0) for s in later))


def test_a_delete_of_what_was_not_seen_says_so_to_watchers() -> None:
    key = several()
    infos = tuple(s.info(0) for s in reversed(key.stored.siblings))
    decision = decide_delete(key.record, "k", Precondition(blind=True), key.at("b#1"))
    assert decision.overwritten == infos
    assert decision.events == (Event(ChangeKind.DELETE, "b#1", infos),)


def test_a_floor_is_no_matter_for_a_key_that_is_there() -> None:
    key = several()
    key.floor = key.head + 1
    assert decide_delete(key.record, "k", Precondition(context=NOTHING), key.at()).record is not None
    key = Key()
    key.put(b"1")
    key.floor = key.head + 1
    assert decide_delete(key.record, "k", Precondition(context=key.read), key.at()).members


def test_an_expiry_of_one_value_leaves_the_type_of_the_others() -> None:
    key = several(ttl_ms=500)
    record = key.stored._replace(merge_type=MergeType.MAX, attributes=(("kind", "task"),))
    first, second = record.siblings
    decision = decide_expiry(record, 1_500)
    assert decision is not None
    assert decision.record == record._replace(
        stored=0,
        siblings=(first, second._replace(data=None, expires_at_ms=NEVER_MS)),
        change_count=record.change_count + 1,
    )


def test_what_nobody_wrote_has_not_expired() -> None:
    assert settle_expiry(None, 7) == Settled((), (), expired=False)
    record = several().stored
    assert settle_expiry(record, 7) == Settled(record.siblings, record.siblings, expired=False)


def test_a_merge_tells_how_much_the_log_has_dropped() -> None:
    key = Key()
    key.merge(LogAppend(("1", "2")))
    assert key.merge(LogAppend(("3", "4"), entries_max=3)).decision.trimmed == 1
    assert key.merge(LogAppend(("5",), entries_max=2)).decision.trimmed == 3


def test_a_number_that_is_longer_for_readers_is_measured_as_they_see_it() -> None:
    key = Key()
    key.merge(Extreme("1", largest=True))
    put = Put(b"1e5", precondition=Precondition(key.version))
    key.item_bytes_max = len("100000.0")
    decide_put(key.record, "k", put, key.at())
    key.item_bytes_max -= 1
    refusal = refused(Reason.VALUE_TOO_LARGE, decide_put, key.record, "k", put, key.at())
    assert refusal.message == "value has 8 bytes, the limit is 7"
    assert refusal.detail == LimitInfo("value", 8, 7)


def test_a_resolution_that_has_not_seen_everything_names_the_key() -> None:
    key = several(ttl_ms=500)
    first, second = key.stored.siblings
    seen = CausalContext(first.dot)
    for resolution in (Put(b"9"), KeepDot(first.dot), DeleteAll()):
        refusal = refused(Reason.CONFLICT, decide_resolve, key.record, "k", resolution, seen, key.at())
        assert refusal.message == "'k' has changes that the writer has not seen"
        assert refusal.detail == ConflictInfo("k", key.version, (second.info(0),))


def test_a_value_that_is_kept_ends_when_it_would_have() -> None:
    key = several(ttl_ms=500)
    for kept, ends_ms in zip(key.stored.siblings, (NEVER_MS, 1_500), strict=True):
        record = decide_resolve(key.record, "k", KeepDot(kept.dot), key.read, key.at("c#1")).record
        assert record is not None
        assert [(s.data, s.encoding, s.expires_at_ms) for s in record.siblings] == [(kept.data, Encoding.JSON, ends_ms)]
