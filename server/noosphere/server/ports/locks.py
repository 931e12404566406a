"""The ports of locks, elections and presence: who has something, and who is there."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from .coordinator import Incarnation


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

    async def acquire(
        self,
        name: str,
        owner: str,
        lease_ms: int,
        wait_ms: int = 0,
        data: bytes = b"",
        *,
        life: Incarnation | None = None,
        request: str = "",
    ) -> Held | None:
        """Takes a lock, in the order of those who wait; None if that is not possible in time.

        Args:
            name: of the lock.
            owner: who wants it.
            lease_ms: how long it is held without a renewal.
            wait_ms: how long to wait for it.
            data: what the holder wants to be known.
            life: whose end ends the lock, and the waiting for it; None for nobody's.
            request: the owner's id of the call, the same for all attempts: one that comes again goes on in the place
                of the one before, also at another process, and is told the same token while the lock is held.

        Raises:
            Refusal: INVALID_FIELD or VALUE_TOO_LARGE; LIMIT_EXCEEDED, if too many wait, or too much is held;
                STALE_INCARNATION, if the life has ended; REQUEST_ID_REUSED; CONTENTION, to an attempt whose place
                another one has taken; ENGINE_UNAVAILABLE.
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

    async def held(self, prefix: str, after: str, limit: int) -> tuple[Held, ...]:
        """Returns locks that are held, by name.

        Args:
            prefix: what their names begin with.
            after: only names after this one; empty for all.
            limit: how many at most.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        ...


class Presence(Protocol):
    """Groups of members, each of which is there as long as it says so."""

    async def join(
        self, group: str, name: str, lease_ms: int, data: bytes = b"", *, life: Incarnation | None = None
    ) -> Member:
        """Enters a group, in place of an earlier life of the same member.

        Args:
            group: which one.
            name: of the member.
            lease_ms: how long it is there without a renewal.
            data: what the others should know of it.
            life: whose end ends the membership; None for nobody's.

        Raises:
            Refusal: INVALID_FIELD or VALUE_TOO_LARGE; LIMIT_EXCEEDED, in a full group, or in too many;
                STALE_INCARNATION, if the life has ended; ENGINE_UNAVAILABLE.
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

    def watch(self, group: str) -> AsyncGenerator[Mapping[str, Member], None]:
        """Yields who is there, by name: at first, and after every change, of which several may be told as one.

        What was yielded does not change any more.

        Raises:
            Refusal: ENGINE_UNAVAILABLE; whoever goes on begins anew.
        """
        ...
