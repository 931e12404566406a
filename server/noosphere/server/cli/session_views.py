"""Turns what the client tells of sessions into the documents that commands print."""

from __future__ import annotations

import base64
from datetime import timedelta
from typing import TYPE_CHECKING, cast

from .output import shorten
from .session_shapes import (
    CheckpointShape,
    ControlShape,
    HealthFigureShape,
    MessageShape,
    PartShape,
    SessionHealthShape,
    SessionSettingsShape,
    SessionShape,
    ToolCallShape,
    TransitionShape,
)
from .views import time_text

if TYPE_CHECKING:
    from noosphere.client import (
        Blob,
        Checkpoint,
        ControlState,
        HealthFigure,
        Message,
        SessionHealth,
        SessionInfo,
        SessionSettings,
        ToolCall,
        Transition,
    )


def session_data(info: SessionInfo) -> SessionShape:
    """Returns a session."""
    return {
        "id": info.id,
        "status": info.status,
        "owner": info.owner,
        "title": info.title,
        "labels": dict(sorted(info.labels.items())),
        "settings": settings_data(info.settings),
        "ephemeral": info.ephemeral,
        "create_time": time_text(info.created_at),
        "close_time": time_text(info.closed_at),
        "turn": info.turn,
        "open_turns": [
            {"turn": turn.number, "author": turn.author, "begin_time": time_text(turn.time)} for turn in info.open_turns
        ],
        "branch": info.branch,
        "parent": info.parent or None,
        "last_message": info.last_message or None,
    }


def settings_data(settings: SessionSettings) -> SessionSettingsShape:
    """Returns a session's settings, which the server has filled in."""
    found = {name: getattr(settings, name) for name in SessionSettingsShape.__annotations__}
    spans = {name: value.total_seconds() for name, value in found.items() if isinstance(value, timedelta)}
    return cast("SessionSettingsShape", found | spans)


def control_data(state: ControlState) -> ControlShape:
    """Returns a control state."""
    return {
        "next_node": state.next_node,
        "pending_interrupt": state.pending_interrupt,
        "retries": state.retries,
        "data": state.data,
        "version": str(state.version),
        "author": state.author,
        "pending_calls": list(state.pending_calls),
    }


def message_data(message: Message) -> MessageShape:
    """Returns a message."""
    return {
        "id": message.id,
        "role": message.role,
        "parts": [_part_data(part) for part in message.parts],
        "tool_calls": [
            {"call_id": use.call_id, "name": use.name, "arguments": use.arguments} for use in message.tool_calls
        ],
        "tool_call_id": message.tool_call_id or None,
        "name": message.name or None,
        "author": message.author,
        "turn": message.turn,
        "create_time": time_text(message.time),
        "tokens": message.tokens,
        "key": message.key,
        "retracted": message.retracted,
    }


def message_text(message: Message) -> str:
    """Returns what a message says, for people: its texts, its calls, notes of what is no text."""
    if message.retracted:
        return "(taken back)"
    said = [part if isinstance(part, str) else f"({part.media_type}, {len(part.data)} bytes)" for part in message.parts]
    said += [f"→ {use.name}({use.arguments})" for use in message.tool_calls]
    if message.tool_call_id:
        said.insert(0, f"{message.tool_call_id}:")
    return " ".join(said)


def tool_call_data(call: ToolCall) -> ToolCallShape:
    """Returns a call of a tool."""
    return {
        "call_id": call.call_id,
        "ticket": call.ticket,
        "name": call.name,
        "arguments": call.arguments,
        "status": call.status,
        "author": call.author,
        "turn": call.turn,
        "start_time": time_text(call.started_at),
        "finish_time": time_text(call.finished_at),
        "deadline": time_text(call.deadline),
        "based_on": [{"key": basis.key, "version": str(basis.version)} for basis in call.based_on],
        "late_policy": call.late,
        "attempt": call.attempt,
        "side_effects": call.side_effects,
        "changes": [
            {"key": change.key, "seen": str(change.seen), "now": str(change.now), "actor": change.actor or None}
            for change in call.changes
        ],
        "overdue": call.overdue,
        "content": call.content,
        "compaction": call.compaction or None,
        "tokens": call.tokens,
        "raw_bytes": call.raw_bytes,
        "key": call.key,
    }


def checkpoint_data(checkpoint: Checkpoint) -> CheckpointShape:
    """Returns a savepoint."""
    return {
        "id": checkpoint.id,
        "name": checkpoint.name,
        "create_time": time_text(checkpoint.time),
        "author": checkpoint.author,
        "cause": checkpoint.cause,
        "branch": checkpoint.branch,
        "turn": checkpoint.turn,
        "last_message": checkpoint.last_message or None,
        "items": checkpoint.items,
        "bytes": checkpoint.bytes,
    }


def transition_data(transition: Transition) -> TransitionShape:
    """Returns a decision of the controller."""
    return {
        "key": transition.key,
        "action": transition.action,
        "reason": transition.reason,
        "explanation": transition.explanation,
        "score": transition.score,
        "into": transition.into or None,
        "turn": transition.turn,
        "decide_time": time_text(transition.time),
        "policy": transition.policy,
    }


def health_data(session_id: str, health: SessionHealth) -> SessionHealthShape:
    """Returns how a session fares."""
    return {
        "session": session_id,
        "figures": [_figure_data(figure) for figure in health.figures],
        "items": health.items,
        "messages": health.messages,
        "pending_calls": health.pending_calls,
        "outbox": health.outbox,
    }


def health_rows(health: SessionHealth) -> list[tuple[str, str, str, str, str]]:
    """Returns the figures of a session's health as rows: metric, value, bounds, verdict, advice."""
    return [
        (
            figure.metric.replace("_", " "),
            "-" if figure.value is None else _amount(figure.metric, figure.value),
            _bounds(figure),
            figure.verdict.replace("_", " "),
            figure.advice,
        )
        for figure in health.figures
    ]


HEALTH_COLUMNS = ("FIGURE", "VALUE", "BOUNDS", "VERDICT", "WHAT IT MEANS")


def _bounds(figure: HealthFigure) -> str:
    low, high = _amount(figure.metric, figure.low), _amount(figure.metric, figure.high)
    match figure.metric:
        case "token_growth":
            return f"up to {high}"
        case "state_hit_rate":
            return f"{low} or more"
        case _:
            return f"{low} to {high}"


def _amount(metric: str, value: float) -> str:
    return f"{value:.1f} turns" if metric == "state_lifespan" else f"{value:.0%}"


def _figure_data(figure: HealthFigure) -> HealthFigureShape:
    return {
        "metric": figure.metric,
        "value": figure.value,
        "verdict": figure.verdict,
        "low": figure.low,
        "high": figure.high,
        "source": figure.source,
        "advice": figure.advice,
    }


def _part_data(part: str | Blob) -> PartShape:
    if isinstance(part, str):
        return {"text": part, "media_type": None, "data": None}
    return {"text": None, "media_type": part.media_type, "data": base64.b64encode(part.data).decode()}


def span_text(span: timedelta | float | None) -> str:
    """Returns a span in its largest units, e.g. ``7 d`` or ``1 h 30 min``."""
    seconds = span.total_seconds() if isinstance(span, timedelta) else span or 0.0
    parts = []
    for name, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count:.0f} {name}")
    if seconds or not parts:
        parts.append(f"{seconds:g} s")
    return " ".join(parts)


def cell(text: str, chars_max: int = 60) -> str:
    """Returns a text as one short cell."""
    return shorten(" ".join(text.split()), chars_max)
