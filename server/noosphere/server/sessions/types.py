"""The vocabulary of sessions: messages, tool calls, items, turns. Plain values, no I/O and no gRPC."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

import msgspec

from noosphere.consistency import Scalar

DAY_MS = 24 * 3600 * 1000


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


class KeyChange(NamedTuple):
    """A change to what a tool call was based on: which key, who changed it (``agent#incarnation``), whether it is gone.

    The actor is empty for an expiry, and for who is no longer known.
    """

    key: str
    actor: str = ""
    gone: bool = False


class Lateness(NamedTuple):
    """How a tool's result came: what its call was based on had changed by then, or its deadline had passed.

    Attributes:
        changes: what had changed.
        overdue: whether it came after the deadline.
    """

    changes: tuple[KeyChange, ...] = ()
    overdue: bool = False

    @property
    def late(self) -> bool:
        """Whether it came late at all."""
        return bool(self.changes) or self.overdue


class Message(NamedTuple):
    """One message of a transcript.

    Attributes:
        id: the author's own id, unique on a branch; appending it again changes nothing.
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
        retracted: whether its content was taken back.
        lateness: of a result that the end of its call has appended; None for all else.
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
    retracted: bool = False
    lateness: Lateness | None = None

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


class SessionStatus(StrEnum):
    """Whether a session is in use."""

    OPEN = "open"
    CLOSED = "closed"


class ItemDisposition(StrEnum):
    """What becomes of the items of a session that is closed."""

    ARCHIVE = "archive"
    DROP = "drop"
    KEEP = "keep"


class Closing(msgspec.Struct, frozen=True):
    """How far the closing of a session has come, which may take several commits.

    Attributes:
        items: what becomes of the items.
        done: whether everything is carried out.
        archived: how many items have become candidates.
        dropped: how many items were removed.
        failed_calls: how many pending tool calls have failed.
    """

    items: ItemDisposition
    done: bool = False
    archived: int = 0
    dropped: int = 0
    failed_calls: int = 0


class CheckpointPolicy(StrEnum):
    """When checkpoints are made without being asked for."""

    TURN_END = "turn_end"
    SIDE_EFFECTS = "side_effects"
    MANUAL = "manual"


class CheckpointCause(StrEnum):
    """Why a checkpoint was made."""

    REQUEST = "request"
    TURN_END = "turn_end"
    BEFORE_CALL = "before_call"
    AFTER_CALL = "after_call"
    RESTORE = "restore"
    CLOSE = "close"


class Checkpoint(NamedTuple):
    """A savepoint of a session.

    Attributes:
        id: its id.
        name: for people.
        created_ms: store time at which it was made.
        author: the agent that made it.
        cause: why.
        branch: the branch that it is on.
        turn: the turn in which it was made.
        last_message: the newest message's key at that moment; empty if there was none.
        last_session: the session in which that lies, if it is another.
        summary: the newest summary's key at that moment; empty if there was none.
        items: how many items it holds.
        bytes: what it added to the session, the copies of what was overwritten since the one before included.
        number: its number, from 1.
        copied_bytes: how many of these bytes are copies.
    """

    id: str
    name: str
    created_ms: int
    author: str
    cause: CheckpointCause
    branch: int
    turn: int
    last_message: str
    last_session: str
    summary: str
    items: int
    bytes: int
    number: int
    copied_bytes: int


class SessionSettings(msgspec.Struct, frozen=True):
    """How a session behaves. Sizes in bytes or tokens, times in milliseconds."""

    window_turns: int = 5
    window_steps: int = 30
    tokenizer: str = "o200k_base"
    tool_result_tokens_max: int = 500
    checkpoint_policy: CheckpointPolicy = CheckpointPolicy.TURN_END
    checkpoints_max: int = 100
    checkpoint_age_ms_max: int = 30 * DAY_MS
    checkpoint_bytes_max: int = 16 * 1024 * 1024
    idle_timeout_ms: int = 7 * DAY_MS
    purge_after_ms: int = 30 * DAY_MS
    transitions_manual: bool = False
    grace_turns: int = 3


class SessionInfo(msgspec.Struct, frozen=True):
    """What every write to a session depends on.

    Attributes:
        owner: the agent that opened it.
        created_ms: store time at which it was opened.
        settings: how it behaves.
        status: whether it is in use.
        ephemeral: whether it leaves nothing behind.
        closed_ms: store time at which it was closed; 0 while it is open.
        branch: the branch that appends go to.
        parent: the session that it was forked from; empty if none.
        closing: what its closing has done; None while it is open.
    """

    owner: str
    created_ms: int
    settings: SessionSettings = SessionSettings()
    status: SessionStatus = SessionStatus.OPEN
    ephemeral: bool = False
    closed_ms: int = 0
    branch: int = 0
    parent: str = ""
    closing: Closing | None = None


class SessionMeta(msgspec.Struct, frozen=True):
    """What people call a session."""

    title: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict)


class OpenTurn(msgspec.Struct, frozen=True):
    """A turn that has begun and not ended; ``author`` is an agent."""

    turn: int
    author: str
    began_ms: int


class Turns(msgspec.Struct, frozen=True):
    """The newest turn's number, and the open turns by ascending number."""

    turn: int = 0
    open: tuple[OpenTurn, ...] = ()

    def newest_of(self, author: str) -> int:
        """Returns the newest turn that an agent has open, 0 if it has none."""
        return max((opened.turn for opened in self.open if opened.author == author), default=0)

    def is_open(self, turn: int) -> bool:
        """Tells whether a turn has begun and not ended."""
        return any(opened.turn == turn for opened in self.open)


class Session(NamedTuple):
    """A session as it was at one head; ``last_message`` is a key, empty if there is none."""

    id: str
    info: SessionInfo
    title: str
    labels: Mapping[str, str]
    turns: Turns
    last_message: str


class TransitionAction(StrEnum):
    """What the controller does with an item; ``LEARN`` is about none: what recurs becomes a candidate."""

    RETAIN = "retain"
    ARCHIVE = "archive"
    COMPRESS = "compress"
    DROP = "drop"
    PROMOTE = "promote"
    LEARN = "learn"


class Transition(NamedTuple):
    """One decision of the controller.

    Attributes:
        key: the item's key; of a promotion, the new item's; of what was learned, the candidate's name.
        action: what is done.
        reason: why, as a word.
        explanation: why, in a sentence.
        score: the item's score, 0 to 1; the lowest go first.
        into: the item that took its place; empty if none.
        turn: the turn in which it was decided.
        decided_ms: store time of the decision.
        policy: what decided.
    """

    key: str
    action: TransitionAction
    reason: str
    explanation: str
    score: float = 0.0
    into: str = ""
    turn: int = 0
    decided_ms: int = 0
    policy: str = ""


class TurnOutcome(NamedTuple):
    """What the end of a turn brought about besides."""

    checkpoint_id: str = ""
    transitions: tuple[Transition, ...] = ()


class ControlState(msgspec.Struct, frozen=True):
    """Where an agent's program stands.

    Attributes:
        next_node: the next step.
        pending_interrupt: what it waits for; empty if for nothing.
        retries: how often the present step was tried again.
        data: whatever else it needs, as JSON text.
    """

    next_node: str = ""
    pending_interrupt: str = ""
    retries: int = 0
    data: msgspec.Raw = msgspec.Raw(b"null")
