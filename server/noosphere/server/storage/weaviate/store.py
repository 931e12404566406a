"""The fact store on Weaviate."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from noosphere.consistency import NEVER_MS

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
from .querying import Queries
from .schema import Collection, Schema
from .searching import PAGE_KEYS, Searching

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

    def __init__(self, access: WeaviateAccess, model: StoreModel, clock: Clock) -> None:
        self._access = access
        self._wanted = model
        self._clock = clock
        self._calls = Calls(access, clock)
        self._schema = Schema(self._calls, access)
        self._opening = asyncio.Lock()
        self._opened: _Opened | None = None

    @classmethod
    async def open(cls, access: WeaviateAccess, *, model: StoreModel, clock: Clock) -> WeaviateFactStore:
        """Prepares the store; asks Weaviate nothing.

        Args:
            access: how it is reached, and what is made there.
            model: which embedder the vectors are of.
            clock: the source of time.

        Raises:
            ImportError: the package ``weaviate`` is not installed.
        """
        # It takes seconds, and nothing else stands still for that.
        await asyncio.to_thread(wire.load)
        return cls(access, model, clock)

    @property
    def model(self) -> StoreModel | None:
        """Which embedder the stored vectors are of; None as long as Weaviate was not reached."""
        return None if self._opened is None else self._opened.collection.model

    @property
    def available(self) -> bool:
        """Whether Weaviate was reached, and has not failed again and again since."""
        return self._opened is not None and not self._calls.failing

    async def ready(self) -> None:
        """Asks Weaviate once.

        Raises:
            Refusal: ENGINE_UNAVAILABLE, with the reason.
        """
        opened = await self._ready()
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
        await self._changing(lambda opened: opened.contents.write(tuple(first.values())))

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

    async def _ready(self) -> _Opened:
        """Returns what works on the collection, which is found or made by the first who needs it."""
        self._calls.check()
        async with self._opening:
            if self._opened is None:
                collection = await self._schema.ready(self._wanted)
                opened = _Opened(self._calls, collection, self._clock, quorum=self._access.replication > 1)
                if collection.model != self._wanted and not await self._any_vector(opened):
                    collection = await self._schema.remodel(collection, self._wanted)
                    opened = _Opened(self._calls, collection, self._clock, quorum=self._access.replication > 1)
                self._opened = opened
            return self._opened

    async def _any_vector(self, opened: _Opened) -> bool:
        if not opened.collection.model.dimension:
            return False
        return any(await together(opened.queries.count(tenant, with_vector()) for tenant in opened.collection.tenants))

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
