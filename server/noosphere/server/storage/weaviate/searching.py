"""Searches: candidates by Weaviate, statistics by counting, scores by our own formula, which both drivers have."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...ports.factstore import FactFilter, FactKey, RawHit, TermStatistics
from ...ports.runtime import Clock
from ..facts.bm25 import Rarities
from ..facts.checks import distinct
from ..facts.vectors import DIGITS, direction_of
from .calls import TooMuch, both_of, together
from .counted import Counted
from .filters import after_key, both, by_bucket, in_slices, left_by, of_scope, with_ids, with_term
from .naming import SLICES, bucket_of, key_of, object_id, word
from .querying import RESULTS_MAX, Lengths, Queries
from .records import KEY, TERMS, text, vector_of, words_of

if TYPE_CHECKING:
    from .wire import base_pb2

_Parts = Sequence["tuple[str, base_pb2.Filters]"]

WORDS_FACTOR = 2
WORDS_MIN = 256
"""Of each tenant so many times the hits that are asked for are fetched by words, and at least so many: Weaviate's own
order is by statistics of the whole tenant, ours by those of what the filter leaves."""

VECTORS_FACTOR = 2
VECTORS_MIN = 64

PAGE_KEYS = 10_000
"""Most keys of a page of a listing."""

_SPLIT = 8
"""Where more objects match than one answer holds, it is split into so many."""


class Searching:
    """See the module.

    Args:
        queries: to the collection.
        buckets: how many tenants it has.
        clock: the source of time.
    """

    def __init__(self, queries: Queries, buckets: int, clock: Clock) -> None:
        self._queries = queries
        self._buckets = buckets
        # A search asks for candidates and then for the statistics by which these were scored.
        self._counted: Counted[tuple[tuple[str, ...], FactFilter], TermStatistics] = Counted(clock)

    def changed(self) -> None:
        """Forgets what was counted, because something was written or removed."""
        self._counted.forget()

    async def by_keywords(self, terms: Sequence[str], where: FactFilter, limit: int) -> tuple[RawHit, ...]:
        """Returns the best versions by BM25, of those that Weaviate has put first."""
        asked = distinct(terms)
        if not asked:
            return ()
        wanted = min(max(WORDS_FACTOR * limit, WORDS_MIN), RESULTS_MAX)
        parts, changes = self._parts(where), self._counted.changes
        words = [word(term) for term in asked]
        totals = await self._totals(parts)
        found, lengths = await both_of(
            together(self._queries.by_words(bucket, left, wanted, (KEY, TERMS), words) for bucket, left in parts),
            self._lengths(parts, totals),
        )
        written = [(key_of(text(one, KEY)), words_of(one)) for results in found for one in results]
        if any(len(results) == wanted for results in found):
            counts = await self._frequencies(words, parts, totals)
        else:
            # Whatever has any of the words is there.
            sets = [set(one) for _, one in written]
            counts = [sum(one in terms_of for terms_of in sets) for one in words]
        known = _known(lengths, counts)
        self._counted.put((asked, where), known, changes)
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
            self._queries.by_vector(bucket, left, wanted, (KEY,), data) for bucket, left in self._parts(where)
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
        known = self._counted.get((asked, where))
        if known is None:
            parts = self._parts(where)
            totals = await self._totals(parts)
            lengths, found = await both_of(
                self._lengths(parts, totals), self._frequencies([word(term) for term in asked], parts, totals)
            )
            known = _known(lengths, found)
        counts = dict(zip(asked, known.frequencies, strict=True))
        return known._replace(frequencies=tuple(counts[term] for term in terms))

    async def matching(self, where: FactFilter, after: FactKey | None, limit: int) -> tuple[FactKey, ...]:
        """Returns the first keys after ``after`` that a filter leaves."""
        found = await together(self._first(bucket, left, after, limit) for bucket, left in self._parts(where))
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
        found: list[FactKey] = []
        ranges = [(0, SLICES)]
        while ranges:
            first, end = ranges.pop()
            sliced = filters if end - first == SLICES else [*filters, in_slices(first, end)]
            results = await self._queries.objects(bucket, both(*sliced), RESULTS_MAX, (KEY,))
            if len(results) == RESULTS_MAX:
                if end - first == 1:
                    raise TooMuch(f"one of {SLICES} slices has {RESULTS_MAX} objects or more")
                # There may be more: each part by itself. The first answer tells nothing of how many.
                step = max(1, (end - first) // _SPLIT)
                ranges += [(at, min(at + step, end)) for at in range(first, end, step)]
                continue
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

    async def _totals(self, parts: _Parts) -> list[int]:
        """Counts everything in each tenant, which costs nothing."""
        return await together(self._queries.count(bucket, None) for bucket, _ in parts)

    async def _lengths(self, parts: _Parts, totals: Sequence[int]) -> list[Lengths]:
        return await together(
            self._queries.lengths(bucket, left, total) for (bucket, left), total in zip(parts, totals, strict=True)
        )

    async def _frequencies(self, words: Sequence[str], parts: _Parts, totals: Sequence[int]) -> list[int]:
        """Counts what has each of the words, each once."""
        counts = await together(
            self._queries.about(bucket, both(left, with_term(one)), total)
            for one in words
            for (bucket, left), total in zip(parts, totals, strict=True)
        )
        return [sum(counts[at : at + len(parts)]) for at in range(0, len(counts), len(parts))]

    def _parts(self, where: FactFilter) -> _Parts:
        """Returns which tenants are asked, and by which filter each."""
        return [(bucket, left_by(where, scopes)) for bucket, scopes in by_bucket(where.scopes, self._buckets).items()]


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


def _known(measured: Iterable[Lengths], frequencies: Iterable[int]) -> TermStatistics:
    versions, mean = _all(measured)
    # Counts are of moments that follow each other: what came in between must not make more of some than of all.
    return TermStatistics(versions, mean, tuple(min(count, versions) for count in frequencies))


def _all(measured: Iterable[Lengths]) -> tuple[int, float]:
    """Returns how many versions there are together, and how many terms they have on average."""
    known = [one for one in measured if one.counted]
    versions = sum(one.versions for one in known)
    if len(known) == 1 or all(one.counted == one.versions for one in known):
        terms, counted = sum(one.terms for one in known), sum(one.counted for one in known)
        return versions, terms / counted if counted else 0.0
    return versions, sum(one.terms / one.counted * one.versions for one in known) / versions
