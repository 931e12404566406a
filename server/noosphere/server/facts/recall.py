"""Facts for contexts and for the controller: what answers the port through which both ask."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..ports.facts import RecalledFact
from .asked import HITS_MAX, OWNERS_MAX, QUERY_BYTES_MAX, SearchAsked
from .contents import fact_of
from .hits import packed
from .ledger import FactNote, Ledger, fact_key, pinned_of
from .retrieval import Retrieval
from .scopes import may_access
from .standing import Standing
from .types import Fact, FactState

PINNED_MAX = 64
"""Most facts of a profile that are looked at."""

RELEVANCE_MIN = 0.01
"""A fact that would help one model call in a hundred is not worth its tokens in all of them."""

SOURCES_SHOWN_MAX = 2


class ContextFacts:
    """See :class:`~noosphere.server.ports.facts.FactRecall`.

    Args:
        ledger: knows profiles.
        retrieval: searches.
    """

    def __init__(self, ledger: Ledger, retrieval: Retrieval) -> None:
        self._ledger = ledger
        self._retrieval = retrieval

    async def embed(self, query: str) -> Sequence[float] | None:
        """Returns the query as a vector; None without an embedder."""
        return await self._retrieval.embed(query)

    async def pinned(self, caller: str, owner: str, *, tokens_max: int) -> tuple[RecalledFact, ...]:
        """Returns the owner's profile in the owner's own scope, the most important first, as far as it fits.

        Raises:
            Refusal: INVALID_FIELD, for a name that is no owner's; ENGINE_UNAVAILABLE.
        """
        if not may_access(caller, owner):
            return ()
        listed = await self._ledger.scan(owner, pinned_of(owner), limit=PINNED_MAX)
        ids = [
            msgspec.json.decode(entry.data, type=str)
            for entry in listed.entries
            if entry.live_until_ms > listed.view.now_ms
        ]
        if not ids:
            return ()
        page = await self._ledger.read(owner, map(fact_key, ids))
        standings = [
            Standing(owner, note, note.newest)
            for id in ids
            if (note := page.get(fact_key(id), FactNote)) is not None
            and note.state is FactState.CURRENT
            and note.pinned
            and note.owner == owner
            and note.expires_at_ms > page.view.now_ms
        ]
        standings.sort(key=lambda one: (-one.note.importance, -one.version.valid_from_ms, one.note.id))
        contents = await self._retrieval.contents.of([one.key for one in standings])
        chosen: list[RecalledFact] = []
        for one in standings:
            prepared = contents.get(one.key)
            if prepared is not None and prepared.tokens <= tokens_max:
                tokens_max -= prepared.tokens
                chosen.append(_recalled(fact_of(*one, prepared.content), one.note.importance))
        return tuple(chosen)

    async def recall(
        self,
        caller: str,
        owners: Sequence[str],
        query: str,
        *,
        vector: Sequence[float] | None,
        limit: int,
        tokens_max: int,
    ) -> tuple[RecalledFact, ...]:
        """Returns facts of the owners in their own scopes; those of others' that the caller may not see stay out.

        Raises:
            Refusal: INVALID_FIELD, for a name that is no owner's; ENGINE_UNAVAILABLE.
        """
        seen = tuple(owner for owner in dict.fromkeys(owners[:OWNERS_MAX]) if may_access(caller, owner))
        if not seen or limit < 1 or tokens_max < 1:
            return ()
        cut = query.encode("utf-8", "replace")[:QUERY_BYTES_MAX].decode("utf-8", "ignore")
        asked = SearchAsked(cut, seen, limit=min(limit, HITS_MAX), tokens_max=tokens_max).checked()
        ranking = await self._retrieval.rank(asked, vector)
        worth = [one for one in ranking.placed if one.scores.relevance >= RELEVANCE_MIN]
        hits = (one.hit() for one in packed(worth, asked.limit, asked.tokens_max))
        return tuple(_recalled(hit.fact, hit.scores.relevance) for hit in hits)


def _recalled(fact: Fact, score: float) -> RecalledFact:
    return RecalledFact(
        id=fact.id,
        version=fact.version,
        text=fact.text,
        source=_source(fact),
        trust=fact.trust,
        score=score,
        expires_at_ms=fact.expires_at_ms,
    )


def _source(fact: Fact) -> str:
    """Returns where a fact comes from, and what there is to say against it, for people and models."""
    shown = [evidence.reference for evidence in fact.evidence[:SOURCES_SHOWN_MAX]]
    more = fact.source_count - len(shown)
    if shown and more > 0:
        shown.append(f"{more} more")
    parts = [fact.producer, ", ".join(shown), "contested" if fact.contested_by else ""]
    return "; ".join(part for part in parts if part) or fact.owner
