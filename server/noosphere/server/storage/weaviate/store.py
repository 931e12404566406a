"""The fact store on Weaviate."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from noosphere.consistency import NEVER_MS, Reason

from ...ports.factstore import (
    BATCH_MAX,
    HITS_MAX,
    FactContent,
    FactFilter,
    FactKey,
    FactStoreStats,
    RawHit,
    StoreModel,
    TermStatistics,
)
from ...ports.runtime import Clock
from ..facts.checks import check_contents, check_filter, check_keys, check_limit, check_scope, check_terms, check_vector
from . import wire
from .access import WeaviateAccess
from .calls import Calls, CollectionGone, TooMuch, together, unavailable
from .contents import Contents
from .filters import with_vector
from .lineage import Lineage, Tables
from .querying import Queries
from .schema import Collection, Schema
from .searching import PAGE_KEYS, Searching

if TYPE_CHECKING:
    from .wire import base_pb2

SETTLING_MS = 10_000
"""With several nodes a search may ask one that lags behind. So much later it has what a majority has taken."""

T = TypeVar("T")


class _Opened:
    """A collection that is ready, and what is done with it."""

    def __init__(self, calls: Calls, collection: Collection, clock: Clock, *, quorum: bool) -> None:
        self.collection = collection
        self.queries = Queries(calls, collection, quorum=quorum)
        self.searching = Searching(self.queries, collection.buckets, clock)
        self.contents = Contents(self.queries, collection)


class WeaviateFactStore:
    """See :class:`~noosphere.server.ports.factstore.FactStore`. Lives on one event loop.

    It opens whether Weaviate is there or not: the first call that reaches it makes or checks the collection. Where the
    stored vectors are of another model than was asked for, they are kept and answer; :attr:`model` tells of which.
    """

    engine = "weaviate"

    def __init__(self, access: WeaviateAccess, model: StoreModel, clock: Clock, lineage: Lineage | None = None) -> None:
        self._access = access
        self._wanted = model
        self._clock = clock
        self._calls = Calls(access, clock)
        self._lineage = lineage
        self._schema = Schema(self._calls, access, lineage)
        self._losses_seen = 0
        self._opening = asyncio.Lock()
        self._opened: _Opened | None = None

    @classmethod
    async def open(
        cls, access: WeaviateAccess, *, model: StoreModel, clock: Clock, tables: Tables | None = None
    ) -> WeaviateFactStore:
        """Prepares the store; asks Weaviate nothing.

        Args:
            access: how it is reached, and what is made there.
            model: which embedder the vectors are of.
            clock: the source of time.
            tables: the coordinator, which notes the collection that is the fleet's; without it whichever is there is
                used.

        Raises:
            ImportError: the package ``weaviate`` is not installed.
        """
        # It takes seconds, and nothing else stands still for that.
        await asyncio.to_thread(wire.load)
        return cls(access, model, clock, None if tables is None else Lineage(tables, access))

    @property
    def model(self) -> StoreModel | None:
        """Which embedder the stored vectors are of; None as long as Weaviate was not reached."""
        return None if self._opened is None else self._opened.collection.model

    @property
    def available(self) -> bool:
        """Whether Weaviate was reached, and has not failed again and again since."""
        return self._opened is not None and not self._calls.failing

    @property
    def collection_id(self) -> str | None:
        """What tells the collection from others; None as long as Weaviate was not reached."""
        return None if self._opened is None else self._opened.collection.id

    async def ready(self) -> None:
        """Asks Weaviate whether it answers, and whether the collection is still the fleet's.

        Raises:
            OtherCollection: it is not.
            Refusal: ENGINE_UNAVAILABLE, with the reason.
        """
        opened = await self._ready(looks=True)
        await self._retried(lambda one: one.queries.count(opened.collection.tenants[0], None))

    async def write(self, contents: Sequence[FactContent]) -> None:
        """Stores versions; see the port."""
        self._calls.check()
        check_contents(contents, self._dimension)
        first: dict[FactKey, FactContent] = {}
        for content in contents:
            first.setdefault(content.key, content)
        if not first:
            return
        if self._opened is None:
            await self._ready()
            check_contents(contents, self._dimension)

        async def write(opened: _Opened) -> None:
            if self._lineage is not None:
                if not self._lineage.holds and not await self._schema.is_there(opened.collection):
                    # It must not be said to hold facts that it never came to hold.
                    raise CollectionGone(Reason.ENGINE_UNAVAILABLE, "the collection of facts is gone")
                await self._lineage.hold(opened.collection.id)
            await opened.contents.write(tuple(first.values()))

        await self._changing(write)

    async def read(self, keys: Sequence[FactKey]) -> tuple[FactContent | None, ...]:
        """Returns versions; see the port."""
        self._calls.check()
        check_keys(keys)
        wanted = tuple(keys)
        found = await self._retried(lambda opened: opened.contents.read(wanted))
        return tuple(found.get(key) for key in wanted)

    async def by_keywords(self, terms: Sequence[str], where: FactFilter, limit: int) -> tuple[RawHit, ...]:
        """Returns versions that have any of the terms; see the port."""
        self._calls.check()
        check_terms(terms)
        check_filter(where)
        check_limit(limit, HITS_MAX)
        wanted = tuple(terms)
        return await self._retried(lambda opened: opened.searching.by_keywords(wanted, where, limit))

    async def by_vector(self, vector: Sequence[float], where: FactFilter, limit: int) -> tuple[RawHit, ...]:
        """Returns versions by cosine similarity; see the port."""
        self._calls.check()
        check_vector(vector, self._dimension)
        check_filter(where)
        check_limit(limit, HITS_MAX)
        wanted = tuple(vector)
        return await self._retried(lambda opened: opened.searching.by_vector(wanted, where, limit))

    async def near(self, vector: Sequence[float], keys: Sequence[FactKey]) -> tuple[float | None, ...]:
        """Returns how near versions are; see the port."""
        self._calls.check()
        check_vector(vector, self._dimension)
        check_keys(keys)
        direction, wanted = tuple(vector), tuple(keys)
        return await self._retried(lambda opened: opened.searching.near(direction, wanted))

    async def statistics(self, terms: Sequence[str], where: FactFilter) -> TermStatistics:
        """Counts what a filter leaves; see the port."""
        self._calls.check()
        check_terms(terms)
        check_filter(where)
        wanted = tuple(terms)
        return await self._retried(lambda opened: opened.searching.statistics(wanted, where))

    async def matching(self, where: FactFilter, after: FactKey | None, limit: int) -> tuple[FactKey, ...]:
        """Lists what a filter leaves; see the port."""
        self._calls.check()
        check_filter(where)
        check_limit(limit, HITS_MAX)
        return await self._retried(lambda opened: opened.searching.matching(where, after, limit))

    async def watermark(self) -> int:
        """Tells up to when searches find everything; see the port."""
        self._calls.check()
        return NEVER_MS if self._access.replication == 1 else self._clock.wall_ms() - SETTLING_MS

    async def remove(self, keys: Sequence[FactKey]) -> int:
        """Removes versions; see the port. From disk their words go when Weaviate compacts its files."""
        self._calls.check()
        check_keys(keys)
        wanted = tuple(dict.fromkeys(keys))
        return await self._changing(lambda opened: opened.contents.remove(wanted))

    async def versions(self, scope: str) -> AsyncIterator[FactKey]:
        """Streams the versions of a scope by pages: what comes or goes meanwhile may be among them or not."""
        self._calls.check()
        check_scope(scope)
        after: FactKey | None = None
        while True:
            page = await self._retried(partial(_page, scope=scope, after=after))
            for key in page:
                yield key
            if len(page) < PAGE_KEYS:
                return
            after = page[-1]

    async def everything(self) -> AsyncIterator[FactContent]:
        """Streams every version whole, by pages: what comes or goes meanwhile may be among them or not."""
        opened = await self._ready()
        streams = [self._keys_of(tenant) for tenant in opened.collection.tenants]
        part: list[FactKey] = []
        async for key in _merged(streams):
            part.append(key)
            if len(part) == BATCH_MAX:
                for content in await self.read(part):
                    if content is not None:
                        yield content
                part.clear()
        for content in await self.read(part):
            if content is not None:
                yield content

    async def stats(self) -> FactStoreStats:
        """Returns how much it holds; see the port. Weaviate does not tell how many bytes that takes: 0."""
        self._calls.check()

        async def counted(opened: _Opened) -> FactStoreStats:
            tenants = opened.collection.tenants
            versions, vectors = await asyncio.gather(
                together(opened.queries.count(tenant, None) for tenant in tenants),
                together(opened.queries.count(tenant, with_vector()) for tenant in tenants),
            )
            return FactStoreStats(sum(versions), sum(vectors), 0, opened.collection.model)

        return await self._retried(counted)

    async def begin_anew(self) -> None:
        """Puts an empty collection in the place of the present one, and removes that with everything in it.

        Vectors of the new one are of the model that was asked for. Nobody else may write meanwhile.

        Raises:
            Refusal: ENGINE_UNAVAILABLE; what is there may be the old one or the new one, and done again it is the new.
        """
        self._calls.check()
        async with self._opening:
            self._opened = None
            await self._schema.begin_anew(self._wanted)

    async def close(self) -> None:
        """Disconnects; may be called twice."""
        await self._calls.close()

    @property
    def _dimension(self) -> int:
        return (self.model or self._wanted).dimension

    async def _ready(self, *, looks: bool = False) -> _Opened:
        """Returns what works on the collection, which is found or made by the first who needs it.

        Args:
            looks: whether to ask if it is still there.
        """
        self._calls.check()
        if (known := self._opened) is not None:
            if await self._is_still(known, looks=looks):
                return known
            if self._opened is known:
                self._opened = None
        async with self._opening:
            if self._opened is None:
                losses = self._calls.losses
                collection, made = await self._schema.ready(self._wanted)
                opened = _Opened(self._calls, collection, self._clock, quorum=self._access.replication > 1)
                if self._lineage is not None and not self._lineage.fits(collection.id):
                    await self._lineage.take(collection.id, holds=await self._any(opened, None), made=made)
                if collection.model != self._wanted and not await self._any_vector(opened):
                    collection = await self._schema.remodel(collection, self._wanted)
                    opened = _Opened(self._calls, collection, self._clock, quorum=self._access.replication > 1)
                self._opened, self._losses_seen = opened, losses
            return self._opened

    async def _is_still(self, opened: _Opened, *, looks: bool) -> bool:
        """Returns whether a collection is still the fleet's; asks Weaviate if a call was not answered since it did."""
        if self._lineage is None:
            return True
        if not self._lineage.fits(opened.collection.id):
            return False
        losses = self._calls.losses
        if not looks and losses == self._losses_seen:
            return True
        is_there = await self._schema.is_there(opened.collection)
        if is_there:
            self._losses_seen = losses
        return is_there

    async def _any_vector(self, opened: _Opened) -> bool:
        return bool(opened.collection.model.dimension) and await self._any(opened, with_vector())

    async def _any(self, opened: _Opened, where: base_pb2.Filters | None) -> bool:
        return any(await together(opened.queries.count(tenant, where) for tenant in opened.collection.tenants))

    async def _retried(self, call: Callable[[_Opened], Awaitable[T]]) -> T:
        """Makes a call; once more if another collection has taken the place of the one that was known."""
        try:
            opened = await self._ready()
            try:
                return await call(opened)
            except CollectionGone:
                if self._opened is opened:
                    self._opened = None
                return await call(await self._ready())
        except TooMuch as error:
            raise unavailable(f"an answer of Weaviate is too large: {error}") from error

    async def _changing(self, call: Callable[[_Opened], Awaitable[T]]) -> T:
        try:
            return await self._retried(call)
        finally:
            if self._opened is not None:
                self._opened.searching.changed()

    async def _keys_of(self, tenant: str) -> AsyncIterator[FactKey]:
        after = FactKey("", "", 0)
        while True:
            page = await self._retried(partial(_page_of, tenant=tenant, after=after))
            for key in page:
                yield key
            if len(page) < PAGE_KEYS:
                return
            after = page[-1]


async def _page(opened: _Opened, scope: str, after: FactKey | None) -> list[FactKey]:
    return await opened.searching.page(scope, after, PAGE_KEYS)


async def _page_of(opened: _Opened, tenant: str, after: FactKey) -> list[FactKey]:
    return await opened.searching.page_of(tenant, after, PAGE_KEYS)


async def _merged(streams: Sequence[AsyncIterator[FactKey]]) -> AsyncIterator[FactKey]:
    """Merges streams of keys, each in order."""
    heads: list[tuple[FactKey, int]] = []
    for at, stream in enumerate(streams):
        async for key in stream:
            heads.append((key, at))
            break
    heapq.heapify(heads)
    while heads:
        key, at = heads[0]
        yield key
        async for following in streams[at]:
            heapq.heapreplace(heads, (following, at))
            break
        else:
            heapq.heappop(heads)
