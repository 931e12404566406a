"""Messages as those who read them for a purpose of their own get them: summarisers, and the choice within results."""

from __future__ import annotations

from ..ports.models import SourceMessage
from .counting import texts_of
from .types import Message


def source_of(message: Message) -> SourceMessage:
    """Returns a message's role, author and text, names and arguments of tool calls included."""
    return SourceMessage(message.role.value, message.author, "\n".join(texts_of(message)))
