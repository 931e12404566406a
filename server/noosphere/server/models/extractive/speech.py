"""Messages as sentences with who said them, bounded in number."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ...ports.models import SourceMessage
from ...text import distinct_terms
from .sentences import split_sentences

SENTENCES_MAX = 2_000
"""Of more, the newest are looked at, and the first message."""
MESSAGE_CHARS_MAX = 16_384
"""A longer message is looked at from both ends."""
_NAME_CHARS_MAX = 40
_RESULT_CHARS_MAX = 200
_ERROR = re.compile(r"error|fail|exception|denied|not found|timed? ?out|错误|失败|异常|超时|拒绝", re.IGNORECASE)


class Sentence(NamedTuple):
    """A sentence of a message.

    Attributes:
        text: the sentence.
        terms: its words.
        role: the message's role.
        speaker: who said it, as a reader may know them: the role, or the author where a role has several.
        message: which of the messages it is in; -1 for what an earlier summary told.
    """

    text: str
    terms: frozenset[str]
    role: str
    speaker: str
    message: int


def sentences_of(messages: Sequence[SourceMessage]) -> list[Sentence]:
    """Returns the sentences of messages in order. Of what tools returned, only what people can read is speech."""
    authors: dict[str, set[str]] = {}
    for message in messages:
        authors.setdefault(message.role, set()).add(message.author)
    found: list[list[Sentence]] = []
    count = 0
    for place in range(len(messages) - 1, -1, -1):
        # The first message is looked at whatever happened since: mostly it says what all is about.
        if count >= SENTENCES_MAX and place:
            continue
        message = messages[place]
        several = len(authors[message.role]) > 1 and message.author
        speaker = message.author[:_NAME_CHARS_MAX] if several else message.role
        found.append(
            [
                Sentence(text, distinct_terms(text), message.role, speaker, place)
                for text in _spoken(message.role, message.text)
            ]
        )
        count += len(found[-1])
    return [sentence for sentences in reversed(found) for sentence in sentences]


def is_error(text: str) -> bool:
    """Returns whether a text tells that something went wrong."""
    return _ERROR.search(text) is not None


def _spoken(role: str, text: str) -> list[str]:
    if len(text) > MESSAGE_CHARS_MAX:
        text = text[: MESSAGE_CHARS_MAX // 2] + "\n" + text[-MESSAGE_CHARS_MAX // 2 :]
    if role == "tool":
        flat = " ".join(text.split())
        if flat[:1] in "{[" and len(flat) > _RESULT_CHARS_MAX:
            return []
    return list(split_sentences(text))
