"""Searches facts: filters first, then candidates by words and meaning, then the ledger, the ranking and the packing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import structlog

from noosphere.consistency import invalid

from ..memory.core import Core, check_tokens
from ..memory.types import Call
from ..ports.factstore import BATCH_MAX, FactFilter, FactKey, FactStore, RawHit
from ..ports.models import Embedder, Tokenizers
from ..ports.runtime import Clock
from ..ports.store import NamespaceView
from ..text import terms
from ..together import both, each
from .asked import SearchAsked
from .fresh import Fresh
from .hits import Hit, Option, Placed, names_of, packed, placed
from .ledger import POLICY, Ledger
from .policies import policy_of
from .prepared import PreparedContents
from .ranking import CANDIDATES_MAX, Question, Statistics, question
from .scopes import NAMESPACES, admit_reader
from .slots import predicate_form, subject_form
from .standing import Standing, standings
from .wording import readable

log = structlog.get_logger(__name__)

DENSE_SKIPPED = "DENSE_SKIPPED"
TOKENIZER = "o200k_base"
"""By whose tokens hits are packed; contexts count again, in the session's own."""

POOL = 128
"""So many candidates by words are ranked, and half as many by meaning, which weighs less: hits are among them."""

POOL_MAX = 2_048
"""The pool grows up to this where much of what was found does not count any more."""

POOL_GROWTH = 4
LOOKS_AT_ONCE = 8
"""So many of these searches are under way at once."""

LINKED_MAX = 64
"""Most facts that are looked at for each subject or object of a hit."""


class SearchReply(NamedTuple):
    """What a search found.

    Attributes:
        hits: the best first.
        warnings: what it had to do without, as words.
        heads: by namespace, at which revision of the ledger it looked.
    """

    hits: tuple[Hit, ...]
    warnings: tuple[str, ...]
    heads: Mapping[str, int]


class Ranking(NamedTuple):
    """Everything that was ranked, best first, and each scope's ledger as it was read."""

    placed: tuple[Placed, ...]
    views: Mapping[str, NamespaceView]


class _Candidates(NamedTuple):
    """What counts.

    Attributes:
        found: what the store has found.
        fresh: what it may have missed, whatever it says.
        near: how near is what was found by meaning.
        views: each scope's ledger as it was read.
    """

    found: tuple[Standing, ...]
    fresh: tuple[Standing, ...]
    near: Mapping[FactKey, float]
    views: Mapping[str, NamespaceView]


class Retrieval:
    """Searches facts.

    Args:
        core: admits callers.
        ledger: says what counts.
        store: finds candidates.
        embedder: makes vectors of questions; None searches by keywords alone.
        clock: measures how long that takes.
        tokenizers: counts.
    """

    def __init__(
        self,
        core: Core,
        ledger: Ledger,
        store: FactStore,
        embedder: Embedder | None,
        *,
        clock: Clock,
        tokenizers: Tokenizers,
    ) -> None:
        self._core = core
        self.contents = PreparedContents(store, tokenizers.named(TOKENIZER))
        self._ledger = ledger
        self._store = store
        self._fresh = Fresh(ledger, store)
        self._embedder = embedder
        self._clock = clock

    def forget(self, keys: Iterable[FactKey]) -> None:
        """Drops what is in memory of contents that are gone."""
        self.contents.forget(keys)

    async def search(self, call: Call, asked: SearchAsked) -> SearchReply:
        """Searches.

        Args:
            call: who calls.
            asked: what for.

        Raises:
            Refusal: INVALID_FIELD or VALUE_TOO_LARGE, PERMISSION_DENIED, STALE_INCARNATION, ACKED_WRITES_LOST,
                FUTURE_REVISION, ENGINE_UNAVAILABLE.
        """
        asked = asked.checked()
        admit_reader(self._core, call, *asked.scopes)
        vector, warnings = await self.embedded(asked)
        ranking = await self.rank(asked, vector)
        for scope, view in ranking.views.items():
            check_tokens(call, NAMESPACES + scope, view)
        hits = tuple(one.hit() for one in packed(ranking.placed, asked.limit, asked.tokens_max))
        return SearchReply(hits, warnings, {NAMESPACES + scope: view.head for scope, view in ranking.views.items()})

    async def embed(self, query: str) -> Sequence[float] | None:
        """Returns a question as a vector; None without an embedder.

        Raises:
            EmbedderError: it failed.
        """
        if self._embedder is None or not query:
            return None
        (vector,) = await self._embedder.embed((query,))
        return vector

    async def rank(self, asked: SearchAsked, vector: Sequence[float] | None) -> Ranking:
        """Ranks whatever the filters leave, without packing.

        Args:
            asked: the search, as :meth:`SearchAsked.checked` returns it.
            vector: the question as a vector; None ranks by keywords alone.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        asked = await self._canonical(asked)
        read, where = question(asked.query), asked.filter(self._ledger.now_ms)
        candidates, known = await both(self._candidates(asked, read, where, vector), self._statistics(read, where))
        missed = await self._missed(asked, read, candidates.fresh, semantic=vector is not None)
        found = (*missed, *candidates.found)[:CANDIDATES_MAX]
        options = await self._options(found, vector, candidates.near)
        known = known and _with(known, read, options[: len(missed)])
        ranking = placed(asked.query, read, options, known)
        if asked.expand and ranking:
            names = names_of(packed(ranking, asked.limit, 0))
            more = await self._linked(asked, where, names, found, candidates.fresh)
            options += await self._options(more[: CANDIDATES_MAX - len(options)], vector, {})
            ranking = placed(asked.query, read, options, known, names)
        return Ranking(ranking, candidates.views)

    async def _canonical(self, asked: SearchAsked) -> SearchAsked:
        """Returns the search with subject and predicate in the form in which facts have them."""
        if not asked.subject and not asked.predicate:
            return asked
        aliases: dict[str, str] = {}
        for page in await each(self._ledger.read(scope, (POLICY,)) for scope in asked.scopes):
            aliases |= policy_of(page).aliases
        subject = subject_form(readable(asked.subject, aliases))
        predicate = predicate_form(readable(asked.predicate, aliases))
        for field, given, form in (("subject", asked.subject, subject), ("predicate", asked.predicate, predicate)):
            if given and not form:
                # An empty filter would leave everything.
                raise invalid(field, f"{given!r} names nothing")
        return asked._replace(subject=subject, predicate=predicate)

    async def embedded(self, asked: SearchAsked) -> tuple[Sequence[float] | None, tuple[str, ...]]:
        """Embeds the question of a checked search, unless that takes too long or fails; returns warnings, too."""
        if self._embedder is None or not asked.query:
            return None, ()
        embedding = asyncio.ensure_future(self.embed(asked.query))
        try:
            await self._clock.wait(embedding, (asked.embed_ms_max or 0) / 1000)
            if embedding.done() and embedding.exception() is None:
                return embedding.result(), ()
            why = repr(embedding.exception()) if embedding.done() else f"no answer in {asked.embed_ms_max} ms"
            log.info("a question is searched by keywords alone", why=why)
            return None, (DENSE_SKIPPED,)
        finally:
            embedding.cancel()
            embedding.add_done_callback(_heed)

    async def _candidates(
        self, asked: SearchAsked, read: Question, where: FactFilter, vector: Sequence[float] | None
    ) -> _Candidates:
        """Returns what was found and counts; looks further where much does not."""
        fresh = await self._fresh.ids(asked.scopes)
        if not asked.query:
            keys = await self._store.matching(where, None, POOL_MAX)
            counted = await standings(self._ledger, keys, asked, fresh)
            return _Candidates(counted.found, counted.fresh, {}, counted.views)
        pool = max(POOL, 2 * asked.limit)
        while True:
            by_words, by_meaning = await both(
                self._by_words(read, where, pool), self._by_meaning(vector, where, pool // 2)
            )
            near = {hit.key: hit.score for hit in by_meaning}
            keys = tuple(dict.fromkeys((*(hit.key for hit in by_words), *near)))
            counted = await standings(self._ledger, keys, asked, fresh)
            cut = len(by_words) == pool or len(by_meaning) == pool // 2
            if not cut or len(counted.found) >= pool // 2 or pool >= POOL_MAX:
                return _Candidates(counted.found, counted.fresh, near, counted.views)
            pool = min(POOL_MAX, pool * POOL_GROWTH)

    async def _by_words(self, read: Question, where: FactFilter, limit: int) -> Sequence[RawHit]:
        return await self._store.by_keywords(read.terms, where, limit) if read.terms else ()

    async def _by_meaning(self, vector: Sequence[float] | None, where: FactFilter, limit: int) -> Sequence[RawHit]:
        return await self._store.by_vector(vector, where, limit) if vector is not None else ()

    async def _missed(
        self, asked: SearchAsked, read: Question, fresh: Sequence[Standing], *, semantic: bool
    ) -> tuple[Standing, ...]:
        """Returns what the store would find of what it may have missed, by the same words and filters."""
        if not fresh:
            return ()
        contents = await self.contents.of([one.key for one in fresh])
        words = frozenset(read.terms)
        return tuple(
            one
            for one in fresh
            if (made := contents.get(one.key)) is not None
            and asked.subject in ("", made.content.subject)
            and asked.predicate in ("", made.content.predicate)
            and (not asked.query or semantic or not words.isdisjoint(made.document.terms))
        )

    async def _statistics(self, read: Question, where: FactFilter) -> Statistics | None:
        if not read.terms:
            return None
        known = await self._store.statistics(read.terms, where)
        return Statistics(known.versions, known.length_mean, dict(zip(read.terms, known.frequencies, strict=True)))

    async def _options(
        self, found: Sequence[Standing], vector: Sequence[float] | None, near: Mapping[FactKey, float]
    ) -> list[Option]:
        """Returns what was found with contents and similarities. What is forgotten meanwhile has none, and is none.

        Similarities of what was found by words are asked for: without them, whatever was found by meaning would win.
        """
        keyed = [(one, one.key) for one in found]
        # What is gone is asked for in vain, once, and nothing waits for the other.
        apart = [key for _, key in keyed if key not in near] if vector is not None else []
        contents, similar = await both(self.contents.of([key for _, key in keyed]), self._similar(vector or (), apart))
        similarities: dict[FactKey, float | None] = {**near, **similar}
        return [Option(one, contents[key], similarities.get(key)) for one, key in keyed if key in contents]

    async def _similar(self, vector: Sequence[float], keys: Sequence[FactKey]) -> dict[FactKey, float | None]:
        parts = [keys[start : start + BATCH_MAX] for start in range(0, len(keys), BATCH_MAX)]
        near = await each(self._store.near(vector, part) for part in parts)
        return dict(zip(keys, (score for scores in near for score in scores), strict=True))

    async def _linked(
        self,
        asked: SearchAsked,
        where: FactFilter,
        names: Iterable[str],
        found: Sequence[Standing],
        fresh: Sequence[Standing],
    ) -> tuple[Standing, ...]:
        """Returns what else has one of the names for its subject or object."""
        wanted = frozenset(names)
        have = {one.key for one in found}
        keys: dict[FactKey, None] = {}
        anything = where._replace(subject="", predicate="")
        looks = []
        for name in sorted(wanted):
            looks.append(self._store.matching(where._replace(subject=name, predicate=""), None, LINKED_MAX))
            if words := tuple(dict.fromkeys(terms(name))):
                looks.append(self._saying(words, anything))
        for start in range(0, len(looks), LOOKS_AT_ONCE):
            for page in await each(looks[start : start + LOOKS_AT_ONCE]):
                keys |= dict.fromkeys(page)
        counted = await standings(self._ledger, [key for key in keys if key not in have], asked, {})
        more = {one.key: one for one in (*counted.found, *(one for one in fresh if one.key not in have))}
        contents = await self.contents.of(list(more))
        return tuple(one for key, one in more.items() if key in contents and not wanted.isdisjoint(contents[key].names))

    async def _saying(self, words: Sequence[str], where: FactFilter) -> tuple[FactKey, ...]:
        return tuple(hit.key for hit in await self._store.by_keywords(words, where, LINKED_MAX))


def _with(known: Statistics, read: Question, missed: Sequence[Option]) -> Statistics:
    """Returns statistics in which everything counts that is there: a word that nothing has counts for nothing."""
    if not missed:
        return known
    counts = {
        term: max(known.frequencies.get(term, 0), sum(term in one.prepared.document.terms for one in missed))
        for term in read.terms
    }
    lengths = sum(one.prepared.document.length for one in missed)
    mean = known.length_mean or lengths / len(missed)
    return Statistics(max(known.documents, len(missed)), mean, counts)


def _heed(task: asyncio.Future[Sequence[float] | None]) -> None:
    # Otherwise the event loop complains of an exception that nobody has looked at.
    if not task.cancelled():
        task.exception()
