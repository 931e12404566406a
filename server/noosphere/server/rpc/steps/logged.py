"""Says in each log line of whose call it tells: only when a line is written, so calls pay nothing for it."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from google.protobuf.message import Message

from ...security import calling
from ..gate import under_way
from ..requests import agent_of, namespace_of

_CHARS_MAX = 256


def describe_call(_logger: object, _level: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Adds method, request id, agent, namespace and principal of the call under way to a line of the log.

    What the line says itself stays. Names are callers', so they are escaped and cut.
    """
    rpc = under_way.get()
    if rpc is None or rpc.ended:
        # What a call has begun may outlive it, and is then nobody's.
        return line
    found = {"rpc": rpc.method.rpartition(".")[2], "principal": calling.get().name}
    if rpc.message is not None:
        found |= {
            "request": _request_of(rpc.message),
            "agent": agent_of(rpc.message),
            "namespace": namespace_of(rpc.message),
        }
    for name, text in found.items():
        if text and name not in line:
            line[name] = _shown(text)
    return line


def _request_of(request: Message) -> str:
    call = getattr(request, "call", None)
    if call is None or not call.HasField("request_id"):
        own = getattr(request, "request_id", "")
        return own if isinstance(own, str) else ""
    found = call.request_id
    return found.uuid if found.WhichOneof("id") == "uuid" else str(found.sequence.sequence)


def _shown(text: str) -> str:
    text = text if len(text) <= _CHARS_MAX else text[: _CHARS_MAX - 1] + "…"
    return text if text.isprintable() else text.encode("unicode_escape").decode()
