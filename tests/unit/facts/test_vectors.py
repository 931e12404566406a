"""Vectors of claims: who asks together is answered together, and a failing embedder costs only vectors."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from noosphere.server.facts.vectors import AHEAD_MAX, Vectors
from noosphere.server.ports.models import EmbedderError


class Counting:
    """An embedder that notes its calls; texts with an x in them fail the call."""

    name = "counting/1"
    dimension = 1

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    async def embed(self, texts: Sequence[str]) -> tuple[tuple[float, ...], ...]:
        """Embeds a text as its length."""
        self.calls.append(list(texts))
        await asyncio.sleep(0)
        if any("x" in text for text in texts):
            raise EmbedderError("slow, wrong or away")
        return tuple((float(len(text)),) for text in texts)


async def test_what_is_asked_at_one_moment_is_one_call() -> None:
    embedder = Counting()
    vectors = Vectors(embedder)
    assert await asyncio.gather(*map(vectors.of, ("a", "bb", "ccc"))) == [(1.0,), (2.0,), (3.0,)]
    assert embedder.calls == [["a", "bb", "ccc"]]


async def test_what_is_begun_ahead_is_asked_for_once_and_together() -> None:
    embedder = Counting()
    vectors = Vectors(embedder)
    for text in ("a", "bb", "ccc", "bb"):
        vectors.ahead(text)
    # One after the other, as one owner's candidates are decided.
    assert [await vectors.of(text) for text in ("a", "bb", "ccc")] == [(1.0,), (2.0,), (3.0,)]
    assert embedder.calls == [["a", "bb", "ccc"]]
    assert await vectors.of("a") == (1.0,)
    assert embedder.calls[1:] == [["a"]], "nothing is kept of what was asked for"


async def test_what_is_dropped_is_embedded_again() -> None:
    embedder = Counting()
    vectors = Vectors(embedder)
    vectors.ahead("a")
    vectors.drop("a")
    assert await vectors.of("a") == (1.0,)
    assert sorted(text for call in embedder.calls for text in call) == ["a", "a"]


async def test_no_more_is_begun_ahead_than_is_kept() -> None:
    embedder = Counting()
    vectors = Vectors(embedder)
    for number in range(AHEAD_MAX + 5):
        vectors.ahead("a" * (number + 1))
    await vectors.of("a")
    assert len(embedder.calls[0]) == AHEAD_MAX


async def test_a_failing_embedder_costs_only_the_vectors_of_its_call() -> None:
    vectors = Vectors(Counting())
    assert await asyncio.gather(*map(vectors.of, ("a", "x"))) == [None, None]
    assert await vectors.of("a") == (1.0,)


async def test_without_an_embedder_there_are_no_vectors() -> None:
    vectors = Vectors(None)
    vectors.ahead("a")
    assert not vectors.exist
    assert await vectors.of("a") is None
