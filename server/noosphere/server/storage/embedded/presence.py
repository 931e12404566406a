"""Members of groups in one process: in memory, because they end with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

from ...ports.coordinator import Incarnation
from ...ports.locks import Member
from ...ports.runtime import Clock
from ..leasing import MEMBERS_MAX, check_member, ended, full, gone
from .holdings import Holdings

LOOK_SECONDS = 60.0
"""How often a watch looks again while nobody is there whose lease could lapse."""


class _Life:
    """One life of a member."""

    __slots__ = ("ends_ms", "incarnation", "member")

    def __init__(self, member: Member, ends_ms: int, incarnation: Incarnation | None) -> None:
        self.member = member
        self.ends_ms = ends_ms
        self.incarnation = incarnation


class EmbeddedPresence:
    """See :class:`~noosphere.server.ports.locks.Presence`.

    Args:
        clock: deadlines are on its monotonic time.
        number: returns the next number of a persisted counter, once that is on disk.
        is_current: tells whether an incarnation has not ended.
    """

    def __init__(
        self, clock: Clock, number: Callable[[], Awaitable[int]], is_current: Callable[[Incarnation], bool]
    ) -> None:
        self._clock = clock
        self._number = number
        self._is_current = is_current
        self._groups: dict[str, dict[str, _Life]] = {}
        self._watching: dict[str, set[asyncio.Future[None]]] = {}
        self._concerned = Holdings("group", is_current, self._is_member)

    async def join(
        self, group: str, name: str, lease_ms: int, data: bytes = b"", *, life: Incarnation | None = None
    ) -> Member:
        """Enters a group, in place of an earlier life of the same member.

        Raises:
            Refusal: INVALID_FIELD, VALUE_TOO_LARGE, LIMIT_EXCEEDED, STALE_INCARNATION or ENGINE_UNAVAILABLE.
        """
        check_member(group, name, lease_ms, data)
        self._concerned.note(life, (group, name))
        there = self._there(group)
        if name not in there and len(there) >= MEMBERS_MAX:
            raise full(len(there) + 1)
        member = Member(group, name, await self._number(), lease_ms, data)
        if life is not None and not self._is_current(life):
            raise ended(life)
        lives = self._groups.setdefault(group, {})
        later = lives.get(name)
        if later is None or later.member.number < member.number:
            lives[name] = _Life(member, self._clock.monotonic_ms() + lease_ms, life)
            self._tell(group)
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
        self._remove(group, there, (name,))
        return True

    async def members(self, group: str) -> tuple[Member, ...]:
        """Returns who is there, by name."""
        return tuple(life.member for _, life in sorted(self._there(group).items()))

    async def watch(self, group: str) -> AsyncGenerator[Mapping[str, Member], None]:
        """Yields who is there, by name: at first, and after every change, of which several may be told as one."""
        while True:
            there = self._there(group)
            changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._watching.setdefault(group, set()).add(changed)
            try:
                yield {name: life.member for name, life in sorted(there.items())}
                while not changed.done():
                    now_ms = self._clock.monotonic_ms()
                    next_ms = min((life.ends_ms for life in self._groups.get(group, {}).values()), default=None)
                    seconds = LOOK_SECONDS if next_ms is None else (next_ms - now_ms) / 1000
                    if seconds > 0:
                        await self._clock.wait(changed, seconds)
                    self._there(group)
            finally:
                watching = self._watching.get(group, set())
                watching.discard(changed)
                if not watching:
                    self._watching.pop(group, None)

    def end(self, life: Incarnation) -> None:
        """Ends an incarnation's memberships."""
        for group, name in self._concerned.take(life):
            there = self._there(group)
            if name in there and there[name].incarnation == life:
                self._remove(group, there, (name,))

    def _is_member(self, life: Incarnation, place: tuple[str, str]) -> bool:
        group, name = place
        found = self._there(group).get(name)
        return found is not None and found.incarnation == life

    def _there(self, group: str) -> dict[str, _Life]:
        """Returns who is there, after forgetting whose lease has lapsed."""
        lives = self._groups.get(group, {})
        now_ms = self._clock.monotonic_ms()
        lapsed = tuple(name for name, life in lives.items() if life.ends_ms <= now_ms)
        if lapsed:
            self._remove(group, lives, lapsed)
        return lives

    def _remove(self, group: str, lives: dict[str, _Life], names: tuple[str, ...]) -> None:
        for name in names:
            del lives[name]
        if not lives:
            self._groups.pop(group, None)
        self._tell(group)

    def _tell(self, group: str) -> None:
        for changed in self._watching.get(group, ()):
            if not changed.done():
                changed.set_result(None)
