"""What no coordinator takes: names, leases and data that are out of bounds, and an epoch that another one has begun."""

from __future__ import annotations

from noosphere.consistency import Reason, Refusal, exhausted, invalid, too_large
from noosphere.consistency.limits import LEASE_MS_MAX, LEASE_MS_MIN, LOCK_NAME_BYTES_MAX

from ..ports.coordinator import Incarnation

OWNER_BYTES_MAX = 256
DATA_BYTES_MAX = 4096
WAIT_MS_MAX = 60_000
WAITERS_MAX = 1_000
"""Callers that wait for one lock in one process."""

HELD_MAX = 100_000
"""Locks that one process keeps."""

HOLDINGS_MAX = 1_000
"""Locks that one incarnation holds or waits for, and as many groups of which it is a member."""

MEMBERS_MAX = 10_000
"""Members of one group."""


def check_lock(name: str, owner: str, lease_ms: int, wait_ms: int, data: bytes) -> None:
    """Checks what a lock is asked for with.

    Raises:
        Refusal: INVALID_FIELD or VALUE_TOO_LARGE.
    """
    _check_name("lock.name", name, LOCK_NAME_BYTES_MAX)
    _check_name("lock.owner", owner, OWNER_BYTES_MAX)
    _check_lease("lock", lease_ms, data)
    if not 0 <= wait_ms <= WAIT_MS_MAX:
        raise invalid("lock.wait_ms", f"{wait_ms} is not between 0 and {WAIT_MS_MAX}")


def check_member(group: str, name: str, lease_ms: int, data: bytes) -> None:
    """Checks what a member joins with.

    Raises:
        Refusal: INVALID_FIELD or VALUE_TOO_LARGE.
    """
    _check_name("member.group", group, LOCK_NAME_BYTES_MAX)
    _check_name("member.name", name, OWNER_BYTES_MAX)
    _check_lease("member", lease_ms, data)


def lost(name: str, token: int) -> Refusal:
    """Returns the refusal of a lock that is not held any more."""
    return Refusal(Reason.STALE_FENCE, f"lock {name!r} is not held under token {token} any more")


def gone(group: str, name: str, number: int) -> Refusal:
    """Returns the refusal of a member that is not there any more."""
    return Refusal(Reason.STALE_FENCE, f"member {name!r} of {group!r} is not there as {number} any more; join again")


def crowded(waiting: int) -> Refusal:
    """Returns the refusal of one caller too many."""
    return exhausted("lock.name", waiting, WAITERS_MAX, "too many callers wait for this lock")


def full(members: int) -> Refusal:
    """Returns the refusal of one member too many."""
    return exhausted("member.group", members, MEMBERS_MAX, "too many members")


def check_holdings(kind: str, count: int) -> None:
    """Checks that an incarnation may hold one more.

    Args:
        kind: ``lock`` or ``group``.
        count: what it holds.

    Raises:
        Refusal: LIMIT_EXCEEDED.
    """
    if count >= HOLDINGS_MAX:
        raise exhausted(f"{kind}.name", count + 1, HOLDINGS_MAX, f"too many {kind}s of one agent")


def reused(name: str) -> Refusal:
    """Returns the refusal of another call under the same id."""
    return Refusal(Reason.REQUEST_ID_REUSED, f"lock {name!r} was asked for under this id, with another lease or data")


def ended(incarnation: Incarnation) -> Refusal:
    """Returns the refusal of an incarnation that has ended."""
    return Refusal(
        Reason.STALE_INCARNATION,
        f"incarnation {incarnation.number} of agent {incarnation.agent_id!r} has ended; open the agent again",
    )


def outrun(newest: int, expected: int) -> Refusal:
    """Returns the refusal of an epoch that was to follow another than the newest."""
    return Refusal(Reason.CONTENTION, f"epoch {newest or 'none'} is the newest, not {expected or 'none'}")


def _check_name(field: str, name: str, bytes_max: int) -> None:
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise invalid(field, "is not Unicode text") from None
    if not name or "\0" in name:
        raise invalid(field, "must not be empty or contain NUL")
    if size > bytes_max:
        raise too_large(field, size, bytes_max)


def _check_lease(what: str, lease_ms: int, data: bytes) -> None:
    if not LEASE_MS_MIN <= lease_ms <= LEASE_MS_MAX:
        raise invalid(f"{what}.lease_ms", f"{lease_ms} is not between {LEASE_MS_MIN} and {LEASE_MS_MAX}")
    if len(data) > DATA_BYTES_MAX:
        raise too_large(f"{what}.data", len(data), DATA_BYTES_MAX)
