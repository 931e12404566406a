"""Messages of a session's transcript, as callers hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from noosphere.v1 import session_service_pb2 as pb

from ._arguments import checked_revision, checked_text, shown
from ._errors import InvalidArgument
from ._wire import to_time

Role = Literal["system", "user", "assistant", "tool"]
"""Who speaks: the operator, the user, an agent's model, or a tool."""

ROLES: Mapping[str, pb.Role.ValueType] = {
    "system": pb.ROLE_SYSTEM,
    "user": pb.ROLE_USER,
    "assistant": pb.ROLE_ASSISTANT,
    "tool": pb.ROLE_TOOL,
}
_ROLE_NAMES: Mapping[int, Role] = {
    pb.ROLE_SYSTEM: "system",
    pb.ROLE_USER: "user",
    pb.ROLE_ASSISTANT: "assistant",
    pb.ROLE_TOOL: "tool",
}


class Blob(NamedTuple):
    """Data that is not text, which models are shown as a note of its type and size.

    Attributes:
        media_type: e.g. ``image/png``.
        data: the bytes.
    """

    media_type: str
    data: bytes


class ToolUse(NamedTuple):
    """A tool call that an assistant's message asks for.

    Attributes:
        call_id: the call's id, as the model's provider named it.
        name: the tool's name.
        arguments: the arguments, as JSON text.
    """

    call_id: str
    name: str
    arguments: str = "{}"


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a transcript.

    Attributes:
        role: who speaks.
        content: a text, or several texts and blobs; at most 64 KiB with the tool calls.
        tool_calls: the tool calls that an assistant's message asks for, at most 64.
        tool_call_id: which call a tool's message answers.
        name: the tool's name in a tool's message; else free.
        id: the author's own id, unique in the session; empty asks the server for one. A message is appended
            once under its id, however often that is tried.
        turn: the turn that it belongs to; 0 in an append means the newest that its author has open.
        author: the agent that appended it.
        time: store time of the append; None before.
        tokens: size of the content in the session's tokenizer.
        key: its key in the session's namespace; a later message has a greater one.
        retracted: whether its content was taken back.
    """

    role: Role
    content: str | Sequence[str | Blob] = ""
    _: KW_ONLY
    tool_calls: Sequence[ToolUse] = ()
    tool_call_id: str = ""
    name: str = ""
    id: str = ""
    turn: int = 0
    author: str = ""
    time: datetime | None = None
    tokens: int = 0
    key: str = ""
    retracted: bool = False

    @property
    def parts(self) -> tuple[str | Blob, ...]:
        """The content as parts; none if it is an empty text."""
        if isinstance(self.content, str):
            return (self.content,) if self.content else ()
        return tuple(self.content)

    @property
    def text(self) -> str:
        """The texts of the content, joined by line breaks."""
        return "\n".join(part for part in self.parts if isinstance(part, str))


def to_message(message: pb.Message) -> Message:
    """Returns a message as stored."""
    parts: list[str | Blob] = [
        Blob(part.blob.media_type, part.blob.data) if part.HasField("blob") else part.text for part in message.parts
    ]
    content = parts[0] if len(parts) == 1 and isinstance(parts[0], str) else tuple(parts)
    return Message(
        # A newer server may know further roles; what is no role of ours is shown as data of the user is.
        _ROLE_NAMES.get(message.role, "user"),
        content or "",
        tool_calls=tuple(ToolUse(use.call_id, use.name, use.arguments) for use in message.tool_calls),
        tool_call_id=message.tool_call_id,
        name=message.name,
        id=message.id,
        turn=message.turn,
        author=message.author,
        time=to_time(message.create_time) if message.HasField("create_time") else None,
        tokens=message.tokens,
        key=message.key,
        retracted=message.retracted,
    )


def from_message(message: Message, field: str) -> pb.Message:
    """Returns a message as sent to be appended.

    Raises:
        InvalidArgument: something in it is of the wrong kind.
    """
    if message.role not in ROLES:
        raise InvalidArgument(f"{field}.role: {shown(message.role)} is not one of {', '.join(ROLES)}")
    if not isinstance(message.content, (str, Sequence)) or isinstance(message.content, (bytes, bytearray)):
        raise InvalidArgument(f"{field}.content: {shown(message.content)} is neither text nor several parts")
    return pb.Message(
        id=checked_text(f"{field}.id", message.id),
        role=ROLES[message.role],
        parts=[_part(part, f"{field}.content[{index}]") for index, part in enumerate(message.parts)],
        tool_calls=[_use(use, f"{field}.tool_calls[{index}]") for index, use in enumerate(message.tool_calls)],
        tool_call_id=checked_text(f"{field}.tool_call_id", message.tool_call_id),
        name=checked_text(f"{field}.name", message.name),
        turn=checked_revision(f"{field}.turn", message.turn),
    )


def _part(part: str | Blob, field: str) -> pb.Part:
    if isinstance(part, Blob):
        if not isinstance(part.data, bytes):
            raise InvalidArgument(f"{field}.data: {shown(part.data)} is {type(part.data).__name__}, not bytes")
        return pb.Part(blob=pb.Blob(media_type=checked_text(f"{field}.media_type", part.media_type), data=part.data))
    return pb.Part(text=checked_text(field, part))


def _use(use: ToolUse, field: str) -> pb.ToolUse:
    if not isinstance(use, ToolUse):
        raise InvalidArgument(f"{field}: {shown(use)} is {type(use).__name__}, not a ToolUse")
    return pb.ToolUse(
        call_id=checked_text(f"{field}.call_id", use.call_id),
        name=checked_text(f"{field}.name", use.name),
        arguments=checked_text(f"{field}.arguments", use.arguments),
    )
