"""Calls of tools: what is known of one, and how its record becomes JSON."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec

from noosphere.consistency import Reason, Record, Refusal, Scalar, invalid

from .codec import value_of
from .draft import Look
from .types import KeyChange, Lateness

STATUS_ATTRIBUTE = "status"
NAME_ATTRIBUTE = "name"
AUTHOR_ATTRIBUTE = "author"
TURN_ATTRIBUTE = "turn"


class ToolCallStatus(StrEnum):
    """Where a call stands. Only a pending one can be finished, only a parked one reviewed."""

    PENDING = "pending"
    DONE = "done"
    FAILED = "failed"
    PARKED = "parked"
    REJECTED = "rejected"


class LatePolicy(StrEnum):
    """What happens to a late result: one whose basis has changed, or that came after the deadline."""

    APPLY = "apply"
    APPLY_FLAGGED = "apply_flagged"
    PARK = "park"
    REJECT = "reject"


class Compaction(StrEnum):
    """How a result entered working memory."""

    NONE = "none"
    FIELDS = "fields"
    LOSSLESS = "lossless"
    RELEVANT = "relevant"
    CUT = "cut"


class Basis(NamedTuple):
    """A key that a call is based on, and its version then; 0 if it had no live value."""

    key: str
    version: int


class BasisChange(NamedTuple):
    """A change to what a call was based on.

    Attributes:
        key: the key.
        seen: the version that the call was based on.
        now: the present version; 0 if it has no live value.
        actor: who changed it, as ``agent#incarnation``; empty for an expiry, and for who is no longer known.
    """

    key: str
    seen: int
    now: int
    actor: str


class ToolCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """One call of a tool. Author, turn, start, deadline, basis and late policy are those of the present attempt.

    Attributes:
        call_id: unique in the session.
        name: the tool's name.
        arguments: as JSON text, as the model wrote them.
        status: where it stands.
        author: the agent that started it.
        turn: the turn in which it was started; 0 outside any.
        started_ms: store time of the start.
        attempt: which attempt may finish it, from 1.
        side_effects: whether the tool changes the world.
        late_policy: what happens to a late result.
        deadline_ms: store time from which on a result is late; 0 for never.
        based_on: what it is based on.
        finished_ms: store time of the end, or of the review; 0 before.
        changes: what of its basis had changed when the result came; empty under APPLY, which does not ask.
        overdue: whether the result came after the deadline; never under APPLY.
        content: the result as it entered working memory, or why the call failed.
        compaction: how the result was made smaller; None before there is one.
        tokens: size of ``content`` in the session's tokenizer.
        raw_bytes: size of the result as it arrived.
        raw: where the result lies as it arrived, see ``keys.RAW``; empty if ``content`` is just that.
        append_message: whether the result goes to the transcript once it is applied.
        key: its record's key; not stored.
    """

    call_id: str
    name: str
    arguments: str = ""
    status: ToolCallStatus = ToolCallStatus.PENDING
    author: str = ""
    turn: int = 0
    started_ms: int = 0
    attempt: int = 1
    side_effects: bool = False
    late_policy: LatePolicy = LatePolicy.APPLY_FLAGGED
    deadline_ms: int = 0
    based_on: tuple[Basis, ...] = ()
    finished_ms: int = 0
    changes: tuple[BasisChange, ...] = ()
    overdue: bool = False
    content: str = ""
    compaction: Compaction | None = None
    tokens: int = 0
    raw_bytes: int = 0
    raw: str = ""
    append_message: bool = False
    key: str = ""

    @property
    def pending(self) -> bool:
        """Whether there is no result yet."""
        return self.status is ToolCallStatus.PENDING

    @property
    def lateness(self) -> Lateness:
        """How the result came."""
        return Lateness(tuple(KeyChange(one.key, one.actor, not one.now) for one in self.changes), self.overdue)


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(ToolCall)


def encode_tool_call(call: ToolCall) -> bytes:
    """Returns a call's JSON; its key is the record's."""
    return _encoder.encode(msgspec.structs.replace(call, key=""))


def decode_tool_call(key: str, record: Record) -> ToolCall:
    """Returns the call at ``key``."""
    return msgspec.structs.replace(_decoder.decode(value_of(record)), key=key)


def tool_call_at(look: Look, key: str) -> ToolCall:
    """Returns the call at a key that was read.

    Raises:
        Refusal: ENTRY_NOT_FOUND.
    """
    record = look.record(key)
    if record is None:
        raise Refusal(Reason.ENTRY_NOT_FOUND, f"ticket: session {look.session_id!r} has no such tool call")
    return decode_tool_call(key, record)


def check_attempt(call: ToolCall, attempt: int) -> None:
    """Checks that an attempt may finish a call.

    Raises:
        Refusal: TOOL_RESULT_SUPERSEDED; INVALID_FIELD, for an attempt that was never started.
    """
    if attempt > call.attempt:
        raise invalid("attempt", f"{attempt} was never started; the present one is {call.attempt}")
    if not call.pending:
        raise superseded(call, f"is {call.status} already")
    if attempt < call.attempt:
        raise superseded(call, f"is now at attempt {call.attempt}, this is a result of attempt {attempt}")


def superseded(call: ToolCall, why: str) -> Refusal:
    """Returns the refusal of a second or late result."""
    return Refusal(Reason.TOOL_RESULT_SUPERSEDED, f"tool call {call.call_id!r} {why}")


def tool_call_attributes(call: ToolCall) -> tuple[tuple[str, Scalar], ...]:
    """Returns what a list of calls can be filtered by."""
    return (
        (AUTHOR_ATTRIBUTE, call.author),
        (NAME_ATTRIBUTE, call.name),
        (STATUS_ATTRIBUTE, call.status.value),
        (TURN_ATTRIBUTE, call.turn),
    )
