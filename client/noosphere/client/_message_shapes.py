"""Messages in the shapes of model providers, as their libraries return and take them, made into our own."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from noosphere.v1 import session_service_pb2 as pb

from ._arguments import shown
from ._errors import InvalidArgument
from ._messages import Blob, Message, Role, ToolUse, from_message
from ._values import dump_json

MessageLike = Message | Mapping[str, Any] | BaseModel
"""A message: our own, or one in OpenAI's or Anthropic's shape, as a mapping or as their libraries' object."""

_ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
_TEXTS = frozenset({"text", "input_text", "output_text"})
# Thoughts are the model's own: providers refuse them in another conversation, and nobody else may rely on them.
_LEFT_OUT = frozenset({"thinking", "redacted_thinking", "reasoning"})


def messages_of(given: MessageLike, field: str) -> list[pb.Message]:
    """Returns what is to be appended for one message of the caller's.

    That is one message, unless it is a user's message in Anthropic's shape with results of tools: each of these
    is a message of its own here, before what else the user says.

    Raises:
        InvalidArgument: it is no message, or of a kind that is not known; the message names the place.
    """
    if isinstance(given, Message):
        return [from_message(given, field)]
    if isinstance(given, BaseModel):
        given = given.model_dump(exclude_none=True)
    if not isinstance(given, Mapping):
        example = "{'role': 'user', 'content': …}"
        raise InvalidArgument(f"{field}: {shown(given)} is {type(given).__name__}, no message such as {example}")
    if "choices" in given:
        raise InvalidArgument(f"{field}: is a whole answer of a model; append its choices[0].message")
    return [from_message(message, field) for message in _Reader(given, field).messages()]


def one_message_of(given: MessageLike, field: str) -> pb.Message:
    """Returns the one message to be appended.

    Raises:
        InvalidArgument: as :func:`messages_of`, or it is several.
    """
    found = messages_of(given, field)
    if len(found) != 1:
        raise InvalidArgument(f"{field}: holds {len(found)} messages; give each result of a tool on its own")
    return found[0]


class _Reader:
    """Reads one message in a provider's shape."""

    def __init__(self, given: Mapping[str, Any], field: str) -> None:
        self._given = given
        self._field = field
        self._parts: list[str | Blob] = []
        self._uses: list[ToolUse] = []
        self._results: list[Message] = []

    def messages(self) -> list[Message]:
        given, field = self._given, self._field
        role = _ROLES.get(given.get("role", "")) if isinstance(given.get("role", ""), str) else None
        if role is None:
            raise InvalidArgument(f"{field}.role: {shown(given.get('role'))} is not one of {', '.join(_ROLES)}")
        if given.get("function_call"):
            raise InvalidArgument(f"{field}.function_call: is not known; models call tools by tool_calls")
        self._content(given.get("content"))
        if refusal := given.get("refusal"):
            self._parts.append(_text(refusal, f"{field}.refusal"))
        for index, call in enumerate(given.get("tool_calls") or ()):
            self._uses.append(_openai_use(call, f"{field}.tool_calls[{index}]"))
        own = Message(
            role,
            self._parts[0] if len(self._parts) == 1 and isinstance(self._parts[0], str) else tuple(self._parts),
            tool_calls=tuple(self._uses),
            tool_call_id=_text(given.get("tool_call_id", ""), f"{field}.tool_call_id"),
            name=_text(given.get("name", ""), f"{field}.name"),
            id=_text(given.get("id", ""), f"{field}.id"),
        )
        return [*self._results, *([own] if self._parts or self._uses or not self._results else [])]

    def _content(self, content: Any) -> None:
        field = f"{self._field}.content"
        if content is None:
            return
        if isinstance(content, str):
            self._parts.append(content)
            return
        if not isinstance(content, Sequence) or isinstance(content, (bytes, bytearray)):
            raise InvalidArgument(f"{field}: {shown(content)} is neither text nor several parts")
        for index, part in enumerate(content):
            self._part(part, f"{field}[{index}]")

    def _part(self, part: Any, field: str) -> None:
        if isinstance(part, BaseModel):
            part = part.model_dump(exclude_none=True)
        if isinstance(part, str):
            self._parts.append(part)
            return
        if not isinstance(part, Mapping):
            raise InvalidArgument(f"{field}: {shown(part)} is {type(part).__name__}, neither text nor a part")
        kind = part.get("type")
        if kind in _TEXTS:
            self._parts.append(_text(part.get("text", ""), f"{field}.text"))
        elif kind == "refusal":
            self._parts.append(_text(part.get("refusal", ""), f"{field}.refusal"))
        elif kind == "tool_use":
            self._uses.append(_anthropic_use(part, field))
        elif kind == "tool_result":
            self._results.append(_anthropic_result(part, field))
        elif kind not in _LEFT_OUT:
            self._parts.append(_blob(part, kind, field))


def _openai_use(call: Any, field: str) -> ToolUse:
    if isinstance(call, BaseModel):
        call = call.model_dump(exclude_none=True)
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        raise InvalidArgument(f"{field}: {shown(call)} is no call of a function")
    return ToolUse(
        _text(call.get("id", ""), f"{field}.id"),
        _text(function.get("name", ""), f"{field}.function.name"),
        _text(function.get("arguments") or "{}", f"{field}.function.arguments"),
    )


def _anthropic_use(part: Mapping[str, Any], field: str) -> ToolUse:
    return ToolUse(
        _text(part.get("id", ""), f"{field}.id"),
        _text(part.get("name", ""), f"{field}.name"),
        dump_json(part.get("input") or {}, f"{field}.input").decode(),
    )


def _anthropic_result(part: Mapping[str, Any], field: str) -> Message:
    inner = _Reader({"role": "tool", "content": part.get("content")}, field)
    [message] = inner.messages()
    return Message("tool", message.content, tool_call_id=_text(part.get("tool_use_id", ""), f"{field}.tool_use_id"))


def _blob(part: Mapping[str, Any], kind: Any, field: str) -> Blob:
    """Returns an image, a document or a sound; what lies elsewhere is nothing that a transcript could keep."""
    match kind:
        case "image_url":
            url = part.get("image_url")
            url = url.get("url") if isinstance(url, Mapping) else url
            return _from_data_url(url, f"{field}.image_url.url")
        case "input_audio":
            audio = _mapping(part.get("input_audio"), f"{field}.input_audio")
            return Blob(f"audio/{audio.get('format', 'wav')}", _decoded(audio.get("data"), f"{field}.input_audio.data"))
        case "file":
            file = _mapping(part.get("file"), f"{field}.file")
            return _from_data_url(file.get("file_data"), f"{field}.file.file_data")
        case "image" | "document":
            source = _mapping(part.get("source"), f"{field}.source")
            if source.get("type") == "text":
                media_type = _text(source.get("media_type", "text/plain"), f"{field}.source.media_type")
                return Blob(media_type, _text(source.get("data", ""), f"{field}.source.data").encode())
            if source.get("type") != "base64":
                raise InvalidArgument(f"{field}.source.type: {shown(source.get('type'))} is not base64")
            media_type = _text(source.get("media_type", ""), f"{field}.source.media_type")
            return Blob(media_type, _decoded(source.get("data"), f"{field}.source.data"))
    raise InvalidArgument(f"{field}.type: {shown(kind)} is not known; give a Message of texts and Blobs")


def _from_data_url(url: Any, field: str) -> Blob:
    head, comma, data = url.partition(",") if isinstance(url, str) else ("", "", "")
    if not comma or not head.startswith("data:") or not head.endswith(";base64"):
        raise InvalidArgument(f"{field}: {shown(url)} is no data: URL in base64; a transcript keeps bytes, not links")
    return Blob(head.removeprefix("data:").removesuffix(";base64"), _decoded(data, field))


def _decoded(data: Any, field: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise InvalidArgument(f"{field}: is not base64") from None


def _mapping(value: Any, field: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidArgument(f"{field}: {shown(value)} is {type(value).__name__}, not an object")
    return value


def _text(value: Any, field: str) -> str:
    if not isinstance(value, str):
        raise InvalidArgument(f"{field}: {shown(value)} is {type(value).__name__}, not text")
    return value
