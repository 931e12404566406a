"""Makes a summary fit its room, whoever made it."""

from __future__ import annotations

from ..ports.models import SummaryText, Tokenizer
from ..sessions.summary_text import summary_text

# What is given up first, after the narrative's end.
_GIVEN_UP = ("entities", "open_questions", "decisions", "goals")


def fitted(summary: SummaryText, tokens_max: int, tokenizer: Tokenizer) -> SummaryText:
    """Returns a summary of at most ``tokens_max`` tokens as rendered: cut at its narrative's end, then list by list."""
    for name in _GIVEN_UP:
        over = tokenizer.count(summary_text(summary)) - tokens_max
        if over <= 0:
            return summary
        keep = tokenizer.count(summary.narrative) - over - 1
        summary = summary._replace(narrative=tokenizer.cut(summary.narrative, max(0, keep)))
        if tokenizer.count(summary_text(summary)) > tokens_max:
            summary = replaced(summary, name, ())
    return summary


def replaced(summary: SummaryText, name: str, entries: tuple[str, ...]) -> SummaryText:
    """Returns a summary with another list of that name."""
    return SummaryText(**{**summary._asdict(), name: entries})
