"""Members of groups on etcd: a key under a lease each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress

import msgspec

from noosphere.consistency import Refusal

from ...ports.coordinator import Incarnation
from ...ports.locks import Member
from ..leasing import MEMBERS_MAX, check_member, ended, full, gone
from . import wire_pb2 as wire
from .client import EtcdClient
from .holdings import Holdings
from .keys import Layout, delete, get, put, unchanged

KIND = "group"


class _News:
    """Who is there, as a watch has told.

    Attributes:
        there: members by name.
        come: is set when that has changed, or the watch has ended.
        ended: whether the watch has ended.
    """

    def __init__(self, there: dict[str, Member]) -> None:
        self.there = there
        self.come = asyncio.Event()
        self.ended = False


class _Life(msgspec.Struct):
    lease_ms: int
    data: bytes


class EtcdPresence:
    """See :class:`~noosphere.server.ports.locks.Presence`."""

    def __init__(self, client: EtcdClient, layout: Layout, holdings: Holdings) -> None:
        self._client = client
        self._layout = layout
        self._holdings = holdings

    async def join(
        self, group: str, name: str, lease_ms: int, data: bytes = b"", *, life: Incarnation | None = None
    ) -> Member:
        """Enters a group, in place of an earlier life of the same member.

        The limit on members is looked at before: several that join a nearly full group at once may exceed it.

        Raises:
            Refusal: INVALID_FIELD, VALUE_TOO_LARGE, LIMIT_EXCEEDED, STALE_INCARNATION or ENGINE_UNAVAILABLE.
        """
        check_member(group, name, lease_ms, data)
        key = self._layout.member(group, name)
        prefix = self._layout.group(group)
        counted = await self._client.count(prefix)
        if counted >= MEMBERS_MAX and await self._client.read(key) is None:
            raise full(counted + 1)
        await self._holdings.check_room(life, KIND)
        lease = await self._client.grant(-(-lease_ms // 1000))
        value = msgspec.json.encode(_Life(lease_ms, data))
        try:
            written = await self._client.write(
                self._holdings.conditions(life),
                [get(key), put(key, value, lease), *self._holdings.changes(life, KIND, lease)],
            )
        except BaseException:
            # Whether it was written is unknown; without its lease it is gone.
            await asyncio.shield(self._client.drop(lease))
            raise
        if not written.succeeded and life is not None:
            await self._client.drop(lease)
            raise ended(life)
        for earlier in written.responses[0].response_range.kvs:
            # Its own, if this very transaction has arrived before.
            if earlier.lease != lease:
                await self._client.drop(earlier.lease)
        return Member(group, name, written.revision, lease_ms, data)

    async def keep(self, group: str, name: str, number: int) -> None:
        """Begins the lease anew.

        Raises:
            Refusal: STALE_FENCE or ENGINE_UNAVAILABLE.
        """
        kv = await self._client.read(self._layout.member(group, name))
        if kv is None or kv.mod_revision != number or not await self._client.renew([kv.lease]):
            raise gone(group, name, number)

    async def leave(self, group: str, name: str, number: int) -> bool:
        """Leaves a group; returns whether this life of the member was still there.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        key = self._layout.member(group, name)
        kv = await self._client.read(key)
        if kv is None or kv.mod_revision != number:
            return False
        left = await self._client.write([unchanged(key, number)], [delete(key)])
        await self._client.drop(kv.lease)
        return left.succeeded

    async def members(self, group: str) -> tuple[Member, ...]:
        """Returns who is there, by name.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        _, kvs = await self._client.read_all(self._layout.group(group))
        return tuple(self._member(group, kv) for kv in kvs)

    async def watch(self, group: str) -> AsyncGenerator[Mapping[str, Member], None]:
        """Yields who is there, by name: at first, and after every change, of which several may be told as one.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        prefix = self._layout.group(group)
        while True:
            revision, kvs = await self._client.read_all(prefix)
            news = _News({member.name: member for member in (self._member(group, kv) for kv in kvs)})
            # Read on while the caller is busy, so that what has come meanwhile is told as one.
            reading = asyncio.create_task(self._read(group, revision, news))
            try:
                while not news.ended:
                    news.come.clear()
                    yield dict(sorted(news.there.items()))
                    await news.come.wait()
                await reading
                # It has ended in order: changes may have been missed, so everything is read anew.
            finally:
                reading.cancel()
                with suppress(asyncio.CancelledError, Refusal):
                    await reading

    async def _read(self, group: str, revision: int, news: _News) -> None:
        """Takes what changes in a group after a revision, until etcd ends the watch.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        prefix = self._layout.group(group)
        try:
            async with aclosing(self._client.watch(prefix, revision)) as responses:
                async for response in responses:
                    if response.compact_revision or response.canceled:
                        return
                    for event in response.events:
                        if event.type == wire.Event.PUT:
                            member = self._member(group, event.kv)
                            news.there[member.name] = member
                        else:
                            news.there.pop(event.kv.key.removeprefix(prefix).decode(), None)
                    if response.events:
                        news.come.set()
        finally:
            news.ended = True
            news.come.set()

    def _member(self, group: str, kv: wire.KeyValue) -> Member:
        name = kv.key.removeprefix(self._layout.group(group)).decode()
        life = msgspec.json.decode(kv.value, type=_Life)
        return Member(group, name, kv.mod_revision, life.lease_ms, life.data)
