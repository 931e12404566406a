"""Locks of one process: in memory, because they end with it; only the counter of their tokens is on disk."""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Awaitable, Callable

from noosphere.consistency import exhausted

from ...ports.coordinator import Incarnation
from ...ports.locks import Held
from ...ports.runtime import Clock
from ..leasing import HELD_MAX, WAITERS_MAX, check_lock, crowded, ended, lost, reused
from .holdings import Holdings

NAMES_PER_STEP = 2_048
"""Names that are looked through before others have their turn."""


class _Turn:
    """One caller's place in a queue; ``called`` is done when there is something to see."""

    __slots__ = ("called", "life", "life_ended", "request")

    def __init__(self, life: Incarnation | None, request: tuple[str, str] | None) -> None:
        self.called: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.life = life
        self.life_ended = False
        self.request = request

    def call(self) -> None:
        """Has the caller look."""
        if not self.called.done():
            self.called.set_result(None)


class _Lock:
    """One lock that somebody holds or waits for."""

    __slots__ = ("ends_ms", "held", "life", "queue", "request")

    def __init__(self) -> None:
        self.held: Held | None = None
        self.ends_ms = 0
        self.life: Incarnation | None = None
        self.request: tuple[str, str] | None = None
        # Whoever is granted the lock stays the first until its token is on disk.
        self.queue: deque[_Turn] = deque()


class EmbeddedLocks:
    """See :class:`~noosphere.server.ports.locks.Locks`.

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
        self._locks: dict[str, _Lock] = {}
        # Whoever waits is noted as well.
        self._concerned = Holdings("lock", is_current, self._is_concerned)

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

        Raises:
            Refusal: INVALID_FIELD, VALUE_TOO_LARGE, LIMIT_EXCEEDED, STALE_INCARNATION, REQUEST_ID_REUSED or
                ENGINE_UNAVAILABLE.
        """
        check_lock(name, owner, lease_ms, wait_ms, data)
        self._concerned.note(life, name)
        lock = self._locks.get(name)
        if lock is None:
            self._make_room()
            lock = self._locks[name] = _Lock()
        if len(lock.queue) >= WAITERS_MAX:
            raise crowded(len(lock.queue) + 1)
        turn = _Turn(life, (owner, request) if request else None)
        _queue(lock, turn)
        try:
            if not await self._wait(lock, turn, self._clock.monotonic_ms() + wait_ms):
                return None
            held = self._living(lock)
            if held is not None:
                # An attempt at the same call was granted it.
                if (held.lease_ms, held.data) != (lease_ms, data):
                    raise reused(name)
                lock.ends_ms = self._clock.monotonic_ms() + lease_ms
                return held
            held = Held(name, owner, await self._number(), lease_ms, data)
            _check_life(turn)
            lock.held, lock.ends_ms = held, self._clock.monotonic_ms() + lease_ms
            lock.life, lock.request = life, turn.request
            return held
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
        self._free(name, lock)
        return True

    async def holder(self, name: str) -> Held | None:
        """Returns who holds a lock."""
        return self._living(self._locks.get(name))

    async def held(self, prefix: str, after: str, limit: int) -> tuple[Held, ...]:
        """Returns locks that are held, by name."""
        names, found = list(self._locks), list[Held]()
        for first in range(0, len(names), NAMES_PER_STEP):
            step = (name for name in names[first : first + NAMES_PER_STEP] if name.startswith(prefix) and name > after)
            living = (held for name in step if (held := self._living(self._locks.get(name))) is not None)
            # Their names are different, so nothing else of them is compared.
            found = heapq.nsmallest(limit, (*found, *living))
            # Among very many names others have their turn.
            await asyncio.sleep(0)
        return tuple(found)

    def end(self, life: Incarnation) -> None:
        """Frees what an incarnation holds, and ends its waiting."""
        for name in self._concerned.take(life):
            lock = self._locks.get(name)
            if lock is None:
                continue
            for turn in lock.queue:
                if turn.life == life:
                    turn.life_ended = True
                    turn.call()
            if lock.life == life:
                self._free(name, lock)

    def _living(self, lock: _Lock | None) -> Held | None:
        if lock is None or lock.ends_ms <= self._clock.monotonic_ms():
            return None
        return lock.held

    def _is_concerned(self, life: Incarnation, name: str) -> bool:
        lock = self._locks.get(name)
        if lock is None:
            return False
        return any(turn.life == life for turn in lock.queue) or (lock.life == life and self._living(lock) is not None)

    async def _wait(self, lock: _Lock, turn: _Turn, deadline_ms: int) -> bool:
        """Waits until it is this caller's turn, or an attempt at the same call has the lock; returns whether it is."""
        while True:
            _check_life(turn)
            living = self._living(lock)
            if living is None:
                if lock.queue[0] is turn:
                    return True
            elif turn.request is not None and turn.request == lock.request:
                return True
            now_ms = self._clock.monotonic_ms()
            if now_ms >= deadline_ms:
                return False
            if turn.called.done():
                turn.called = asyncio.get_running_loop().create_future()
            # The first in the queue sees the lease lapse; the others are called when they are the first.
            until_ms = min(deadline_ms, lock.ends_ms) if lock.queue[0] is turn else deadline_ms
            await self._clock.wait(turn.called, (until_ms - now_ms) / 1000)

    def _free(self, name: str, lock: _Lock) -> None:
        lock.held = lock.life = lock.request = None
        self._wake(name, lock)

    def _wake(self, name: str, lock: _Lock) -> None:
        """Tells whoever is next to look; forgets a lock that nobody holds or waits for."""
        if lock.queue:
            lock.queue[0].call()
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


def _queue(lock: _Lock, turn: _Turn) -> None:
    """Puts a caller at the end of the queue, or behind an attempt at the same call."""
    places = [i for i, other in enumerate(lock.queue, 1) if turn.request is not None and other.request == turn.request]
    lock.queue.insert(places[-1] if places else len(lock.queue), turn)


def _check_life(turn: _Turn) -> None:
    if turn.life_ended and turn.life is not None:
        raise ended(turn.life)
