"""What became of calls of tools where the transcript does not say it, and how a model is told of a late result.

A result that the end of its call appends says itself whether it came late. One that an agent has appended by hand does
not; nor does a call without a result whether it is still under way, or was parked or rejected. Their records do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from noosphere.consistency import split_actor

from ..memory.types import Call
from ..sessions.codec import decode_index
from ..sessions.draft import Look
from ..sessions.keys import CALL_IDS, TOOLS, id_key, slot, slot_revision
from ..sessions.scribe import Scribe
from ..sessions.toolcall import ToolCallStatus, tool_call_at
from ..sessions.types import Lateness, Message, Role
from .fence import one_line

LOOKED_UP_MAX = 256
"""Most calls whose records are looked at for one context, the newest first."""

_CHANGES_TOLD_MAX = 4
_KEY_CHARS_MAX = 80
_NOT_APPLIED = {
    ToolCallStatus.PARKED: "it came late and waits for a review",
    ToolCallStatus.REJECTED: "it came late and was rejected",
}


class CallState(NamedTuple):
    """What a call's record says.

    Attributes:
        status: where the call stands.
        lateness: how its result came.
        tokens: size of the result.
    """

    status: ToolCallStatus
    lateness: Lateness
    tokens: int = 0

    @property
    def applied(self) -> bool:
        """Whether its result counts."""
        return self.status not in _NOT_APPLIED


States = Mapping[tuple[str, str], CallState]
"""States by the key of a message, which calls or answers, and the call's id."""


class CallsRead(NamedTuple):
    """States of calls, and the heads at which they were read."""

    states: States
    heads: frozenset[int]


NOTHING_TO_LOOK_UP = CallsRead({}, frozenset())


async def read_states(scribe: Scribe, call: Call, session_id: str, messages: Sequence[Message]) -> CallsRead:
    """Reads what became of the calls that messages leave open; nothing if they leave none open.

    Args:
        scribe: reads records.
        call: who reads.
        session_id: where the messages and their calls lie.
        messages: the oldest first.

    Raises:
        Refusal: SESSION_NOT_FOUND, or a reason that concerns the caller.
    """
    open_ = _left_open(messages)
    if not open_:
        return NOTHING_TO_LOOK_UP
    names = {call_id: id_key(CALL_IDS, call_id) for call_id in list(open_)[-LOOKED_UP_MAX:]}
    look = await scribe.read(call, session_id, tuple(names.values()))
    keys = {call_id: key for call_id, name in names.items() if (key := _place(look, name))}
    if not keys:
        return CallsRead({}, frozenset({look.view.head}))
    records = await scribe.read(call, session_id, tuple(keys.values()))
    states: dict[tuple[str, str], CallState] = {}
    for call_id, key in keys.items():
        if records.record(key) is None:
            continue
        found = tool_call_at(records, key)
        state = CallState(found.status, found.lateness, found.tokens)
        message = open_[call_id]
        answers = message.role is Role.TOOL
        # Ids are used again: a result that is older than the call belongs to an earlier one, and so does a call of
        # another tool.
        older = not answers or slot_revision(key) < slot_revision(message.key)
        mine = older and _tool_of(message, call_id) in ("", found.name)
        if mine and (not state.applied or (answers and state.lateness.late)):
            states[message.key, call_id] = state
    return CallsRead(states, frozenset({look.view.head, records.view.head}))


def _left_open(messages: Sequence[Message]) -> dict[str, Message]:
    """Returns by call, the newest last, the message that calls without a result, or answers without saying how."""
    found: dict[str, Message] = {}
    for message in messages:
        ids = [use.call_id for use in message.tool_calls]
        if message.role is Role.TOOL:
            ids = [message.tool_call_id]
        for call_id in ids:
            found.pop(call_id, None)
            if message.role is not Role.TOOL or (message.lateness is None and not message.retracted):
                found[call_id] = message
    return found


def _tool_of(message: Message, call_id: str) -> str:
    """Returns the name of the tool that a message calls or answers for; empty if it does not say."""
    return next((use.name for use in message.tool_calls if use.call_id == call_id), message.name)


def _place(look: Look, name: str) -> str:
    entry = look.entries[name]
    return "" if entry is None else TOOLS + slot(entry.revision, decode_index(entry.data))


def standing_of(states: States, message: Message, call_id: str) -> CallState | None:
    """Returns what is to be said of a call's result beside its text; None if there is nothing to say."""
    if message.lateness is not None:
        return CallState(ToolCallStatus.DONE, message.lateness) if message.lateness.late else None
    return states.get((message.key, call_id))


def remark(state: CallState, *, shown: bool) -> str:
    """Returns one line that tells a model what a result is worth.

    Args:
        state: of its call.
        shown: whether the result's text follows.
    """
    if not state.applied:
        what = "not applied" if shown else "no result"
        reasons = [_NOT_APPLIED[state.status]]
    else:
        what, reasons = "late result", []
    changes = state.lateness.changes
    reasons += [_told(*change) for change in changes[:_CHANGES_TOLD_MAX]]
    if (more := len(changes) - _CHANGES_TOLD_MAX) > 0:
        reasons.append(f"{more} more of what the call was based on changed")
    if state.lateness.overdue:
        reasons.append("the deadline had passed")
    return f"({what}: {'; '.join(reasons)})"


def _told(key: str, actor: str, gone: bool) -> str:
    by = f" by {one_line(split_actor(actor)[0], _KEY_CHARS_MAX)}" if actor else ""
    verb = ("was deleted" if by else "is gone") if gone else "was changed"
    return f"{one_line(key, _KEY_CHARS_MAX)} {verb}{by} since the call was made"
