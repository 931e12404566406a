"""The order of checks: of any two checks that fail, the caller is told of the earlier one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.consistency.support import refused

from noosphere.consistency import (
    NEVER_MS,
    CausalContext,
    Circumstances,
    ConflictPolicy,
    Cut,
    Encoding,
    LogRangeInfo,
    LostInfo,
    MergeType,
    NamespaceState,
    Precondition,
    Put,
    Reason,
    Record,
    Refusal,
    Remembered,
    Sibling,
    VersionClock,
    admit,
    check_item_size,
    check_presented,
    decide_delete,
    decide_put,
    find_lost,
    fingerprint,
    make_revision,
)

EPOCH = 9_000
CUT = make_revision(EPOCH - 1, 50)
LOST = CUT + 1
HEAD = make_revision(EPOCH, 20)
FLOOR = make_revision(EPOCH, 4)
NOW_MS = 1_000
MINE, OTHER = fingerprint("mine"), fingerprint("other")


def stored(dot: int, data: bytes | None = b"1") -> Record:
    sibling = Sibling(dot, "b#1", 0, data)
    deleted_ms = 1 if data is None else 0
    return Record(dot, (sibling,), VersionClock((("b#1", dot),)), 0, 1, deleted_ms=deleted_ms)


@dataclass
class Attempt:
    """A put that would succeed, until checks are made to fail."""

    permitted: bool = True
    deleted: bool = False
    remembered: Remembered | None = None
    presented: tuple[int, ...] = ()
    stale_fence: str | None = None
    incarnation_current: bool = True
    put: Put = field(default_factory=lambda: Put(b"2"))
    record: Record | None = None

    def run(self) -> str:
        state = NamespaceState("shared/a", self.deleted, HEAD, (Cut(1, 0), Cut(EPOCH, CUT)))
        when = self.put.precondition
        presented = [*self.presented, when.expected_version or 0, *(when.context.revisions if when.context else ())]
        replay = admit(
            state,
            permitted=self.permitted,
            remembered=self.remembered,
            fingerprint=MINE,
            presented=presented,
            incarnation_current=self.incarnation_current,
            stale_fence=self.stale_fence,
            limits=(lambda: None, lambda: check_item_size(self.put, 8)),
        )
        if replay is not None:
            return "replayed"
        at = Circumstances(NOW_MS, "a#1", ConflictPolicy.REJECT, False, FLOOR, 8)
        decide_put(self.record, "k", self.put, at)
        return "applied"


def no_permission(attempt: Attempt) -> None:
    attempt.permitted = False


def namespace_deleted(attempt: Attempt) -> None:
    attempt.deleted = True


def id_reused(attempt: Attempt) -> None:
    attempt.remembered = Remembered(1, OTHER, b"", 0)


def lost_revision(attempt: Attempt) -> None:
    attempt.presented = (*attempt.presented, LOST)


def future_revision(attempt: Attempt) -> None:
    attempt.presented = (HEAD + 1, *attempt.presented)


def old_fence(attempt: Attempt) -> None:
    attempt.stale_fence = "lock"


def ended_incarnation(attempt: Attempt) -> None:
    attempt.incarnation_current = False


def too_large(attempt: Attempt) -> None:
    attempt.put = attempt.put._replace(data=b"123456789")


def expiry_in_the_past(attempt: Attempt) -> None:
    attempt.put = attempt.put._replace(expires_at_ms=NOW_MS)


def another_version(attempt: Attempt) -> None:
    when = attempt.put.precondition
    attempt.put = attempt.put._replace(precondition=when._replace(expected_version=HEAD - 5))


def context_too_old(attempt: Attempt) -> None:
    when = attempt.put.precondition
    attempt.put = attempt.put._replace(precondition=when._replace(context=CausalContext(FLOOR - 1)))


def conflict(attempt: Attempt) -> None:
    when = attempt.put.precondition
    attempt.put = attempt.put._replace(precondition=when._replace(context=CausalContext(HEAD - 2)))
    attempt.record = stored(HEAD - 1)


IN_ORDER: list[tuple[Callable[[Attempt], None], Reason]] = [
    (no_permission, Reason.PERMISSION_DENIED),
    (namespace_deleted, Reason.NAMESPACE_DELETED),
    (id_reused, Reason.REQUEST_ID_REUSED),
    (lost_revision, Reason.ACKED_WRITES_LOST),
    (future_revision, Reason.FUTURE_REVISION),
    (old_fence, Reason.STALE_FENCE),
    (ended_incarnation, Reason.STALE_INCARNATION),
    (too_large, Reason.VALUE_TOO_LARGE),
    (expiry_in_the_past, Reason.INVALID_FIELD),
    (another_version, Reason.VERSION_MISMATCH),
    (context_too_old, Reason.CONTEXT_TOO_OLD),
    (conflict, Reason.CONFLICT),
]


NAMES = [spoil.__name__ for spoil, _ in IN_ORDER]
# A key is either absent (context against the floor) or not (context against its values).
PAIRS = [pair for pair in combinations(IN_ORDER, 2) if pair[0][0] is not context_too_old]


def test_nothing_fails_by_itself() -> None:
    assert Attempt().run() == "applied"


@pytest.mark.parametrize(("spoil", "reason"), IN_ORDER, ids=NAMES)
def test_each_check_fails_alone(spoil: Callable[[Attempt], None], reason: Reason) -> None:
    attempt = Attempt()
    spoil(attempt)
    refused(reason, attempt.run)


@pytest.mark.parametrize(
    ("earlier", "later"), PAIRS, ids=[f"{earlier.__name__}-{later.__name__}" for (earlier, _), (later, _) in PAIRS]
)
def test_of_two_failing_checks_the_earlier_one_is_told(
    earlier: tuple[Callable[[Attempt], None], Reason], later: tuple[Callable[[Attempt], None], Reason]
) -> None:
    for order in ((earlier, later), (later, earlier)):
        attempt = Attempt()
        for spoil, _ in order:
            spoil(attempt)
        refused(earlier[1], attempt.run)


@pytest.mark.parametrize(("spoil", "reason"), IN_ORDER, ids=NAMES)
def test_a_replay_wins_over_everything_after_it(spoil: Callable[[Attempt], None], reason: Reason) -> None:
    attempt = Attempt()
    spoil(attempt)
    attempt.remembered = Remembered(1, MINE, b"", 0)
    if reason in (Reason.PERMISSION_DENIED, Reason.NAMESPACE_DELETED):
        refused(reason, attempt.run)
    else:
        assert attempt.run() == "replayed"


def test_the_first_limit_that_is_broken_is_told() -> None:
    broken = [Refusal(Reason.VALUE_TOO_LARGE, name) for name in ("first", "second")]
    state = NamespaceState("shared/a", False, HEAD, ())
    refusal = refused(
        Reason.VALUE_TOO_LARGE,
        admit,
        state,
        permitted=True,
        remembered=None,
        fingerprint=MINE,
        presented=(),
        incarnation_current=True,
        stale_fence=None,
        limits=[lambda: None, lambda: broken[0], lambda: broken[1]],
    )
    assert refusal is broken[0]


# -- put and delete, past the checks that do not look at the record --------------------------------

AT = Circumstances(NOW_MS, "a#1", ConflictPolicy.REJECT, False, FLOOR, 1_000)
TOMBSTONE = stored(HEAD - 1, None)
BLIND = Precondition(blind=True)


def test_a_delete_without_a_live_value_is_a_no_op_after_the_version_and_before_the_context() -> None:
    for record in (None, TOMBSTONE):
        refused(Reason.VERSION_MISMATCH, decide_delete, record, "k", Precondition(HEAD - 1), AT)
        for when in (
            Precondition(),
            Precondition(0),
            Precondition(context=CausalContext(FLOOR - 1)),
            Precondition(0, CausalContext()),
            BLIND,
        ):
            decision = decide_delete(record, "k", when, AT)
            assert decision.noop
            assert decision.record is record
            assert decision.base == (when.context or CausalContext())
            assert decision.events == ()
            # It tells as much as a read that finds nothing.
            assert decision.ack(HEAD) == (0, CausalContext(HEAD))


def test_a_typed_record_asks_for_a_version_before_it_looks_at_the_value_or_the_context() -> None:
    record = stored(HEAD - 1)._replace(merge_type=MergeType.COUNTER)
    text = Put(b'"text"', precondition=Precondition(context=CausalContext()))
    refused(Reason.PRECONDITION_REQUIRED, decide_put, record, "k", text, AT)
    refused(Reason.PRECONDITION_REQUIRED, decide_put, record, "k", Put(b"1", precondition=BLIND), AT)
    refused(Reason.PRECONDITION_REQUIRED, decide_put, record, "k", Put(b"1"), AT._replace(private=True))
    wrong_version = text._replace(precondition=Precondition(HEAD - 2, CausalContext()))
    refused(Reason.VERSION_MISMATCH, decide_put, record, "k", wrong_version, AT)
    right_version = text._replace(precondition=Precondition(HEAD - 1, CausalContext()))
    refused(Reason.MERGE_TYPE_MISMATCH, decide_put, record, "k", right_version, AT)
    refused(Reason.CONFLICT, decide_put, record, "k", right_version._replace(data=b"5"), AT)
    raw = Put(b"5", Encoding.BYTES, precondition=Precondition(HEAD - 1))
    refused(Reason.MERGE_TYPE_MISMATCH, decide_put, record, "k", raw, AT)


@given(st.lists(st.sampled_from([0, CUT - 1, CUT, LOST, EPOCH << 40, FLOOR, HEAD, HEAD + 1, 2**62]), max_size=6))
def test_what_is_lost_is_told_before_what_was_never_issued(presented: list[int]) -> None:
    state = NamespaceState("shared/a", False, HEAD, (Cut(1, 0), Cut(EPOCH, CUT)))
    if lost := [r for r in presented if find_lost(r, state.cuts) is not None]:
        refusal = refused(Reason.ACKED_WRITES_LOST, check_presented, presented, state)
        assert refusal.detail == LostInfo(CUT, EPOCH << 40)
        assert f"revision {min(lost)} of" in refusal.message
    elif max(presented, default=0) > HEAD:
        refusal = refused(Reason.FUTURE_REVISION, check_presented, presented, state)
        assert refusal.detail == LogRangeInfo(next(r for r in presented if r > HEAD), 0)
    else:
        check_presented(presented, state)


def test_of_revisions_that_were_lost_in_different_epochs_the_lowest_is_told() -> None:
    """What lies up to ``after`` is still good, so nothing below it may be lost as well."""
    cuts = (Cut(1, 0), Cut(2, make_revision(1, 50)), Cut(EPOCH, CUT))
    state = NamespaceState("shared/a", False, HEAD, cuts)
    early = make_revision(1, 51)
    for presented in ((LOST, early), (early, LOST), (HEAD, LOST, early + 1, early)):
        refusal = refused(Reason.ACKED_WRITES_LOST, check_presented, presented, state)
        assert refusal.detail == LostInfo(make_revision(1, 50), make_revision(2, 0))
        assert f"revision {early} of" in refusal.message


def test_an_expiry_is_after_store_time() -> None:
    refusal = refused(Reason.INVALID_FIELD, decide_put, None, "k", Put(b"1", expires_at_ms=NOW_MS), AT)
    assert str(NOW_MS) in refusal.message
    decision = decide_put(None, "k", Put(b"1", expires_at_ms=NOW_MS + 1), AT)
    assert decision.record is not None
    assert decision.record.siblings[0].expires_at_ms == NOW_MS + 1
    for_ever = decide_put(None, "k", Put(b"1"), AT).record
    assert for_ever is not None
    assert for_ever.live_until_ms == for_ever.next_expiry_ms == NEVER_MS
