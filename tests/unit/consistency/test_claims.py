"""Claims: at most one holder at a time, done at most once, and never past the lease."""

from __future__ import annotations

import pytest
from tests.unit.consistency.support import refused

from noosphere.consistency import (
    CausalContext,
    ChangeKind,
    Circumstances,
    ConflictInfo,
    ConflictPolicy,
    Decision,
    Encoding,
    Precondition,
    Put,
    Reason,
    Record,
    Scalar,
    claimable,
    decide_claim,
    decide_complete,
    decide_delete,
    decide_expiry,
    decide_merge,
    decide_put,
    decide_release,
    decide_renew,
    matches,
)
from noosphere.consistency.merge import CounterAdd

NOW, LEASE = 1_000, 100
AT = Circumstances(NOW, "b#1", ConflictPolicy.SIBLINGS, False, 0, 1_000)
JSON = Encoding.JSON
UNSEEN = Precondition(context=CausalContext())


def carry_out(decision: Decision | None, revision: int) -> Record:
    assert decision is not None
    assert decision.record is not None
    return decision.record.at(revision)


def task(revision: int = 1, ttl_ms: int | None = None, attributes: tuple[tuple[str, Scalar], ...] = ()) -> Record:
    put = Put(b"task", JSON, attributes, ttl_ms)
    return carry_out(decide_put(None, "k", put, AT), revision)


def claimed(revision: int = 2) -> Record:
    return carry_out(decide_claim(task(), "a#1", NOW, LEASE), revision)


def lost(record: Record | None, fence: int = 2, actor: str = "a#1", now_ms: int = NOW) -> str:
    """Asserts that all three steps of a holder are refused; returns the message."""
    version = record.version(now_ms) if record is not None else 0
    refusals = [
        refused(Reason.CLAIM_LOST, decide_renew, record, "k", fence, actor, now_ms, LEASE),
        refused(Reason.CLAIM_LOST, decide_release, record, "k", fence, actor, now_ms),
        refused(Reason.CLAIM_LOST, decide_complete, record, "k", fence, actor, now_ms, None, JSON),
    ]
    assert all(refusal.detail == ConflictInfo("k", version) for refusal in refusals)
    return refusals[0].message


def test_a_claim_moves_the_version_and_no_dot() -> None:
    before = task()
    decision = decide_claim(before, "a#1", NOW, LEASE)
    record = carry_out(decision, 7)
    assert record.claim is not None
    assert (record.claim.holder, record.claim.fence, record.claim.expires_at_ms) == ("a#1", 7, NOW + LEASE)
    assert (record.version(NOW), record.siblings, record.created_ms) == (7, before.siblings, before.created_ms)
    assert (decision.members, [event.kind for event in decision.events]) == (False, [ChangeKind.CLAIM])
    assert decision.ack(7) == (7, CausalContext(7))
    assert record.clock.includes("a#1", 7)


def test_a_held_task_is_not_handed_out_until_its_lease_ends() -> None:
    record = claimed()
    assert not claimable(record, (), NOW + LEASE - 1)
    assert claimable(record, (), NOW + LEASE)
    again = carry_out(decide_claim(record, "c#1", NOW + LEASE, LEASE), 3)
    assert again.claim is not None
    assert (again.claim.attempts, again.claim.fence) == (2, 3)
    assert "claimed by c#1" in lost(again)


def test_at_and_after_the_end_of_the_lease_nothing_is_written() -> None:
    record = claimed()
    assert "lease" in lost(record, now_ms=NOW + LEASE)
    for step in (
        decide_renew(record, "k", 2, "a#1", NOW + LEASE - 1, LEASE),
        decide_release(record, "k", 2, "a#1", NOW + LEASE - 1),
        decide_complete(record, "k", 2, "a#1", NOW + LEASE - 1, None, JSON),
    ):
        assert step.record is not None


def test_renewing_counts_from_now_and_keeps_the_fence() -> None:
    record = carry_out(decide_renew(claimed(), "k", 2, "a#1", NOW + 50, LEASE), 3)
    assert record.claim is not None
    assert (record.claim.fence, record.claim.expires_at_ms, record.claim.attempts) == (2, NOW + 50 + LEASE, 1)
    assert record.version(NOW) == 3


def test_a_released_task_is_free_at_once() -> None:
    record = carry_out(decide_release(claimed(), "k", 2, "a#1", NOW), 3)
    assert claimable(record, (), NOW)
    assert "no longer" in lost(record)
    again = carry_out(decide_claim(record, "a#1", NOW, LEASE), 4)
    assert again.claim is not None
    assert (again.claim.fence, again.claim.attempts) == (4, 2)
    # The fence of the first claim is worth nothing, though the holder is the same.
    lost(again, fence=2)


def test_a_completed_task_keeps_its_value_and_is_done_for_good() -> None:
    record = carry_out(decide_complete(claimed(), "k", 2, "a#1", NOW, b"result", JSON), 3)
    assert record.claim is not None
    assert (record.claim.done, record.claim.completed_by, record.claim.result) == (True, "a#1", b"result")
    assert record.siblings == task().siblings
    assert not claimable(record, (), NOW + 10 * LEASE)
    assert "completed by a#1" in lost(record)
    # Not even a new value makes it claimable; only a new life of the key does.
    put = Put(b"again", precondition=Precondition(3))
    changed = carry_out(decide_put(record, "k", put, AT), 4)
    assert not claimable(changed, (), NOW)
    gone = carry_out(decide_delete(changed, "k", Precondition(4), AT), 5)
    fresh = carry_out(decide_put(gone, "k", Put(b"anew"), AT), 6)
    assert claimable(fresh, (), NOW)
    assert fresh.claim is None


def test_a_stranger_cannot_act_for_the_holder() -> None:
    record = claimed()
    for actor in ("a#2", "b#1", ""):
        assert "claimed by a#1" in lost(record, actor=actor)
    for fence in (0, 1, 3):
        lost(record, fence=fence)
    lost(None)
    assert "not claimed" in lost(task())


def test_a_put_by_somebody_else_keeps_the_claim_and_a_delete_ends_it() -> None:
    record = carry_out(decide_put(claimed(), "k", Put(b"new", precondition=Precondition(2)), AT), 3)
    assert record.claim == claimed().claim
    assert decide_complete(record, "k", 2, "a#1", NOW, None, JSON).record is not None
    gone = carry_out(decide_delete(record, "k", Precondition(3), AT), 4)
    assert "not claimed" in lost(gone)
    lost(carry_out(decide_put(gone, "k", Put(b"anew"), AT), 5))


def test_a_merge_keeps_the_claim() -> None:
    counter = carry_out(decide_merge(None, "k", CounterAdd(1), AT), 1)
    held = carry_out(decide_claim(counter, "a#1", NOW, LEASE), 2)
    changed = carry_out(decide_merge(held, "k", CounterAdd(1), AT), 3)
    assert changed.claim == held.claim


def test_the_end_of_the_task_ends_its_claim() -> None:
    record = carry_out(decide_claim(task(ttl_ms=10), "a#1", NOW, LEASE), 2)
    assert not claimable(record, (), NOW + 10)
    assert "not claimed" in lost(record, now_ms=NOW + 10)
    swept = carry_out(decide_expiry(record, NOW + 10), 3)
    assert swept.claim is None


def test_several_values_are_no_task_but_do_not_break_a_claim() -> None:
    contested = carry_out(decide_put(task(), "k", Put(b"other", precondition=UNSEEN), AT), 2)
    assert not claimable(contested, (), NOW)
    held = carry_out(decide_put(claimed(), "k", Put(b"other", precondition=UNSEEN), AT), 3)
    assert len(held.live(NOW)) == 2
    done = carry_out(decide_complete(held, "k", 2, "a#1", NOW, None, JSON), 4)
    assert done.siblings == held.siblings
    # A delete that leaves a value leaves the task, and with it the claim.
    left = carry_out(decide_delete(held, "k", Precondition(context=CausalContext(1)), AT), 4)
    assert left.claim == held.claim


def test_a_task_one_of_whose_values_expired_may_be_claimed_and_the_expiry_is_still_to_come() -> None:
    record = carry_out(decide_put(task(ttl_ms=10), "k", Put(b"other", precondition=UNSEEN), AT), 2)
    assert not claimable(record, (), NOW + 9)
    assert claimable(record, (), NOW + 10)
    held = carry_out(decide_claim(record, "a#1", NOW + 10, LEASE), 3)
    swept = carry_out(decide_expiry(held, NOW + 10), 4)
    assert (swept.claim, [s.data for s in swept.siblings]) == (held.claim, [None, b"other"])


ATTRIBUTES: tuple[tuple[str, Scalar], ...] = (
    ("text", "1"),
    ("int", 1),
    ("float", 1.0),
    ("true", True),
    ("false", False),
)


@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        ((), True),
        ((("text", "1"),), True),
        ((("text", 1),), False),
        ((("int", 1),), True),
        ((("int", 1.0),), True),
        ((("int", "1"),), False),
        ((("int", True),), False),
        ((("float", 1),), True),
        ((("float", 1.5),), False),
        ((("true", True),), True),
        ((("true", 1),), False),
        ((("true", False),), False),
        ((("false", False),), True),
        ((("false", 0),), False),
        ((("absent", False),), False),
        ((("absent", ""),), False),
        ((("int", 1), ("text", "1")), True),
        ((("int", 1), ("text", "2")), False),
        ((("int", 2), ("int", 1)), False),
        ((("int", float("nan")),), False),
    ],
)
def test_where_is_equality_of_values_and_kinds(where: tuple[tuple[str, Scalar], ...], wanted: bool) -> None:
    record = task(attributes=ATTRIBUTES)
    assert matches(record, where) is wanted
    assert claimable(record, where, NOW) is wanted


def test_numbers_are_compared_exactly() -> None:
    record = task()._replace(attributes=(("n", 2**53 + 1),))
    assert matches(record, (("n", 2**53 + 1),))
    assert not matches(record, (("n", float(2**53)),))
