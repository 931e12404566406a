"""What was written so recently that a search of the store may miss it: the ledger names it, by its own order.

The store says up to when its searches are complete (``watermark``). What the ledger decided since then is read by key.
A store that finds at once what is written makes none of this happen.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

import msgspec

from noosphere.consistency import NEVER_MS

from ..ports.factstore import FactKey, FactStore
from ..ports.store import Mutation
from ..together import each
from .contents import HELD, content_key, held_key, versions_by_parts
from .ledger import CANDIDATE_RETENTION_MS, DECISIONS, NEWS, CandidateNote, FactNote, Ledger, candidate_key, put

FRESH_MAX = 256
"""Most decisions that one search looks at, the newest; a burst of more is found once the store has caught up."""

SLOW_MS = 30_000
"""So much later than its time a decision may be written: its claim was embedded meanwhile."""

NEWS_MS = 60 * 60 * 1000
"""How long it is noted what was written without a decision: longer than any store takes to catch up."""

_STEP = 64


def news(fact_ids: Iterable[str], now_ms: int) -> Mutation:
    """Notes that contents of facts were written otherwise than by a decision about a candidate."""
    return put(NEWS, list(fact_ids), until_ms=now_ms + NEWS_MS, rev_slot=True)


class Fresh:
    """Finds what was written above the store's watermark.

    Args:
        ledger: knows what was decided, in order.
        store: knows how far its searches have come.
    """

    def __init__(self, ledger: Ledger, store: FactStore) -> None:
        self._ledger = ledger
        self._store = store

    async def watermark_ms(self) -> int:
        """Returns before which store time whatever was decided is certainly found by searches.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        found_ms = await self._store.watermark()
        return found_ms if found_ms >= NEVER_MS else found_ms - SLOW_MS

    async def ids(self, scopes: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
        """Returns the facts of scopes that a search may miss, by scope; at most :data:`FRESH_MAX` decisions' of all.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        since_ms = await self.watermark_ms()
        if since_ms >= NEVER_MS:
            return {}
        room = max(1, FRESH_MAX // max(1, len(scopes)))
        found = await each(self._facts(scope, since_ms, room) for scope in scopes)
        return {scope: ids for scope, ids in zip(scopes, found, strict=True) if ids}

    async def keys(self, scope: str) -> tuple[FactKey, ...]:
        """Returns the newest contents of such facts of one scope, as far as they are still facts."""
        ids = (await self.ids((scope,))).get(scope, ())
        notes: Iterable[FactNote] = (await self._ledger.facts(scope, ids)).values() if ids else ()
        return tuple(content_key(scope, note.id, note.newest) for note in notes)

    async def held(self, scope: str) -> tuple[FactKey, ...]:
        """Returns the contents of candidates of one scope that are kept apart and that a search may miss."""
        since_ms = await self.watermark_ms()
        if since_ms >= NEVER_MS:
            return ()
        notes = await self._decided(scope, since_ms, FRESH_MAX)
        return tuple(held_key(scope, note.decision.candidate_id, note.content) for note in notes if note.content)

    async def held_parts(self, scope: str) -> AsyncIterator[Sequence[FactKey]]:
        """Streams what names the contents of candidates of a scope that are kept apart, by parts as for one read.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        first = await self.held(scope)
        if first:
            yield first
        known = frozenset(first)
        async for part in versions_by_parts(self._store, HELD + scope):
            rest = [key for key in part if key not in known] if known else part
            if rest:
                yield rest

    async def _facts(self, scope: str, since_ms: int, room: int) -> tuple[str, ...]:
        notes = await self._decided(scope, since_ms, room)
        ids = [id for note in notes for id in (note.decision.fact_id, *note.decision.superseded) if id]
        for data in await self._since(scope, NEWS, since_ms + NEWS_MS, room):
            ids += msgspec.json.decode(data, type=list[str])
        return tuple(dict.fromkeys(ids))

    async def _decided(self, scope: str, since_ms: int, room: int) -> list[CandidateNote]:
        """Returns notes of the newest decisions since a store time."""
        told = await self._since(scope, DECISIONS, since_ms + CANDIDATE_RETENTION_MS, room)
        if not told:
            return []
        places = [candidate_key(msgspec.json.decode(data, type=str)) for data in told]
        page = await self._ledger.read(scope, places)
        notes = (page.get(place, CandidateNote) for place in dict.fromkeys(places))
        return [note for note in notes if note is not None]

    async def _since(self, scope: str, collection: str, until_ms: int, room: int) -> list[bytes]:
        """Returns records of an ordered collection, the newest first, as long as they live beyond a store time.

        They were written in the order of their times, but for moments, and all live equally long.
        """
        found: list[bytes] = []
        before: str | None = None
        while len(found) < room:
            page = await self._ledger.scan(
                scope, collection, after=before, limit=min(_STEP, room - len(found)), reverse=True
            )
            for entry in page.entries:
                if entry.live_until_ms < until_ms:
                    return found
                found.append(entry.data)
                before = entry.key
            if not page.more:
                break
        return found
