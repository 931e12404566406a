"""Reads conversations with questions about them, in the shape of LoCoMo.

The data set (Maharana et al., ACL 2024) is non-commercial: it may judge a ranking, and nothing here is fitted on it.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

FILE_BYTES_MAX = 256 * 1024 * 1024

_SESSION = re.compile(r"session_(\d+)")
_TURN_ID = re.compile(r"D\d+:\d+")
_DAY = re.compile(r"(\d{1,2}) ([A-Za-z]+),? (\d{4})")


class LocomoError(Exception):
    """A file that holds no such conversations; the message names it and what is wrong."""


class Turn(NamedTuple):
    """One turn of a talk.

    Attributes:
        id: its id, e.g. ``D3:12``.
        speaker: who says it.
        text: what is said, with the caption of a picture that is shown.
        session: which talk.
        day: the day, e.g. ``8 May 2023``; empty if the file does not say.
        time_ms: the beginning of that day; 0 if unknown.
    """

    id: str
    speaker: str
    text: str
    session: str
    day: str
    time_ms: int


class Asked(NamedTuple):
    """One question: its category, and the ids of all turns that are its evidence."""

    text: str
    category: str
    evidence: frozenset[str]


class Conversation(NamedTuple):
    """A long conversation; ``turns`` are in order, session after session."""

    name: str
    turns: tuple[Turn, ...]
    questions: tuple[Asked, ...]


def read_locomo(path: Path) -> tuple[Conversation, ...]:
    """Reads all conversations of a file, or of all ``*.json`` files of a folder.

    Questions without evidence are left out: nothing could be found for them. Evidence that names no turn is too.

    Raises:
        LocomoError: there is no such file, it is too large, or not of this shape.
    """
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    found = tuple(one for file in files for one in _read(file))
    if not any(one.questions for one in found):
        raise LocomoError(f"{path}: has no questions with evidence")
    return found


def _read(file: Path) -> list[Conversation]:
    try:
        if (size := file.stat().st_size) > FILE_BYTES_MAX:
            raise LocomoError(f"{file}: has {size} bytes, the limit is {FILE_BYTES_MAX}")
        whole = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise LocomoError(f"{file}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise LocomoError(f"{file}: is no JSON ({error})") from None
    if not isinstance(whole, list):
        raise LocomoError(f"{file}: is no array of conversations")
    return [_conversation(f"{file.name}[{place}]", value) for place, value in enumerate(whole)]


def _conversation(name: str, value: Any) -> Conversation:
    try:
        talk, questions = value["conversation"], value["qa"]
        numbers = sorted(int(match.group(1)) for key in talk if (match := _SESSION.fullmatch(key)))
        turns = tuple(turn for number in numbers for turn in _turns(talk, number))
        ids = frozenset(turn.id for turn in turns)
        asked = tuple(
            Asked(str(one["question"]), str(one["category"]), evidence)
            for one in questions
            if (evidence := ids & frozenset(_TURN_ID.findall(" ".join(map(str, one.get("evidence") or ())))))
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise LocomoError(f"{name}: is no conversation with questions ({type(error).__name__}: {error})") from None
    return Conversation(str(value.get("sample_id") or name), turns, asked)


def _turns(talk: Any, number: int) -> list[Turn]:
    day, time_ms = _day(str(talk.get(f"session_{number}_date_time") or ""))
    return [
        Turn(
            id=str(turn["dia_id"]),
            speaker=str(turn["speaker"]),
            text=" ".join(filter(None, (str(turn.get("text") or ""), str(turn.get("blip_caption") or "")))),
            session=str(number),
            day=day,
            time_ms=time_ms,
        )
        for turn in talk[f"session_{number}"]
    ]


def _day(text: str) -> tuple[str, int]:
    match = _DAY.search(text)
    if match is None:
        return "", 0
    day = " ".join(match.groups())
    try:
        return day, int(datetime.strptime(day, "%d %B %Y").replace(tzinfo=UTC).timestamp() * 1000)
    except ValueError:
        return day, 0
