"""Requests to one tenant of a collection, and what they are answered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from . import wire
from .calls import Calls
from .filters import both, in_slices
from .naming import SLICES
from .records import LENGTH, TERMS
from .schema import Collection

if TYPE_CHECKING:
    from .wire import base_pb2, base_search_pb2, batch_pb2, search_get_pb2

RESULTS_MAX = 10_000
"""Most objects of one answer: QUERY_MAXIMUM_RESULTS, which nobody should lower."""

SAMPLE = 2_048
"""Where a tenant has more versions, lengths and frequent terms are told from samples, at most so large."""

_FIRST_SLICES = SLICES // 64
_ENOUGH = 64
"""So many in a sample tell how many there are, to an eighth: a term's weight goes by the logarithm."""

Results = Sequence["search_get_pb2.SearchResult"]


class Lengths(NamedTuple):
    """How many versions there are, and how many terms of how many of them were counted."""

    versions: int
    counted: int
    terms: int


class Queries:
    """See the module.

    Args:
        calls: to Weaviate.
        collection: what is asked.
        quorum: whether more than one node has to agree.
    """

    def __init__(self, calls: Calls, collection: Collection, *, quorum: bool) -> None:
        self._calls = calls
        self._name = collection.name
        self._level = "CONSISTENCY_LEVEL_QUORUM" if quorum else "CONSISTENCY_LEVEL_ONE"

    async def objects(
        self, tenant: str, left: base_pb2.Filters, limit: int, properties: Sequence[str], *, vectors: bool = False
    ) -> Results:
        """Returns objects that a filter leaves, in no order."""
        return await self._search(tenant, left, limit, properties, vectors=vectors)

    async def by_words(
        self, tenant: str, left: base_pb2.Filters, limit: int, properties: Sequence[str], words: Sequence[str]
    ) -> Results:
        """Returns the objects with any of the words that this tenant's own statistics put first."""
        search = wire.base_search_pb2.BM25(query=" ".join(words), properties=[TERMS])
        return await self._search(tenant, left, limit, properties, words=search)

    async def by_vector(
        self, tenant: str, left: base_pb2.Filters, limit: int, properties: Sequence[str], vector: bytes
    ) -> Results:
        """Returns the objects nearest to a vector of length 1, with their vectors."""
        given = wire.base_pb2.Vectors(vector_bytes=vector, type="VECTOR_TYPE_SINGLE_FP32")
        search = wire.base_search_pb2.NearVector(vectors=[given])
        return await self._search(tenant, left, limit, properties, vectors=True, nearest=search)

    async def count(self, tenant: str, left: base_pb2.Filters | None) -> int:
        """Counts the objects that a filter leaves."""
        request = wire.aggregate_pb2.AggregateRequest(
            collection=self._name, tenant=tenant, objects_count=True, filters=left
        )
        reply = await self._calls.call("Aggregate", request, wire.aggregate_pb2.AggregateReply.FromString)
        return reply.single_result.objects_count

    async def about(self, tenant: str, left: base_pb2.Filters, total: int) -> int:
        """Counts the objects that a filter leaves, out of a tenant's total; of many by a sample.

        With a filter Weaviate looks at every object that it leaves, so that to count costs as much as there is.
        """
        if total > SAMPLE:
            found = await self.count(tenant, both(left, in_slices(0, _FIRST_SLICES)))
            if found >= _ENOUGH:
                return found * SLICES // _FIRST_SLICES
        return await self.count(tenant, left)

    async def lengths(self, tenant: str, left: base_pb2.Filters, total: int) -> Lengths:
        """Counts the objects that a filter leaves and their terms, out of a tenant's total; of many by a sample."""
        slices = SLICES if total <= SAMPLE else _FIRST_SLICES
        found = await self._lengths(tenant, left, slices)
        if slices < SLICES and found.counted < SAMPLE // 8:
            slices = SLICES if found.versions <= SAMPLE else min(SLICES, -(-SLICES * SAMPLE // 2 // found.versions))
            found = await self._lengths(tenant, left, slices)
        return found

    async def _lengths(self, tenant: str, left: base_pb2.Filters, slices: int) -> Lengths:
        kind = wire.aggregate_pb2.AggregateRequest.Aggregation
        request = wire.aggregate_pb2.AggregateRequest(
            collection=self._name,
            tenant=tenant,
            objects_count=True,
            aggregations=[kind(property=LENGTH, int=kind.Integer(sum=True))],
            filters=left if slices == SLICES else both(left, in_slices(0, slices)),
        )
        reply = await self._calls.call("Aggregate", request, wire.aggregate_pb2.AggregateReply.FromString)
        counted = reply.single_result
        terms = sum(one.int.sum for one in counted.aggregations.aggregations)
        return Lengths(counted.objects_count * SLICES // slices, counted.objects_count, terms)

    async def write(self, objects: Sequence[batch_pb2.BatchObject]) -> dict[int, str]:
        """Stores objects; returns what was said of those that were not, by their place."""
        request = wire.batch_pb2.BatchObjectsRequest(objects=objects, consistency_level=self._level)
        reply = await self._calls.call("BatchObjects", request, wire.batch_pb2.BatchObjectsReply.FromString)
        return {error.index: error.error for error in reply.errors}

    async def delete(self, tenant: str, left: base_pb2.Filters) -> tuple[int, int]:
        """Removes objects that a filter leaves; returns how many went, and how many could not."""
        request = wire.batch_delete_pb2.BatchDeleteRequest(
            collection=self._name, tenant=tenant, filters=left, consistency_level=self._level
        )
        reply = await self._calls.call("BatchDelete", request, wire.batch_delete_pb2.BatchDeleteReply.FromString)
        return reply.successful, reply.failed

    async def _search(
        self,
        tenant: str,
        left: base_pb2.Filters,
        limit: int,
        properties: Sequence[str],
        *,
        vectors: bool = False,
        words: base_search_pb2.BM25 | None = None,
        nearest: base_search_pb2.NearVector | None = None,
    ) -> Results:
        request = wire.search_get_pb2.SearchRequest(
            collection=self._name,
            tenant=tenant,
            limit=min(limit, RESULTS_MAX),
            filters=left,
            properties=wire.search_get_pb2.PropertiesRequest(non_ref_properties=properties),
            metadata=wire.search_get_pb2.MetadataRequest(uuid=True, vector=vectors),
            bm25_search=words,
            near_vector=nearest,
            consistency_level=self._level,
            uses_127_api=True,
        )
        reply = await self._calls.call("Search", request, wire.search_get_pb2.SearchReply.FromString)
        return reply.results
