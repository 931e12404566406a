"""The rules of the providers: what they refuse a request for. Used as the last check of everything that is assembled.

From the API references of OpenAI (chat completions) and Anthropic (messages), and from what they answer in practice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

_ID = re.compile(r"[A-Za-z0-9_-]+")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_OPENAI_ID_CHARS_MAX = 40


class ProviderRuleError(Exception):
    """A message list that a provider would refuse; a fault of this server."""


def check_openai(messages: Sequence[Mapping[str, Any]]) -> None:
    """Checks the ``messages`` array of OpenAI's chat completions.

    Raises:
        ProviderRuleError: it would be refused, or the system role holds more than the first message.
    """
    open_calls: list[str] = []
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        role = message["role"]
        if role != "tool" and open_calls:
            raise ProviderRuleError(f"{where}: calls {open_calls} have no results right after them")
        if (role == "system") != (index == 0):
            raise ProviderRuleError(f"{where}: the system message is the first one and no other")
        if role == "tool":
            if message["tool_call_id"] not in open_calls:
                raise ProviderRuleError(
                    f"{where}: answers {message['tool_call_id']!r}, which no call just before asks for"
                )
            open_calls.remove(message["tool_call_id"])
        if role == "assistant" and message.get("tool_calls"):
            open_calls = [_openai_call(call, where) for call in message["tool_calls"]]
            _distinct(open_calls, where)
        elif not message["content"]:
            raise ProviderRuleError(f"{where}: content is empty")
    _end(open_calls, messages[-1]["role"] if messages else "", ("user", "tool"))


def _openai_call(call: Mapping[str, Any], where: str) -> str:
    function = call["function"]
    if not isinstance(_json(function["arguments"], where), dict):
        raise ProviderRuleError(f"{where}: arguments are no JSON object")
    if not _NAME.fullmatch(function["name"]):
        raise ProviderRuleError(f"{where}: the tool's name {function['name']!r} has other characters than A-Za-z0-9_-")
    call_id: str = call["id"]
    if not call_id or len(call_id) > _OPENAI_ID_CHARS_MAX:
        raise ProviderRuleError(f"{where}: call id {call_id!r} is empty or longer than {_OPENAI_ID_CHARS_MAX}")
    return call_id


def check_anthropic(request: Mapping[str, Any]) -> None:
    """Checks ``system`` and ``messages`` of Anthropic's messages API.

    Raises:
        ProviderRuleError: it would be refused.
    """
    messages: Sequence[Mapping[str, Any]] = request["messages"]
    if not isinstance(request["system"], str) or not request["system"].strip():
        raise ProviderRuleError("system: is empty")
    seen: list[str] = []
    open_calls: list[str] = []
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        if message["role"] != ("user", "assistant")[index % 2]:
            raise ProviderRuleError(f"{where}: roles alternate, beginning with the user's; this is {message['role']!r}")
        blocks = message["content"]
        if not blocks:
            raise ProviderRuleError(f"{where}: content is empty")
        answered = _answers(blocks, where)
        if sorted(answered) != sorted(open_calls):
            raise ProviderRuleError(f"{where}: calls {open_calls} need results in the next message; it has {answered}")
        open_calls = [_anthropic_call(block, where) for block in blocks if block["type"] == "tool_use"]
        if open_calls and message["role"] != "assistant":
            raise ProviderRuleError(f"{where}: only the assistant calls tools")
        seen += open_calls
    _distinct(seen, "messages")
    _end(open_calls, messages[-1]["role"] if messages else "", ("user",))


def _answers(blocks: Sequence[Mapping[str, Any]], where: str) -> list[str]:
    answered: list[str] = []
    for position, block in enumerate(blocks):
        if block["type"] == "tool_result":
            if position != len(answered):
                raise ProviderRuleError(f"{where}: results come before anything else")
            if not block["content"]:
                raise ProviderRuleError(f"{where}: a result is empty")
            answered.append(block["tool_use_id"])
        elif block["type"] == "text" and not block["text"].strip():
            raise ProviderRuleError(f"{where}: a text is blank")
    return answered


def _anthropic_call(block: Mapping[str, Any], where: str) -> str:
    if not isinstance(block["input"], dict):
        raise ProviderRuleError(f"{where}: a call's input is no object")
    if not _ID.fullmatch(block["id"]) or not _NAME.fullmatch(block["name"]):
        raise ProviderRuleError(f"{where}: id or name of a call has other characters than A-Za-z0-9_-")
    call_id: str = block["id"]
    return call_id


def _json(text: str, where: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        raise ProviderRuleError(f"{where}: arguments are no JSON") from None


def _distinct(call_ids: Sequence[str], where: str) -> None:
    if len(set(call_ids)) != len(call_ids):
        raise ProviderRuleError(f"{where}: call ids repeat")


def _end(open_calls: Sequence[str], role: str, allowed: Sequence[str]) -> None:
    if open_calls:
        raise ProviderRuleError(f"calls {list(open_calls)} have no results at the end")
    if role not in allowed:
        raise ProviderRuleError(f"the last message is {role!r}; the model has nothing to answer")
