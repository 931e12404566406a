"""One neutral rendering of units, from which both providers' shapes are made.

Who speaks decides the role. The agent's own messages are the assistant's, its users' the user's; results of its calls
are tool messages. All else (other agents, their users, results that came late) is data in the user's role, behind the
fence.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from noosphere.consistency import Refusal

from ..sessions.types import Message, Part, Role, ToolUse
from .calls import States, remark, standing_of
from .counting import CALL_TOKENS, MESSAGE_TOKENS, Count
from .fence import Fence, one_line, trusted
from .forms import shorten
from .json_text import read_json
from .types import TRUST_OUTSIDE, TRUST_USER
from .units import Unit, UnitKind

EMPTY_STATES: States = MappingProxyType({})
_EMPTY = "(empty)"
_NO_RESULT = "(no result yet)"
_TAKEN_BACK = "(taken back)"
_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
_NAME = re.compile(r"[^A-Za-z0-9_-]")
_NAME_CHARS_MAX = 64
_CHARS_PER_TOKEN = 2


class Rendered(NamedTuple):
    """One message as it is sent, in no provider's shape.

    Attributes:
        role: who speaks.
        text: the content; empty only beside calls.
        calls: the assistant's tool calls, arguments as the JSON text of an object.
        call_id: of a tool's message, which call it answers.
        tokens: what it takes, frame included.
    """

    role: Role
    text: str
    calls: tuple[ToolUse, ...] = ()
    call_id: str = ""
    tokens: int = 0


def sized(message: Rendered, count: Count) -> Rendered:
    """Returns the message with its tokens."""
    return message._replace(tokens=size_of(message, count))


def size_of(message: Rendered, count: Count) -> int:
    """Returns the tokens of a message, frame included."""
    tokens = MESSAGE_TOKENS + (count(message.text) if message.text else 0)
    for call in message.calls:
        tokens += CALL_TOKENS + count(call.call_id) + count(call.name) + count(call.arguments)
    return tokens + (count(message.call_id) if message.call_id else 0)


class Renderer:
    """Renders the units of one context.

    Args:
        fence: of the session.
        count: counts tokens.
        aside_tokens_max: above this, what another agent said is shortened.
        states: of calls of which the transcript does not tell all.
    """

    def __init__(self, fence: Fence, count: Count, *, aside_tokens_max: int, states: States = EMPTY_STATES) -> None:
        self._states = states
        self._fence = fence
        self._count = count
        self._aside_tokens_max = aside_tokens_max
        self._done: dict[tuple[str, str], tuple[Rendered, ...]] = {}

    def unit(self, unit: Unit) -> tuple[Rendered, ...]:
        """Returns a unit's messages."""
        key = (unit.first.key, unit.first.id)
        if key not in self._done:
            self._done[key] = tuple(sized(message, self._count) for message in self._messages(unit))
        return self._done[key]

    def cost(self, unit: Unit) -> int:
        """Returns the tokens of a unit."""
        return sum(message.tokens for message in self.unit(unit))

    def tokens_of(self, unit: Unit, message: Message) -> int:
        """Returns the tokens of one of a unit's messages."""
        rendered = self.unit(unit)
        if message is unit.first:
            return rendered[0].tokens
        if unit.kind is UnitKind.CALL:
            call_id = safe_id(message.tool_call_id)
            return next(one.tokens for one in rendered if one.call_id == call_id)
        return rendered[unit.messages.index(message)].tokens

    def data(self, label: str, text: str) -> Rendered:
        """Returns a message of data."""
        return sized(Rendered(Role.USER, self._fence.wrap(label, text)), self._count)

    def shortened(self, unit: Unit) -> bool:
        """Tells whether a unit is not shown in full."""
        return unit.kind is UnitKind.OTHER and any(
            shorten(text, self._aside_chars_max) != text for text in (_content(message) for message in unit.messages)
        )

    @property
    def _aside_chars_max(self) -> int:
        # By characters, because a cut by tokens would need the text to be counted again and again.
        return self._aside_tokens_max * _CHARS_PER_TOKEN

    def _messages(self, unit: Unit) -> Iterable[Rendered]:
        match unit.kind:
            case UnitKind.CALL:
                yield from self._call(unit)
            case UnitKind.USER | UnitKind.OWN | UnitKind.SYSTEM:
                text = self._fence.clean(_content(unit.first))
                yield Rendered(
                    Role.ASSISTANT if unit.kind is UnitKind.OWN else Role.USER, text if text.strip() else _EMPTY
                )
            case UnitKind.LATE:
                tool, call_id = one_line(unit.first.name), one_line(unit.first.tool_call_id)
                label = f"result of tool {tool}, call {call_id}, which came late, {trusted(TRUST_OUTSIDE)}"
                yield Rendered(Role.USER, self._fence.wrap(label, self._remarked(unit.first, _content(unit.first))))
            case UnitKind.OTHER:
                for message in unit.messages:
                    text = self._remarked(message, shorten(_content(message), self._aside_chars_max))
                    yield Rendered(Role.USER, self._fence.wrap(_label(message), text))

    def _call(self, unit: Unit) -> Iterable[Rendered]:
        calls, results = unit.first, {message.tool_call_id: message for message in unit.messages[1:]}
        uses = {use.call_id: use for use in calls.tool_calls}
        text = self._fence.clean(_content(calls, with_calls=False))
        yield Rendered(Role.ASSISTANT, text if text.strip() else "", tuple(self._use(use) for use in uses.values()))
        for call_id, use in uses.items():
            result = results.get(call_id)
            label = f"result of tool {one_line(use.name)}, {trusted(TRUST_OUTSIDE)}"
            text = self._missing(calls, call_id) if result is None else self._remarked(result, _content(result))
            yield Rendered(Role.TOOL, self._fence.wrap(label, text), call_id=safe_id(call_id))

    def _remarked(self, message: Message, text: str) -> str:
        """Returns a result's text after what is to be said of it, in the same message, so that pairs stay whole."""
        state = standing_of(self._states, message, message.tool_call_id)
        if state is None or message.role is not Role.TOOL or message.retracted:
            return text
        return f"{remark(state, shown=True)}\n{text if text.strip() else _EMPTY}"

    def _missing(self, calls: Message, call_id: str) -> str:
        state = standing_of(self._states, calls, call_id)
        return _NO_RESULT if state is None else remark(state, shown=False)

    def _use(self, use: ToolUse) -> ToolUse:
        return ToolUse(safe_id(use.call_id), safe_name(use.name), as_object(self._fence.clean(use.arguments)))


def _label(message: Message) -> str:
    match message.role:
        case Role.TOOL:
            return f"result of a tool that agent {message.author} called, {trusted(TRUST_OUTSIDE)}"
        case Role.USER:
            return f"a user's message, passed on by agent {message.author}, {trusted(TRUST_USER)}"
        case _:
            return f"message of agent {message.author}, {trusted(TRUST_USER)}"


def _content(message: Message, *, with_calls: bool = True) -> str:
    if message.retracted and message.role is Role.TOOL:
        return _TAKEN_BACK
    lines = [part.text or _blob(part) for part in message.parts]
    if with_calls:
        lines += [f"(calls tool {use.name} with {use.arguments})" for use in message.tool_calls]
    return "\n".join(line for line in lines if line)


def _blob(part: Part) -> str:
    return f"({one_line(part.media_type)}, {len(part.data)} bytes)" if part.data else ""


def safe_id(call_id: str) -> str:
    """Returns a call's id in a form that every provider takes."""
    if _ID.fullmatch(call_id):
        return call_id
    return "call_" + hashlib.blake2b(call_id.encode(), digest_size=12).hexdigest()


def safe_name(name: str) -> str:
    """Returns a tool's name in a form that every provider takes."""
    return _NAME.sub("_", name)[:_NAME_CHARS_MAX] or "tool"


def as_object(arguments: str) -> str:
    """Returns arguments as the JSON text of an object, which is the only form that every provider takes."""
    if not arguments.strip():
        return "{}"
    try:
        value = read_json("arguments", arguments)
    except Refusal:
        value = arguments
    return arguments if isinstance(value, dict) else msgspec.json.encode({"arguments": value}).decode()


def distinct_ids(messages: Sequence[Rendered]) -> list[Rendered]:
    """Returns the messages with every call's id used once: agents name calls anew in each turn, and may repeat."""
    used: dict[str, int] = {}
    names: dict[str, str] = {}
    out = []
    for message in messages:
        if message.calls:
            names = {}
            for call in message.calls:
                used[call.call_id] = used.get(call.call_id, 0) + 1
                if used[call.call_id] > 1:
                    names[call.call_id] = safe_id(f"{call.call_id}\0{used[call.call_id]}")
            message = message._replace(
                calls=tuple(call._replace(call_id=names.get(call.call_id, call.call_id)) for call in message.calls)
            )
        elif message.call_id in names:
            message = message._replace(call_id=names[message.call_id])
        out.append(message)
    return out
