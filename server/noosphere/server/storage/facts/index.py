"""The index of a fact store: everything that is searched, in memory, behind one lock."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sortedcontainers import SortedDict

from ...ports.factstore import FactContent, FactFilter, FactKey, RawHit, TermStatistics
from .columns import Columns
from .keywords import Keywords
from .vectors import Vectors


class FactIndex:
    """Answers searches. What is put is found by the next one.

    The lock keeps the thread that writes and the one that searches apart; each holds it for one call.
    """

    def __init__(self, dimension: int) -> None:
        self._lock = threading.Lock()
        self._columns = Columns()
        self._keywords = Keywords()
        self._vectors = Vectors(dimension)
        self._rows: Any = SortedDict()
        self._keys: list[FactKey | None] = []
        self._free: list[int] = []
        self._vector_count = 0

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def vector_count(self) -> int:
        """How many versions have a vector."""
        return self._vector_count

    def put(self, content: FactContent, vector: NDArray[np.float32] | None) -> None:
        """Adds a version that is not there yet."""
        with self._lock:
            if self._free:
                row = self._free.pop()
                self._keys[row] = content.key
            else:
                row = len(self._keys)
                self._keys.append(content.key)
            self._rows[content.key] = row
            self._columns.put(row, content)
            self._keywords.put(row, content.terms)
            self._vectors.put(row, vector)
            self._vector_count += vector is not None

    def drop(self, content: FactContent) -> None:
        """Takes a version away, given as it was put."""
        with self._lock:
            row = self._rows.pop(content.key)
            self._keys[row] = None
            self._columns.drop(row, content)
            self._keywords.drop(row, content.terms)
            self._vectors.drop(row)
            self._vector_count -= content.vector is not None
            self._free.append(row)

    def by_keywords(self, terms: Sequence[str], where: FactFilter, limit: int) -> tuple[RawHit, ...]:
        """Returns the best versions by BM25."""
        with self._lock:
            left = self._columns.mask(where)
            scores = self._keywords.scores(terms, left, self._columns.lengths)
            rows = np.flatnonzero(scores)
            return self._best(rows, scores[rows], limit)

    def by_vector(self, vector: Sequence[float], where: FactFilter, limit: int) -> tuple[RawHit, ...]:
        """Returns the nearest versions."""
        with self._lock:
            return self._best(*self._vectors.similarities(vector, self._columns.mask(where)), limit)

    def near(self, vector: Sequence[float], keys: Sequence[FactKey]) -> tuple[float | None, ...]:
        """Returns how near versions are, None where there is nothing to compare."""
        with self._lock:
            rows = [self._rows.get(key) for key in keys]
            known = [row for row in rows if row is not None]
            scores = dict(zip(known, self._vectors.near(vector, known), strict=True))
            return tuple(None if row is None else scores[row] for row in rows)

    def statistics(self, terms: Sequence[str], where: FactFilter) -> TermStatistics:
        """Counts what a filter leaves, and who has the terms."""
        with self._lock:
            left = self._columns.mask(where)
            versions = int(np.count_nonzero(left))
            mean = float(self._columns.lengths[left].mean()) if versions else 0.0
            return TermStatistics(versions, mean, self._keywords.frequencies(terms, left))

    def matching(self, where: FactFilter, after: FactKey | None, limit: int) -> tuple[FactKey, ...]:
        """Returns the first keys after ``after`` that a filter leaves."""
        with self._lock:
            left = self._columns.mask(where)
            rows = np.flatnonzero(left)
            if len(rows) ** 2 <= len(self._rows) * limit:
                # A walk passes all that the filter hides, on average as many as this for each that it finds.
                found = sorted(key for row in rows.tolist() if (key := self._keys[row]) is not None)
                return tuple(islice((key for key in found if after is None or key > after), limit))
            walk = (
                key for scope in sorted(set(where.scopes)) for key, row in self._of_scope(scope, after) if left[row]
            )
            return tuple(islice(walk, limit))

    def page(self, scope: str, after: FactKey | None, limit: int) -> tuple[FactKey, ...]:
        """Returns the first keys of a scope after ``after``."""
        with self._lock:
            return tuple(key for key, _ in islice(self._of_scope(scope, after), limit))

    def _of_scope(self, scope: str, after: FactKey | None) -> Iterator[tuple[FactKey, int]]:
        first = FactKey(scope, "", 0)
        for key in self._rows.irange(first if after is None else max(first, after)):
            if key.scope != scope:
                return
            if key != after:
                yield key, self._rows[key]

    def _best(self, rows: NDArray[np.intp], scores: NDArray[np.float64], limit: int) -> tuple[RawHit, ...]:
        if len(rows) > limit:
            # Everything that ties with the last that fits: which of them does is for the keys to say.
            least = np.partition(scores, len(scores) - limit)[len(scores) - limit]
            fits = scores >= least
            rows, scores = rows[fits], scores[fits]
        found = ((-score, self._keys[row]) for row, score in zip(rows.tolist(), scores.tolist(), strict=True))
        return tuple(RawHit(key, -score) for score, key in heapq.nsmallest(limit, found) if key is not None)
