"""Messages as those who read them for a purpose of their own get them: summarisers, and the choice within results."""

from __future__ import annotations

from ..ports.models import SourceMessage
from .types import Message


def source_of(message: Message) -> SourceMessage:
    """Returns a message's role, author and text, a note of other data, and the calls that it asks for."""
    lines = [part.text or f"[{part.media_type}, {len(part.data)} bytes]" for part in message.parts]
    lines += [f"{use.name} {use.arguments}" for use in message.tool_calls]
    return SourceMessage(message.role.value, message.author, "\n".join(line for line in lines if line))
