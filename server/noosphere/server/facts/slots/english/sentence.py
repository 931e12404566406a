"""Prepares a claim for the rules: one plain statement of how things are now, or nothing."""

from __future__ import annotations

import re

from .words import UNSURE

_START = re.compile(
    r"^(?:currently|now|today|actually|note that|fyi|presently|at present|as of now),?:? +(?=\S)", re.IGNORECASE
)
_SINCE = re.compile(r",? (?:since|as of) (?:\w+ )?(?:\d{1,2}, )?\d{4}(?:-\d\d){0,2}$")
_NOW = re.compile(r",? (?:now|currently|these days|nowadays|at the moment|right now|at present|as of (?:now|today))$")
_ADVERBS = re.compile(
    r"(?<= )(?:now|currently|presently|actually|really|officially|mostly|mainly|usually|primarily) (?=\S)"
)
_SHORTENED = "Inc|Corp|Ltd|Co|Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|Gen|Col|Capt|Lt|Sgt|Rev|Hon|No|vs|Mt|Ft|Univ|Dept|Bros"
_SENTENCES = re.compile(rf"\b(?!(?:{_SHORTENED})\.)[^\W\d_]{{2,}}\. +[A-Z]|\n|; ")
_SHORT_FORMS = (
    (re.compile(r"\u2019"), "'"),
    (re.compile(r"\bI'm\b"), "I am"),
    (re.compile(r"\b([Ww]e|[Tt]hey|[Yy]ou)'re\b"), r"\1 are"),
    (re.compile(r"\b(I|[Ww]e)'ve\b"), r"\1 have"),
    # What has happened.
    (re.compile(r"\b(?:has|have) (?=(?:just )?moved to\b)"), ""),
)
_LASTING = (
    # What has lasted since then, lasts.
    (re.compile(r"\bhas (?:been )?(liv|work|play|stud)(?:ed|ing|ied|ying)\b"), r"\1"),
    (re.compile(r"\b(?:has|have) been (?=[a-z]+ed\b)"), "is "),
)
_PRESENT = {"liv": "lives", "work": "works", "play": "plays", "stud": "studies"}
_PERFECT = re.compile(r"\b(?:has|have|had) (?:been|[a-z]+ed)\b")
_SECOND_CLAUSE = re.compile(
    r",? (?:and|but|or) (?:then |also )?(?:is|are|was|were|am|has|have|had|does|did|will|can|I|he|she|it|they"
    r"|[a-z]+(?:s|ed) (?:in|at|by|to|with|for|of|on|as|the|an?|his|her|its|their))\b"
)


def prepared(text: str) -> str | None:
    """Returns a claim without what adds nothing to it; None if it is no plain statement, or several."""
    if _SENTENCES.search(text):
        return None
    plain = text
    for pattern, long in _SHORT_FORMS:
        plain = pattern.sub(long, plain)
    since = _SINCE.sub("", plain)
    if since != plain:
        (active, _), (passive, link) = _LASTING
        plain = passive.sub(link, active.sub(lambda found: _PRESENT[found[1]], since))
    plain = _ADVERBS.sub("", _NOW.sub("", _START.sub("", plain)))
    if UNSURE.search(plain) or _SECOND_CLAUSE.search(plain) or _PERFECT.search(plain):
        return None
    return plain
