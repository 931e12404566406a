"""Whether sources tell what a claim says, or whether it says more than they do. By words: nothing here understands.

People and models put things in other words, so not every word of a claim has to be in its sources. What cannot be said
in other words has to be: names, numbers, addresses. A page that an agent has read is known by them, whatever harmless
message the agent names as its evidence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from ..text import distinct_terms, terms
from ..text.characters import UNSPACED

SHARE_MIN = 0.5
"""So much of a claim's words has to be in its sources."""

TERMS_MAX = 16_384
"""So many terms of each source are looked at."""

_KEPT = 64

_UNSPACED = re.compile(f"[{UNSPACED}]")
_DATE = re.compile(r"\d{4}-\d\d?-\d\d?")
_SENTENCE = re.compile(r"[.!?:;]\s+|[\u3002\uff01\uff1f\uff1a\uff1b]|\n")
_MARKED = re.compile(r"\d|\w[@.:/\\_]\w")
_OPENING = "\"'([{\u00ab\u201c\u2018"
_WHOSE = frozenset(terms("user 用户"))
_NO_WORDS = frozenset(terms("true false null"))


@lru_cache(_KEPT)
def said_in(source: str) -> frozenset[str]:
    """Returns the terms of a source; of a long one that takes some 30 ms, so the newest are kept."""
    return frozenset(terms(source, singles=True, terms_max=TERMS_MAX))


def forget_said() -> None:
    """Forgets the sources that are kept."""
    said_in.cache_clear()


def mentions(sources: Iterable[str], claim: str) -> bool:
    """Tells whether sources speak of a claim at all: they share a word, or are in scripts that share none."""
    claimed = distinct_terms(claim)
    if not claimed:
        return True
    for source in sources:
        if (_UNSPACED.search(claim) is None) != (_UNSPACED.search(source) is None):
            return True
        if not claimed.isdisjoint(said_in(source)):
            return True
    return False


def tells(sources: Iterable[str], claim: str, value: str = "") -> bool:
    """Tells whether sources say what a claim says.

    Args:
        sources: their texts.
        claim: the claim in words.
        value: the value that it states apart, as JSON text; empty for none.
    """
    said = frozenset().union(*map(said_in, sources))
    return _covered(claim, said) and _covered(value, said)


def _covered(text: str, said: frozenset[str]) -> bool:
    claimed = distinct_terms(text) - _WHOSE - _NO_WORDS
    if len(claimed & said) < SHARE_MIN * len(claimed):
        return False
    return all(said.issuperset(claimed.intersection(terms(word))) for word in _exact(text))


def _exact(text: str) -> Iterable[str]:
    """Yields the words that have no other words: names but at the beginning of sentences, numbers, addresses."""
    for sentence in _SENTENCE.split(text):
        for place, word in enumerate(sentence.split()):
            if _DATE.search(word):
                # "tomorrow" is one, too.
                continue
            if _MARKED.search(word) or (place and word.lstrip(_OPENING)[:1].isupper()):
                yield word
