"""Every field of what becomes of a claim, and every word by which it is lost."""

from __future__ import annotations

import pytest
from tests.unit.consistency.key import Key
from tests.unit.consistency.support import refused

from noosphere.consistency import (
    Claim,
    ConflictInfo,
    Decision,
    Encoding,
    Reason,
    decide_claim,
    decide_complete,
    decide_release,
    decide_renew,
)
from noosphere.consistency.decide import ChangeKind, Event

ATTRIBUTES = (("kind", "task"),)


def claimed() -> Key:
    key = Key()
    key.put(b"1", attributes=ATTRIBUTES)
    key.apply(decide_claim(key.stored, "b#2", key.now_ms, 1_000))
    return key


def test_a_claim_and_everything_that_becomes_of_it() -> None:
    key = claimed()
    before = key.stored
    claim = before.claim
    assert claim == Claim("b#2", 2_000, key.head, 1)
    assert decide_claim(before, "c#3", 1_500, 700) == Decision(
        before._replace(
            stored=0,
            claim=Claim("c#3", 2_200, 0, 2),
            clock=before.clock.written_by("c#3"),
            change_count=3,
        ),
        events=(Event(ChangeKind.CLAIM, "c#3"),),
    )

    def followed(kind: ChangeKind, **changes: object) -> Decision:
        after = claim._replace(**changes)  # type: ignore[arg-type] # Each name is a field, of its type.
        return Decision(
            before._replace(stored=0, claim=after, clock=before.clock.written_by("b#2"), change_count=3),
            events=(Event(kind, "b#2"),),
        )

    fence = claim.fence
    assert decide_renew(before, "k", fence, "b#2", 1_500, 1_000) == followed(ChangeKind.RENEW, expires_at_ms=2_500)
    assert decide_release(before, "k", fence, "b#2", 1_500) == followed(ChangeKind.RELEASE, holder="", expires_at_ms=0)
    assert decide_complete(before, "k", fence, "b#2", 1_500, b"r", Encoding.BYTES) == followed(
        ChangeKind.COMPLETE,
        holder="",
        expires_at_ms=0,
        done=True,
        completed_by="b#2",
        result=b"r",
        result_encoding=Encoding.BYTES,
    )


@pytest.mark.parametrize(
    ("when_ms", "fence", "actor", "problem"),
    [
        (1_500, 1, "b#2", "is claimed by b#2"),
        (1_500, 0, "c#3", "is claimed by b#2"),
        (2_500, 1, "b#2", "is no longer claimed by you"),
        (2_000, 0, "b#2", "was held longer than its lease"),
    ],
)
def test_why_a_claim_is_lost(when_ms: int, fence: int, actor: str, problem: str) -> None:
    key = claimed()
    token = key.head + fence
    for lost in (
        refused(Reason.CLAIM_LOST, decide_release, key.record, "k", token, actor, when_ms),
        refused(Reason.CLAIM_LOST, decide_renew, key.record, "k", token, actor, when_ms, 10),
        refused(Reason.CLAIM_LOST, decide_complete, key.record, "k", token, actor, when_ms, None, Encoding.JSON),
    ):
        assert lost.message == f"'k' {problem}"
        assert lost.detail == ConflictInfo("k", key.version)


def test_a_claim_of_what_is_done_or_was_never_claimed_is_lost() -> None:
    key = Key()
    key.put(b"1")
    for record in (None, key.record):
        lost = refused(Reason.CLAIM_LOST, decide_release, record, "k", 1, "b#2", 1_000)
        assert lost.message == "'k' is not claimed"
        assert lost.detail == ConflictInfo("k", key.version if record else 0)
    key = claimed()
    fence = key.head
    key.apply(decide_complete(key.record, "k", fence, "b#2", 1_500, None, Encoding.JSON))
    lost = refused(Reason.CLAIM_LOST, decide_renew, key.record, "k", fence, "b#2", 1_500, 10)
    assert lost.message == "'k' was completed by b#2"
