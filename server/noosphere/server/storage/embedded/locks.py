"""Locks of one process: in memory, because they end with it; only the counter of their tokens is on disk."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from noosphere.consistency import exhausted

from ...ports.locks import Held
from ...ports.runtime import Clock
from ..leasing import HELD_MAX, WAITERS_MAX, check_lock, crowded, lost


class _Turn:
    """One caller's place in a queue; ``called`` is done when there is something to see."""

    __slots__ = ("called",)

    def __init__(self) -> None:
        self.called: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class _Lock:
    """One lock that somebody holds or waits for."""

    __slots__ = ("ends_ms", "held", "queue")

    def __init__(self) -> None:
        self.held: Held | None = None
        self.ends_ms = 0
        # Whoever is granted the lock stays the first until its token is on disk.
        self.queue: deque[_Turn] = deque()


class EmbeddedLocks:
    """See :class:`~noosphere.server.ports.locks.Locks`.

    Args:
        clock: deadlines are on its monotonic time.
        number: returns the next number of a persisted counter, once that is on disk.
    """

    def __init__(self, clock: Clock, number: Callable[[], Awaitable[int]]) -> None:
        self._clock = clock
        self._number = number
        self._locks: dict[str, _Lock] = {}

    async def acquire(self, name: str, owner: str, lease_ms: int, wait_ms: int = 0, data: bytes = b"") -> Held | None:
        """Takes a lock, in the order of those who wait; None if that is not possible in time.

        Raises:
            Refusal: INVALID_FIELD, VALUE_TOO_LARGE, LIMIT_EXCEEDED or ENGINE_UNAVAILABLE.
        """
        check_lock(name, owner, lease_ms, wait_ms, data)
        lock = self._locks.get(name)
        if lock is None:
            self._make_room()
            lock = self._locks[name] = _Lock()
        if len(lock.queue) >= WAITERS_MAX:
            raise crowded(len(lock.queue) + 1)
        turn = _Turn()
        lock.queue.append(turn)
        try:
            if not await self._wait(lock, turn, self._clock.monotonic_ms() + wait_ms):
                return None
            return await self._grant(lock, name, owner, lease_ms, data)
        finally:
            lock.queue.remove(turn)
            self._wake(name, lock)

    async def renew(self, name: str, token: int) -> None:
        """Begins the lease anew.

        Raises:
            Refusal: STALE_FENCE.
        """
        lock = self._locks.get(name)
        held = self._living(lock)
        if lock is None or held is None or held.token != token:
            raise lost(name, token)
        lock.ends_ms = self._clock.monotonic_ms() + held.lease_ms

    async def release(self, name: str, token: int) -> bool:
        """Gives a lock back; returns whether it was still held under this token."""
        lock = self._locks.get(name)
        held = self._living(lock)
        if lock is None or held is None or held.token != token:
            return False
        lock.held = None
        self._wake(name, lock)
        return True

    async def holder(self, name: str) -> Held | None:
        """Returns who holds a lock."""
        return self._living(self._locks.get(name))

    def _living(self, lock: _Lock | None) -> Held | None:
        if lock is None or lock.ends_ms <= self._clock.monotonic_ms():
            return None
        return lock.held

    async def _wait(self, lock: _Lock, turn: _Turn, deadline_ms: int) -> bool:
        """Waits until it is this caller's turn; returns whether it is."""
        while lock.queue[0] is not turn or self._living(lock) is not None:
            now_ms = self._clock.monotonic_ms()
            if now_ms >= deadline_ms:
                return False
            if turn.called.done():
                turn.called = asyncio.get_running_loop().create_future()
            # The first in the queue sees the lease lapse; the others are called when they are the first.
            until_ms = min(deadline_ms, lock.ends_ms) if lock.queue[0] is turn else deadline_ms
            await self._clock.wait(turn.called, (until_ms - now_ms) / 1000)
        return True

    async def _grant(self, lock: _Lock, name: str, owner: str, lease_ms: int, data: bytes) -> Held:
        held = Held(name, owner, await self._number(), lease_ms, data)
        lock.held, lock.ends_ms = held, self._clock.monotonic_ms() + lease_ms
        return held

    def _wake(self, name: str, lock: _Lock) -> None:
        """Tells whoever is next to look; forgets a lock that nobody holds or waits for."""
        if lock.queue:
            if not lock.queue[0].called.done():
                lock.queue[0].called.set_result(None)
        elif self._living(lock) is None:
            self._locks.pop(name, None)

    def _make_room(self) -> None:
        if len(self._locks) < HELD_MAX:
            return
        lapsed = [name for name, lock in self._locks.items() if not lock.queue and self._living(lock) is None]
        for name in lapsed:
            del self._locks[name]
        if not lapsed:
            raise exhausted("lock.name", len(self._locks) + 1, HELD_MAX, "too many locks are held")
