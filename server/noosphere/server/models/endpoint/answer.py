"""A summary in a model's answer, checked."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from ...ports.models import ModelError, SummaryText
from .parsing import parsed

ENTRIES_MAX = 64
ENTRY_CHARS_MAX = 400
NARRATIVE_CHARS_MAX = 20_000

_Entry = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=ENTRY_CHARS_MAX)]
_Entries = Annotated[tuple[_Entry, ...], Field(max_length=ENTRIES_MAX)]


class _Answer(BaseModel):
    # More fields than were asked for do no harm.
    model_config = ConfigDict(extra="ignore")

    goals: _Entries
    decisions: _Entries
    open_questions: _Entries
    entities: _Entries
    narrative: Annotated[str, StringConstraints(strip_whitespace=True, max_length=NARRATIVE_CHARS_MAX)]


def parse_answer(text: str) -> SummaryText:
    """Returns the summary that a model's answer holds, a fence of Markdown around it or not.

    Raises:
        ModelError: it is no such JSON, a field is missing, too long or of another type, or it says nothing.
    """
    answer = parsed(text, _Answer)
    summary = SummaryText(
        goals=_flat(answer.goals),
        decisions=_flat(answer.decisions),
        open_questions=_flat(answer.open_questions),
        entities=_flat(answer.entities),
        narrative=answer.narrative,
    )
    if not any(summary):
        raise ModelError("the answer is a summary that says nothing")
    return summary


def _flat(entries: tuple[str, ...]) -> tuple[str, ...]:
    """Returns entries on one line each, so that none can pass for a heading."""
    return tuple(" ".join(entry.split()) for entry in entries)
