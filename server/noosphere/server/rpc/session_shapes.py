"""Sessions, messages and turns: proto messages to domain values and back."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from google.protobuf.duration_pb2 import Duration

from noosphere.consistency import Encoding, ReadSet, StaleEntry, invalid
from noosphere.v1 import session_service_pb2 as pb
from noosphere.v1 import types_pb2

from ..memory.types import Call
from ..sessions.keys import namespace_of
from ..sessions.types import (
    CheckpointPolicy,
    ControlState,
    Session,
    SessionSettings,
    SessionStatus,
    Transition,
    TransitionAction,
)
from . import decode, encode
from .times import duration, duration_ms, timestamp

_CHECKPOINT_POLICIES: Mapping[int, CheckpointPolicy] = {
    pb.CHECKPOINT_POLICY_UNSPECIFIED: CheckpointPolicy.TURN_END,
    pb.CHECKPOINT_POLICY_TURN_END: CheckpointPolicy.TURN_END,
    pb.CHECKPOINT_POLICY_SIDE_EFFECTS: CheckpointPolicy.SIDE_EFFECTS,
    pb.CHECKPOINT_POLICY_MANUAL: CheckpointPolicy.MANUAL,
}
_CHECKPOINT_POLICY_NUMBERS = {
    CheckpointPolicy.TURN_END: pb.CHECKPOINT_POLICY_TURN_END,
    CheckpointPolicy.SIDE_EFFECTS: pb.CHECKPOINT_POLICY_SIDE_EFFECTS,
    CheckpointPolicy.MANUAL: pb.CHECKPOINT_POLICY_MANUAL,
}
_ACTION_NUMBERS = {
    TransitionAction.RETAIN: pb.TRANSITION_ACTION_RETAIN,
    TransitionAction.ARCHIVE: pb.TRANSITION_ACTION_ARCHIVE,
    TransitionAction.COMPRESS: pb.TRANSITION_ACTION_COMPRESS,
    TransitionAction.DROP: pb.TRANSITION_ACTION_DROP,
    TransitionAction.PROMOTE: pb.TRANSITION_ACTION_PROMOTE,
    TransitionAction.LEARN: pb.TRANSITION_ACTION_LEARN,
}
_STATUSES: Mapping[int, SessionStatus | None] = {
    pb.SESSION_STATUS_UNSPECIFIED: None,
    pb.SESSION_STATUS_OPEN: SessionStatus.OPEN,
    pb.SESSION_STATUS_CLOSED: SessionStatus.CLOSED,
}
_STATUS_NUMBERS = {
    SessionStatus.OPEN: pb.SESSION_STATUS_OPEN,
    SessionStatus.CLOSED: pb.SESSION_STATUS_CLOSED,
}


def settings(message: pb.SessionSettings) -> SessionSettings:
    """Returns a session's settings; what is not given gets its default. Bounds are checked by the service.

    Raises:
        Refusal: INVALID_FIELD.
    """
    default = SessionSettings()
    policy = _CHECKPOINT_POLICIES.get(message.checkpoint_policy)
    if policy is None:
        raise invalid("settings.checkpoint_policy", f"{message.checkpoint_policy} is not a checkpoint policy")

    def age_ms(name: str, value: Duration, default_ms: int) -> int:
        return duration_ms(f"settings.{name}", value) if message.HasField(name) else default_ms  # type: ignore[arg-type]

    return SessionSettings(
        window_turns=message.window_turns or default.window_turns,
        window_steps=message.window_steps or default.window_steps,
        tokenizer=message.tokenizer or default.tokenizer,
        tool_result_tokens_max=message.tool_result_tokens_max or default.tool_result_tokens_max,
        checkpoint_policy=policy,
        checkpoints_max=message.checkpoints_max or default.checkpoints_max,
        checkpoint_age_ms_max=age_ms("checkpoint_age_max", message.checkpoint_age_max, default.checkpoint_age_ms_max),
        checkpoint_bytes_max=message.checkpoint_bytes_max or default.checkpoint_bytes_max,
        idle_timeout_ms=age_ms("idle_timeout", message.idle_timeout, default.idle_timeout_ms),
        purge_after_ms=age_ms("purge_after", message.purge_after, default.purge_after_ms),
        transitions_manual=message.transitions_manual,
        grace_turns=message.grace_turns or default.grace_turns,
    )


def settings_message(value: SessionSettings) -> pb.SessionSettings:
    """Returns a session's settings, every field filled in."""
    return pb.SessionSettings(
        window_turns=value.window_turns,
        window_steps=value.window_steps,
        tokenizer=value.tokenizer,
        tool_result_tokens_max=value.tool_result_tokens_max,
        checkpoint_policy=_CHECKPOINT_POLICY_NUMBERS[value.checkpoint_policy],
        checkpoints_max=value.checkpoints_max,
        checkpoint_age_max=duration(value.checkpoint_age_ms_max),
        checkpoint_bytes_max=value.checkpoint_bytes_max,
        idle_timeout=duration(value.idle_timeout_ms),
        purge_after=duration(value.purge_after_ms),
        transitions_manual=value.transitions_manual,
        grace_turns=value.grace_turns,
    )


def status(number: int) -> SessionStatus | None:
    """Returns a status; None for UNSPECIFIED.

    Raises:
        Refusal: INVALID_FIELD for an unknown one.
    """
    if number not in _STATUSES:
        raise invalid("status", f"{number} is not a session's status")
    return _STATUSES[number]


def session_message(value: Session) -> pb.Session:
    """Returns a session."""
    info = value.info
    return pb.Session(
        id=value.id,
        status=_STATUS_NUMBERS[info.status],
        owner=info.owner,
        title=value.title,
        labels=value.labels,
        settings=settings_message(info.settings),
        ephemeral=info.ephemeral,
        create_time=timestamp(info.created_ms),
        close_time=timestamp(info.closed_ms) if info.closed_ms else None,
        turn=value.turns.turn,
        open_turns=[
            pb.OpenTurn(turn=opened.turn, author=opened.author, begin_time=timestamp(opened.began_ms))
            for opened in value.turns.open
        ],
        branch=info.branch,
        parent=info.parent,
        last_message=value.last_message,
    )


def control(value: pb.ControlState) -> ControlState:
    """Returns a control state.

    Raises:
        Refusal: INVALID_FIELD.
    """
    data = msgspec.Raw(b"null")
    if value.HasField("data"):
        raw, encoding = decode.value("control.data", value.data)
        if encoding is not Encoding.JSON:
            raise invalid("control.data.encoding", "must be JSON (1)")
        data = msgspec.Raw(raw)
    return ControlState(value.next_node, value.pending_interrupt, value.retries, data)


def control_shape(value: ControlState) -> pb.ControlState:
    """Returns a control state."""
    return pb.ControlState(
        next_node=value.next_node,
        pending_interrupt=value.pending_interrupt,
        retries=value.retries,
        data=types_pb2.Value(data=bytes(value.data), encoding=types_pb2.ENCODING_JSON),
    )


def transition_shape(value: Transition) -> pb.Transition:
    """Returns a decision of the controller."""
    return pb.Transition(
        key=value.key,
        action=_ACTION_NUMBERS[value.action],
        reason=value.reason,
        explanation=value.explanation,
        score=value.score,
        into=value.into,
        turn=value.turn,
        decide_time=timestamp(value.decided_ms),
        policy=value.policy,
    )


def tokens_of(
    call: Call, session_id: str, head: int, read_set: ReadSet | None = None, stale: tuple[StaleEntry, ...] = ()
) -> types_pb2.CallReply | None:
    """Returns the tokens that go with the reply of a session call."""
    return encode.call_reply(call, namespace_of(session_id), head, read_set, stale)
