"""What a question asks for, by rules."""

from __future__ import annotations

import re
from typing import NamedTuple

from ...text import normalise, terms

QUESTION_TERMS_MAX = 256

_WHEN = re.compile(
    r"\bwhen\b|\bhow (?:long|recently)\b|\b(?:what|which) (?:date|day|month|year|time|week|weekend|season)\b"
    r"|什么时候|何时|几点|哪天|哪年|哪一年|几月|几号|多久"
)
_NOW = re.compile(
    r"\b(?:now|nowadays|current|currently|at present|presently|at the moment|these days|today|latest|newest|still"
    r"|most recent|most recently|up to date)\b|现在|目前|如今|当前|最新|眼下|仍然"
)
_HOW = re.compile(
    r"\bhow (?:do|does|can|could|should|would|to)\b|\b(?:steps|procedure|instructions|way) (?:to|for|of)\b"
    r"|怎么|怎样|如何|步骤"
)


class Question(NamedTuple):
    """A question, as the ranking needs it.

    Attributes:
        terms: its terms, each once, in order.
        when: whether it asks for a time.
        current: whether it asks how things are now.
        how: whether it asks how something is done.
    """

    terms: tuple[str, ...]
    when: bool
    current: bool
    how: bool = False


def question(text: str) -> Question:
    """Reads a question. Of more than 256 terms the first count."""
    normal = normalise(text)
    return Question(
        terms=tuple(dict.fromkeys(terms(text, terms_max=QUESTION_TERMS_MAX))),
        when=_WHEN.search(normal) is not None,
        current=_NOW.search(normal) is not None,
        how=_HOW.search(normal) is not None,
    )
