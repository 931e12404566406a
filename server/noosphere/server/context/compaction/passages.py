"""Long text as a sequence of pieces, and which of them tell something."""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

from .past import Past
from .words import terms

PIECE_CHARS_MAX = 300
"""Longer lines are divided where a sentence ends, or else here."""
PIECES_MAX = 100_000
"""Of longer texts only the first and the last half of so many pieces are looked at."""

_LINE = re.compile(r"[^\n]*\n|[^\n]+")
# Of scripts without spaces a sentence ends at the ideographic full stop, or the wide ! ? and ;.
_SENTENCE = re.compile(r".+?(?:[.!?;](?=\s)\s*|[\u3002\uff01\uff1f\uff1b]|\Z)", re.DOTALL)
_DIGITS = re.compile(r"\d+")
_TROUBLE = re.compile(
    r"\b(?:error|errors|exception|fail(?:ed|ure|s)?|fatal|panic|denied|refused|invalid|timeout|warn(?:ing)?|critical)\b",
    re.IGNORECASE,
)
_FACT = re.compile(r"\d")
_PLAIN = 0.3
_FIRST = 1.0
_LAST = 0.6
_TROUBLED = 2.0
_FACTUAL = 0.3
_REPEATED = 0.25


class Piece(NamedTuple):
    """A part of a text.

    Attributes:
        text: the part, as it is.
        worth: how useful it is.
        telling: whether anything but its place says so.
    """

    text: str
    worth: float
    telling: bool


def split(text: str) -> list[str]:
    """Divides a text into lines, and long lines into sentences or slices; joined they are the text again."""
    parts: list[str] = []
    for line in _LINE.findall(text):
        if len(line) <= PIECE_CHARS_MAX:
            parts.append(line)
            continue
        for sentence in _SENTENCE.findall(line):
            parts.extend(
                sentence[start : start + PIECE_CHARS_MAX] for start in range(0, len(sentence), PIECE_CHARS_MAX)
            )
    return parts


def pieces(text: str, past: Past, pieces_max: int) -> list[Piece]:
    """Returns the most useful pieces of a text, and between them the rest, worth nothing; joined they are the text.

    Args:
        text: any text.
        past: what came before.
        pieces_max: how many useful pieces to return.
    """
    parts = split(text)
    if (excess := len(parts) - PIECES_MAX) > 0:
        # What a text is about stands at its beginning, what is newest in a log at its end.
        half = PIECES_MAX // 2
        parts = [*parts[:half], "".join(parts[half : half + excess]), *parts[half + excess :]]
    judged = _judge(parts, past)
    useful = sorted(range(len(parts)), key=lambda index: (-judged[index].worth, index))[:pieces_max]
    found: list[Piece] = []
    end = 0
    for index in sorted(useful):
        if index > end:
            found.append(Piece("".join(parts[end:index]), 0.0, False))
        found.append(judged[index])
        end = index + 1
    if end < len(parts):
        found.append(Piece("".join(parts[end:]), 0.0, False))
    return found


def _judge(parts: list[str], past: Past) -> list[Piece]:
    """Weighs the parts of a text: by what the task was about, by trouble and facts in them, by novelty and place."""
    words = [_words(part) for part in parts]
    spread = Counter(word for of_part in words for word in of_part)
    judged: list[Piece] = []
    met: set[str] = set()
    for index, (part, of_part) in enumerate(zip(parts, words, strict=True)):
        # A word that stands in every part tells none of them apart.
        heard = sum(past.weight(word) * (1 - spread[word] / (len(parts) + 1)) for word in of_part)
        worth = _PLAIN + heard
        troubled = _TROUBLED if _TROUBLE.search(part) else 0.0
        worth += troubled + (_FACTUAL if _FACT.search(part) else 0.0)
        make = _DIGITS.sub("0", part)
        if part in met:
            worth = 0.0
        elif make in met:
            worth *= _REPEATED
        met.update((part, make))
        worth += _FIRST if index == 0 else _LAST if index == len(parts) - 1 else 0.0
        worthless = not part.strip() or len(part) > PIECE_CHARS_MAX
        judged.append(Piece(part, 0.0 if worthless else worth, heard > 0 or troubled > 0))
    return judged


def _words(part: str) -> list[str]:
    # One part may be all that was too much to look at.
    found = terms(part) if len(part) <= PIECE_CHARS_MAX else []
    return list(dict.fromkeys(word for word in found if len(word) > 1))
