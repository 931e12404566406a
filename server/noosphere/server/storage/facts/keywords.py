"""Which rows have which terms, and BM25 over those that a filter leaves.

In memory, not in FTS5. There a filter is looked up row by row once a term has matched, a query is a language that data
would have to be kept out of, and a removed word stays in the index's old segments until all of it is written anew.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .bm25 import rarity, weight
from .columns import Mask

_COUNT_MAX = 65_535


class _Posting:
    """The rows that have a term, in no order, and how often each has it."""

    __slots__ = ("counts", "rows")

    def __init__(self) -> None:
        self.rows = array("I")
        self.counts = array("H")


class Keywords:
    """The terms of every row. A row's terms must be taken away as they were given."""

    def __init__(self) -> None:
        self._postings: dict[str, _Posting] = {}

    def put(self, row: int, terms: Sequence[str]) -> None:
        """Adds a row."""
        for term, count in Counter(terms).items():
            posting = self._postings.get(term)
            if posting is None:
                posting = self._postings[term] = _Posting()
            posting.rows.append(row)
            posting.counts.append(min(count, _COUNT_MAX))

    def drop(self, row: int, terms: Sequence[str]) -> None:
        """Takes a row away; a term that no row has any more is forgotten."""
        for term in dict.fromkeys(terms):
            posting = self._postings[term]
            at = int(np.flatnonzero(_view(posting.rows, np.uint32) == row)[0])
            for column in (posting.rows, posting.counts):
                column[at] = column[-1]
                column.pop()
            if not posting.rows:
                del self._postings[term]

    def frequencies(self, terms: Sequence[str], left: Mask) -> tuple[int, ...]:
        """Returns how many rows of ``left`` have each term."""
        found = (self._postings.get(term) for term in terms)
        return tuple(
            0 if posting is None else int(np.count_nonzero(left[_view(posting.rows, np.uint32)])) for posting in found
        )

    def scores(self, terms: Sequence[str], left: Mask, lengths: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the BM25 of every row, 0 for those outside ``left`` or without any of the terms.

        Args:
            terms: each counts once.
            left: which rows are searched; statistics are theirs alone.
            lengths: how many terms each row has.
        """
        scores = np.zeros(len(left), np.float64)
        versions = int(np.count_nonzero(left))
        if not versions:
            return scores
        mean = float(lengths[left].mean()) or 1.0
        for term in dict.fromkeys(terms):
            posting = self._postings.get(term)
            if posting is None:
                continue
            rows = _view(posting.rows, np.uint32)
            searched = left[rows]
            rows = rows[searched]
            if not len(rows):
                continue
            counts = _view(posting.counts, np.uint16)[searched].astype(np.float64)
            # A row stands once in a posting, so nothing is added twice.
            scores[rows] += weight(rarity(versions, len(rows)), counts, lengths[rows], mean)
        return scores


def _view(column: array[int], kind: type[np.unsignedinteger]) -> NDArray[np.unsignedinteger]:
    """Looks at a column without copying it; it must be gone before the column grows."""
    return np.frombuffer(column, kind)
