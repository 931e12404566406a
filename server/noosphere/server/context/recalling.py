"""Recalls long-term facts for a context, without ever waiting for long."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

import structlog

from ..ports.facts import FactRecall, RecalledFact
from ..ports.runtime import Clock
from ..together import both

log = structlog.get_logger(__name__)

EMBED_MS_MAX = 50
"""What the query's embedding may take; past it the search is by keywords alone."""
SEARCH_MS_MAX = 1_000
"""What pinned facts and search may take together; past it the context has no facts."""

DENSE_SKIPPED = "DENSE_SKIPPED"
FACTS_UNAVAILABLE = "FACTS_UNAVAILABLE"


class Recalled(NamedTuple):
    """Pinned facts of the first owner, facts found, and words of warning."""

    pinned: tuple[RecalledFact, ...] = ()
    found: tuple[RecalledFact, ...] = ()
    warnings: tuple[str, ...] = ()


class Wanted(NamedTuple):
    """What is to be recalled.

    Attributes:
        caller: the agent that asks.
        owners: whose facts; the first one's pinned facts come too.
        query: what they should be about; empty recalls pinned ones only.
        limit: most facts.
        pinned_tokens: room for pinned facts.
        found_tokens: room for the others.
    """

    caller: str
    owners: tuple[str, ...]
    query: str
    limit: int
    pinned_tokens: int
    found_tokens: int


class Recaller:
    """Asks the port for facts, within time limits.

    Args:
        facts: the port; None if there are no facts.
        clock: measures the limits.
    """

    def __init__(self, facts: FactRecall | None, clock: Clock) -> None:
        self._facts = facts
        self._clock = clock
        self._failing = False

    def embed(self, query: str, owners: Sequence[str]) -> asyncio.Task[Sequence[float] | None] | None:
        """Begins to embed a query, so that it is done by the time that the budget is split."""
        if self._facts is None or not query or not owners:
            return None
        return asyncio.ensure_future(self._embed(self._facts, query))

    async def _embed(self, facts: FactRecall, query: str) -> Sequence[float] | None:
        return await facts.embed(query)

    async def recall(self, wanted: Wanted, embedding: asyncio.Task[Sequence[float] | None] | None) -> Recalled:
        """Recalls facts. It does not fail: what cannot be had in time is left out, with a warning."""
        if self._facts is None or not wanted.owners:
            return Recalled()
        vector, warnings = await self._vector(embedding)
        search = asyncio.ensure_future(self._search(self._facts, wanted, vector))
        try:
            await self._clock.wait(search, SEARCH_MS_MAX / 1000)
            if search.done() and search.exception() is None:
                pinned, found = search.result()
                self._failing = False
                return Recalled(pinned, found, warnings)
            why = repr(search.exception()) if search.done() else f"no answer in {SEARCH_MS_MAX} ms"
            # Once for as long as that lasts: contexts are many.
            (log.debug if self._failing else log.warning)("facts cannot be recalled", why=why)
            self._failing = True
            return Recalled(warnings=(*warnings, FACTS_UNAVAILABLE))
        finally:
            drop(search)

    async def _search(
        self, facts: FactRecall, wanted: Wanted, vector: Sequence[float] | None
    ) -> tuple[tuple[RecalledFact, ...], tuple[RecalledFact, ...]]:
        return await both(self._pinned(facts, wanted), self._found(facts, wanted, vector))

    async def _pinned(self, facts: FactRecall, wanted: Wanted) -> tuple[RecalledFact, ...]:
        if wanted.pinned_tokens <= 0:
            return ()
        return await facts.pinned(wanted.caller, wanted.owners[0], tokens_max=wanted.pinned_tokens)

    async def _found(
        self, facts: FactRecall, wanted: Wanted, vector: Sequence[float] | None
    ) -> tuple[RecalledFact, ...]:
        if not wanted.query or wanted.found_tokens <= 0:
            return ()
        return await facts.recall(
            wanted.caller,
            wanted.owners,
            wanted.query,
            vector=vector,
            limit=wanted.limit,
            tokens_max=wanted.found_tokens,
        )

    async def _vector(
        self, embedding: asyncio.Task[Sequence[float] | None] | None
    ) -> tuple[Sequence[float] | None, tuple[str, ...]]:
        if embedding is None:
            return None, ()
        if not embedding.done():
            await self._clock.wait(embedding, EMBED_MS_MAX / 1000)
        if embedding.done() and not embedding.cancelled() and embedding.exception() is None:
            return embedding.result(), ()
        return None, (DENSE_SKIPPED,)


def drop(task: asyncio.Future[Any] | None) -> None:
    """Ends what nobody waits for any more, without waiting for its end: it may not heed that it is cancelled."""
    if task is None:
        return
    task.cancel()
    task.add_done_callback(_heed)


def _heed(task: asyncio.Future[Any]) -> None:
    # Otherwise the event loop complains of an exception that nobody has looked at.
    if not task.cancelled():
        task.exception()
