"""Figures of merit on recorded runs of agents, which stay outside of the repository."""

from __future__ import annotations

from .compaction import GATE_PERCENT, GOAL_PERCENT, CompactionScore, MethodScore, score_compaction
from .traces import Run, TraceCall, TraceError, TraceMessage, read_traces

__all__ = [
    "GATE_PERCENT",
    "GOAL_PERCENT",
    "CompactionScore",
    "MethodScore",
    "Run",
    "TraceCall",
    "TraceError",
    "TraceMessage",
    "read_traces",
    "score_compaction",
]
