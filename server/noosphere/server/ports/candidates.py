"""The port by which other services hand what may become a fact to the fact service."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

HANDED_MAX = 100
"""Most candidates of one call."""


class HandedCandidate(NamedTuple):
    """What may become a fact, as the server's own parts hand it over.

    Attributes:
        id: names it for ever: handed over twice, it is one candidate.
        owner: whose fact, e.g. ``agent/planner-0``; also its scope.
        text: the claim in words.
        memory_type: ``working``, ``episodic``, ``semantic`` or ``procedural``.
        evidence: references to what it rests on, e.g. ``msg:<session>/<id>``.
        importance: 0 to 1; None for the default.
        trust: 0 to 1: that of what it rests on.
        producer: which part of the server made it.
        time_ms: since when it is so.
    """

    id: str
    owner: str
    text: str
    memory_type: str
    evidence: tuple[str, ...]
    importance: float | None
    trust: float
    producer: str
    time_ms: int


class CandidateSink(Protocol):
    """Takes candidates."""

    async def take(self, candidates: Sequence[HandedCandidate]) -> None:
        """Queues candidates, at most 100; they are durable when it returns.

        Raises:
            Refusal: ENGINE_UNAVAILABLE or LIMIT_EXCEEDED; nothing was taken then, or all may be handed over again.
        """
        ...
