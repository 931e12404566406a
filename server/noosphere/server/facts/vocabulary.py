"""Sets of words and phrases, written as people read them."""

from __future__ import annotations


def words(text: str) -> frozenset[str]:
    """Returns words that spaces separate."""
    return frozenset(text.split())


def phrases(text: str) -> frozenset[str]:
    """Returns phrases that bars separate; line ends are spaces."""
    return frozenset(" ".join(phrase.split()) for phrase in text.split("|"))
