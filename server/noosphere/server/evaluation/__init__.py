"""Figures of merit on recorded runs and conversations, which stay outside of the repository."""

from __future__ import annotations

from .compaction import GATE_PERCENT, GOAL_PERCENT, CompactionScore, MethodScore, score_compaction
from .locomo import Conversation, LocomoError, read_locomo
from .meaning import Meanings
from .recall import GATES, GOALS, Figures, Kept, RecallScore, score_recall, texts_of
from .traces import Run, TraceCall, TraceError, TraceMessage, read_traces
from .updates import (
    UPDATE_GATES,
    UPDATE_GOALS,
    Placed,
    UpdatesError,
    UpdateSet,
    UpdatesScore,
    reaches,
    read_updates,
    score_updates,
)

__all__ = [
    "GATES",
    "GATE_PERCENT",
    "GOALS",
    "GOAL_PERCENT",
    "UPDATE_GATES",
    "UPDATE_GOALS",
    "CompactionScore",
    "Conversation",
    "Figures",
    "Kept",
    "LocomoError",
    "Meanings",
    "MethodScore",
    "Placed",
    "RecallScore",
    "Run",
    "TraceCall",
    "TraceError",
    "TraceMessage",
    "UpdateSet",
    "UpdatesError",
    "UpdatesScore",
    "reaches",
    "read_locomo",
    "read_traces",
    "read_updates",
    "score_compaction",
    "score_recall",
    "score_updates",
    "texts_of",
]
