"""The port through which a context asks for long-term facts; what answers it comes with the fact service."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class RecalledFact(NamedTuple):
    """One fact as a search returns it.

    Attributes:
        id: the fact's id.
        version: which version of it.
        text: the claim.
        source: where it comes from, for people: producer and evidence.
        trust: 0 to 1, assigned by the server.
        score: calibrated relevance, 0 to 1: how likely the fact helps.
        expires_at_ms: when it ends, in store time.
    """

    id: str
    version: int
    text: str
    source: str
    trust: float
    score: float
    expires_at_ms: int


class Recall(NamedTuple):
    """What a search found; ``dense_skipped`` if the query was not embedded in time."""

    facts: tuple[RecalledFact, ...]
    dense_skipped: bool = False


class FactRecall(Protocol):
    """Finds facts for a context. Only what the caller may see, is trusted enough and has not ended comes back."""

    async def pinned(self, owner: str, *, tokens_max: int) -> tuple[RecalledFact, ...]:
        """Returns the owner's pinned facts, the most important first."""
        ...

    async def recall(self, owners: Sequence[str], query: str, *, limit: int, tokens_max: int) -> Recall:
        """Returns up to ``limit`` facts relevant to ``query``, best first, that fit ``tokens_max`` together."""
        ...
