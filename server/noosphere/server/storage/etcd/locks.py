"""Locks on etcd: whoever wants one takes a seat under a lease, and the oldest seat has it."""

from __future__ import annotations

import asyncio
from collections import Counter

import msgspec

from ...ports.locks import Held
from ...ports.runtime import Clock
from ..leasing import WAITERS_MAX, check_lock, crowded, lost
from . import wire_pb2 as wire
from .client import EtcdClient
from .keys import Layout, before, created, delete, none_at, oldest, put
from .view import View

LOOKS_PER_LEASE = 3
"""How often somebody who waits renews the seat, and looks whether a departure was missed."""


class _Seat(msgspec.Struct):
    owner: str
    lease_ms: int
    data: bytes


class EtcdLocks:
    """See :class:`~noosphere.server.ports.locks.Locks`.

    Each waits for the one before it alone, so a release wakes one, however many wait.
    """

    def __init__(self, client: EtcdClient, layout: Layout, view: View, clock: Clock) -> None:
        self._client = client
        self._layout = layout
        self._view = view
        self._clock = clock
        self._waiting: Counter[str] = Counter()

    async def acquire(self, name: str, owner: str, lease_ms: int, wait_ms: int = 0, data: bytes = b"") -> Held | None:
        """Takes a lock, in the order of those who wait; None if that is not possible in time.

        Raises:
            Refusal: INVALID_FIELD, VALUE_TOO_LARGE, LIMIT_EXCEEDED or ENGINE_UNAVAILABLE.
        """
        check_lock(name, owner, lease_ms, wait_ms, data)
        deadline_ms = self._clock.monotonic_ms() + wait_ms
        if not wait_ms and await self._first(name) is not None:
            # Without a lease, however often it is tried.
            return None
        if self._waiting[name] >= WAITERS_MAX:
            raise crowded(self._waiting[name] + 1)
        self._waiting[name] += 1
        try:
            return await self._acquire(name, _Seat(owner, lease_ms, data), deadline_ms)
        finally:
            self._waiting[name] -= 1
            if not self._waiting[name]:
                del self._waiting[name]

    async def renew(self, name: str, token: int) -> None:
        """Begins the lease anew.

        Raises:
            Refusal: STALE_FENCE or ENGINE_UNAVAILABLE.
        """
        first = await self._first(name)
        if first is None or first.create_revision != token or not await self._client.renew([first.lease]):
            raise lost(name, token)

    async def release(self, name: str, token: int) -> bool:
        """Gives a lock back; returns whether it was still held under this token.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        first = await self._first(name)
        if first is None or first.create_revision != token:
            return False
        released = await self._client.write([created(first.key, token)], [delete(first.key)])
        await self._client.drop(first.lease)
        return released.succeeded

    async def holder(self, name: str) -> Held | None:
        """Returns who holds a lock.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        first = await self._first(name)
        return None if first is None else _held(name, first.create_revision, _seat(first.value))

    async def _first(self, name: str) -> wire.KeyValue | None:
        found = await self._client.range(oldest(self._layout.lock(name)))
        return found.kvs[0] if found.kvs else None

    async def _acquire(self, name: str, seat: _Seat, deadline_ms: int) -> Held | None:
        while True:
            lease = await self._client.grant(-(-seat.lease_ms // 1000))
            keeps = False
            try:
                token = await self._sit_down(name, seat, lease, deadline_ms)
                keeps = token != 0 and await self._wait(name, seat, lease, token, deadline_ms)
                if keeps:
                    return _held(name, token, seat)
                if self._clock.monotonic_ms() >= deadline_ms:
                    return None
                # The seat has lapsed while it waited: etcd was away for too long. The place in the queue is lost.
            finally:
                if not keeps:
                    # With its lease the seat goes. Somebody who is cancelled has to give it back too.
                    await asyncio.shield(self._client.drop(lease))

    async def _sit_down(self, name: str, seat: _Seat, lease: int, deadline_ms: int) -> int:
        """Takes a seat; returns its token, or 0 if somebody was faster and there is no time to wait."""
        lock = self._layout.lock(name)
        patient = deadline_ms > self._clock.monotonic_ms()
        written = await self._client.write(
            [] if patient else [none_at(lock)],
            [put(self._layout.seat(name, lease), msgspec.json.encode(seat), lease)],
        )
        return written.revision if written.succeeded else 0

    async def _wait(self, name: str, seat: _Seat, lease: int, token: int, deadline_ms: int) -> bool:
        """Waits until nobody is before this one; returns whether it has the lock.

        A lease that has lapsed is noticed by the renewal, so nobody is told of a lock that is another's already.
        """
        lock, waited = self._layout.lock(name), False
        while True:
            found = await self._client.range(before(lock, token))
            if not found.kvs:
                return not waited or await self._is_still_seated(name, lease, token)
            waited = True
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                return False
            departure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._view.left(found.kvs[0].key, departure)
            try:
                # It may have gone before anybody asked to be told.
                again = await self._client.range(before(lock, token))
                if again.kvs and again.kvs[0].key == found.kvs[0].key:
                    await self._clock.wait(departure, min(left_ms, seat.lease_ms / LOOKS_PER_LEASE) / 1000)
            finally:
                departure.cancel()
            if not await self._client.renew([lease]):
                return False

    async def _is_still_seated(self, name: str, lease: int, token: int) -> bool:
        if not await self._client.renew([lease]):
            return False
        return (await self._client.write([created(self._layout.seat(name, lease), token)], [])).succeeded


def _seat(value: bytes) -> _Seat:
    return msgspec.json.decode(value, type=_Seat)


def _held(name: str, token: int, seat: _Seat) -> Held:
    return Held(name, seat.owner, token, seat.lease_ms, seat.data)
