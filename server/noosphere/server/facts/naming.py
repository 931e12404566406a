"""Whether a question asks for the slot that a fact fills: whether it names the subject, and speaks of the predicate."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..text.characters import UNSPACED
from ..text.stop import STOP
from .slots import USER
from .wording import comparable, readable

PREFIX_CHARS_MIN = 5
"""Words that begin alike for so long, but for an ending, are kin: citizen and citizenship, producer and produced."""

ENDING_CHARS_MAX = 2

_WORD = re.compile(rf"[{UNSPACED}]|(?:(?![{UNSPACED}])\w)+[+#]*")


class Asked:
    """A question, as slots are compared with it.

    Args:
        question: in any form.
        subjects: those of all facts that may answer it, in canonical form.

    Attributes:
        subjects: those that the question names.
    """

    def __init__(self, question: str, subjects: Iterable[str]) -> None:
        self._words = _words(comparable(readable(question)))
        self.subjects = self._named(subjects)

    def _named(self, subjects: Iterable[str]) -> frozenset[str]:
        """Returns the subjects whose words stand in the question in a row; of one within another, the longer.

        Terms alone do not tell "The Witcher and the Man" from "The Man of Witcher".
        """
        row = _row(self._words)
        # Whoever asks about themselves says "I", and names nobody.
        found = {subject: _row(_words(subject)) for subject in set(subjects) - {"", USER}}
        found = {subject: words for subject, words in found.items() if words.strip() and words in row}
        rows = set(found.values())
        return frozenset(
            subject for subject, words in found.items() if not any(words != other and words in other for other in rows)
        )

    def share_of(self, predicate: str) -> float:
        """Returns the share of a predicate's words, but for those of grammar, that are kin to one of the question."""
        words = [word for word in _words(predicate) if word not in STOP]
        return sum(map(self._speaks_of, words)) / len(words) if words else 0.0

    def _speaks_of(self, word: str) -> bool:
        return any(word == other or _kin(word, other) for other in self._words)


def _kin(word: str, other: str) -> bool:
    alike = next((at for at, (a, b) in enumerate(zip(word, other, strict=False)) if a != b), min(len(word), len(other)))
    return alike >= max(PREFIX_CHARS_MIN, min(len(word), len(other)) - ENDING_CHARS_MAX)


def _words(text: str) -> list[str]:
    return _WORD.findall(text)


def _row(words: Iterable[str]) -> str:
    return f" {' '.join(words)} "
