"""Locks on etcd: whoever wants one takes a seat under a lease, and the oldest seat has it."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import NamedTuple

import msgspec

from noosphere.consistency import Reason, Refusal

from ...ports.coordinator import Incarnation
from ...ports.locks import Held
from ...ports.runtime import Clock
from ..leasing import WAITERS_MAX, check_lock, crowded, ended, lost, reused
from . import wire_pb2 as wire
from .client import PAGE_KEYS_MAX, EtcdClient
from .holdings import Holdings
from .keys import Layout, asker, before, created, delete, end_of, get, none_at, oldest, put, unchanged
from .view import View

LOOKS_PER_LEASE = 3
"""How often somebody who waits renews the seat, and looks whether a departure was missed."""

KIND = "lock"


class _Seat(msgspec.Struct):
    owner: str
    lease_ms: int
    data: bytes


class _Wanted(NamedTuple):
    """What one call asks for."""

    name: str
    seat: _Seat
    life: Incarnation | None
    request: str
    deadline_ms: int


class _Place(NamedTuple):
    """A seat that was taken; its token is the revision at which it was taken first."""

    key: bytes
    token: int


class EtcdLocks:
    """See :class:`~noosphere.server.ports.locks.Locks`.

    Each waits for the one before it alone, so a release wakes one, however many wait.
    """

    def __init__(self, client: EtcdClient, layout: Layout, view: View, holdings: Holdings, clock: Clock) -> None:
        self._client = client
        self._layout = layout
        self._view = view
        self._holdings = holdings
        self._clock = clock
        self._waiting: Counter[str] = Counter()

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
            Refusal: INVALID_FIELD, VALUE_TOO_LARGE, LIMIT_EXCEEDED, STALE_INCARNATION, REQUEST_ID_REUSED, CONTENTION
                or ENGINE_UNAVAILABLE.
        """
        check_lock(name, owner, lease_ms, wait_ms, data)
        deadline_ms = self._clock.monotonic_ms() + wait_ms
        wanted = _Wanted(name, _Seat(owner, lease_ms, data), life, request, deadline_ms)
        if not wait_ms and (first := await self._first(name)) is not None:
            mine = bool(request) and first.key == self._key(wanted, 0)
            if not mine:
                # Without a lease, however often it is tried.
                return None
        if self._waiting[name] >= WAITERS_MAX:
            raise crowded(self._waiting[name] + 1)
        self._waiting[name] += 1
        try:
            await self._holdings.check_room(life, KIND)
            return await self._acquire(wanted)
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

    async def held(self, prefix: str, after: str, limit: int) -> tuple[Held, ...]:
        """Returns locks that are held, by name.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        start = self._layout.seats + prefix.encode()
        # All seats of a name lie together, so the last name of a page may go on in the next one.
        request = wire.RangeRequest(key=start, range_end=end_of(start), limit=PAGE_KEYS_MAX)
        if after:
            request.key = max(start, end_of(self._layout.lock(after)))
        first: dict[str, wire.KeyValue] = {}
        while len(first) <= limit:
            page = await self._client.range(request)
            for kv in page.kvs:
                name = self._layout.lock_of(kv.key)
                if name not in first or kv.create_revision < first[name].create_revision:
                    first[name] = kv
            if not page.more:
                break
            request.key = page.kvs[-1].key + b"\0"
        found = [_held(name, kv.create_revision, _seat(kv.value)) for name, kv in first.items()]
        return tuple(found[:limit])

    async def _first(self, name: str) -> wire.KeyValue | None:
        found = await self._client.range(oldest(self._layout.lock(name)))
        return found.kvs[0] if found.kvs else None

    def _key(self, wanted: _Wanted, lease: int) -> bytes:
        return self._layout.seat(wanted.name, asker(wanted.seat.owner, wanted.request, lease))

    async def _acquire(self, wanted: _Wanted) -> Held | None:
        earlier = 0
        while True:
            lease = await self._client.grant(-(-wanted.seat.lease_ms // 1000))
            keeps = False
            try:
                place = await self._sit_down(wanted, lease, earlier)
                keeps = place is not None and await self._wait(wanted, lease, place)
                if keeps and place is not None:
                    return _held(wanted.name, place.token, wanted.seat)
                if self._clock.monotonic_ms() >= wanted.deadline_ms:
                    return None
                # The seat has lapsed while it waited: etcd was away for too long. The place in the queue is lost.
                earlier = place.token if place is not None else 0
            finally:
                if not keeps:
                    # With its lease the seat goes. Somebody who is cancelled has to give it back too.
                    await asyncio.shield(self._client.drop(lease))

    async def _sit_down(self, wanted: _Wanted, lease: int, earlier: int) -> _Place | None:
        """Takes a seat; returns None if somebody was faster and there is no time to wait.

        One that an attempt at the same call has taken is taken over, with its place in the queue.

        Args:
            wanted: what is asked for.
            lease: under which the seat is.
            earlier: the token of the seat that this attempt has had before, 0 if none.

        Raises:
            Refusal: STALE_INCARNATION, REQUEST_ID_REUSED, CONTENTION or ENGINE_UNAVAILABLE.
        """
        life, key, lock = wanted.life, self._key(wanted, lease), self._layout.lock(wanted.name)
        value = msgspec.json.encode(wanted.seat)
        patient = wanted.deadline_ms > self._clock.monotonic_ms()
        taking = [put(key, value, lease), *self._holdings.changes(life, KIND, lease)]
        conditions = [created(key, 0), *self._holdings.conditions(life)]
        written = await self._client.write([*conditions, *([] if patient else [none_at(lock)])], taking, [get(key)])
        if written.succeeded:
            return _Place(key, written.revision)
        there = written.responses[0].response_range.kvs
        if there:
            kv = there[0]
            if kv.create_revision == earlier:
                raise Refusal(Reason.CONTENTION, f"lock {wanted.name!r} is asked for again under the same id")
            if kv.lease == lease:
                # This very transaction has arrived before. Its lease is the one to keep.
                return _Place(key, kv.create_revision)
            if kv.value != value:
                raise reused(wanted.name)
            written = await self._client.write(
                [unchanged(key, kv.mod_revision), *self._holdings.conditions(life)], taking
            )
            if written.succeeded:
                await self._client.drop(kv.lease)
                return _Place(key, kv.create_revision)
        if life is not None and not await self._holdings.is_current(life):
            raise ended(life)
        return None

    async def _wait(self, wanted: _Wanted, lease: int, place: _Place) -> bool:
        """Waits until nobody is before this one; returns whether it has the lock.

        A lease that has lapsed is noticed by the renewal, so nobody is told of a lock that is another's already.
        """
        lock, waited = self._layout.lock(wanted.name), False
        while True:
            found = await self._client.range(before(lock, place.token))
            if not found.kvs:
                return not waited or await self._is_still_seated(lease, place)
            waited = True
            left_ms = wanted.deadline_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                return False
            departure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._view.left(found.kvs[0].key, departure)
            try:
                # It may have gone before anybody asked to be told.
                again = await self._client.range(before(lock, place.token))
                if again.kvs and again.kvs[0].key == found.kvs[0].key:
                    await self._clock.wait(departure, min(left_ms, wanted.seat.lease_ms / LOOKS_PER_LEASE) / 1000)
            finally:
                departure.cancel()
            if not await self._client.renew([lease]):
                return False

    async def _is_still_seated(self, lease: int, place: _Place) -> bool:
        if not await self._client.renew([lease]):
            return False
        return (await self._client.write([created(place.key, place.token)], [])).succeeded


def _seat(value: bytes) -> _Seat:
    return msgspec.json.decode(value, type=_Seat)


def _held(name: str, token: int, seat: _Seat) -> Held:
    return Held(name, seat.owner, token, seat.lease_ms, seat.data)
