"""The message lists of OpenAI and Anthropic, made from one neutral rendering."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from ..sessions.types import Role
from .rendering import Rendered, safe_name

Json = dict[str, Any]


class Tool(NamedTuple):
    """A tool's schema; ``parameters`` is the JSON text of a JSON Schema."""

    name: str
    description: str
    parameters: str


def openai_messages(messages: Sequence[Rendered]) -> list[Json]:
    """Returns the ``messages`` array of OpenAI's chat completions."""
    return [_openai(message) for message in messages]


def _openai(message: Rendered) -> Json:
    if message.role is Role.TOOL:
        return {"role": "tool", "tool_call_id": message.call_id, "content": message.text}
    if not message.calls:
        return {"role": message.role.value, "content": message.text}
    calls = [
        {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in message.calls
    ]
    return {"role": "assistant", "content": message.text or None, "tool_calls": calls}


def anthropic_request(messages: Sequence[Rendered]) -> Json:
    """Returns ``system`` and ``messages`` of Anthropic's messages API.

    Messages of the same role that follow each other become blocks of one, because roles must alternate there.
    """
    system = "\n\n".join(message.text for message in messages if message.role is Role.SYSTEM)
    out: list[Json] = []
    for message in messages:
        if message.role is Role.SYSTEM:
            continue
        role = "assistant" if message.role is Role.ASSISTANT else "user"
        if not out or out[-1]["role"] != role:
            out.append({"role": role, "content": []})
        out[-1]["content"] += _blocks(message)
    return {"system": system, "messages": out}


def _blocks(message: Rendered) -> list[Json]:
    if message.role is Role.TOOL:
        return [{"type": "tool_result", "tool_use_id": message.call_id, "content": message.text}]
    # Blank text is refused; only a message with calls can have none.
    blocks: list[Json] = [{"type": "text", "text": message.text}] if message.text.strip() else []
    for call in message.calls:
        arguments = msgspec.json.decode(call.arguments)
        blocks.append({"type": "tool_use", "id": call.call_id, "name": call.name, "input": arguments})
    return blocks


def openai_tools(tools: Sequence[Tool]) -> list[Json]:
    """Returns the ``tools`` array of OpenAI's chat completions."""
    return [
        {
            "type": "function",
            "function": {
                "name": safe_name(tool.name),
                "description": tool.description,
                "parameters": _schema(tool.parameters),
            },
        }
        for tool in tools
    ]


def anthropic_tools(tools: Sequence[Tool]) -> list[Json]:
    """Returns the ``tools`` array of Anthropic's messages API."""
    return [
        {
            "name": safe_name(tool.name),
            "description": tool.description,
            "input_schema": _schema(tool.parameters),
        }
        for tool in tools
    ]


def _schema(parameters: str) -> Any:
    # Providers refuse a schema without these.
    return {"type": "object", "properties": {}} | (msgspec.json.decode(parameters) if parameters else {})


def as_json(value: Any) -> str:
    """Returns JSON text."""
    return msgspec.json.encode(value).decode()
