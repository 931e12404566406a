"""Numbers of incarnations, locks and members: etcd's revisions, above those of a coordinator that was before.

A dump from elsewhere brings records that remember incarnations and fencing tokens. Numbers that are given after its
restore have to be above them, wherever this etcd's revisions begin: so a base is added to all of them. It is written
once, by the restore, while nobody is served, and only ever rises.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping

from ...ports.coordinator import Incarnation
from ...ports.locks import Held, Locks, Member, Presence


class Numbering:
    """Translates between revisions and numbers.

    Attributes:
        base: what is added to a revision.
    """

    def __init__(self) -> None:
        self.base = 0

    def shown(self, life: Incarnation) -> Incarnation:
        """Returns an incarnation as others see it."""
        return Incarnation(life.agent_id, life.number + self.base) if self.base else life

    def kept(self, life: Incarnation) -> Incarnation:
        """Returns an incarnation as etcd knows it; its number is not positive if it was given elsewhere."""
        return Incarnation(life.agent_id, life.number - self.base) if self.base else life


class NumberedLocks:
    """See :class:`~noosphere.server.ports.locks.Locks`: those of ``locks`` under other tokens."""

    def __init__(self, locks: Locks, numbering: Numbering) -> None:
        self._locks = locks
        self._numbering = numbering

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
        """Takes a lock; see the port."""
        kept = None if life is None else self._numbering.kept(life)
        held = await self._locks.acquire(name, owner, lease_ms, wait_ms, data, life=kept, request=request)
        return None if held is None else self._shown(held)

    async def renew(self, name: str, token: int) -> None:
        """Begins the lease anew; see the port."""
        await self._locks.renew(name, token - self._numbering.base)

    async def release(self, name: str, token: int) -> bool:
        """Gives a lock back; see the port."""
        return await self._locks.release(name, token - self._numbering.base)

    async def holder(self, name: str) -> Held | None:
        """Returns who holds a lock; see the port."""
        held = await self._locks.holder(name)
        return None if held is None else self._shown(held)

    async def held(self, prefix: str, after: str, limit: int) -> tuple[Held, ...]:
        """Returns locks that are held; see the port."""
        return tuple(map(self._shown, await self._locks.held(prefix, after, limit)))

    def _shown(self, held: Held) -> Held:
        return held._replace(token=held.token + self._numbering.base)


class NumberedPresence:
    """See :class:`~noosphere.server.ports.locks.Presence`: that of ``presence`` under other numbers."""

    def __init__(self, presence: Presence, numbering: Numbering) -> None:
        self._presence = presence
        self._numbering = numbering

    async def join(
        self, group: str, name: str, lease_ms: int, data: bytes = b"", *, life: Incarnation | None = None
    ) -> Member:
        """Enters a group; see the port."""
        kept = None if life is None else self._numbering.kept(life)
        return self._shown(await self._presence.join(group, name, lease_ms, data, life=kept))

    async def keep(self, group: str, name: str, number: int) -> None:
        """Begins the lease anew; see the port."""
        await self._presence.keep(group, name, number - self._numbering.base)

    async def leave(self, group: str, name: str, number: int) -> bool:
        """Leaves a group; see the port."""
        return await self._presence.leave(group, name, number - self._numbering.base)

    async def members(self, group: str) -> tuple[Member, ...]:
        """Returns who is there; see the port."""
        return tuple(map(self._shown, await self._presence.members(group)))

    async def watch(self, group: str) -> AsyncGenerator[Mapping[str, Member], None]:
        """Yields who is there; see the port."""
        found = self._presence.watch(group)
        try:
            async for members in found:
                yield members if not self._numbering.base else {n: self._shown(m) for n, m in members.items()}
        finally:
            await found.aclose()

    def _shown(self, member: Member) -> Member:
        return member._replace(number=member.number + self._numbering.base)
