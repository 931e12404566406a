"""The vocabulary of sessions: messages, tool calls, items, turns. Plain values, no I/O and no gRPC."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from noosphere.consistency import Scalar


class Role(StrEnum):
    """Who speaks in a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class Part(NamedTuple):
    """One part of a message: text, or other data that is shown to models as a note of its type and size."""

    text: str = ""
    media_type: str = ""
    data: bytes = b""


class ToolUse(NamedTuple):
    """A tool call that an assistant's message asks for; ``arguments`` is JSON text."""

    call_id: str
    name: str
    arguments: str


class Message(NamedTuple):
    """One message of a transcript.

    Attributes:
        id: the author's own id, unique in the session; appending it again changes nothing.
        role: who speaks.
        parts: the content, in order.
        tool_calls: what an assistant's message asks for.
        tool_call_id: which call a tool's message answers.
        name: the tool's name in a tool's message; else free.
        author: the agent that appended it.
        turn: the turn that it belongs to; 0 outside any.
        time_ms: store time of the append.
        tokens: size of the content in the session's tokenizer.
        key: where it lies; empty before it is stored.
    """

    id: str
    role: Role
    parts: tuple[Part, ...] = ()
    tool_calls: tuple[ToolUse, ...] = ()
    tool_call_id: str = ""
    name: str = ""
    author: str = ""
    turn: int = 0
    time_ms: int = 0
    tokens: int = 0
    key: str = ""

    @property
    def text(self) -> str:
        """The text parts, joined."""
        return "\n".join(part.text for part in self.parts if part.text)


class Item(NamedTuple):
    """A piece of working memory: an ordinary record of the session's namespace.

    Attributes:
        key: its key.
        version: the optimistic lock.
        data: the value's bytes.
        is_json: whether ``data`` is JSON text.
        attributes: scalars; ``kind``, ``status``, ``priority``, ``importance`` and ``pinned`` have a meaning.
        actor: who wrote it, as ``agent#incarnation``.
        created_ms: when its present life began.
        changed_ms: when its value was written.
        expires_at_ms: when it ends.
    """

    key: str
    version: int
    data: bytes
    is_json: bool
    attributes: tuple[tuple[str, Scalar], ...]
    actor: str
    created_ms: int
    changed_ms: int
    expires_at_ms: int


class Summary(NamedTuple):
    """What stands for a range of older messages.

    Attributes:
        key: where it lies; empty before it is stored.
        first: key of the first message that it covers.
        last: key of the last one; everything between is covered.
        messages: how many messages it covers.
        goals: what was asked for.
        decisions: what was settled.
        open_questions: what was not.
        entities: names, numbers and ids that later steps may need.
        narrative: what happened, in a few sentences.
        producer: what made it, e.g. ``extractive/1`` or a model's name.
        tokens: its size as rendered, in the session's tokenizer.
    """

    key: str
    first: str
    last: str
    messages: int
    goals: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    open_questions: tuple[str, ...] = ()
    entities: tuple[str, ...] = ()
    narrative: str = ""
    producer: str = ""
    tokens: int = 0
