"""Messages of transcripts: proto messages to domain values and back."""

from __future__ import annotations

from collections.abc import Mapping

from noosphere.consistency import invalid
from noosphere.v1 import session_service_pb2 as pb

from ..sessions.types import Message, Part, Role, ToolUse
from .times import timestamp

_ROLES: Mapping[int, Role] = {
    pb.ROLE_SYSTEM: Role.SYSTEM,
    pb.ROLE_USER: Role.USER,
    pb.ROLE_ASSISTANT: Role.ASSISTANT,
    pb.ROLE_TOOL: Role.TOOL,
}
_ROLE_NUMBERS = {
    Role.SYSTEM: pb.ROLE_SYSTEM,
    Role.USER: pb.ROLE_USER,
    Role.ASSISTANT: pb.ROLE_ASSISTANT,
    Role.TOOL: pb.ROLE_TOOL,
}


def message(value: pb.Message, field: str) -> Message:
    """Returns a message to append; what is output only in it is left out.

    Raises:
        Refusal: INVALID_FIELD. Sizes and combinations are checked by the service.
    """
    role = _ROLES.get(value.role)
    if role is None:
        raise invalid(f"{field}.role", f"{value.role} is not a role: system (1), user (2), assistant (3), tool (4)")
    return Message(
        value.id,
        role,
        tuple(_part(part, f"{field}.parts[{index}]") for index, part in enumerate(value.parts)),
        tuple(ToolUse(use.call_id, use.name, use.arguments) for use in value.tool_calls),
        value.tool_call_id,
        value.name,
        turn=value.turn,
    )


def _part(value: pb.Part, field: str) -> Part:
    match value.WhichOneof("content"):
        case "text":
            return Part(value.text)
        case "blob":
            if not value.blob.media_type:
                raise invalid(f"{field}.blob.media_type", "must not be empty")
            return Part("", value.blob.media_type, value.blob.data)
        case _:
            raise invalid(field, "has no content")


def message_shape(value: Message) -> pb.Message:
    """Returns a message as stored."""
    return pb.Message(
        id=value.id,
        role=_ROLE_NUMBERS[value.role],
        parts=[
            pb.Part(blob=pb.Blob(media_type=part.media_type, data=part.data))
            if part.media_type
            else pb.Part(text=part.text)
            for part in value.parts
        ],
        tool_calls=[
            pb.ToolUse(call_id=use.call_id, name=use.name, arguments=use.arguments) for use in value.tool_calls
        ],
        tool_call_id=value.tool_call_id,
        name=value.name,
        author=value.author,
        turn=value.turn,
        create_time=timestamp(value.time_ms),
        tokens=value.tokens,
        key=value.key,
        retracted=value.retracted,
    )
