"""Members of groups in one process: in memory, because they end with it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ...ports.locks import Member
from ...ports.runtime import Clock
from ..leasing import MEMBERS_MAX, check_member, full, gone


class _Life:
    """One life of a member."""

    __slots__ = ("ends_ms", "member")

    def __init__(self, member: Member, ends_ms: int) -> None:
        self.member = member
        self.ends_ms = ends_ms


class EmbeddedPresence:
    """See :class:`~noosphere.server.ports.locks.Presence`.

    Args:
        clock: deadlines are on its monotonic time.
        number: returns the next number of a persisted counter, once that is on disk.
    """

    def __init__(self, clock: Clock, number: Callable[[], Awaitable[int]]) -> None:
        self._clock = clock
        self._number = number
        self._groups: dict[str, dict[str, _Life]] = {}

    async def join(self, group: str, name: str, lease_ms: int, data: bytes = b"") -> Member:
        """Enters a group, in place of an earlier life of the same member.

        Raises:
            Refusal: INVALID_FIELD, VALUE_TOO_LARGE, LIMIT_EXCEEDED or ENGINE_UNAVAILABLE.
        """
        check_member(group, name, lease_ms, data)
        there = self._there(group)
        if name not in there and len(there) >= MEMBERS_MAX:
            raise full(len(there) + 1)
        member = Member(group, name, await self._number(), lease_ms, data)
        lives = self._groups.setdefault(group, {})
        later = lives.get(name)
        if later is None or later.member.number < member.number:
            lives[name] = _Life(member, self._clock.monotonic_ms() + lease_ms)
        return member

    async def keep(self, group: str, name: str, number: int) -> None:
        """Begins the lease anew.

        Raises:
            Refusal: STALE_FENCE.
        """
        life = self._there(group).get(name)
        if life is None or life.member.number != number:
            raise gone(group, name, number)
        life.ends_ms = self._clock.monotonic_ms() + life.member.lease_ms

    async def leave(self, group: str, name: str, number: int) -> bool:
        """Leaves a group; returns whether this life of the member was still there."""
        there = self._there(group)
        if name not in there or there[name].member.number != number:
            return False
        del there[name]
        if not there:
            del self._groups[group]
        return True

    async def members(self, group: str) -> tuple[Member, ...]:
        """Returns who is there, by name."""
        return tuple(life.member for _, life in sorted(self._there(group).items()))

    def _there(self, group: str) -> dict[str, _Life]:
        """Returns who is there, after forgetting whose lease has lapsed."""
        lives = self._groups.get(group, {})
        now_ms = self._clock.monotonic_ms()
        for name in [name for name, life in lives.items() if life.ends_ms <= now_ms]:
            del lives[name]
        if not lives:
            self._groups.pop(group, None)
        return lives
