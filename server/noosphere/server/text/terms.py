"""The terms by which a text is found, in order: what keyword indexes hold and rankings compare."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .characters import MARKS, PICTURES, UNSPACED
from .normal import normalise
from .stems import stem
from .stop import STOP

TERMS_MAX = 4_096
DISTINCT_MAX = 512
WORD_CHARS_MAX = 64
"""Longer words (digests, data in base64) are found by their beginning."""

_APOSTROPHES = "'\u2019\u02bc"
_TOKEN = re.compile(
    rf"(?P<date>(?<![\d-])\d{{4}}-\d\d?-\d\d?(?![\d-]))"
    rf"|(?P<number>\d+(?:[.,:]\d+)+)"
    rf"|(?P<unspaced>[{UNSPACED}][{UNSPACED}{MARKS}]*)"
    rf"|(?P<word>(?:(?![{UNSPACED}])[^\W_])(?:(?![{UNSPACED}])[^\W_]|[{MARKS}]|[{_APOSTROPHES}](?=[^\W\d_]))*)"
    rf"|(?P<picture>[{PICTURES}])"
)
_ORDINAL = re.compile(r"(\d+)(?:st|nd|rd|th)")
_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip


def terms(text: str, *, singles: bool = False, terms_max: int = TERMS_MAX) -> tuple[str, ...]:
    """Returns the terms of a text, in order and with repetitions.

    Words become stems, without the commonest ones, unless a text has no others. Scripts without spaces become pairs of
    neighbouring characters. Numbers stay whole; dates like ``2026-05-08`` become the words that people write.

    Args:
        text: anything.
        singles: whether single characters of scripts without spaces are terms too. For what is searched, so that a
            question of one character finds something; not for questions, which pairs describe better.
        terms_max: most terms; what comes later is left out.
    """
    normal = normalise(text)
    found = _first(_terms(normal, singles, keep_common=False), terms_max)
    return found or _first(_terms(normal, singles, keep_common=True), terms_max)


def distinct_terms(text: str, *, terms_max: int = DISTINCT_MAX) -> frozenset[str]:
    """Returns the terms of a text, each once: for telling how much two texts have in common.

    Args:
        text: anything.
        terms_max: most terms that are looked at; what comes later is left out.
    """
    return frozenset(terms(text, terms_max=terms_max))


def _first(found: Iterator[str], limit: int) -> tuple[str, ...]:
    return tuple(term for _, term in zip(range(limit), found, strict=False))


def _terms(normal: str, singles: bool, keep_common: bool) -> Iterator[str]:
    for match in _TOKEN.finditer(normal):
        token = match.group()
        match match.lastgroup:
            case "word":
                yield from _of_word(token, keep_common)
            case "number":
                yield (token.replace(",", "") if _THOUSANDS.fullmatch(token) else token)[:WORD_CHARS_MAX]
            case "unspaced":
                yield from _of_run(token, singles)
            case "date":
                yield from _of_date(token)
            case _:
                yield token


def _of_word(token: str, keep_common: bool) -> Iterator[str]:
    word = token
    for apostrophe in _APOSTROPHES:
        word = word.removesuffix(f"{apostrophe}s").replace(apostrophe, "")
    if keep_common or word not in STOP:
        ordinal = _ORDINAL.fullmatch(word)
        yield ordinal.group(1)[:WORD_CHARS_MAX] if ordinal else stem(word[:WORD_CHARS_MAX])


def _of_run(run: str, singles: bool) -> Iterator[str]:
    if len(run) == 1 or singles:
        yield from run
    yield from (run[place : place + 2] for place in range(len(run) - 1))


def _of_date(token: str) -> Iterator[str]:
    year, month, day = token.split("-")
    if 1 <= int(month) <= len(_MONTHS):
        yield from (str(int(day)), stem(_MONTHS[int(month) - 1]), year)
    else:
        yield from (year, month, day)
