"""How a summary reads: the one text by which it is measured and shown."""

from __future__ import annotations

from ..ports.models import SummaryText
from .types import Summary


def summary_text(summary: Summary | SummaryText) -> str:
    """Returns a summary as a model reads it: a line for each list that is not empty, then the narrative."""
    lists = (
        ("Goals", summary.goals),
        ("Decisions", summary.decisions),
        ("Open questions", summary.open_questions),
        ("Names and values", summary.entities),
    )
    lines = [f"{name}: {'; '.join(' '.join(entry.split()) for entry in entries)}" for name, entries in lists if entries]
    return "\n".join([*lines, summary.narrative] if summary.narrative else lines)
