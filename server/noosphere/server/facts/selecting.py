"""Which facts, and which candidates that are kept apart, a call to forget means."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from noosphere.consistency import Reason, Refusal, invalid

from ..ports.factstore import BATCH_MAX, FactFilter, FactKey, FactStore
from ..text import distinct_terms, terms
from .asked import QUERY_BYTES_MAX
from .contents import decode_body, decode_candidate
from .fresh import Fresh
from .ledger import FactNote, Ledger, SourceNote
from .scopes import scope_of
from .sources import rests_on
from .types import Candidate

FOUND_MAX = 10_000
"""Most facts, and most candidates, of one call; a larger owner takes several calls."""

_COMMAND = re.compile(
    r"\b(?:please|forget|delete|remove|erase|what|everything|anything|about|you|know|remember(?:ed)?|all)\b"
    r"|请|忘记|忘掉|删除|删掉|抹去|关于|记得|所有",
    re.IGNORECASE,
)


class Wanted(NamedTuple):
    """What to forget in one scope; exactly one of the first four.

    Attributes:
        fact_id: this fact.
        query: whatever has all terms of this.
        producer: what this producer, or agent, said.
        all: everything.
        owner: only this owner's; empty for any, where the producer is named.
    """

    fact_id: str = ""
    query: str = ""
    producer: str = ""
    all: bool = False
    owner: str = ""

    def in_scope(self, scope: str) -> str:
        """Returns the scope that this is about, given the one that was named; empty for every scope of a producer."""
        return scope or (scope_of(self.fact_id) if self.fact_id else self.owner)

    def is_of(self, source: SourceNote) -> bool:
        """Tells whether a source is the producer's."""
        return self.producer in (source.producer, source.agent)

    def is_whole(self, note: FactNote) -> bool:
        """Tells whether a fact that is meant goes, rather than only what the producer said for it."""
        return not self.producer or rests_on(note, self.is_of)


class Selected(NamedTuple):
    """What is meant.

    Attributes:
        facts: the facts.
        held: keys of the contents of candidates that are kept apart.
        summaries: facts that sum up one of these with others, and so say the same.
    """

    facts: tuple[FactNote, ...]
    held: tuple[FactKey, ...]
    summaries: tuple[FactNote, ...] = ()


class Query:
    """What a text asks to forget: all its terms, but for words of command, have to stand in a claim."""

    def __init__(self, text: str) -> None:
        if len(text.encode("utf-8", "surrogatepass")) > QUERY_BYTES_MAX:
            raise invalid("query", f"is longer than {QUERY_BYTES_MAX} bytes")
        self.terms = frozenset(distinct_terms(_COMMAND.sub(" ", text)))
        if not self.terms:
            raise invalid("query", f"{text[:100]!r} names nothing; say what to forget, or forget all of an owner")

    def means(self, *texts: str) -> bool:
        """Tells whether a claim in these words is meant."""
        return self.terms <= {term for text in texts for term in terms(text, singles=True)}


def means(wanted: Wanted) -> Callable[[Candidate], bool]:
    """Returns what tells whether a candidate that is no fact is meant; one fact's id means none.

    Raises:
        Refusal: INVALID_FIELD for a query without words.
    """
    if wanted.query:
        query = Query(wanted.query)
        return lambda one: query.means(one.text, one.subject, one.predicate, one.object)
    if wanted.producer:
        return lambda one: wanted.producer in (one.producer, one.agent)
    return lambda _: wanted.all


async def select(ledger: Ledger, store: FactStore, fresh: Fresh, scope: str, wanted: Wanted) -> Selected:
    """Finds what a call means in a scope; it may change before it is forgotten.

    Args:
        ledger: where facts stand.
        store: where their words stand.
        fresh: tells of words that the store may not find yet.
        scope: where.
        wanted: what.

    Raises:
        Refusal: ENTRY_NOT_FOUND for a fact that is not there, INVALID_FIELD for one of another owner and for a query
            without words.
    """
    if wanted.fact_id:
        note = (await ledger.facts(scope, (wanted.fact_id,))).get(wanted.fact_id)
        if note is None:
            raise Refusal(Reason.ENTRY_NOT_FOUND, f"there is no fact {wanted.fact_id!r}")
        if wanted.owner not in ("", note.owner):
            raise invalid("owner", f"{wanted.owner!r} is not that of the fact, {note.owner!r}")
        return Selected((note,), ())
    if wanted.query:
        return await _by_query(ledger, store, fresh, scope, wanted)
    facts: list[FactNote] = []
    async for note in ledger.all_facts(scope):
        if _meant(note, wanted):
            facts.append(note)
        if len(facts) == FOUND_MAX:
            break
    return Selected(tuple(facts), await _held(store, fresh, scope, wanted))


def _meant(note: FactNote, wanted: Wanted) -> bool:
    if wanted.owner and note.owner != wanted.owner:
        return False
    return wanted.all or any(map(wanted.is_of, note.sources))


async def _by_query(ledger: Ledger, store: FactStore, fresh: Fresh, scope: str, wanted: Wanted) -> Selected:
    query = Query(wanted.query)
    where = FactFilter((scope,), (wanted.owner,))
    hits = await store.by_keywords(tuple(query.terms), where, FOUND_MAX)
    keys = dict.fromkeys([*(hit.key for hit in hits), *await fresh.keys(scope)])
    ids: dict[str, None] = {}
    for part in _parts(list(keys)):
        for content in await store.read(part):
            if content is not None and content.owner == wanted.owner:
                body = decode_body(content)
                if query.means(body.text, body.subject, body.predicate, body.object):
                    ids[content.fact_id] = None
    notes: list[FactNote] = []
    for start in range(0, len(ids), BATCH_MAX):
        notes += (await ledger.facts(scope, list(ids)[start : start + BATCH_MAX])).values()
    return Selected(tuple(notes), await _held(store, fresh, scope, wanted))


async def _held(store: FactStore, fresh: Fresh, scope: str, wanted: Wanted) -> tuple[FactKey, ...]:
    """Finds the candidates that are kept apart and meant."""
    is_meant = means(wanted)
    found: list[FactKey] = []
    async for part in fresh.held_parts(scope):
        for key, content in zip(part, await store.read(part), strict=True):
            if content is not None and wanted.owner in ("", content.owner) and is_meant(decode_candidate(content.body)):
                found.append(key)
        if len(found) >= FOUND_MAX:
            break
    return tuple(found[:FOUND_MAX])


def _parts(keys: list[FactKey]) -> Iterable[list[FactKey]]:
    return (keys[start : start + BATCH_MAX] for start in range(0, len(keys), BATCH_MAX))
