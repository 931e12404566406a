"""Finds words in texts however they are written, and blacks them out: pure rules, no I/O.

Two texts are the same here if they differ in case, in compatible forms of characters, in white space, in characters
that nobody sees, or in the escapes of JSON. What is replaced is the original's own spelling; everything else stays as
it was, character for character.
"""

from __future__ import annotations

import json
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable
from typing import Any, NamedTuple

from ..ports.sources import REDACTED

_ESCAPE = r"\\+(?:u[0-9a-fA-F]{4}(?:\\+u[dD][c-fC-F][0-9a-fA-F]{2})?|[nrtbf\"'/])|(?:\\\\)+"
_PLAIN = re.compile(r"(?P<space>\s{2,}|[^\S ])|(?P<other>[^\x00-\x7f])")
_ESCAPED = re.compile(rf"(?P<escape>{_ESCAPE})|{_PLAIN.pattern}")
_HEX = re.compile(r"u([0-9a-fA-F]{4})")
_LETTERS = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
_UNSEEN = frozenset("\u00ad\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0")
_MARK = re.compile(re.escape(REDACTED))
_JSON_BEGINS = ("{", "[", '"')


class _View(NamedTuple):
    """A text as it is compared, and where its parts come from.

    Attributes:
        text: as it is compared.
        starts: where each part begins in it, ascending.
        origins: the same in the original.
        whole: whether a part stands for its original as a whole, or character by character.
    """

    text: str
    starts: list[int]
    origins: list[int]
    whole: list[bool]


class Blackout:
    """Words that must no longer be read.

    Args:
        words: the words; those of which nothing is left to compare are ignored.
    """

    def __init__(self, words: Iterable[str]) -> None:
        wanted = {folded(word) for word in words} - {""}
        # Of two that begin alike the longer one is taken.
        alternatives = sorted(wanted, key=lambda word: (-len(word), word))
        self._words = re.compile("|".join(map(re.escape, alternatives))) if alternatives else None
        self._alternatives = alternatives

    def found_in(self, text: str) -> bool:
        """Tells whether one of the words is in a text."""
        return bool(self.spans(text))

    def has_part(self, text: str) -> bool:
        """Tells whether a text is one of the words, or a part of one."""
        part = folded(text)
        return bool(part) and any(part in word for word in self._alternatives)

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Returns where the words are, as ranges of the text that do not overlap, in order."""
        if self._words is None:
            return []
        found = _spans(text, _view(text, _PLAIN), self._words)
        if "\\" in text:
            found += _spans(text, _view(text, _ESCAPED), self._words)
        merged: list[tuple[int, int]] = []
        for start, end in sorted(found):
            if merged and start < merged[-1][1]:
                merged[-1] = merged[-1][0], max(end, merged[-1][1])
            else:
                merged.append((start, end))
        marks = [mark.span() for mark in _MARK.finditer(text)] if merged else []
        # Otherwise a word that is part of the mark would be found for ever.
        return [one for one in merged if not any(mark[0] <= one[0] and one[1] <= mark[1] for mark in marks)]

    def text(self, text: str) -> str:
        """Returns a text with a mark in the place of each word.

        A JSON object, list or text stays JSON, unless one of the words spans names and values of it: then the word
        goes all the same.
        """
        spans = self.spans(text)
        if not spans:
            return text
        parts: list[str] = []
        done = 0
        for start, end in spans:
            parts += (text[done:start], REDACTED)
            done = end
        changed = "".join((*parts, text[done:]))
        if text.lstrip().startswith(_JSON_BEGINS) and not _is_json(changed) and _is_json(text):
            # A number is replaced by a text, which needs quotes.
            again = json.dumps(self.value(json.loads(text)), ensure_ascii=False)
            return changed if self.found_in(again) else again
        return changed

    def json(self, text: str) -> str:
        """Returns JSON text of any kind with the words blacked out; it stays JSON, whatever of it has to go."""
        changed = self.text(text)
        if changed is text or _is_json(changed):
            return changed
        again = json.dumps(self.value(json.loads(text)), ensure_ascii=False)
        return json.dumps(REDACTED) if self.found_in(again) else again

    def data(self, data: bytes) -> bytes:
        """Returns bytes with a mark in the place of each word that stands there in UTF-8."""
        text = data.decode("utf-8", "surrogateescape")
        changed = self.text(text)
        return data if changed is text else changed.encode("utf-8", "surrogateescape")

    def value(self, value: Any) -> Any:
        """Returns a JSON value with the words blacked out in all texts, numbers and names of fields."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            changed: dict[str, Any] = {}
            for name, inside in value.items():
                changed[_free(self.text(name), changed)] = self.value(inside)
            return changed
        if isinstance(value, list):
            return [self.value(inside) for inside in value]
        if isinstance(value, (int, float)) and not isinstance(value, bool) and self.found_in(json.dumps(value)):
            return REDACTED
        return value


def folded(text: str) -> str:
    """Returns a text as it is compared."""
    return _view(text, _PLAIN).text.strip()


def _free(name: str, taken: dict[str, Any]) -> str:
    """Returns a name that is not taken; two may have become alike."""
    number, free = 2, name
    while free in taken:
        free, number = f"{name} {number}", number + 1
    return free


def _spans(text: str, view: _View, words: re.Pattern[str]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    position = 0
    while (match := words.search(view.text, position)) is not None:
        start, end = _origin(view, match.start()), _origin_end(text, view, match.end())
        # A letter without its accent is another letter.
        if end is not None and not (end < len(text) and unicodedata.combining(text[end])):
            found.append((start, end))
            position = match.end()
        else:
            position = match.start() + 1
    return found


def _origin(view: _View, at: int) -> int:
    part = bisect_right(view.starts, at) - 1
    return view.origins[part] if view.whole[part] else view.origins[part] + at - view.starts[part]


def _origin_end(text: str, view: _View, at: int) -> int | None:
    """Returns where a range ends in the original; None if only accents are left of the last character."""
    part = bisect_right(view.starts, at - 1) - 1
    if not view.whole[part]:
        return view.origins[part] + at - view.starts[part]
    following = part + 1
    ends = view.starts[following] if following < len(view.starts) else len(view.text)
    left = view.text[at:ends]
    if left and all(unicodedata.combining(character) for character in left):
        return None
    return view.origins[following] if following < len(view.origins) else len(text)


def _view(text: str, special: re.Pattern[str]) -> _View:
    parts: list[str] = []
    starts: list[int] = []
    origins: list[int] = []
    whole: list[bool] = []
    length = 0

    def add(part: str, origin: int, *, as_whole: bool) -> None:
        nonlocal length
        if part == " " and parts and parts[-1].endswith(" "):
            part = ""
        starts.append(length)
        origins.append(origin)
        whole.append(as_whole)
        parts.append(part)
        length += len(part)

    done = 0
    for match in special.finditer(text):
        if match.start() > done:
            add(text[done : match.start()].lower(), done, as_whole=False)
        add(_folded(match), match.start(), as_whole=True)
        done = match.end()
    if done < len(text):
        add(text[done:].lower(), done, as_whole=False)
    return _View("".join(parts), starts, origins, whole)


def _folded(match: re.Match[str]) -> str:
    said = match.group()
    if match.lastgroup == "escape":
        said = _unescaped(said)
        if len(said) == 1 and said < "\x80" and not said.isspace():
            return said.lower()
    if said.isspace():
        return " "
    if said in _UNSEEN or unicodedata.category(said[0]) == "Cf" or "\ufe00" <= said[0] <= "\ufe0f":
        return ""
    return unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", said).casefold())


def _unescaped(said: str) -> str:
    codes = [int(code, 16) for code in _HEX.findall(said)]
    if len(codes) == 2:
        return chr(0x10000 + ((codes[0] & 0x3FF) << 10) + (codes[1] & 0x3FF))
    if codes:
        return chr(codes[0])
    return _LETTERS.get(said[-1], said[-1])


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
