"""A conflict in one short paragraph that never exceeds its token limit.

How tokens are counted. Whatever a model's tokenizer is, text costs it at most one token per UTF-8
byte: byte-level and byte-fallback vocabularies (all of today's) have an entry for every single byte.
So everything that comes from users (keys, actors, values) is counted at one token per byte, which no
text in any script exceeds. The paragraph's own fixed words would waste the limit if counted so. They
are plain, common English words, of which these tokenizers make at most one token each with its blank;
they are counted at one token per word and one per punctuation mark, plus a reserve of one in four
(held against cl100k, o200k and the Qwen vocabulary, which need about a quarter less than that).

Values are data, not instructions: they stand between back quotes, which cannot occur inside (they are
escaped, as are control, format and bidirectional characters), and end with a marker when cut.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from noosphere.consistency import Encoding

from ._values import Payload

_PIECE = re.compile(r"[A-Za-z]+|[^A-Za-z\s]")
_SLOT_MIN = 12


@dataclass(frozen=True, slots=True)
class Sentence:
    """Fixed text with one slot for data.

    Attributes:
        before: fixed text before the slot.
        data: what fills the slot; None for a sentence without one.
        after: fixed text after it.
        optional: how dispensable the sentence is; higher numbers are dropped first.
        cut: whether the data may be shortened to fit.
    """

    before: str
    data: str | None
    after: str
    optional: int
    cut: bool = False


def fixed_cost(text: str) -> int:
    """Returns the tokens that the paragraph's own words are counted at."""
    pieces = len(_PIECE.findall(text))
    return pieces + (pieces + 3) // 4


def data_cost(text: str) -> int:
    """Returns the tokens that users' text is counted at: one per UTF-8 byte, a bound for any tokenizer."""
    return len(text.encode("utf-8", "surrogatepass"))


def show_payload(payload: Payload) -> str:
    """Returns a value on one line, with nothing in it that could end its quotes or hide text."""
    if payload.encoding is Encoding.BYTES:
        return "base64:" + base64.b64encode(payload.data).decode()
    try:
        text = json.dumps(json.loads(payload.data), ensure_ascii=False, separators=(",", ":"))
    except (ValueError, RecursionError):
        text = payload.data.decode("utf-8", "replace")
    return escape(text)


def escape(text: str) -> str:
    """Returns ``text`` with back quotes and unprintable characters as JSON escapes."""
    return "".join(char if char.isprintable() and char != "`" else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    return json.dumps(char)[1:-1] if char != "`" else "\\u0060"


def show_time(time: datetime | None) -> str:
    """Returns a time in UTC to the second."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if time is not None else "unknown"


def compose(sentences: Sequence[Sentence], tokens_max: int) -> str:
    """Joins as many sentences as fit, and as much of their data.

    Args:
        sentences: in reading order.
        tokens_max: the limit, counted as this module says.

    Returns:
        One paragraph; empty if not even the most important sentence fits.
    """
    chosen: list[int] = []
    room = tokens_max
    for index in sorted(range(len(sentences)), key=lambda i: (sentences[i].optional, i)):
        cost = _cost_min(sentences[index])
        if cost <= room:
            chosen.append(index)
            room -= cost
    grants = _share(sentences, chosen, room)
    return " ".join(_render(sentences[index], grants.get(index)) for index in sorted(chosen))


def _cost_min(sentence: Sentence) -> int:
    fixed = fixed_cost(sentence.before) + fixed_cost(sentence.after) + 1
    if sentence.data is None:
        return fixed
    return fixed + 2 + min(data_cost(sentence.data), _slot_min(sentence))


def _slot_min(sentence: Sentence) -> int:
    assert sentence.data is not None
    return _SLOT_MIN + len(_marker(data_cost(sentence.data))) if sentence.cut else data_cost(sentence.data)


def _share(sentences: Sequence[Sentence], chosen: Sequence[int], room: int) -> dict[int, int]:
    """Returns the bytes that each slot gets: what is short gets all it needs, the rest is split evenly."""
    needs = {i: data_cost(sentences[i].data or "") for i in chosen if sentences[i].data is not None}
    grants = {i: min(need, _slot_min(sentences[i])) for i, need in needs.items()}
    hungry = sorted((i for i in grants if grants[i] < needs[i]), key=lambda i: needs[i] - grants[i])
    while hungry:
        index = hungry.pop(0)
        extra = min(needs[index] - grants[index], room // (len(hungry) + 1))
        grants[index] += extra
        room -= extra
    return grants


def _render(sentence: Sentence, grant: int | None) -> str:
    if sentence.data is None or grant is None:
        return sentence.before + sentence.after
    return f"{sentence.before}`{_cut(sentence.data, grant)}`{sentence.after}"


def _marker(size: int) -> str:
    return f"...[{size} bytes]"


def _cut(text: str, bytes_max: int) -> str:
    size = data_cost(text)
    if size <= bytes_max:
        return text
    marker = _marker(size)
    data = text.encode("utf-8", "surrogatepass")[: bytes_max - len(marker)]
    return data.decode("utf-8", "ignore") + marker


def as_data(payload: Payload) -> Any:
    """Returns a value as JSON-able data; bytes as ``{"base64": …}``, broken JSON as its text."""
    if payload.encoding is Encoding.BYTES:
        return {"base64": base64.b64encode(payload.data).decode()}
    try:
        return json.loads(payload.data)
    except (ValueError, RecursionError):
        return payload.data.decode("utf-8", "replace")
