"""Vectors by a model: what its endpoint is asked, and that whatever it answers is a vector each, or an error."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import random
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from pydantic import SecretStr
from tests.support.endpoint import Asked, Endpoint, Script, answering, open_endpoint, send

from noosphere.server.metrics import PrometheusModelMetrics
from noosphere.server.models import TokenizerRegistry
from noosphere.server.models.endpoint import CallBudget, Connection, Embeddings, EndpointEmbedder
from noosphere.server.models.endpoint.retrying import ATTEMPTS_MAX
from noosphere.server.ports.models import EMBEDDED_TEXTS_MAX, EmbedderError
from noosphere.server.ports.runtime import SystemClock

KEY = "sk-canary-7f3a"


class SleeplessClock(SystemClock):
    """Notes pauses instead of making them."""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)


def body(vectors: Sequence[Any], *, tokens: int | None = 5) -> bytes:
    data = [{"object": "embedding", "index": at, "embedding": vector} for at, vector in enumerate(vectors)]
    usage = {} if tokens is None else {"usage": {"prompt_tokens": tokens, "total_tokens": tokens}}
    return json.dumps({"object": "list", "model": "tiny", "data": data, **usage}).encode()


async def lengths(writer: asyncio.StreamWriter, asked: Asked) -> None:
    """Answers with vectors that tell how long each text was; backwards, which the interface allows."""
    found = json.loads(body([[len(text), 0.0] for text in asked.body["input"]]))
    found["data"].reverse()
    send(writer, json.dumps(found).encode())


class Lab:
    """An embedder on an endpoint, with what tests change about it."""

    def __init__(self, endpoint: Endpoint, *, timeout_seconds: float = 30, **changes: Any) -> None:
        self.clock = SleeplessClock()
        self.registry = CollectorRegistry()
        self.connection = Connection(
            url=endpoint.url, key=SecretStr(KEY), timeout_seconds=timeout_seconds, answer_bytes_max=64 * 1024
        )
        embeddings = Embeddings(self.connection, "tiny", 2, shortened=changes.get("shortened", False))
        budget = CallBudget(
            self.clock,
            calls_max=changes.get("calls_max", 100),
            tokens_max=changes.get("tokens_max", 10**6),
            purpose="embedder",
            metrics=PrometheusModelMetrics(self.registry),
        )
        self.embedder = EndpointEmbedder(
            embeddings,
            budget,
            tokenizer=TokenizerRegistry().named("o200k_base"),
            text_tokens_max=changes.get("text_tokens_max", 512),
            clock=self.clock,
            rng=random.Random(1),
        )

    def count(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"noosphere_model_{name}_total", {"purpose": "embedder", **labels})


MakeLab = Callable[..., Lab]


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    async with open_endpoint(lengths) as opened:
        yield opened


@pytest.fixture
async def make_lab(endpoint: Endpoint) -> AsyncIterator[MakeLab]:
    async with contextlib.AsyncExitStack() as stack:

        def make(**changes: Any) -> Lab:
            lab = Lab(endpoint, **changes)
            stack.push_async_callback(lab.connection.aclose)
            return lab

        yield make


async def test_each_text_gets_its_own_vector_of_length_one(make_lab: MakeLab, endpoint: Endpoint) -> None:
    endpoint.script = answering(body([[3.0, 4.0], [0.0, 0.0], [0.0, 1.0]]))
    lab = make_lab()
    assert await lab.embedder.embed(["one", "two", "three"]) == ((0.6, 0.8), (0.0, 0.0), (0.0, 1.0))
    (asked,) = endpoint.asked
    assert asked.line == "POST /v1/embeddings HTTP/1.1"
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.body == {"model": "tiny", "input": ["one", "two", "three"], "encoding_format": "float"}
    assert (lab.embedder.name, lab.embedder.dimension) == ("tiny", 2)
    assert (lab.count("calls", outcome="answered"), lab.count("tokens")) == (1, 5)


async def test_blank_texts_mean_nothing_and_are_not_sent(make_lab: MakeLab, endpoint: Endpoint) -> None:
    vectors = await make_lab().embedder.embed(["", "said", " \n"])
    assert vectors == ((0.0, 0.0), (1.0, 0.0), (0.0, 0.0))
    assert endpoint.asked[0].body["input"] == ["said"]
    assert await make_lab().embedder.embed([" "]) == ((0.0, 0.0),)
    assert await make_lab().embedder.embed([]) == ()
    assert len(endpoint.asked) == 1


async def test_long_texts_are_cut_lone_surrogates_replaced_and_many_texts_asked_in_pieces(
    make_lab: MakeLab, endpoint: Endpoint
) -> None:
    lab = make_lab(text_tokens_max=3)
    texts = ["one two three four", "\ud800", *("x" * at for at in range(1, EMBEDDED_TEXTS_MAX - 1))]
    vectors = await lab.embedder.embed(texts)
    assert len(vectors) == EMBEDDED_TEXTS_MAX
    assert all(math.hypot(*vector) == 1.0 for vector in vectors)
    sent = [text for asked in endpoint.asked for text in asked.body["input"]]
    assert sent[:3] == ["one two three", "?", "x"]
    assert len(endpoint.asked) > 1
    with pytest.raises(EmbedderError, match=f"texts: {EMBEDDED_TEXTS_MAX + 1} are more than {EMBEDDED_TEXTS_MAX}"):
        await lab.embedder.embed(["a"] * (EMBEDDED_TEXTS_MAX + 1))


async def test_a_dimension_is_asked_for_only_where_the_model_can_shorten(make_lab: MakeLab, endpoint: Endpoint) -> None:
    await make_lab(shortened=True).embedder.embed(["a"])
    assert endpoint.asked[0].body["dimensions"] == 2


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (body([]), "no list of 1 embeddings"),
        (body([[1.0]]), "vectors have 1 numbers, embedder_dimension is 2"),
        (body([[1.0, 2.0, 3.0]]), "vectors have 3 numbers"),
        (body([[1.0, float("nan")]]), "what is no number"),
        (body([[1.0, float("inf")]]), "what is no number"),
        (body([[1.0, "x"]]), "no list of 1 embeddings"),
        (body([[1.0, None]]), "no list of 1 embeddings"),
        (body(["AAAA"]), "no list of 1 embeddings"),
        (body([None]), "no list of 1 embeddings"),
        (b'{"data": null}', "no list of 1 embeddings"),
        (b"{}", "no list of 1 embeddings"),
        (b"null", "no list of 1 embeddings"),
        (b"[]", "no list of 1 embeddings"),
        (b"<html>", "cannot be read|no list"),
        (b"x" * 100_000, "more than 65536 bytes"),
    ],
    ids=[
        "none", "short", "long", "nan", "infinite", "text", "null-number", "base64", "null-vector", "null-data",
        "empty", "null", "list", "html", "enormous",
    ],
)  # fmt: skip
async def test_whatever_is_no_vector_is_an_error_with_a_reason_and_asked_for_once(
    make_lab: MakeLab, endpoint: Endpoint, answer: bytes, reason: str
) -> None:
    endpoint.script = answering(answer)
    lab = make_lab()
    with pytest.raises(EmbedderError, match=reason) as caught:
        await lab.embedder.embed(["CANARY"])
    assert len(endpoint.asked) == 1
    assert not caught.value.passing
    for canary in (KEY, "CANARY", "AAAA"):
        assert canary not in str(caught.value)
    assert lab.count("calls", outcome="failed") == 1


def _then(first: Script, count: int) -> Script:
    left = [first] * count

    async def script(writer: asyncio.StreamWriter, asked: Asked) -> None:
        await (left.pop() if left else lengths)(writer, asked)

    return script


async def _hang_up(writer: asyncio.StreamWriter, asked: Asked) -> None:
    writer.transport.abort()


PASSING: dict[str, Script] = {
    "busy": answering(b"{}", status="429 Too Many Requests"),
    "broken": answering(b"{}", status="503 Service Unavailable"),
    "hung-up": _hang_up,
}


@pytest.mark.parametrize("script", PASSING.values(), ids=PASSING)
async def test_what_passes_by_itself_is_tried_again_with_growing_pauses(
    make_lab: MakeLab, endpoint: Endpoint, script: Script
) -> None:
    endpoint.script = _then(script, ATTEMPTS_MAX - 1)
    lab = make_lab()
    assert await lab.embedder.embed(["said"]) == ((1.0, 0.0),)
    first, second = lab.clock.pauses
    assert 0 < first < second
    assert lab.count("calls", outcome="failed") == ATTEMPTS_MAX - 1
    endpoint.script = script
    with pytest.raises(EmbedderError) as caught:
        await lab.embedder.embed(["said"])
    assert caught.value.passing
    assert len(endpoint.asked) == 2 * ATTEMPTS_MAX


async def test_a_key_that_is_refused_is_not_tried_again(make_lab: MakeLab, endpoint: Endpoint) -> None:
    endpoint.script = answering(b"{}", status="401 Unauthorized")
    with pytest.raises(EmbedderError, match="HTTP status 401"):
        await make_lab().embedder.embed(["said"])
    assert len(endpoint.asked) == 1


def _never(writer: asyncio.StreamWriter, asked: Asked) -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()


async def test_a_slow_model_is_given_up(make_lab: MakeLab, endpoint: Endpoint) -> None:
    endpoint.script = _never
    with pytest.raises(EmbedderError, match=r"did not answer within 0\.2 s"):
        await make_lab(timeout_seconds=0.2).embedder.embed(["said"])


async def test_the_budget_counts_every_attempt_and_stops_before_asking(make_lab: MakeLab, endpoint: Endpoint) -> None:
    lab = make_lab(calls_max=2)
    endpoint.script = PASSING["busy"]
    with pytest.raises(EmbedderError, match="budget is spent: 2 calls within an hour"):
        await lab.embedder.embed(["said"])
    assert len(endpoint.asked) == 2
    assert lab.count("calls", outcome="over_budget") == 1
