"""Kinds of characters, as classes for regular expressions: Python's have none for marks, symbols and scripts."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator

# Marks, emoji and pictures of later planes do not exist.
_LAST = 0x1FFFF

UNSPACED = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f\u1780-\u17ff"  # Myanmar, Khmer
    "\u3040-\u30ff\u31f0-\u31ff"  # Hiragana, Katakana
    "\u3005\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
    "\uac00-\ud7af"  # Hangul: has spaces, but grows its words by endings
)
"""Scripts in which spaces do not tell where words are."""


def _ranges(places: Iterable[int]) -> Iterator[str]:
    first = last = -2
    for place in places:
        if place != last + 1:
            if first >= 0:
                yield f"{re.escape(chr(first))}-{re.escape(chr(last))}"
            first = place
        last = place
    if first >= 0:
        yield f"{re.escape(chr(first))}-{re.escape(chr(last))}"


def _of_categories(*categories: str) -> str:
    return "".join(_ranges(place for place in range(_LAST + 1) if unicodedata.category(chr(place)) in categories))


MARKS = _of_categories("Mn", "Mc")
"""What is written onto or around a letter: accents, vowel signs, points."""

PICTURES = _of_categories("So")
"""Emoji and other pictures that stand for something."""
