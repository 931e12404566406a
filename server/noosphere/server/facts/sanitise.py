"""What must not become a fact unseen: instructions for models, secrets, and characters that nobody sees."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

from .instructions import instructions
from .secret_shapes import secrets

INSTRUCTIONS_TRUST_MAX = 0.5
"""Only below this trust do instructions aimed at models count: users may tell their agents what to do."""

_SEEN = frozenset("\t\n\r")
_ORDER = frozenset("\u202a\u202b\u202d\u202e\u2066\u2067\u2068")
_TAGS = range(0xE0000, 0xE0080)
_FLAG = "\U0001f3f4"
_FLAG_TAGS_MAX = 6


class Finding(NamedTuple):
    """Why a text is kept apart: as a word, and in a sentence that quotes nothing of a secret."""

    reason: str
    explanation: str


def findings(text: str, *, trust: float) -> tuple[Finding, ...]:
    """Returns why a text must not become a fact without a review, each reason once; empty if nothing speaks against it.

    The reasons: ``instructions`` aimed at models, of what is trusted less than a user; ``secret``, something that looks
    like a key, token, password or card number, whoever says it; ``controls``, characters that hide or reorder what is
    read. Joiners of letters and emoji, and marks of direction as right-to-left text needs them, are none.

    Args:
        text: the claim.
        trust: 0 to 1, as the server assigned it.
    """
    found: dict[str, Finding] = {}
    for one in _findings(text, trust):
        found.setdefault(one.reason, one)
    return tuple(found.values())


def _findings(text: str, trust: float) -> Iterator[Finding]:
    for what in _controls(text):
        yield Finding("controls", what)
    for what in secrets(text):
        yield Finding("secret", f"It seems to {what}.")
    if trust < INSTRUCTIONS_TRUST_MAX:
        for what in instructions(text):
            yield Finding("instructions", f"It {what}, and comes from what is not trusted.")


def _controls(text: str) -> Iterator[str]:
    for place, one in enumerate(text):
        if one.isascii() and (one.isprintable() or one in _SEEN):
            continue
        called = f"Character {place + 1} (U+{ord(one):04X})"
        if one in _ORDER:
            yield f"{called} changes the order in which the text is read."
        elif ord(one) in _TAGS and not _in_flag(text, place):
            yield f"{called} is text that nobody sees."
        elif unicodedata.category(one) == "Cc":
            yield f"{called} is a control character."


def _in_flag(text: str, place: int) -> bool:
    """Tells whether a tag is part of a flag: a few follow a black one and name its region."""
    start = place
    while start > 0 and place - start < _FLAG_TAGS_MAX and ord(text[start - 1]) in _TAGS:
        start -= 1
    return start > 0 and text[start - 1] == _FLAG
