"""Searches: candidates by Weaviate, statistics by counting, scores by our own formula, which both drivers have."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...ports.factstore import FactFilter, FactKey, RawHit, TermStatistics
from ..facts.bm25 import Rarities
from ..facts.checks import distinct
from ..facts.vectors import DIGITS, direction_of
from .calls import TooMuch, together
from .filters import after_key, both, by_bucket, in_slices, left_by, of_scope, with_ids, with_term
from .naming import SLICES, bucket_of, key_of, object_id, word
from .querying import RESULTS_MAX, Lengths, Queries
from .records import KEY, TERMS, text, vector_of, words_of

if TYPE_CHECKING:
    from .wire import base_pb2

WORDS_FACTOR = 4
WORDS_MIN = 256
"""Of each tenant so many times the hits that are asked for are fetched by words, and at least so many: Weaviate's own
order is by statistics of the whole tenant, ours by those of what the filter leaves."""

VECTORS_FACTOR = 2
VECTORS_MIN = 64

PAGE_KEYS = 10_000
"""Most keys of a page of a listing."""

_SLICED = 6_000
"""Where more objects match than one answer holds, slices are asked for that have about so many."""


class Searching:
    """See the module.

    Args:
        queries: to the collection.
        buckets: how many tenants it has.
    """

    def __init__(self, queries: Queries, buckets: int) -> None:
        self._queries = queries
        self._buckets = buckets

    async def by_keywords(self, terms: Sequence[str], where: FactFilter, limit: int) -> tuple[RawHit, ...]:
        """Returns the best versions by BM25, of those that Weaviate has put first."""
        asked = distinct(terms)
        if not asked:
            return ()
        wanted = min(max(WORDS_FACTOR * limit, WORDS_MIN), RESULTS_MAX)
        found = await together(
            self._queries.by_words(bucket, left_by(where, scopes), wanted, (KEY, TERMS), [word(term) for term in asked])
            for bucket, scopes in by_bucket(where.scopes, self._buckets).items()
        )
        written = [(key_of(text(one, KEY)), words_of(one)) for results in found for one in results]
        if not written:
            return ()
        known = await self._known(asked, where, None if any(len(one) == wanted for one in found) else written)
        rarities = Rarities.of([word(term) for term in asked], known)
        return best(((key, rarities.score(words)) for key, words in written), limit)

    async def by_vector(self, vector: Sequence[float], where: FactFilter, limit: int) -> tuple[RawHit, ...]:
        """Returns the nearest versions, of those that Weaviate finds near."""
        direction = direction_of(np.asarray(vector, np.float32))
        if direction is None:
            return ()
        wanted = min(max(VECTORS_FACTOR * limit, limit + VECTORS_MIN), RESULTS_MAX)
        data = direction.astype("<f4").tobytes()
        found = await together(
            self._queries.by_vector(bucket, left_by(where, scopes), wanted, (KEY,), data)
            for bucket, scopes in by_bucket(where.scopes, self._buckets).items()
        )
        pairs = [
            (key_of(text(one, KEY)), stored)
            for results in found
            for one in results
            if (stored := vector_of(one)) is not None
        ]
        scores = similarities([stored for _, stored in pairs], direction)
        return best(((key, score) for (key, _), score in zip(pairs, scores, strict=True)), limit)

    async def near(self, vector: Sequence[float], keys: Sequence[FactKey]) -> tuple[float | None, ...]:
        """Returns how near versions are."""
        direction = direction_of(np.asarray(vector, np.float32))
        if direction is None or not keys:
            return (None,) * len(keys)
        found = await self._by_id(keys)
        scores = dict(zip(found, similarities(list(found.values()), direction), strict=True))
        return tuple(scores.get(object_id(key)) for key in keys)

    async def statistics(self, terms: Sequence[str], where: FactFilter) -> TermStatistics:
        """Counts what a filter leaves, and how many of that have each term."""
        asked = distinct(terms)
        known = await self._known(asked, where, None)
        counts = dict(zip(asked, known.frequencies, strict=True))
        return known._replace(frequencies=tuple(counts[term] for term in terms))

    async def matching(self, where: FactFilter, after: FactKey | None, limit: int) -> tuple[FactKey, ...]:
        """Returns the first keys after ``after`` that a filter leaves."""
        found = await together(
            self._first(bucket, left_by(where, scopes), after, limit)
            for bucket, scopes in by_bucket(where.scopes, self._buckets).items()
        )
        return tuple(islice(heapq.merge(*found), limit))

    async def page(self, scope: str, after: FactKey | None, limit: int) -> list[FactKey]:
        """Returns the first keys of a scope after ``after``."""
        return await self._first(bucket_of(scope, self._buckets), of_scope(scope), after, limit)

    async def page_of(self, bucket: str, after: FactKey, limit: int) -> list[FactKey]:
        """Returns the first keys of a tenant after ``after``."""
        return await self._first(bucket, None, after, limit)

    async def _first(
        self, bucket: str, left: base_pb2.Filters | None, after: FactKey | None, limit: int
    ) -> list[FactKey]:
        """Returns the first keys after ``after``. Weaviate would sort objects, which costs three times as much."""
        filters = ([] if left is None else [left]) + ([] if after is None else [after_key(after)])
        count = await self._queries.count(bucket, both(*filters))
        # What comes meanwhile has room; what does not fit shows by a full answer.
        parts = max(1, -(-count // _SLICED))
        found: list[FactKey] = []
        for part in range(parts):
            sliced = filters
            if parts > 1:
                sliced = [*filters, in_slices(part * SLICES // parts, (part + 1) * SLICES // parts)]
            results = await self._queries.objects(bucket, both(*sliced), RESULTS_MAX, (KEY,))
            if len(results) == RESULTS_MAX:
                raise TooMuch(f"{RESULTS_MAX} objects or more where {count} in {parts} parts were counted")
            found = heapq.nsmallest(limit, (*found, *(key_of(text(one, KEY)) for one in results)))
        return found

    async def _by_id(self, keys: Iterable[FactKey]) -> dict[str, NDArray[np.float32]]:
        """Returns the vectors of versions that have one, by the ids of their objects."""
        ids: dict[str, list[str]] = {}
        for key in dict.fromkeys(keys):
            ids.setdefault(bucket_of(key.scope, self._buckets), []).append(object_id(key))
        found = await together(
            self._queries.objects(bucket, with_ids(some), len(some), (), vectors=True) for bucket, some in ids.items()
        )
        return {
            one.metadata.id: stored for results in found for one in results if (stored := vector_of(one)) is not None
        }

    async def _known(
        self, terms: Sequence[str], where: FactFilter, written: Sequence[tuple[FactKey, list[str]]] | None
    ) -> TermStatistics:
        """Counts what a filter leaves.

        Args:
            terms: each once.
            where: the filter.
            written: everything in it that has any of the terms, as it is written; None if that is not known.
        """
        parts = [(bucket, left_by(where, scopes)) for bucket, scopes in by_bucket(where.scopes, self._buckets).items()]
        words = [word(term) for term in terms]
        lengths = together(self._queries.lengths(bucket, left) for bucket, left in parts)
        if written is None:
            counting = together(
                self._queries.count(bucket, both(left, with_term(one))) for one in words for bucket, left in parts
            )
            measured, counts = await asyncio.gather(lengths, counting)
            frequencies = [sum(counts[at : at + len(parts)]) for at in range(0, len(counts), len(parts))]
        else:
            measured = await lengths
            sets = [set(found) for _, found in written]
            frequencies = [sum(one in found for found in sets) for one in words]
        versions, mean = _all(measured)
        # Counts are of moments that follow each other: what came in between must not make more of some than of all.
        return TermStatistics(versions, mean, tuple(min(count, versions) for count in frequencies))


def best(found: Iterable[tuple[FactKey, float]], limit: int) -> tuple[RawHit, ...]:
    """Returns the hits with the highest scores, equals by key; what scores nothing is none by words."""
    first = heapq.nsmallest(limit, ((-score, key) for key, score in found))
    return tuple(RawHit(key, -score) for score, key in first)


def similarities(vectors: Sequence[NDArray[np.float32]], direction: NDArray[np.float32]) -> list[float]:
    """Returns how near vectors of length 1 are to another, -1 to 1, as the index in memory tells it."""
    if not vectors:
        return []
    near = (np.stack(vectors) @ direction).astype(np.float64)
    scores: list[float] = (near.round(DIGITS) + 0.0).tolist()
    return scores


def _all(measured: Iterable[Lengths]) -> tuple[int, float]:
    """Returns how many versions there are together, and how many terms they have on average."""
    known = [one for one in measured if one.counted]
    versions = sum(one.versions for one in known)
    if len(known) == 1 or all(one.counted == one.versions for one in known):
        terms, counted = sum(one.terms for one in known), sum(one.counted for one in known)
        return versions, terms / counted if counted else 0.0
    return versions, sum(one.terms / one.counted * one.versions for one in known) / versions
