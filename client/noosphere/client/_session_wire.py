"""Protobuf ⇄ what is known of sessions. No I/O and no decisions."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TypeVar

from google.protobuf.timestamp_pb2 import Timestamp

from noosphere.v1 import session_service_pb2 as pb

from ._arguments import INT64_MAX, checked_text, shown
from ._errors import InvalidArgument
from ._session_data import (
    Checkpoint,
    CheckpointPolicy,
    ControlState,
    HealthFigure,
    HealthMetric,
    HealthVerdict,
    OpenTurn,
    SessionHealth,
    SessionInfo,
    SessionSettings,
    SessionStatus,
    Summary,
    Transition,
    TransitionAction,
)
from ._values import JSON
from ._wire import from_seconds, span_seconds, to_payload, to_seconds, to_time

POLICIES: Mapping[CheckpointPolicy, pb.CheckpointPolicy.ValueType] = {
    "turn_end": pb.CHECKPOINT_POLICY_TURN_END,
    "side_effects": pb.CHECKPOINT_POLICY_SIDE_EFFECTS,
    "manual": pb.CHECKPOINT_POLICY_MANUAL,
}
STATUSES: Mapping[SessionStatus, pb.SessionStatus.ValueType] = {
    "open": pb.SESSION_STATUS_OPEN,
    "closed": pb.SESSION_STATUS_CLOSED,
}
ACTIONS: Mapping[TransitionAction, pb.TransitionAction.ValueType] = {
    "retain": pb.TRANSITION_ACTION_RETAIN,
    "archive": pb.TRANSITION_ACTION_ARCHIVE,
    "compress": pb.TRANSITION_ACTION_COMPRESS,
    "drop": pb.TRANSITION_ACTION_DROP,
    "promote": pb.TRANSITION_ACTION_PROMOTE,
    "learn": pb.TRANSITION_ACTION_LEARN,
}
_METRICS: Mapping[HealthMetric, int] = {
    "context_utilization": pb.HEALTH_METRIC_CONTEXT_UTILIZATION,
    "state_hit_rate": pb.HEALTH_METRIC_STATE_HIT_RATE,
    "state_lifespan": pb.HEALTH_METRIC_STATE_LIFESPAN,
    "token_growth": pb.HEALTH_METRIC_TOKEN_GROWTH,
}
_VERDICTS: Mapping[HealthVerdict, int] = {
    "unknown": pb.HEALTH_VERDICT_UNKNOWN,
    "good": pb.HEALTH_VERDICT_GOOD,
    "too_low": pb.HEALTH_VERDICT_TOO_LOW,
    "too_high": pb.HEALTH_VERDICT_TOO_HIGH,
}

Name = TypeVar("Name", bound=str)
Number = TypeVar("Number", bound=int)


def from_settings(settings: SessionSettings | None) -> pb.SessionSettings | None:
    """Returns settings as sent; what is None keeps its default.

    Raises:
        InvalidArgument: they are none, or one is of the wrong kind or 0, which would stand for the default.
    """
    if settings is None:
        return None
    if not isinstance(settings, SessionSettings):
        raise InvalidArgument(f"settings: {shown(settings)} is {type(settings).__name__}, not SessionSettings")
    sent = pb.SessionSettings()
    for name in (
        *("window_turns", "window_steps", "tool_result_tokens_max", "checkpoints_max"),
        *("checkpoint_bytes_max", "grace_turns"),
    ):
        value = getattr(settings, name)
        if value is not None:
            setattr(sent, name, whole(f"settings.{name}", value, low=1))
    if settings.tokenizer is not None:
        if not isinstance(settings.tokenizer, str) or not settings.tokenizer:
            raise InvalidArgument(f"settings.tokenizer: {shown(settings.tokenizer)} is no name of a vocabulary")
        sent.tokenizer = settings.tokenizer
    if settings.checkpoint_policy is not None:
        sent.checkpoint_policy = number_of("settings.checkpoint_policy", settings.checkpoint_policy, POLICIES)
    for name in ("checkpoint_age_max", "idle_timeout", "purge_after"):
        if (span := getattr(settings, name)) is not None:
            getattr(sent, name).CopyFrom(from_seconds(to_seconds(f"settings.{name}", span)))
    sent.transitions_manual = bool(settings.transitions_manual)
    return sent


def to_settings(settings: pb.SessionSettings) -> SessionSettings:
    """Returns a session's settings, as the server has filled them in."""
    return SessionSettings(
        window_turns=settings.window_turns,
        window_steps=settings.window_steps,
        tokenizer=settings.tokenizer,
        tool_result_tokens_max=settings.tool_result_tokens_max,
        checkpoint_policy=name_of(settings.checkpoint_policy, POLICIES, "turn_end"),
        checkpoints_max=settings.checkpoints_max,
        checkpoint_age_max=timedelta(seconds=span_seconds(settings.checkpoint_age_max)),
        checkpoint_bytes_max=settings.checkpoint_bytes_max,
        idle_timeout=timedelta(seconds=span_seconds(settings.idle_timeout)),
        purge_after=timedelta(seconds=span_seconds(settings.purge_after)),
        transitions_manual=settings.transitions_manual,
        grace_turns=settings.grace_turns,
    )


def to_session(session: pb.Session) -> SessionInfo:
    """Returns a session."""
    return SessionInfo(
        session.id,
        name_of(session.status, STATUSES, "open"),
        session.owner,
        session.title,
        dict(session.labels),
        to_settings(session.settings),
        session.ephemeral,
        to_time(session.create_time),
        time_or_none(session.HasField("close_time"), session.close_time),
        session.turn,
        tuple(OpenTurn(turn.turn, turn.author, to_time(turn.begin_time)) for turn in session.open_turns),
        session.branch,
        session.parent,
        session.last_message,
    )


def to_transition(transition: pb.Transition) -> Transition:
    """Returns a decision of the controller."""
    return Transition(
        transition.key,
        name_of(transition.action, ACTIONS, "retain"),
        transition.reason,
        transition.explanation,
        transition.score,
        transition.into,
        transition.turn,
        time_or_none(transition.decide_time.seconds > 0, transition.decide_time),
        transition.policy,
    )


def to_control(reply: pb.GetControlResponse) -> ControlState:
    """Returns a control state that was read."""
    state = reply.control
    data = JSON.decode(to_payload(state.data)) if state.HasField("data") else None
    return ControlState(
        state.next_node,
        state.pending_interrupt,
        state.retries,
        data,
        reply.version,
        reply.author,
        tuple(reply.pending_calls),
    )


def to_checkpoint(checkpoint: pb.Checkpoint) -> Checkpoint:
    """Returns a checkpoint."""
    return Checkpoint(
        checkpoint.id,
        checkpoint.name,
        to_time(checkpoint.create_time),
        checkpoint.author,
        checkpoint.cause,
        checkpoint.branch,
        checkpoint.turn,
        checkpoint.last_message,
        checkpoint.items,
        checkpoint.bytes,
    )


def to_summary(reply: pb.SummarizeSessionResponse) -> Summary | None:
    """Returns the newest summary, None if there is none."""
    if not reply.HasField("summary"):
        return None
    summary = reply.summary
    return Summary(
        summary.key,
        summary.first,
        summary.last,
        summary.messages,
        tuple(summary.goals),
        tuple(summary.decisions),
        tuple(summary.open_questions),
        tuple(summary.entities),
        summary.narrative,
        summary.producer,
        summary.tokens,
        reply.created,
    )


def to_health(reply: pb.GetSessionHealthResponse) -> SessionHealth:
    """Returns a session's health."""
    figures = tuple(
        HealthFigure(
            name_of(figure.metric, _METRICS, "context_utilization"),
            figure.value if figure.HasField("value") else None,
            name_of(figure.verdict, _VERDICTS, "unknown"),
            figure.low,
            figure.high,
            figure.source,
            figure.advice,
        )
        for figure in reply.figures
    )
    return SessionHealth(figures, reply.items, reply.messages, reply.pending_calls, reply.outbox)


def checked_labels(field: str, labels: Mapping[str, str] | None) -> dict[str, str]:
    """Returns labels.

    Raises:
        InvalidArgument: they are none, or one is no text.
    """
    if labels is not None and not isinstance(labels, Mapping):
        raise InvalidArgument(f"{field}: {shown(labels)} is {type(labels).__name__}, not a mapping")
    return {
        checked_text(field, name): checked_text(f"{field}[{shown(name)}]", value)
        for name, value in (labels or {}).items()
    }


def time_or_none(given: bool, stamp: Timestamp) -> datetime | None:
    """Returns a time that may be absent."""
    return to_time(stamp) if given else None


def name_of(number: int, table: Mapping[Name, int], otherwise: Name) -> Name:
    """Returns what a number of the contract is called here; a newer server's reads as ``otherwise``."""
    return next((name for name, value in table.items() if value == number), otherwise)


def number_of(field: str, name: Name, table: Mapping[Name, Number]) -> Number:
    """Returns the contract's number for a name.

    Raises:
        InvalidArgument: there is no such name.
    """
    number = table.get(name) if isinstance(name, str) else None
    if number is None:
        raise InvalidArgument(f"{field}: {shown(name)} is not one of {', '.join(table)}")
    return number


def whole(field: str, value: int, *, low: int = 0, high: int = (1 << 32) - 1) -> int:
    """Returns a whole number.

    Raises:
        InvalidArgument: it is none, or outside its bounds.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= min(high, INT64_MAX):
        raise InvalidArgument(f"{field}: {shown(value)} is not a whole number from {low} to {high}")
    return value
