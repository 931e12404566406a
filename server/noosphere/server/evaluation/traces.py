"""Recorded runs of tool-using agents, in the shape in which chat APIs have messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

FILE_BYTES_MAX = 256 * 1024 * 1024
FILES_MAX = 1_000


class TraceError(Exception):
    """A file that holds no recorded runs; the message names it and what is wrong."""


class TraceCall(NamedTuple):
    """A tool call; ``arguments`` is the JSON text that the model wrote."""

    id: str
    name: str
    arguments: str


class TraceMessage(NamedTuple):
    """One message of a run.

    Attributes:
        role: ``system``, ``user``, ``assistant`` or ``tool``.
        text: its text parts.
        calls: what an assistant's message asks for.
        call_id: which call a tool's message answers.
        tool: the tool's name in a tool's message.
    """

    role: str
    text: str
    calls: tuple[TraceCall, ...] = ()
    call_id: str = ""
    tool: str = ""

    @property
    def said(self) -> str:
        """All that it says: text, and the arguments of its calls."""
        return "\n".join(filter(None, (self.text, *(call.arguments for call in self.calls))))


class Run(NamedTuple):
    """One run; ``name`` is its file and place."""

    name: str
    messages: tuple[TraceMessage, ...]


def read_traces(path: Path) -> list[Run]:
    """Reads runs from a JSON file, or from all ``*.json`` files of a folder, by name.

    A file is an array of runs. A run is an array of messages, or an object that has one as ``traj`` or ``messages``.

    Raises:
        TraceError: there is no such file, it is too large, or it is not of this shape.
    """
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files:
        raise TraceError(f"{path}: the folder has no *.json files")
    if len(files) > FILES_MAX:
        raise TraceError(f"{path}: {len(files)} files are more than {FILES_MAX}")
    return [run for file in files for run in _read(file)]


def _read(file: Path) -> list[Run]:
    try:
        if (size := file.stat().st_size) > FILE_BYTES_MAX:
            raise TraceError(f"{file}: has {size} bytes, the limit is {FILE_BYTES_MAX}")
        found = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise TraceError(f"{file}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{file}: is no JSON ({error})") from None
    if not isinstance(found, list):
        raise TraceError(f"{file}: is no array of runs")
    return [_run(f"{file.name}[{place}]", value) for place, value in enumerate(found)]


def _run(name: str, value: Any) -> Run:
    messages = value.get("traj", value.get("messages")) if isinstance(value, dict) else value
    if not isinstance(messages, list):
        raise TraceError(f"{name}: is no array of messages, and has none as traj or messages")
    return Run(name, tuple(_message(f"{name}: message {place}", message) for place, message in enumerate(messages)))


def _message(where: str, value: Any) -> TraceMessage:
    if not isinstance(value, dict) or not isinstance(value.get("role"), str):
        raise TraceError(f"{where}: is no object with a role")
    calls = value.get("tool_calls") or []
    if not isinstance(calls, list):
        raise TraceError(f"{where}: tool_calls is no array")
    return TraceMessage(
        role=value["role"],
        text=_text(where, value.get("content")),
        calls=tuple(_call(where, call) for call in calls),
        call_id=str(value.get("tool_call_id") or ""),
        tool=str(value.get("name") or ""),
    )


def _text(where: str, content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list):
        return "\n".join(str(part["text"]) for part in content if isinstance(part, dict) and "text" in part)
    raise TraceError(f"{where}: content is neither text nor an array of parts")


def _call(where: str, value: Any) -> TraceCall:
    function = value.get("function") if isinstance(value, dict) else None
    if not isinstance(function, dict):
        raise TraceError(f"{where}: a tool call has no function")
    return TraceCall(str(value.get("id") or ""), str(function.get("name") or ""), str(function.get("arguments") or ""))
