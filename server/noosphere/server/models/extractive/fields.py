"""Goals, decisions and open questions out of sentences, by rules that would rather miss than invent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ...text import distinct_terms
from .phrases import answer_of, is_decision, is_goal, is_open, is_question
from .speech import Sentence

FIELD_CHARS_MAX = 200
GOALS_MAX = 8
DECISIONS_MAX = 12
QUESTIONS_MAX = 6
_GOALS_PER_MESSAGE_MAX = 3
_SAME = 0.6
_ANSWERED = 0.5


class Fields(NamedTuple):
    """What the rules found, oldest first."""

    goals: tuple[str, ...]
    decisions: tuple[str, ...]
    open_questions: tuple[str, ...]


def find_fields(sentences: Sequence[Sentence], earlier: Fields) -> Fields:
    """Finds the structured part of a summary.

    What tools returned counts for nothing here: it is data, and an instruction planted in it must not become a goal.

    Args:
        sentences: in order, of all messages.
        earlier: what an earlier summary says; it comes first.
    """
    spoken = [sentence for sentence in sentences if sentence.role in ("user", "assistant")]
    return Fields(
        _first_and_newest(_distinct([*earlier.goals, *_goals(spoken)]), GOALS_MAX),
        _distinct([*earlier.decisions, *_decisions(spoken)])[-DECISIONS_MAX:],
        _distinct([*_still_open(earlier.open_questions, spoken), *_questions(spoken)])[-QUESTIONS_MAX:],
    )


def _goals(spoken: Sequence[Sentence]) -> list[str]:
    found: list[str] = []
    asked: dict[int, int] = {}
    for sentence in spoken:
        if sentence.role != "user" or not is_goal(sentence.text) or answer_of(sentence.text):
            continue
        asked[sentence.message] = asked.get(sentence.message, 0) + 1
        if asked[sentence.message] <= _GOALS_PER_MESSAGE_MAX:
            found.append(sentence.text)
    if not found:
        # Who asks for nothing by these words has still said at first what it is about.
        found = [sentence.text for sentence in spoken if sentence.role == "user"][:1]
    return found


def _decisions(spoken: Sequence[Sentence]) -> list[str]:
    found: list[str] = []
    for place, sentence in enumerate(spoken):
        begins = place == 0 or spoken[place - 1].message != sentence.message
        before = spoken[place - 1] if place else None
        answer = answer_of(sentence.text) if begins and sentence.role == "user" else ""
        # To ask for something (`could you tell me …?`) is to propose nothing that could be agreed to.
        proposed = before is not None and before.role == "assistant" and is_question(before.text)
        if answer and before is not None and proposed and not is_goal(before.text):
            found.append(f"{sentence.speaker} {answer}: {before.text}")
        elif is_decision(sentence.text):
            found.append(sentence.text)
    return found


def _questions(spoken: Sequence[Sentence]) -> list[str]:
    """Returns what is said to be open, and questions after which nobody else said anything but questions."""
    found: list[str] = []
    answered_by: set[str] = set()
    for place in range(len(spoken) - 1, -1, -1):
        sentence = spoken[place]
        if is_question(sentence.text):
            if not answered_by - {sentence.speaker}:
                found.append(sentence.text)
            continue
        answered_by.add(sentence.speaker)
        if is_open(sentence.text) and not _is_answered(sentence.terms, spoken[place + 1 :]):
            found.append(sentence.text)
    return found[::-1]


def _still_open(questions: Iterable[str], spoken: Sequence[Sentence]) -> list[str]:
    return [question for question in questions if not _is_answered(distinct_terms(question), spoken)]


def _is_answered(asked: frozenset[str], later: Sequence[Sentence]) -> bool:
    """Returns whether something was said later that has half of the question's words and leaves nothing open."""
    return any(
        len(asked & sentence.terms) >= _ANSWERED * len(asked)
        for sentence in later
        if asked and not is_question(sentence.text) and not is_open(sentence.text)
    )


def _distinct(entries: Iterable[str]) -> tuple[str, ...]:
    """Returns entries shortened, each once; of two that say much the same the later one, in its own place."""
    kept: list[tuple[str, frozenset[str]]] = []
    for entry in entries:
        words = distinct_terms(entry)
        kept = [other for other in kept if not _same(words, other[1])]
        kept.append((shortened(entry), words))
    return tuple(entry for entry, _ in kept)


def _same(one: frozenset[str], other: frozenset[str]) -> bool:
    """Returns whether two say much the same. What differs in a number (`step 1`, `step 2`) does not."""
    if any(character.isdigit() for word in one ^ other for character in word):
        return False
    return one == other or len(one & other) > _SAME * len(one | other)


def _first_and_newest(entries: tuple[str, ...], most: int) -> tuple[str, ...]:
    return entries if len(entries) <= most else (entries[0], *entries[1 - most :])


def shortened(entry: str) -> str:
    """Returns an entry of at most 200 characters, cut at a space where there is one."""
    if len(entry) <= FIELD_CHARS_MAX:
        return entry
    space = entry.rfind(" ", FIELD_CHARS_MAX // 2, FIELD_CHARS_MAX)
    return entry[: space if space > 0 else FIELD_CHARS_MAX - 1] + "…"
