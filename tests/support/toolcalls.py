"""Calls of tools as an agent of the behaviour suite makes them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tests.support.sessions import SessionAgent
from tests.support.transport import SESSIONS

from noosphere.v1 import session_service_pb2 as pb
from noosphere.v1 import types_pb2 as types

PIECE = 64 * 1024


def as_json(value: object) -> types.Value:
    """Returns a result in JSON."""
    return types.Value(data=json.dumps(value).encode(), encoding=types.ENCODING_JSON)


def as_bytes(data: bytes) -> types.Value:
    """Returns a result in bytes."""
    return types.Value(data=data, encoding=types.ENCODING_BYTES)


async def start(a: SessionAgent, session_id: str, call_id: str = "", **fields: Any) -> pb.ToolCall:
    """Starts a call and returns it."""
    return (await begin(a, session_id, call_id, **fields)).tool_call


async def begin(a: SessionAgent, session_id: str, call_id: str = "", **fields: Any) -> pb.StartToolCallResponse:
    """Starts a call and returns the whole response."""
    named = {"name": "search", **fields}
    request = pb.StartToolCallRequest(session_id=session_id, call_id=call_id, **named)
    return await a.call("StartToolCall", request, pb.StartToolCallResponse)


async def finish(a: SessionAgent, ticket: str, value: object = "ok", /, **fields: Any) -> pb.FinishToolCallResponse:
    """Finishes a call with a JSON value, or with what ``fields`` say."""
    if not {"result", "failure"} & set(fields):
        fields["result"] = as_json(value)
    return await a.call("FinishToolCall", pb.FinishToolCallRequest(ticket=ticket, **fields), pb.FinishToolCallResponse)


async def get(a: SessionAgent, ticket: str, **fields: Any) -> pb.GetToolCallResponse:
    """Reads a call."""
    return await a.call("GetToolCall", pb.GetToolCallRequest(ticket=ticket, **fields), pb.GetToolCallResponse)


async def review(a: SessionAgent, ticket: str, *, apply: bool, **fields: Any) -> pb.ToolCall:
    """Decides about a parked result."""
    request = pb.ReviewToolCallRequest(ticket=ticket, apply=apply, **fields)
    return (await a.call("ReviewToolCall", request, pb.ReviewToolCallResponse)).tool_call


async def listed(a: SessionAgent, session_id: str, page_size: int = 0, **fields: Any) -> list[pb.ToolCall]:
    """Reads every page of calls."""
    found: list[pb.ToolCall] = []
    token = ""
    while True:
        request = pb.ListToolCallsRequest(session_id=session_id, page_size=page_size, page_token=token, **fields)
        response = await a.call("ListToolCalls", request, pb.ListToolCallsResponse)
        found += response.tool_calls
        token = response.next_page_token
        if not token:
            return found


async def upload(a: SessionAgent, ticket: str, data: bytes, piece: int = PIECE) -> pb.UploadToolResultResponse:
    """Uploads a result in pieces."""
    requests = [
        pb.UploadToolResultRequest(data=data[begin : begin + piece]) for begin in range(0, len(data) or 1, piece)
    ]
    return await send(a, ticket, requests)


async def send(
    a: SessionAgent, ticket: str, requests: Sequence[pb.UploadToolResultRequest]
) -> pb.UploadToolResultResponse:
    """Uploads messages as they are; the first gets ticket and caller."""
    requests[0].ticket = ticket
    requests[0].call.CopyFrom(a.agent.call())
    transport = a.agent.api.transport
    return await transport.upload(SESSIONS, "UploadToolResult", requests, pb.UploadToolResultResponse)


async def raw(a: SessionAgent, ticket: str) -> list[bytes]:
    """Reads a result as it arrived, piece by piece."""
    request = pb.ReadToolResultRequest(ticket=ticket, call=a.agent.call())
    stream = a.agent.api.transport.stream(SESSIONS, "ReadToolResult", request, pb.ReadToolResultResponse)
    return [response.data async for response in stream]
