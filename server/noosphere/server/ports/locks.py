"""The ports of locks, elections and presence: who has something, and who is there."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Held(NamedTuple):
    """A lock that somebody holds.

    Attributes:
        name: of the lock.
        owner: who holds it.
        token: grows with every grant of this lock; what is written under it carries it as a fence.
        lease_ms: how long it is held without a renewal.
        data: what the holder wants to be known, at most 4 KiB; in an election, where to find the leader.
    """

    name: str
    owner: str
    token: int
    lease_ms: int
    data: bytes = b""


class Member(NamedTuple):
    """One member of a group.

    Attributes:
        group: of which it is a member.
        name: unique in the group.
        number: grows with every joining; tells two lives of one member apart.
        lease_ms: how long it is there without a renewal.
        data: what the others should know of it, at most 4 KiB.
    """

    group: str
    name: str
    number: int
    lease_ms: int
    data: bytes = b""


class Locks(Protocol):
    """Locks for one holder at a time; an election is a lock whose holder is asked for.

    A lease can lapse while its holder still works, so a lock alone keeps nobody from writing: the token does. A
    holder counts its lease from before it *sent* the call that granted or renewed it; one that has waited for the
    lock renews it first.
    """

    async def acquire(self, name: str, owner: str, lease_ms: int, wait_ms: int = 0, data: bytes = b"") -> Held | None:
        """Takes a lock, in the order of those who wait; None if that is not possible in time.

        Raises:
            Refusal: INVALID_FIELD or VALUE_TOO_LARGE; LIMIT_EXCEEDED, if too many wait or hold; ENGINE_UNAVAILABLE.
        """
        ...

    async def renew(self, name: str, token: int) -> None:
        """Begins the lease anew.

        Raises:
            Refusal: STALE_FENCE, if the lock is not held under this token any more; ENGINE_UNAVAILABLE.
        """
        ...

    async def release(self, name: str, token: int) -> bool:
        """Gives a lock back; returns whether it was still held under this token.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        ...

    async def holder(self, name: str) -> Held | None:
        """Returns who holds a lock.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        ...


class Presence(Protocol):
    """Groups of members, each of which is there as long as it says so."""

    async def join(self, group: str, name: str, lease_ms: int, data: bytes = b"") -> Member:
        """Enters a group, in place of an earlier life of the same member.

        Raises:
            Refusal: INVALID_FIELD or VALUE_TOO_LARGE; LIMIT_EXCEEDED, in a full group; ENGINE_UNAVAILABLE.
        """
        ...

    async def keep(self, group: str, name: str, number: int) -> None:
        """Begins the lease anew.

        Raises:
            Refusal: STALE_FENCE, if this life of the member has ended; ENGINE_UNAVAILABLE.
        """
        ...

    async def leave(self, group: str, name: str, number: int) -> bool:
        """Leaves a group; returns whether this life of the member was still there.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        ...

    async def members(self, group: str) -> tuple[Member, ...]:
        """Returns who is there, by name.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        ...
