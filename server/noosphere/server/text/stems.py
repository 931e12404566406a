"""Stems by Snowball's rules: one form for the endings that a word may have."""

from __future__ import annotations

import threading
from functools import lru_cache

from Stemmer import Stemmer

from .normal import without_accents

_WORDS_KEPT_MAX = 65_536
# Which rules apply is decided by the script, since a word does not say its language: the same rules on both sides of a
# comparison are what matters, and a script's commonest language is right most often.
_RULES = (
    ("\u0000", "\u024f", "english"),
    ("\u0370", "\u03ff", "greek"),
    ("\u0400", "\u04ff", "russian"),
    ("\u0600", "\u06ff", "arabic"),
    ("\u0900", "\u097f", "hindi"),
)


class _Stemmers(threading.local):
    """A stemmer must not be used by two threads at once."""

    def __init__(self) -> None:
        self._made: dict[str, Stemmer] = {}

    def of(self, rules: str) -> Stemmer:
        found = self._made.get(rules)
        if found is None:
            # Its own cache is not thread-safe and never forgets; ours is below.
            found = self._made[rules] = Stemmer(rules, 0)
        return found


_stemmers = _Stemmers()


@lru_cache(_WORDS_KEPT_MAX)
def stem(word: str) -> str:
    """Returns the stem of a normalised word; the word itself where no rules are known. Digits stay as they are."""
    for first, last, rules in _RULES:
        if first <= word[0] <= last:
            plain = without_accents(word) if rules == "english" else word
            return plain if any(map(str.isdigit, plain)) else str(_stemmers.of(rules).stemWord(plain)) or plain
    return word
