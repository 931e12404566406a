"""What an entry of the outbox claims, in words: pure rules, no I/O.

A text stays as it is. A value that says little by itself (a short text, a number) gets what its item's key tells before
it, and an object becomes lines of ``key: value``. Each value of an item that had several is a claim of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from noosphere.consistency import Scalar, split_actor

from ..text import distinct_terms
from .keys import GOALS, RESULTS, TASK
from .outbox import Candidate, CandidateValue

TEXT_BYTES_MAX = 4 * 1024
CUT = " […]"
"""Stands at the end of a text that was longer."""

OWNER_ATTRIBUTE = "owner"
GIVEN_OWNERS = ("user/", "shared/")
"""Owners begin so whom a writer may name beside itself."""
IMPORTANCE_ATTRIBUTE = "importance"
MEMORY_TYPE_ATTRIBUTE = "memory_type"
SEMANTIC = "semantic"
EPISODIC = "episodic"
PROCEDURAL = "procedural"
MEMORY_TYPES = frozenset({"working", EPISODIC, SEMANTIC, PROCEDURAL})

_HAPPENED = (GOALS, TASK, RESULTS)
"""Items here tell what was done, rather than what is so."""

_TEXT_FIELD = "text"
_WORDS_MIN = 4
_TERMS_MIN = 3
"""A text of so many words, or in which so many terms are found, speaks for itself."""

_TOPIC_CHARS_MAX = 80
_WORD = re.compile(r"[^\W\d_]{2,}")
_NAMELESS = re.compile(r"[0-9a-f-]{8,}|[^a-zA-Z\u0080-\U0010ffff]*|.*[0-9]{6,}.*", re.IGNORECASE)
"""Segments of keys that are ids and numbers and tell nothing."""


class Claim(NamedTuple):
    """One claim.

    Attributes:
        text: in words, at most 4 KiB.
        writer: the agent that wrote it; empty for the server.
        time_ms: when it was written.
    """

    text: str
    writer: str
    time_ms: int


def claims_of(candidate: Candidate) -> tuple[Claim, ...]:
    """Returns what a candidate claims, the newest value first; values that are no text and empty ones claim nothing."""
    found: dict[str, Claim] = {}
    for value in (candidate.value, *candidate.others):
        text = _words(candidate, value)
        if text:
            writer = split_actor(value.actor)[0] if value.actor else ""
            found.setdefault(text, Claim(text, writer, value.time_ms))
    return tuple(found.values())


def memory_type_of(candidate: Candidate) -> str:
    """Returns which kind of memory a candidate is: as its attribute or its maker says, else as its key suggests."""
    for said in (candidate.attributes.get(MEMORY_TYPE_ATTRIBUTE), candidate.memory_type):
        if said in MEMORY_TYPES:
            return str(said)
    return EPISODIC if candidate.item.startswith(_HAPPENED) else SEMANTIC


def importance_of(candidate: Candidate) -> float | None:
    """Returns how much a candidate matters, 0 to 1; None if its item did not say."""
    said: Scalar | None = candidate.attributes.get(IMPORTANCE_ATTRIBUTE)
    if isinstance(said, bool) or not isinstance(said, (int, float)) or not 0 <= said <= 1:
        return None
    return float(said)


def topic_of(key: str) -> str:
    """Returns what an item's key tells beside its value: its words without the collection; empty if it has none."""
    segments = key.split("/")
    named = [segment for segment in segments[1:] or segments if not _NAMELESS.fullmatch(segment)]
    words = " ".join(re.sub(r"[-_.\s]+", " ", segment).strip() for segment in named)
    return words[:_TOPIC_CHARS_MAX].strip() if _WORD.search(words) else ""


def _words(candidate: Candidate, value: CandidateValue) -> str:
    content = _content(value)
    if content is None:
        return ""
    if isinstance(content, Mapping):
        said = content.get(_TEXT_FIELD)
        if memory_type_of(candidate) == PROCEDURAL and isinstance(said, str) and said.strip():
            # What stands beside the words is for machines.
            return _bounded(said.strip())
        text = "\n".join(_lines(content))
    else:
        text = _inline(content)
    topic = topic_of(candidate.item)
    if topic and text and (not isinstance(content, str) or _is_terse(text)) and not _says(text, topic):
        # An object's first line would run into the topic.
        text = f"{topic}:\n{text}" if isinstance(content, Mapping) and "\n" in text else f"{topic}: {text}"
    return _bounded(text)


def _content(value: CandidateValue) -> Any:
    raw = bytes(value.json)
    if raw:
        return json.loads(raw)
    try:
        return value.data.decode()
    except UnicodeDecodeError:
        return None


def _lines(content: Mapping[str, Any]) -> list[str]:
    said = content.get(_TEXT_FIELD)
    lines = [said.strip()] if isinstance(said, str) and said.strip() else []
    for key, value in content.items():
        text = _inline(value)
        if text and not (lines and key == _TEXT_FIELD):
            lines.append(f"{key}: {text}")
    return lines


def _inline(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, list) and value and not any(isinstance(one, (list, dict)) for one in value):
        return ", ".join(text for one in value if (text := _inline(one)))
    return json.dumps(value, ensure_ascii=False) if value not in ([], {}) else ""


def _is_terse(text: str) -> bool:
    return len(text.split()) < _WORDS_MIN and len(distinct_terms(text)) < _TERMS_MIN


def _says(text: str, topic: str) -> bool:
    return set(distinct_terms(topic)) <= set(distinct_terms(text))


def _bounded(text: str) -> str:
    data = text.encode("utf-8", "replace")
    if len(data) <= TEXT_BYTES_MAX:
        return data.decode()
    return data[: TEXT_BYTES_MAX - len(CUT.encode())].decode("utf-8", "ignore") + CUT
