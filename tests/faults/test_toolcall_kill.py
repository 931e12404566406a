"""``kill -9`` while calls of tools are finished: each is finished as a whole or not at all, and then exactly once."""

from __future__ import annotations

import asyncio
import os
import random
import uuid
from collections import Counter

import grpc
import pytest
from tests.faults.conftest import connected
from tests.support.dying import DyingServer
from tests.support.sessions import SessionAgent, text_of
from tests.support.statuses import Refused
from tests.support.toolcalls import as_bytes, finish, listed, raw, start, upload

from noosphere.v1 import session_service_pb2 as pb
from noosphere.v1 import types_pb2 as types

ROUNDS = int(os.environ.get("NOOSPHERE_TEST_KILLS", "3"))
CALLS = 24
COMMITS_AT_LEAST = 22
"""What uploading a result of the largest size takes, two for each piece."""

S = "killed"
SIZES = (10, 3_000, 300_000, 700_000)
"""What is written at once, with pieces beside it, before the finishing commit, and uploaded by the caller."""


def result_of(call_id: str) -> bytes:
    """Returns what a tool returns; the same for a retry."""
    size = SIZES[int(call_id.rpartition("-")[2]) % len(SIZES)]
    # Large ones are no text: making text smaller takes its time, and is not what is tested here.
    line = f"{call_id}\n".encode() + (b"\xff" if size > SIZES[1] else b"")
    return (line * (size // len(line) + 1))[:size]


class Work:
    """Finishers of the calls of one round."""

    def __init__(self, agent: SessionAgent) -> None:
        self._agent = agent
        self.acknowledged: dict[str, pb.FinishToolCallResponse] = {}

    async def run(self, calls: list[pb.ToolCall], requests: dict[str, types.CallContext]) -> None:
        """Finishes calls at once until the server dies among them."""
        await asyncio.gather(*(self._finish(call, requests[call.call_id]) for call in calls))

    async def _finish(self, call: pb.ToolCall, request: types.CallContext) -> None:
        try:
            self.acknowledged[call.call_id] = await finish_whole(self._agent, call, request)
        except Refused as refused:
            if refused.code is not grpc.StatusCode.UNAVAILABLE:
                raise


async def finish_whole(a: SessionAgent, call: pb.ToolCall, request: types.CallContext) -> pb.FinishToolCallResponse:
    """Finishes a call with its result, the largest ones by an upload."""
    data, upload_id = result_of(call.call_id), ""
    if len(data) == max(SIZES):
        upload_id, data = (await upload(a, call.ticket, data)).upload_id, b""
    return await finish(a, call.ticket, result=as_bytes(data), upload_id=upload_id, append_message=True, call=request)


async def check(a: SessionAgent, acknowledged: dict[str, pb.FinishToolCallResponse]) -> list[pb.ToolCall]:
    """Checks that every call is finished as a whole or not at all; returns those that are not."""
    calls = {call.call_id: call for call in await listed(a, S, page_size=1000)}
    messages = {message.tool_call_id: message for message in await a.messages(S, page_size=1000)}
    counted = Counter(message.tool_call_id for message in await a.messages(S, page_size=1000))
    assert set(counted.values()) <= {1}
    pending = [call for call in calls.values() if call.status == pb.TOOL_CALL_STATUS_PENDING]
    assert set((await a.control(S)).pending_calls) == {call.call_id for call in pending}
    assert set(messages) == set(calls) - {call.call_id for call in pending}
    for call_id, message in messages.items():
        call = calls[call_id]
        assert call.status == pb.TOOL_CALL_STATUS_DONE
        assert text_of(message) == call.content
        assert call.raw_bytes == len(result_of(call_id))
        assert b"".join(await raw(a, call.ticket)) == result_of(call_id)
    for call_id, response in acknowledged.items():
        assert calls[call_id] == response.tool_call
        assert messages[call_id] == response.message
    return pending


@pytest.mark.campaign
async def test_a_result_is_there_as_a_whole_or_not_at_all(dying: DyingServer) -> None:
    rng = random.Random(7)
    acknowledged: dict[str, pb.FinishToolCallResponse] = {}
    torn = 0
    for number in range(ROUNDS):
        async with connected(dying) as api:
            a = SessionAgent(await api.agent(f"a-{number}"))
            await a.open(S, allow_existing=True)
            calls = [await start(a, S, f"r{number}-{place}") for place in range(CALLS)]
            requests = {call.call_id: a.agent.call(uuid=str(uuid.uuid4())) for call in calls}
            work = Work(a)
            dying.die_after(rng.randrange(1, COMMITS_AT_LEAST))
            await work.run(calls, requests)
            await dying.dead()
            acknowledged.update(work.acknowledged)
        dying.restart()
        async with connected(dying) as api:
            a = SessionAgent(await api.agent(f"b-{number}"))
            pending = await check(a, acknowledged)
            torn += len(pending)
            # Whoever did not hear back retries, and hears of the first execution if there was one.
            for call in calls:
                if call.call_id in work.acknowledged:
                    continue
                request = requests[call.call_id]
                request.actor.CopyFrom(a.agent.actor)
                response = await finish_again(a, call, request, was_pending=call in pending)
                acknowledged[call.call_id] = response
            assert await check(a, acknowledged) == []
    assert torn > 0, "the server has died too late to interrupt anything"


async def finish_again(
    a: SessionAgent, call: pb.ToolCall, request: types.CallContext, *, was_pending: bool
) -> pb.FinishToolCallResponse:
    """Retries a finish whose answer was lost."""
    data = result_of(call.call_id)
    if len(data) == max(SIZES):
        # An upload of its own makes this another request; what was finished stays as it is.
        if was_pending:
            return await finish_whole(a, call, request)
        with pytest.raises(Refused) as refused:
            await finish(a, call.ticket, result=as_bytes(b""), append_message=True)
        assert refused.value.reason == "TOOL_RESULT_SUPERSEDED"
        found = next(each for each in await listed(a, S, page_size=1000) if each.call_id == call.call_id)
        message = next(each for each in await a.messages(S, page_size=1000) if each.tool_call_id == call.call_id)
        return pb.FinishToolCallResponse(tool_call=found, message=message)
    response = await finish(a, call.ticket, result=as_bytes(data), append_message=True, call=request)
    assert response.replayed != was_pending
    return response
