"""Summaries by a model: what it is asked, and that whatever it does ends in a summary or in an error with a reason."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from pydantic import SecretStr
from tests.support.endpoint import Asked, Endpoint, Script, answering, completion, open_endpoint, send

from noosphere.server.models import TokenizerRegistry
from noosphere.server.models.endpoint import CallBudget, Completions, Connection, EndpointSummariser
from noosphere.server.models.endpoint.answer import parse_answer
from noosphere.server.models.endpoint.budget import HOUR_MS
from noosphere.server.ports.models import ModelError, SourceMessage, SummariserError, SummaryText
from noosphere.server.ports.runtime import SystemClock
from noosphere.server.sessions.summary_text import summary_text

O200K = TokenizerRegistry().named("o200k_base")
KEY = "sk-canary-7f3a"
TALK = [SourceMessage("user", "kim", "Book HAT136. CANARY-TEXT"), SourceMessage("assistant", "bot", "It is booked.")]
GOOD = {
    "goals": ["Fly to Seattle"],
    "decisions": ["HAT136\nis booked"],
    "open_questions": [],
    "entities": ["HAT136"],
    "narrative": "The user booked a flight.",
}
SUMMARY = SummaryText(("Fly to Seattle",), ("HAT136 is booked",), (), ("HAT136",), "The user booked a flight.")


class FixedClock(SystemClock):
    """Time that a test moves."""

    now_ms = 0

    def monotonic_ms(self) -> int:
        return self.now_ms


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    async with open_endpoint(answering(completion(json.dumps(GOOD)))) as opened:
        yield opened


class Lab:
    """A summariser on an endpoint, with what tests change about it."""

    def __init__(self, endpoint: Endpoint, *, timeout_seconds: float = 30, **changes: int | bool) -> None:
        self.clock = FixedClock()
        self.connection = Connection(
            url=endpoint.url,
            key=SecretStr(KEY),
            timeout_seconds=timeout_seconds,
            answer_bytes_max=int(changes.get("answer_bytes_max", 64 * 1024)),
        )
        self.completions = Completions(self.connection, "tiny", with_schema=bool(changes.get("with_schema", True)))
        budget = CallBudget(
            self.clock, calls_max=int(changes.get("calls_max", 100)), tokens_max=int(changes.get("tokens_max", 10**6))
        )
        self.summariser = EndpointSummariser(
            self.completions, budget, input_tokens_max=int(changes.get("input_tokens_max", 8_000))
        )

    async def summarise(
        self, messages: list[SourceMessage] | None = None, *, previous: SummaryText | None = None, tokens_max: int = 200
    ) -> SummaryText:
        return await self.summariser.summarise(previous, TALK if messages is None else messages, tokens_max, O200K)


MakeLab = Callable[..., Lab]


@pytest.fixture
async def make_lab(endpoint: Endpoint) -> AsyncIterator[MakeLab]:
    async with contextlib.AsyncExitStack() as stack:

        def make(at: Endpoint | None = None, **changes: Any) -> Lab:
            lab = Lab(at or endpoint, **changes)
            stack.push_async_callback(lab.connection.aclose)
            return lab

        yield make


async def test_a_model_makes_a_summary(make_lab: MakeLab, endpoint: Endpoint) -> None:
    assert await make_lab().summarise(previous=SummaryText(goals=("Go west",))) == SUMMARY
    (asked,) = endpoint.asked
    assert asked.line == "POST /v1/chat/completions HTTP/1.1"
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.body["model"] == "tiny"
    assert asked.body["response_format"]["json_schema"]["strict"] is True
    assert asked.data["summary_so_far"]["goals"] == ["Go west"]
    assert asked.data["messages"][0] == {"role": "user", "author": "kim", "text": "Book HAT136. CANARY-TEXT"}
    # What is said in the conversation reaches the model as data only.
    assert "CANARY-TEXT" not in asked.body["messages"][0]["content"]


async def test_the_configuration_decides_and_not_the_package_environment(
    make_lab: MakeLab, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "of-the-environment")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    monkeypatch.setenv("OPENAI_ORG_ID", "of-the-environment")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "of-the-environment")
    assert await make_lab(with_schema=False).summarise() == SUMMARY
    assert "of-the-environment" not in str(endpoint.asked[0].headers)
    assert "response_format" not in endpoint.asked[0].body


def _never(writer: asyncio.StreamWriter, asked: Asked) -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()


async def _hang_up(writer: asyncio.StreamWriter, asked: Asked) -> None:
    writer.transport.abort()


async def _endless(writer: asyncio.StreamWriter, asked: Asked) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")
    while not writer.is_closing():
        writer.write(b"1000\r\n" + b" " * 4096 + b"\r\n")
        await writer.drain()


async def _drips(writer: asyncio.StreamWriter, asked: Asked) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100000\r\n\r\n")
    while not writer.is_closing():
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.01)


async def _redirects(writer: asyncio.StreamWriter, asked: Asked) -> None:
    send(writer, b"", status="307 Temporary Redirect", headers="location: http://127.0.0.1:1/stolen\r\n")


BOMB = gzip.compress(b" " * 10_000_000)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (answering(completion("")), "the answer is empty"),
        (answering(completion(None)), "the answer is empty"),
        (answering(completion("Sure! Here is your summary.")), "not what was asked for: it: json_invalid"),
        (answering(completion("[]")), "not what was asked for: it: model_type"),
        (answering(completion(json.dumps({**GOOD, "goals": "Fly"}))), "goals: tuple_type"),
        (answering(completion(json.dumps({**GOOD, "goals": [1]}))), "goals.0: string_type"),
        (answering(completion(json.dumps({**GOOD, "goals": ["x" * 401]}))), "goals.0: string_too_long"),
        (answering(completion(json.dumps({**GOOD, "entities": ["x"] * 65}))), "entities: too_long"),
        (answering(completion(json.dumps({**GOOD, "narrative": "x" * 20_001}))), "narrative: string_too_long"),
        (answering(completion(json.dumps({"goals": []}))), "decisions: missing"),
        (answering(completion(json.dumps({**{key: [] for key in GOOD}, "narrative": " "}))), "says nothing"),
        (answering(completion("{", finish_reason="length")), "cut off by the limit on its tokens"),
        (answering(completion(None, finish_reason="content_filter")), "the model refused"),
        (answering(completion(None, refusal="I cannot help")), "the model refused"),
        (answering(b"{}"), "no chat completion"),
        (answering(b'{"choices": []}'), "no chat completion"),
        (answering(b'{"choices": [{"message": null}]}'), "no chat completion"),
        (answering(b"null"), "no chat completion"),
        (answering(b'{"choices": [{"message": {"content": 7}, "finish_reason": "stop"}]}'), "no chat completion"),
        (answering(b"<html>"), "cannot be read"),
        (answering(b"\xff\xfe"), "cannot be read"),
        (answering(b"{}", status="401 Unauthorized"), "HTTP status 401"),
        (answering(b"oops", status="500 Internal Server Error"), "HTTP status 500"),
        (answering(b"{}", status="429 Too Many Requests", headers="retry-after: 1\r\n"), "HTTP status 429"),
        (answering(b"x" * 100_000, status="500 Internal Server Error"), "more than 65536 bytes"),
        (answering(completion("x" * 100_000)), "more than 65536 bytes"),
        (answering(BOMB, headers="content-encoding: gzip\r\n"), "more than 65536 bytes"),
        (_endless, "more than 65536 bytes"),
        (_redirects, "HTTP status 307"),
        (_hang_up, "cannot connect, or the connection was lost"),
    ],
    ids=[
        "empty", "none", "prose", "list", "string-for-list", "number-entry", "long-entry", "many-entries",
        "long-narrative", "missing", "says-nothing", "cut-off", "filtered", "refused", "no-choices", "empty-choices",
        "null-message", "null", "number-content", "html", "bytes", "401", "500", "429", "enormous-error", "enormous",
        "bomb", "endless", "redirect", "hung-up",
    ],
)  # fmt: skip
async def test_whatever_goes_wrong_has_a_reason(
    make_lab: MakeLab, endpoint: Endpoint, script: Script, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint.script = script
    with caplog.at_level(logging.DEBUG), pytest.raises(SummariserError, match=reason) as caught:
        await make_lab().summarise()
    # Asked once: a retry is somebody else's decision.
    assert len(endpoint.asked) == 1
    for canary in (KEY, "CANARY-TEXT", "Sure!", "I cannot help"):
        assert canary not in str(caught.value)
        assert canary not in caplog.text


@pytest.mark.parametrize("script", [_never, _drips], ids=["silent", "dripping"])
async def test_a_slow_model_is_given_up(make_lab: MakeLab, endpoint: Endpoint, script: Script) -> None:
    endpoint.script = script
    with pytest.raises(SummariserError, match=r"did not answer within 0\.3 s"):
        await make_lab(timeout_seconds=0.3).summarise()


async def test_an_endpoint_that_is_away_is_named(make_lab: MakeLab) -> None:
    async with open_endpoint() as gone:
        pass
    with pytest.raises(SummariserError, match=r"^127\.0\.0\.1:\d+: cannot connect"):
        await make_lab(gone).summarise()


async def test_neither_key_nor_talk_is_logged(
    make_lab: MakeLab, endpoint: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    lab = make_lab()
    with caplog.at_level(logging.DEBUG):
        await lab.summarise()
    assert KEY not in caplog.text
    assert "CANARY-TEXT" not in caplog.text
    assert KEY not in repr(vars(lab.connection))


@pytest.mark.parametrize("fence", ["```json\n%s\n```", "```\n%s```", "  %s\n\n"])
def test_a_fence_around_the_answer_does_no_harm(fence: str) -> None:
    assert parse_answer(fence % json.dumps({**GOOD, "thoughts": "more than was asked"})) == SUMMARY


async def test_an_answer_that_is_too_long_is_cut(make_lab: MakeLab, endpoint: Endpoint) -> None:
    long = {**GOOD, "entities": [f"E{i}" for i in range(60)], "narrative": "It went on and on. " * 200}
    endpoint.script = answering(completion(json.dumps(long)))
    summary = await make_lab().summarise(tokens_max=40)
    assert O200K.count(summary_text(summary)) <= 40
    assert summary.goals == ("Fly to Seattle",)


async def test_much_is_summarised_in_steps_each_with_the_summary_so_far(make_lab: MakeLab, endpoint: Endpoint) -> None:
    first = {**GOOD, "narrative": "First part."}
    endpoint.script = answering(completion(json.dumps(first)), completion(json.dumps(GOOD)))
    messages = [SourceMessage("user", "kim", f"{i} " + "word " * 300) for i in range(5)]
    assert await make_lab(input_tokens_max=2_000).summarise(messages) == SUMMARY
    assert [len(asked.data["messages"]) for asked in endpoint.asked] == [3, 2]
    assert endpoint.asked[0].data["summary_so_far"] is None
    assert endpoint.asked[1].data["summary_so_far"]["narrative"] == "First part."


async def test_a_message_that_is_too_long_says_what_is_missing(make_lab: MakeLab, endpoint: Endpoint) -> None:
    await make_lab(input_tokens_max=200).summarise([SourceMessage("tool", "bot", "word " * 1_000)])
    text = endpoint.asked[0].data["messages"][0]["text"]
    assert O200K.count(text) <= 100
    assert text.endswith("characters left out]")


async def test_too_much_is_refused_before_anything_is_asked(make_lab: MakeLab, endpoint: Endpoint) -> None:
    messages = [SourceMessage("user", "kim", "word " * 90)] * 9
    with pytest.raises(SummariserError, match="more than 8 calls of 200 tokens would be needed"):
        await make_lab(input_tokens_max=200).summarise(messages)
    with pytest.raises(SummariserError, match="there are none"):
        await make_lab().summarise([])
    assert endpoint.asked == []


async def test_calls_are_limited_by_the_hour(make_lab: MakeLab, endpoint: Endpoint) -> None:
    lab = make_lab(calls_max=2)
    for now_ms in (0, 1_000):
        lab.clock.now_ms = now_ms
        await lab.summarise()
    lab.clock.now_ms = HOUR_MS - 1
    with pytest.raises(SummariserError, match="budget is spent: 2 calls within an hour"):
        await lab.summarise()
    lab.clock.now_ms = HOUR_MS
    await lab.summarise()
    assert len(endpoint.asked) == 3


async def test_tokens_are_limited_by_the_hour_and_counted_as_the_endpoint_says() -> None:
    clock = FixedClock()
    budget = CallBudget(clock, calls_max=10, tokens_max=1_000)
    entry = budget.spend(900)
    with pytest.raises(ModelError, match="900 tokens within an hour and 200 more, the limit is 1000"):
        budget.spend(200)
    budget.settle(entry, 300)
    failed = budget.spend(600)
    budget.settle(failed, 0)
    budget.settle(failed, 10**12)
    clock.now_ms = HOUR_MS
    budget.spend(1_000)


async def test_what_an_endpoint_did_not_use_can_be_used_again(make_lab: MakeLab, endpoint: Endpoint) -> None:
    lab = make_lab(tokens_max=3_000)
    for _ in range(5):
        await lab.summarise()
    endpoint.script = answering(completion(json.dumps(GOOD), tokens=0))
    await lab.summarise()
    with pytest.raises(SummariserError, match="the limit is 3000"):
        await lab.summarise()


async def test_a_failed_call_is_paid_for(make_lab: MakeLab, endpoint: Endpoint) -> None:
    endpoint.script = _hang_up
    lab = make_lab(calls_max=1)
    with pytest.raises(SummariserError, match="connection was lost"):
        await lab.summarise()
    with pytest.raises(SummariserError, match="budget is spent"):
        await lab.summarise()
