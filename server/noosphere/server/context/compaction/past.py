"""What came before a tool result, as far as it tells what of the result will be needed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...ports.models import SourceMessage
from .words import terms, terms_of_name

MESSAGES_MAX = 40
"""Only this many of the newest messages, and of the goals, are looked at."""
CHARS_MAX = 16_384
"""Only this much of the end of each text is looked at."""

_VALUE = re.compile(r"\w[\w@.:+/-]*")
_VALUE_CHARS_MAX = 80
_DAY = re.compile(r"\b(?:19|20)\d\d-(\d\d)-(\d\d)")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_NAMED_DAY = re.compile(rf"\b({'|'.join(_MONTHS)})[a-z]*\.? (\d{{1,2}})(?:st|nd|rd|th)?\b")
_WEIGHT_OF_ROLE = {"user": 1.0, "assistant": 0.8, "tool": 0.4}
_WEIGHT_OF_TOOL_NAME = 0.5
# Earlier tool results weigh less than this: they are full of values that nobody has asked about.
_WEIGHT_OF_MENTION = 0.5
# The newest message counts in full, each older one a little less.
_FADING = 0.92


class Task(NamedTuple):
    """What came before a tool result. Nothing that came after it may be in here.

    Attributes:
        tool: the tool's name.
        arguments: what it was called with, JSON or other text.
        goals: what the session is for.
        messages: the transcript so far, oldest first.
    """

    tool: str = ""
    arguments: str = ""
    goals: Sequence[str] = ()
    messages: Sequence[SourceMessage] = ()


class Past:
    """Which words, values and days a task has been about so far; the newer, the more."""

    def __init__(self, task: Task) -> None:
        self._words: dict[str, float] = {}
        self._values: dict[str, float] = {}
        self._days: set[tuple[int, int]] = set()
        for text, weight in _sources(task):
            self._learn(text[-CHARS_MAX:].casefold(), weight)

    def _learn(self, text: str, weight: float) -> None:
        for word in terms(text):
            self._words[word] = max(weight, self._words.get(word, 0.0))
        for value in _VALUE.findall(text):
            value = value.rstrip(".:/+-")
            self._values[value] = max(weight, self._values.get(value, 0.0))
        self._days.update((int(month), int(day)) for month, day in _DAY.findall(text))
        self._days.update((_MONTHS.index(month) + 1, int(day)) for month, day in _NAMED_DAY.findall(text))

    def names(self, name: str) -> float:
        """Returns how much the task has been about all the words in a field's name, 0 to 1."""
        return min((self._words.get(word, 0.0) for word in terms_of_name(name)), default=0.0)

    def knows(self, value: str) -> float:
        """Returns how much the task has been about a value, 0 to 1; a day may have been named in words."""
        folded = value.casefold()
        if (weight := self._values.get(folded)) is not None:
            return weight
        if folded[:1].isdigit() and (day := _DAY.match(folded)) and (int(day[1]), int(day[2])) in self._days:
            return 1.0
        if folded.isalnum() or len(folded) > _VALUE_CHARS_MAX:
            return 0.0
        words = terms(folded)
        return min((self._words.get(word, 0.0) for word in words), default=0.0) if len(words) > 1 else 0.0

    def mentions(self, value: str) -> float:
        """Returns how lately somebody mentioned a value, 0 to 1; earlier tool results do not count."""
        weight = self.knows(value)
        return weight if weight > _WEIGHT_OF_MENTION else 0.0

    def weight(self, word: str) -> float:
        """Returns how much the task has been about a term, 0 to 1."""
        return self._words.get(word, 0.0)


def _sources(task: Task) -> Iterator[tuple[str, float]]:
    yield task.tool, _WEIGHT_OF_TOOL_NAME
    yield task.arguments, 1.0
    for goal in task.goals[-MESSAGES_MAX:]:
        yield goal, 1.0
    fading = 1.0
    for message in reversed(task.messages[-MESSAGES_MAX:]):
        # A system message names everything that could ever matter, so that it tells nothing apart.
        if (of_role := _WEIGHT_OF_ROLE.get(message.role)) is not None:
            yield message.text, of_role * fading
            fading *= _FADING
