"""Lines of the log that belong to a call say to which; slow calls have a line, and not too many."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from structlog.testing import capture_logs

from noosphere.consistency import Reason, Refusal
from noosphere.server.rpc.gate import Gate, Step
from noosphere.server.rpc.steps.logged import describe_call
from noosphere.server.rpc.steps.slow import LINES_PER_SECOND_MAX, SlowCallStep
from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1 import types_pb2

PUT = "/noosphere.v1.MemoryService/Put"


class Nothing:
    """A step, without which a gate does nothing."""

    def begin(self, rpc: Any) -> None:
        pass

    def end(self, rpc: Any) -> None:
        pass


async def described(request: Message, line: dict[str, Any] | None = None, step: Step | None = None) -> dict[str, Any]:
    """Returns a line that is written while a call is under way."""
    found: dict[str, Any] = {"event": "x", **(line or {})}

    async def answer(_: Any) -> pb.PutResponse:
        describe_call(None, "info", found)
        return pb.PutResponse()

    await Gate((step or Nothing(),)).passing_inside(PUT, answer)(request)
    return found


def put(**call: Any) -> pb.PutRequest:
    request = pb.PutRequest(namespace="shared/x", call=types_pb2.CallContext(**call))
    request.put.key, request.put.value.data = "secret-key", b"secret-value"
    return request


async def test_a_line_says_to_which_call_it_belongs() -> None:
    sequence = types_pb2.RequestId(sequence=types_pb2.ClientSequence(sequence=7))
    line = await described(put(actor=types_pb2.Actor(agent_id="a", incarnation=1), request_id=sequence))
    assert line == {
        "event": "x",
        "rpc": "MemoryService/Put",
        "request": "7",
        "agent": "a",
        "namespace": "shared/x",
    }
    assert (await described(put(request_id=types_pb2.RequestId(uuid="u"))))["request"] == "u"
    assert (await described(pb.OpenAgentRequest(agent_id="b", request_id="r")))["request"] == "r"


async def test_what_a_line_says_itself_stays() -> None:
    assert (await described(put(), {"namespace": "mine"}))["namespace"] == "mine"


async def test_names_cannot_break_lines_and_are_cut() -> None:
    line = await described(pb.GetRequest(namespace="shared/a\nfake=1\x1b[31m\u202e" + "y" * 1_000))
    assert line["namespace"].startswith("shared/a\\nfake=1\\x1b[31m\\u202e")
    assert len(line["namespace"]) < 300


async def test_work_that_outlives_its_call_is_nobodys() -> None:
    later: list[Callable[[], Awaitable[None]]] = []
    found: dict[str, Any] = {}

    async def answer(_: Any) -> pb.PutResponse:
        async def work() -> None:
            describe_call(None, "info", found)

        later.append(work)
        return pb.PutResponse()

    await Gate((Nothing(),)).passing_inside(PUT, answer)(put())
    await later[0]()
    assert found == {}


class Seconds:
    """A clock of the test."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Timed(Nothing):
    """Notes when a call came, as the step that measures does."""

    def __init__(self, seconds: Seconds) -> None:
        self._seconds = seconds

    def begin(self, rpc: Any) -> None:
        rpc.began_seconds = self._seconds()


async def run(seconds: Seconds, step: SlowCallStep, request: Message, takes: float, fails: bool = False) -> None:
    async def answer(_: Any) -> pb.PutResponse:
        seconds.now += takes
        if fails:
            raise Refusal(Reason.CONFLICT, "secret-value")
        return pb.PutResponse()

    await Gate((Timed(seconds), step)).passing_inside(PUT, answer)(request)


async def test_a_slow_call_has_a_line_without_what_it_was_about() -> None:
    seconds = Seconds()
    step = SlowCallStep(100, seconds)
    with capture_logs() as lines:
        await run(seconds, step, put(), 0.099)
        assert lines == []
        with pytest.raises(Refusal):
            await run(seconds, step, put(), 0.25, fails=True)
    assert lines == [{"event": "slow call", "log_level": "warning", "took_ms": 250, "code": "ABORTED"}]


async def test_a_call_that_is_to_wait_is_not_slow() -> None:
    seconds = Seconds()
    with capture_logs() as lines:
        await run(seconds, SlowCallStep(100, seconds), pb.ClaimNextRequest(wait=Duration(seconds=5)), 4.0)
        assert lines == []
        await run(seconds, SlowCallStep(100, seconds), pb.ClaimNextRequest(), 4.0)
    assert len(lines) == 1


async def test_lines_about_slow_calls_are_few() -> None:
    seconds = Seconds()
    seconds.now = 1_000.0
    step = SlowCallStep(1, seconds)
    with capture_logs() as lines:
        for _ in range(40):
            await run(seconds, step, put(), 0.002)
        assert len(lines) == LINES_PER_SECOND_MAX
        seconds.now += 1
        await run(seconds, step, put(), 0.002)
    assert lines[-1]["others_left_out"] == 40 - LINES_PER_SECOND_MAX
