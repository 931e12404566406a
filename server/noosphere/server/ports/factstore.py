"""The fact store port: content, keywords and vectors of facts, as raw candidates for a ranking that is ours.

It decides nothing. What is current stands in the ledger, which is records on the working store; content is written
here *before* the ledger's commit, under the deterministic id of one version of one fact, so a version that the ledger
does not name is an orphan, which nobody sees and a sweep removes. Writing a version again changes nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, Protocol

BATCH_MAX = 256
"""Most versions or keys of one call, most scopes, owners and types of a filter."""

HITS_MAX = 10_000
"""Most hits or keys that one call returns."""

TERMS_MAX = 4_096
"""Most terms of one version, and of one question."""

NAME_CHARS_MAX = 1_024
"""Longest id, scope, owner, type, subject, predicate and term."""

BODY_BYTES_MAX = 1024 * 1024


NO_STORE = "none"
"""The engine of a server that has no fact store: every call is refused, and candidates wait."""


class FactKey(NamedTuple):
    """Names one version of one fact. Keys are ordered by scope, id and version; texts by code point."""

    scope: str
    fact_id: str
    version: int


class FactContent(NamedTuple):
    """One version of one fact, as it is stored and searched.

    Attributes:
        fact_id: the fact's id.
        version: which version of it, from 1.
        scope: where it is valid.
        owner: whose it is.
        memory_type: ``working``, ``episodic``, ``semantic`` or ``procedural``.
        trust: 0 to 1.
        valid_from_ms: since when it is so in the world.
        valid_to_ms: until when it was so; ``NEVER_MS`` while it is.
        expires_at_ms: when it ends.
        recorded_ms: store time at which this version was recorded.
        subject: canonical subject; empty if unknown.
        predicate: canonical predicate; empty if unknown.
        terms: the words by which it is found, as the service tokenises them, in order and with repetitions.
        body: everything else, as the service encodes it; the store never looks into it.
        vector: its meaning, of the store's dimension, kept as 32-bit floats; None if there is no embedder. One of
            zeros means nothing and is near nothing.
    """

    fact_id: str
    version: int
    scope: str
    owner: str
    memory_type: str
    trust: float
    valid_from_ms: int
    valid_to_ms: int
    expires_at_ms: int
    recorded_ms: int
    subject: str
    predicate: str
    terms: tuple[str, ...]
    body: bytes
    vector: tuple[float, ...] | None = None

    @property
    def key(self) -> FactKey:
        """Names this version."""
        return FactKey(self.scope, self.fact_id, self.version)


class FactFilter(NamedTuple):
    """What is left of a store before anything is ranked. Every field is data, never query syntax.

    Attributes:
        scopes: only these; at least one.
        owners: only these; at least one.
        memory_types: only these; empty means any.
        trust_min: nothing less trusted.
        alive_at_ms: nothing that has ended by then, to the millisecond.
        valid_after_ms: only what was so after then (``valid_to_ms`` is greater); None means any.
        valid_before_ms: only what became so before then (``valid_from_ms`` is less); None means any. As of a moment
            ``t`` is ``valid_after_ms=t, valid_before_ms=t + 1``.
        subject: only this; empty means any.
        predicate: only this; empty means any.
    """

    scopes: tuple[str, ...]
    owners: tuple[str, ...]
    memory_types: tuple[str, ...] = ()
    trust_min: float = 0.0
    alive_at_ms: int = 0
    valid_after_ms: int | None = None
    valid_before_ms: int | None = None
    subject: str = ""
    predicate: str = ""


class RawHit(NamedTuple):
    """A candidate of a search; ``score`` is BM25 or cosine similarity, greater is better."""

    key: FactKey
    score: float


class TermStatistics(NamedTuple):
    """What a ranking has to know of everything that a filter leaves, whether it is a candidate or not.

    Attributes:
        versions: how many versions the filter leaves.
        length_mean: their mean number of terms, with repetitions; 0 if there are none.
        frequencies: how many of them have each term, in the order asked for.
    """

    versions: int
    length_mean: float
    frequencies: tuple[int, ...]


class StoreModel(NamedTuple):
    """Which embedder a store's vectors are of; an empty name and dimension 0 mean none."""

    name: str
    dimension: int


class FactStoreStats(NamedTuple):
    """How much a store holds."""

    versions: int
    vectors: int
    bytes: int
    model: StoreModel


class FactStore(Protocol):
    """What every backend provides.

    Any method may raise ``Refusal``: ENGINE_UNAVAILABLE if the store is closed or has failed, INVALID_FIELD or
    VALUE_TOO_LARGE for an argument beyond its limit, before anything is done. Filters are applied before anything is
    counted or ranked, so no score tells of what a filter hides. Equal scores are ordered by key.
    """

    @property
    def engine(self) -> str:
        """The driver's name: ``embedded``, ``weaviate``, or :data:`NO_STORE` where there is none."""
        ...

    async def write(self, contents: Sequence[FactContent]) -> None:
        """Stores versions, durable and searchable when it returns; at most 256.

        A version that is there already is left as it is. If a call fails, any of its versions may be stored: those that
        the ledger does not come to name are orphans. Writers of one process that bring the same version at once store
        one of theirs, whole; of several processes the last one, so whoever says something else must name it otherwise.

        Raises:
            Refusal: LIMIT_EXCEEDED, if the store is full: nothing of the call is stored.
        """
        ...

    async def read(self, keys: Sequence[FactKey]) -> tuple[FactContent | None, ...]:
        """Returns versions in the order asked for, None where there is none; at most 256."""
        ...

    async def by_keywords(self, terms: Sequence[str], where: FactFilter, limit: int) -> tuple[RawHit, ...]:
        """Returns up to ``limit`` versions that have any of the terms, by BM25 (k1 1.2, b 0.75), best first.

        A term counts once, however often it is asked for. Statistics are those of what the filter leaves. An engine may
        choose by others which versions are scored, if these are twice as many as are asked for; where fewer than
        that have any of the terms, all of them are scored.
        """
        ...

    async def by_vector(self, vector: Sequence[float], where: FactFilter, limit: int) -> tuple[RawHit, ...]:
        """Returns up to ``limit`` versions by cosine similarity to six digits, best first.

        All are compared, but for an engine with a graph, where a filter leaves more than tens of thousands.
        """
        ...

    async def near(self, vector: Sequence[float], keys: Sequence[FactKey]) -> tuple[float | None, ...]:
        """Returns how near versions are, as :meth:`by_vector` does, in the order asked for; at most 256.

        None where there is no version, or none with a vector that means something. So what was found by words can be
        compared with what was found by meaning.
        """
        ...

    async def statistics(self, terms: Sequence[str], where: FactFilter) -> TermStatistics:
        """Counts what a filter leaves, and how many of that have each term.

        An engine may count one after the other, of more than 2,048 versions tell by samples what is frequent, and tell
        what :meth:`by_keywords` has counted for the same terms and filter less than a second ago. No term has more
        versions than there are.
        """
        ...

    async def matching(self, where: FactFilter, after: FactKey | None, limit: int) -> tuple[FactKey, ...]:
        """Lists what a filter leaves, by key, by pages."""
        ...

    async def watermark(self) -> int:
        """Returns up to which store time, in ms, searches certainly find whatever was written; ``NEVER_MS``: all of it.

        Searches are :meth:`by_keywords`, :meth:`by_vector`, :meth:`statistics`, :meth:`matching` and :meth:`versions`.
        What was written later :meth:`read` and :meth:`near` find at once all the same, and searches some time after.
        """
        ...

    async def remove(self, keys: Sequence[FactKey]) -> int:
        """Removes versions for good; returns how many there were. No call finds them any more.

        The embedded store overwrites their words. Another engine has them on disk until it compacts its files.
        """
        ...

    def versions(self, scope: str) -> AsyncIterator[FactKey]:
        """Streams every version of a scope, for the sweep of orphans."""
        ...

    def everything(self) -> AsyncIterator[FactContent]:
        """Streams every version whole, by key; what comes or goes meanwhile may be among them or not."""
        ...

    async def stats(self) -> FactStoreStats:
        """Returns how much it holds."""
        ...

    async def close(self) -> None:
        """Closes; later calls raise ENGINE_UNAVAILABLE."""
        ...
