"""The fact store port: content, keywords and vectors of facts, as raw candidates for a ranking that is ours.

It decides nothing. What is current stands in the ledger, which is records on the working store; content is written
here *before* the ledger's commit, under the deterministic id of one version of one fact, so a version that the ledger
does not name is an orphan, which nobody sees and a sweep removes. Writing a version again changes nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, Protocol


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
        vector: its meaning, of the store's dimension; None if there is no embedder.
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


class FactKey(NamedTuple):
    """Names one version of one fact."""

    scope: str
    fact_id: str
    version: int


class FactFilter(NamedTuple):
    """What is left of a store before anything is ranked. Every field is data, never query syntax.

    Attributes:
        scopes: only these; at least one.
        owners: only these; at least one.
        memory_types: only these; empty means any.
        trust_min: nothing less trusted.
        alive_at_ms: nothing that has ended by then, to the millisecond.
        valid_after_ms: only what was so at some time from then on; None means any.
        valid_before_ms: only what was so at some time before then; None means any.
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
    """What every backend provides. Any method may raise ``Refusal`` with ENGINE_UNAVAILABLE."""

    @property
    def engine(self) -> str:
        """The driver's name: ``embedded`` or ``weaviate``."""
        ...

    async def write(self, contents: Sequence[FactContent]) -> None:
        """Stores versions, durable and searchable when it returns; at most 256, all or none of each."""
        ...

    async def read(self, keys: Sequence[FactKey]) -> tuple[FactContent | None, ...]:
        """Returns versions in the order asked for, None where there is none; at most 256."""
        ...

    async def by_keywords(self, terms: Sequence[str], where: FactFilter, limit: int) -> tuple[RawHit, ...]:
        """Returns up to ``limit`` versions that have any of the terms, by BM25, best first."""
        ...

    async def by_vector(self, vector: Sequence[float], where: FactFilter, limit: int) -> tuple[RawHit, ...]:
        """Returns up to ``limit`` versions by cosine similarity, best first; exact."""
        ...

    async def matching(self, where: FactFilter, after: FactKey | None, limit: int) -> tuple[FactKey, ...]:
        """Lists what a filter leaves, by key, by pages."""
        ...

    async def remove(self, keys: Sequence[FactKey]) -> int:
        """Removes versions, for good: their words are overwritten, not only unlinked. Returns how many there were."""
        ...

    def versions(self, scope: str) -> AsyncIterator[FactKey]:
        """Streams every version of a scope, for the sweep of orphans."""
        ...

    async def stats(self) -> FactStoreStats:
        """Returns how much it holds."""
        ...

    async def close(self) -> None:
        """Closes; later calls raise ENGINE_UNAVAILABLE."""
        ...
