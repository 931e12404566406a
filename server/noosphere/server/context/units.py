"""Units: what of a transcript is never split. A message, or a tool call with all its results."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from ..sessions.keys import slot_revision
from ..sessions.types import Message, Role


class UnitKind(Enum):
    """What a unit is to the agent for whom a context is made."""

    USER = "user"
    """A user's message."""
    OWN = "own"
    """A message of the agent's own."""
    CALL = "call"
    """Tool calls of the agent's own, with their results as far as they came in time."""
    LATE = "late"
    """A result of a tool that came after the agent had gone on, or whose call is not there."""
    OTHER = "other"
    """What another agent said, called or got."""
    SYSTEM = "system"
    """A message for the system role, from somebody who may write there."""


class Unit(NamedTuple):
    """A unit.

    Attributes:
        kind: what it is.
        messages: the message that makes it; after it the results of its calls, in the order of the calls.
    """

    kind: UnitKind
    messages: tuple[Message, ...]

    @property
    def first(self) -> Message:
        """The message that makes the unit."""
        return self.messages[0]

    @property
    def turn(self) -> int:
        """The turn in which it began."""
        return self.messages[0].turn

    @property
    def revision(self) -> int:
        """When it began: the revision of its first message; 0 for one that is not stored."""
        return slot_revision(self.messages[0].key) if self.messages[0].key else 0

    @property
    def threaded(self) -> bool:
        """Whether it belongs to the talk between user, agent and tools, rather than coming from aside."""
        return self.kind is not UnitKind.OTHER


class Readers(NamedTuple):
    """For whom units are made.

    Attributes:
        me: the agent.
        users: agents whose messages in the user's role are the user's own words.
        operators: agents whose messages in the system role are instructions.
    """

    me: str
    users: frozenset[str] = frozenset()
    operators: frozenset[str] = frozenset()


def group(messages: Iterable[Message], readers: Readers) -> list[Unit]:
    """Returns the units of a transcript, in the order in which they began.

    A result joins its call unless the call's author has gone on in the meantime: then the model has seen the call
    without it, and the result is news, a unit of its own. Messages that were taken back are left out, unless one is
    part of a call: then a mark stands in its place.

    Args:
        messages: the oldest first.
        readers: for whom.
    """
    begun: list[_Begun] = []
    waiting: dict[str, _Begun] = {}
    for message in messages:
        if is_gone(message):
            continue
        if message.role is Role.TOOL:
            call = waiting.get(message.tool_call_id)
            if call is not None and message.tool_call_id not in call.results:
                call.results[message.tool_call_id] = message
                continue
        elif message.role is Role.ASSISTANT:
            waiting = {call_id: call for call_id, call in waiting.items() if call.message.author != message.author}
        one = _Begun(_kind(message, readers), message, {})
        begun.append(one)
        waiting |= {use.call_id: one for use in message.tool_calls}
    return [one.unit() for one in begun]


def is_gone(message: Message) -> bool:
    """Tells whether nothing is left of a message that was taken back."""
    return message.retracted and not message.tool_calls and message.role is not Role.TOOL


class _Begun(NamedTuple):
    kind: UnitKind
    message: Message
    results: dict[str, Message]

    def unit(self) -> Unit:
        ordered = (self.results[use.call_id] for use in self.message.tool_calls if use.call_id in self.results)
        # A call may be named twice in one message; its result is there once.
        return Unit(self.kind, (self.message, *dict.fromkeys(ordered)))


def _kind(message: Message, readers: Readers) -> UnitKind:
    mine = message.author == readers.me
    match message.role:
        case Role.SYSTEM:
            return UnitKind.SYSTEM if mine or message.author in readers.operators else UnitKind.OTHER
        case Role.USER:
            return UnitKind.USER if mine or message.author in readers.users else UnitKind.OTHER
        case Role.TOOL:
            return UnitKind.LATE if mine else UnitKind.OTHER
        case Role.ASSISTANT:
            return (UnitKind.CALL if message.tool_calls else UnitKind.OWN) if mine else UnitKind.OTHER
