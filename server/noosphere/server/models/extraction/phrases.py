"""A way to say something about oneself, and what a sentence that is said so claims."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

SEMANTIC = "semantic"
PROCEDURAL = "procedural"


class Said(NamedTuple):
    """What a sentence claims.

    Attributes:
        text: the claim, of somebody whom it calls "the user".
        predicate: which property; empty if it is none.
        value: the property's value; empty if it has none.
        confidence: how sure the rule is, 0 to 1.
        importance: how much it matters, 0 to 1.
        memory_type: what kind of memory.
    """

    text: str
    predicate: str
    value: str
    confidence: float
    importance: float
    memory_type: str = SEMANTIC


class Phrase(NamedTuple):
    """A way to say something.

    Attributes:
        pattern: matches a whole clause; its group ``value`` is what is claimed.
        predicate: which property; empty leaves it to the pipeline, which compares the words.
        template: the claim in words, with ``{value}``.
        confidence: how sure it is that this is meant.
        importance: how much it matters.
        accepts: tells whether a value makes sense.
    """

    pattern: re.Pattern[str]
    predicate: str
    template: str
    confidence: float
    importance: float
    accepts: Callable[[str], bool]

    def read(self, clause: str) -> Said | None:
        """Returns what a clause claims; None if it is not said in this way."""
        match = self.pattern.match(clause)
        if match is None:
            return None
        value = match["value"].strip(" ,;:.!。！，；：")
        if not value or not self.accepts(value):
            return None
        text = self.template.format(value=value)
        return Said(text, self.predicate, value, self.confidence, self.importance)
