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


class FactRecall(Protocol):
    """Finds facts for a context. Only what the caller may see, is trusted enough and has not ended comes back.

    Any method may fail in any way: the context is then made without facts, and says so.
    """

    async def embed(self, query: str) -> Sequence[float] | None:
        """Returns the query as a vector; None if searches here are by keywords alone.

        It may take its time: whoever asks does not wait for long, and cancels.
        """
        ...

    async def pinned(self, caller: str, owner: str, *, tokens_max: int) -> tuple[RecalledFact, ...]:
        """Returns the owner's pinned facts that the agent ``caller`` may see, the most important first."""
        ...

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
        """Returns up to ``limit`` facts relevant to ``query``, best first, that fit ``tokens_max`` together.

        Args:
            caller: the agent that asks.
            owners: whose facts.
            query: the words.
            vector: the same as a vector; None searches by keywords alone.
            limit: most facts.
            tokens_max: most tokens of their texts.
        """
        ...
