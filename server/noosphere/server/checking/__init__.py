"""Histories of calls, and checkers that tell whether a history is one that a correct server can produce.

Two checkers that share nothing but the history judge it: one orders the commits by revision
(:mod:`.revisions`), the other knows only values and times (:mod:`.registers`, :mod:`.tallies`).
"""

from __future__ import annotations

from .check import check_calls, check_history
from .history import (
    Call,
    Compare,
    Context,
    Header,
    History,
    Op,
    Outcome,
    Reply,
    Result,
    Seen,
    Write,
    WriteKind,
    show_revision,
    value_id,
)
from .reader import HistoryError, read_history
from .recorder import Recorder
from .report import run_check
from .verdict import Figures, Kind, Status, Verdict, Violation
from .writer import HistoryWriter, collect_history, new_header, write_history

__all__ = [
    "Call",
    "Compare",
    "Context",
    "Figures",
    "Header",
    "History",
    "HistoryError",
    "HistoryWriter",
    "Kind",
    "Op",
    "Outcome",
    "Recorder",
    "Reply",
    "Result",
    "Seen",
    "Status",
    "Verdict",
    "Violation",
    "Write",
    "WriteKind",
    "check_calls",
    "check_history",
    "collect_history",
    "new_header",
    "read_history",
    "run_check",
    "show_revision",
    "value_id",
    "write_history",
]
