"""Claims: a record as a task on a board, worked on by at most one agent at a time.

Holder, expiry and fence (the revision at which the claim was taken) are fields of the record, so each
step is one ordinary commit. They move the record's version but no dot: a context that covered the
task's value still covers it.
"""

from __future__ import annotations

from .decide import ChangeKind, Decision, Event
from .errors import ConflictInfo, Reason, Refusal
from .record import Claim, Encoding, Record, Scalar


def claimable(record: Record, where: tuple[tuple[str, Scalar], ...], now_ms: int) -> bool:
    """Tells whether ``record`` is a free task that matches ``where``.

    A record with several live values is no task until somebody resolves it.
    """
    if len(record.live(now_ms)) != 1:
        return False
    claim = record.claim
    if claim is not None and (claim.done or claim.active(now_ms)):
        return False
    return matches(record, where)


def matches(record: Record, where: tuple[tuple[str, Scalar], ...]) -> bool:
    """Tells whether the record's attributes equal all of ``where``; numbers compare by value, not by type."""
    if not where:
        return True
    held = dict(record.attributes)
    for name, wanted in where:
        value = held.get(name)
        if value is None or value != wanted or isinstance(value, bool) is not isinstance(wanted, bool):
            return False
    return True


def decide_claim(record: Record, actor: str, now_ms: int, lease_ms: int) -> Decision:
    """Claims a record that is :func:`claimable`."""
    attempts = record.claim.attempts if record.claim is not None else 0
    claim = Claim(holder=actor, expires_at_ms=now_ms + lease_ms, fence=0, attempts=attempts + 1)
    return _decision(record, claim, ChangeKind.CLAIM, actor)


def decide_renew(record: Record | None, key: str, fence: int, actor: str, now_ms: int, lease_ms: int) -> Decision:
    """Extends a claim.

    Raises:
        Refusal: CLAIM_LOST.
    """
    held, claim = _held(record, key, fence, actor, now_ms)
    return _decision(held, claim._replace(expires_at_ms=now_ms + lease_ms), ChangeKind.RENEW, actor)


def decide_release(record: Record | None, key: str, fence: int, actor: str, now_ms: int) -> Decision:
    """Gives a claim up; the task is free at once.

    Raises:
        Refusal: CLAIM_LOST.
    """
    held, claim = _held(record, key, fence, actor, now_ms)
    return _decision(held, claim._replace(holder="", expires_at_ms=0), ChangeKind.RELEASE, actor)


def decide_complete(
    record: Record | None, key: str, fence: int, actor: str, now_ms: int, result: bytes | None, encoding: Encoding
) -> Decision:
    """Marks a task as done, once; keeps its value and stores the result beside it.

    Raises:
        Refusal: CLAIM_LOST, also after the lease ended without a successor: by then the holder had no
            right to act.
    """
    held, claim = _held(record, key, fence, actor, now_ms)
    done = claim._replace(
        holder="", expires_at_ms=0, done=True, completed_by=actor, result=result, result_encoding=encoding
    )
    return _decision(held, done, ChangeKind.COMPLETE, actor)


def _held(record: Record | None, key: str, fence: int, actor: str, now_ms: int) -> tuple[Record, Claim]:
    claim = record.claim if record is not None else None
    version = record.version(now_ms) if record is not None else 0
    if record is None or claim is None or version == 0:
        problem = "is not claimed"
    elif claim.done:
        problem = f"was completed by {claim.completed_by}"
    elif claim.fence != fence or claim.holder != actor:
        problem = f"is claimed by {claim.holder}" if claim.active(now_ms) else "is no longer claimed by you"
    elif not claim.active(now_ms):
        problem = "was held longer than its lease"
    else:
        return record, claim
    raise Refusal(Reason.CLAIM_LOST, f"{key!r} {problem}", ConflictInfo(key, version))


def _decision(record: Record, claim: Claim, kind: ChangeKind, actor: str) -> Decision:
    new = record._replace(
        stored=0,
        claim=claim,
        clock=record.clock.written_by(actor),
        change_count=record.change_count + 1,
    )
    return Decision(new, members=False, events=(Event(kind, actor),))
