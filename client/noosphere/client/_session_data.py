"""What is known of sessions, as plain values: settings, turns, checkpoints, summaries, decisions, health."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

CheckpointPolicy = Literal["turn_end", "side_effects", "manual"]
"""When checkpoints are made unasked: at the end of turns that changed something; also around tool calls with side
effects; never."""

SessionStatus = Literal["open", "closed"]
TransitionAction = Literal["retain", "archive", "compress", "drop", "promote", "learn"]
"""What the controller does with an item: leave it, make a fact candidate of it, join several into a summary, remove
it, or bring a fact into working memory. ``learn`` is about no item: what recurs has become a fact candidate."""

HealthMetric = Literal["context_utilization", "state_hit_rate", "state_lifespan", "token_growth"]
HealthVerdict = Literal["unknown", "good", "too_low", "too_high"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """How a session behaves; None stands for the server's default.

    Attributes:
        window_turns: most turns in the active window, 1 to 100 (5).
        window_steps: most steps in the active window, 1 to 1,000 (30). A step is a message, or a message that
            calls tools with all its results.
        tokenizer: the vocabulary by which everything is counted (``o200k_base``).
        tool_result_tokens_max: size above which a tool's result is made smaller on arrival, 16 to 16,384 (500).
        checkpoint_policy: when checkpoints are made unasked (``turn_end``).
        checkpoints_max: most checkpoints that are kept, 1 to 1,000 (100).
        checkpoint_age_max: how long they are kept, in seconds or as a span (30 days).
        checkpoint_bytes_max: most bytes of overwritten items kept for them (16 MiB).
        idle_timeout: how long the session may be idle before it is closed (7 days).
        purge_after: how long after closing it is purged (30 days).
        transitions_manual: whether the controller leaves the session alone unless asked (False).
        grace_turns: turns during which a new item is left alone (3).
    """

    window_turns: int | None = None
    window_steps: int | None = None
    tokenizer: str | None = None
    tool_result_tokens_max: int | None = None
    checkpoint_policy: CheckpointPolicy | None = None
    checkpoints_max: int | None = None
    checkpoint_age_max: timedelta | float | None = None
    checkpoint_bytes_max: int | None = None
    idle_timeout: timedelta | float | None = None
    purge_after: timedelta | float | None = None
    transitions_manual: bool | None = None
    grace_turns: int | None = None


class OpenTurn(NamedTuple):
    """A turn that has begun and not ended: its number, the agent that began it, and when."""

    number: int
    author: str
    time: datetime


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A session as one call found it.

    Attributes:
        id: its id.
        status: ``open`` or ``closed``.
        owner: the agent that opened it.
        title: for people.
        labels: for filters.
        settings: how it behaves, with all defaults filled in.
        ephemeral: whether it leaves nothing behind once closed.
        created_at: store time at which it was opened.
        closed_at: store time at which it was closed; None while it is open.
        turn: the newest turn's number, 0 before the first.
        open_turns: turns that have begun and not ended.
        branch: the branch that appends go to; 0 is the first, and each restore begins another.
        parent: the session that it was forked from; empty if none.
        last_message: the newest message's key; empty if there is none.
    """

    id: str
    status: SessionStatus
    owner: str
    title: str
    labels: Mapping[str, str]
    settings: SessionSettings
    ephemeral: bool
    created_at: datetime
    closed_at: datetime | None
    turn: int
    open_turns: tuple[OpenTurn, ...]
    branch: int
    parent: str
    last_message: str


class Transition(NamedTuple):
    """One decision of the controller.

    Attributes:
        key: the item's key; of a promotion, the new item's; of what was learned, the candidate's name.
        action: what is done.
        reason: why, as a word, e.g. ``idle``, ``pinned``, ``over_limit``.
        explanation: why, in a sentence.
        score: the item's score, 0 to 1; the lowest go first.
        into: the item that took its place; empty if none.
        turn: the turn in which it was decided.
        time: store time of the decision.
        policy: what decided: ``rules/1``, ``patterns/1``, or a model's name.
    """

    key: str
    action: TransitionAction
    reason: str
    explanation: str
    score: float
    into: str
    turn: int
    time: datetime | None
    policy: str


class EndedTurn(NamedTuple):
    """What the end of a turn has brought about.

    Attributes:
        number: the turn's number.
        checkpoint_id: the checkpoint that was made; empty if none was due.
        transitions: what the controller has decided; none if it did not run.
    """

    number: int
    checkpoint_id: str
    transitions: tuple[Transition, ...]


@dataclass(frozen=True, slots=True)
class ControlState:
    """Where an agent's program stands in a session.

    Attributes:
        next_node: the next step of the program.
        pending_interrupt: what it waits for, e.g. a person's approval; empty if for nothing.
        retries: how often the present step was tried again.
        data: whatever else it needs: a JSON value.
        version: for ``expected_version``; 0 if it was never set.
        author: who set it.
        pending_calls: ids of the tool calls that are pending, in the order in which they were started.
    """

    next_node: str = ""
    pending_interrupt: str = ""
    retries: int = 0
    data: Any = None
    version: int = 0
    author: str = ""
    pending_calls: tuple[str, ...] = ()


class Checkpoint(NamedTuple):
    """A savepoint of a whole session.

    Attributes:
        id: its id.
        name: for people.
        time: store time at which it was made.
        author: who made it.
        cause: why: ``request``, ``turn_end``, ``before_call``, ``after_call``, ``close``, or ``restore``, of what a
            restore has left behind.
        branch: the branch that it is on.
        turn: the turn in which it was made.
        last_message: the newest message's key at that moment.
        items: how many items it holds.
        bytes: the bytes that it added to the session.
    """

    id: str
    name: str
    time: datetime
    author: str
    cause: str
    branch: int
    turn: int
    last_message: str
    items: int
    bytes: int


class Restored(NamedTuple):
    """What a restore has done.

    Attributes:
        session: the session on its new branch.
        abandoned_branch: the branch that was left; ``session.messages(branch=…)`` still reads it.
        restored: how many items were put back.
        removed: how many items were removed because they came later.
    """

    session: SessionInfo
    abandoned_branch: int
    restored: int
    removed: int


class ClosedSession(NamedTuple):
    """What closing a session has done.

    Attributes:
        archived: how many items became fact candidates.
        dropped: how many items were removed.
        failed_calls: how many pending tool calls failed.
    """

    archived: int
    dropped: int
    failed_calls: int


class Summary(NamedTuple):
    """What stands for older messages.

    Attributes:
        key: its key in the session's namespace.
        first: key of the first message that it covers.
        last: key of the last one; everything between is covered.
        messages: how many messages it covers.
        goals: what was asked for.
        decisions: what was settled.
        open_questions: what was not.
        entities: names, numbers and ids that later steps may need.
        narrative: what happened, in a few sentences.
        producer: what made it.
        tokens: its size in the session's tokenizer.
        created: whether this call made it.
    """

    key: str
    first: str
    last: str
    messages: int
    goals: tuple[str, ...]
    decisions: tuple[str, ...]
    open_questions: tuple[str, ...]
    entities: tuple[str, ...]
    narrative: str
    producer: str
    tokens: int
    created: bool


class HealthFigure(NamedTuple):
    """One figure of a session's health.

    Attributes:
        metric: which.
        value: the value; None if too little is known.
        verdict: how it is judged.
        low: below this it is too low.
        high: above this it is too high.
        source: where it comes from: ``measured``, ``reported``, ``estimated`` or ``unknown``.
        advice: what it means and what to do, in a sentence.
    """

    metric: HealthMetric
    value: float | None
    verdict: HealthVerdict
    low: float
    high: float
    source: str
    advice: str


class SessionHealth(NamedTuple):
    """How a session fares.

    Attributes:
        figures: the four figures.
        items: how many items are active.
        messages: how many messages the present branch has.
        pending_calls: how many tool calls are pending.
        outbox: fact candidates that wait to be taken over.
    """

    figures: tuple[HealthFigure, ...]
    items: int
    messages: int
    pending_calls: int
    outbox: int
