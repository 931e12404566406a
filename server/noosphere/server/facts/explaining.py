"""Explains a fact: the whole path from what it rests on to where a search puts it."""

from __future__ import annotations

from typing import NamedTuple

from ..memory.types import Call
from .asked import QUERY_BYTES_MAX, SearchAsked, check_size
from .decisions import Decisions, Known
from .hits import Scores
from .reading import Reading
from .retrieval import Retrieval
from .types import Fact


class Explanation(NamedTuple):
    """The path of a fact.

    Attributes:
        fact: its present version.
        candidates: what it came from, with decisions, the newest first; those that are no longer remembered are out.
        rank: its place for the question, from 1; 0 if it was not found, or nothing was asked.
        scores: why it stands there.
        warnings: what the search had to do without.
    """

    fact: Fact
    candidates: tuple[Known, ...]
    rank: int
    scores: Scores
    warnings: tuple[str, ...] = ()


class Explaining:
    """Explains facts.

    Args:
        reading: reads them.
        decisions: knows what became of candidates.
        retrieval: ranks.
    """

    def __init__(self, reading: Reading, decisions: Decisions, retrieval: Retrieval) -> None:
        self._reading = reading
        self._decisions = decisions
        self._retrieval = retrieval

    async def explain(self, call: Call, fact_id: str, query: str) -> Explanation:
        """Explains a fact, and its rank among all of its owner's in its scope that a search for ``query`` finds.

        Raises:
            Refusal: INVALID_FIELD or VALUE_TOO_LARGE, PERMISSION_DENIED, STALE_INCARNATION, ENTRY_NOT_FOUND,
                ENGINE_UNAVAILABLE.
        """
        check_size("query", query, QUERY_BYTES_MAX)
        fact = await self._reading.get(call, fact_id)
        candidates = await self._decisions.known(fact.scope, fact.candidates)
        if not query:
            return Explanation(fact, candidates, 0, Scores())
        asked = SearchAsked(query, (fact.owner,), (fact.scope,), include_superseded=bool(fact.superseded_by)).checked()
        vector, warnings = await self._retrieval.embedded(asked)
        ranking = await self._retrieval.rank(asked, vector)
        for place, one in enumerate(ranking.placed, 1):
            if one.option.standing.note.id == fact_id:
                return Explanation(fact, candidates, place, one.scores, warnings)
        return Explanation(fact, candidates, 0, Scores(), warnings)
