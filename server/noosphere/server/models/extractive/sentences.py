"""Splits text into sentences, English and Chinese, by rules."""

from __future__ import annotations

import re
from collections.abc import Iterator

SENTENCE_CHARS_MAX = 320
"""A longer sentence is split where it pauses, else anywhere."""

_SHORTHANDS = re.compile(
    r"e\.g|i\.e|etc|vs|mr|mrs|ms|dr|prof|st|no|fig|eq|sec|vol|approx|inc|ltd|co|a\.m|p\.m|u\.s"
    r"|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec|[a-z]"
)
# Chinese marks end a sentence by themselves, ours only before a space; what closes a quotation belongs to it. Runs are
# bounded, so that the time grows with the text and not with its square.
_END = re.compile(r"""[。！？；…]+[”’」』）】"')]{0,4}|[.!?]{1,8}["'”’)\]]{0,4}(?=\s|$)|\n+""")
_PAUSE = re.compile(r"[，、：；;:,]\s*|\s[-–—]\s")
_BULLET = re.compile(r"^(?:[-*•#>]+|\d{1,3}[.)、])\s+")
_LAST_WORD = re.compile(r"[^\s(（\"']+$")


def split_sentences(text: str) -> Iterator[str]:
    """Yields the sentences of a text without line breaks, bullets and blanks around, none over 320 characters."""
    for start, end in sentence_spans(text):
        yield from _pieces(text[start:end])


def sentence_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yields where the sentences of a text begin and end, in order and without gaps."""
    start = 0
    for match in _END.finditer(text):
        if _is_shorthand(text, start, match):
            continue
        yield start, match.end()
        start = match.end()
    if start < len(text):
        yield start, len(text)


def _is_shorthand(text: str, start: int, match: re.Match[str]) -> bool:
    """Returns whether a full stop belongs to the word before it: ``e.g.``, ``Mr.``, an initial, a list's number."""
    if match.group() != ".":
        return False
    word = _LAST_WORD.search(text[max(start, match.start() - 12) : match.start()])
    if word is None:
        return False
    last = word.group().lower()
    numbers_a_point = last.isdigit() and not text[start : match.start() - len(last)].strip()
    return numbers_a_point or _SHORTHANDS.fullmatch(last) is not None


def _pieces(sentence: str) -> Iterator[str]:
    sentence = _BULLET.sub("", " ".join(sentence.split()))
    while len(sentence) > SENTENCE_CHARS_MAX:
        end = SENTENCE_CHARS_MAX
        for pause in _PAUSE.finditer(sentence, SENTENCE_CHARS_MAX // 2, SENTENCE_CHARS_MAX):
            end = pause.end()
        if end == SENTENCE_CHARS_MAX and (space := sentence.rfind(" ", end // 2, end)) > 0:
            end = space + 1
        yield sentence[:end].rstrip()
        sentence = sentence[end:].lstrip()
    if any(map(str.isalnum, sentence)):
        yield sentence
