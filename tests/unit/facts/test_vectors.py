"""Vectors of claims: who asks together is answered together, and a failing embedder costs only vectors."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

from noosphere.server.facts.vectors import AHEAD_MAX, REST_MS, REST_MS_MAX, Vectors
from noosphere.server.ports.models import EMBEDDED_TEXTS_MAX, EmbedderError
from noosphere.testing import ManualClock


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
    vectors = Vectors(embedder, ManualClock())
    assert await asyncio.gather(*map(vectors.of, ("a", "bb", "ccc"))) == [(1.0,), (2.0,), (3.0,)]
    assert embedder.calls == [["a", "bb", "ccc"]]


async def test_what_is_begun_ahead_is_asked_for_once_and_together() -> None:
    embedder = Counting()
    vectors = Vectors(embedder, ManualClock())
    for text in ("a", "bb", "ccc", "bb"):
        vectors.ahead(text)
    # One after the other, as one owner's candidates are decided.
    assert [await vectors.of(text) for text in ("a", "bb", "ccc")] == [(1.0,), (2.0,), (3.0,)]
    assert embedder.calls == [["a", "bb", "ccc"]]
    assert await vectors.of("a") == (1.0,)
    assert embedder.calls[1:] == [["a"]], "nothing is kept of what was asked for"


async def test_what_is_dropped_is_embedded_again() -> None:
    embedder = Counting()
    vectors = Vectors(embedder, ManualClock())
    vectors.ahead("a")
    vectors.drop("a")
    assert await vectors.of("a") == (1.0,)
    assert sorted(text for call in embedder.calls for text in call) == ["a", "a"]


async def test_no_more_is_begun_ahead_than_is_kept() -> None:
    embedder = Counting()
    vectors = Vectors(embedder, ManualClock())
    for number in range(AHEAD_MAX + 5):
        vectors.ahead("a" * (number + 1))
    await vectors.of("a")
    assert len(embedder.calls[0]) == AHEAD_MAX


async def test_a_failing_embedder_costs_only_vectors_and_is_left_alone_for_a_while() -> None:
    embedder, clock = Counting(), ManualClock()
    vectors = Vectors(embedder, clock)
    assert await asyncio.gather(*map(vectors.of, ("a", "x"))) == [None, None]
    assert [await vectors.of("a"), len(embedder.calls)] == [None, 1]
    clock.advance(REST_MS)
    assert await vectors.of("a") == (1.0,)


async def test_an_embedder_that_goes_on_failing_is_asked_less_and_less_often() -> None:
    embedder, clock = Counting(), ManualClock()
    vectors = Vectors(embedder, clock)
    asked_ms: list[int] = []
    for at_ms in range(0, 4 * REST_MS_MAX, REST_MS):
        before = len(embedder.calls)
        await vectors.of("x")
        asked_ms += [at_ms] * (len(embedder.calls) - before)
        clock.advance(REST_MS)
    pauses = [later - earlier for earlier, later in itertools.pairwise(asked_ms)]
    assert pauses[:4] == [REST_MS, 2 * REST_MS, 4 * REST_MS, 8 * REST_MS]
    assert pauses[-1] == REST_MS_MAX
    await vectors.of("x")
    clock.advance(REST_MS_MAX)
    assert await vectors.of("a") == (1.0,)
    await vectors.of("x")
    clock.advance(REST_MS)
    assert await vectors.of("a") == (1.0,), "one success, and the first failure after it costs the shortest pause"


async def test_what_waits_while_an_embedder_hangs_does_not_wait_for_it_again() -> None:
    embedder = Counting()
    vectors = Vectors(embedder, ManualClock())
    texts = [*["x"] * EMBEDDED_TEXTS_MAX, "a", "b"]
    assert set(await asyncio.gather(*map(vectors.of, texts))) == {None}
    assert len(embedder.calls) == 1


async def test_without_an_embedder_there_are_no_vectors() -> None:
    vectors = Vectors(None, ManualClock())
    vectors.ahead("a")
    assert not vectors.exist
    assert await vectors.of("a") is None
