"""The job: what a section adds to the outline, the term index and the tally, alone or together.

:func:`serial_result` does it directly from the text. The agents use the ``with_…`` functions, each of
which adds one section's part to what is there and changes nothing if that part is there already.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from pydantic import BaseModel

from .text import Section

TERMS_PER_SECTION = 6
SHELVES = ("a-f", "g-m", "n-s", "t-z")

_WORD = re.compile(r"\w+")
_TERM = re.compile(r"[^\W\d_]{4,20}")
_COMMON = frozenset(
    _WORD.findall(
        """
        about above after again against also because been before being below between both does each from have having
        here into itself more most must never nothing only other over same shall should some such than that their them
        then there these they this those through under until very what when where which while whom whose will with
        within without would your
        """
    )
)


class Task(BaseModel):
    """A section as it stands on the board."""

    number: str
    title: str
    source: str
    content: str


class Entry(BaseModel):
    """A section's line in the outline."""

    title: str
    source: str
    words: int


class Outline(BaseModel):
    """The shared outline: every section that has been worked on, in the order of the text."""

    sections: dict[str, Entry] = {}


class Shelf(BaseModel):
    """A part of the term index: for each term the sections that it stands out in."""

    terms: dict[str, list[str]] = {}


@dataclass(frozen=True, slots=True)
class JobResult:
    """What the whole job makes of a text.

    Attributes:
        outline: entries by section.
        index: sections by term.
        words: all words.
        sections: all sections.
        longest: words of the longest section.
    """

    outline: dict[str, Entry]
    index: dict[str, list[str]]
    words: int
    sections: int
    longest: int


def serial_result(sections: list[Section]) -> JobResult:
    """Does the job without any server: the yardstick."""
    outline: dict[str, Entry] = {}
    index: dict[str, list[str]] = {}
    for section in sections:
        words = count_words(section.content)
        outline[section.name] = Entry(title=section.title, source=section.source, words=words)
        for term in pick_terms(section.content):
            index.setdefault(term, []).append(section.name)
    counts = [entry.words for entry in outline.values()]
    return JobResult(outline, index, sum(counts), len(counts), max(counts))


def count_words(text: str) -> int:
    """Returns how many words a text has."""
    return len(_WORD.findall(text))


def pick_terms(text: str) -> list[str]:
    """Returns the words that stand out in a text: the most frequent ones that are not too common."""
    counts = Counter(term for term in map(str.lower, _TERM.findall(text)) if term not in _COMMON)
    return sorted(counts, key=lambda term: (-counts[term], term))[:TERMS_PER_SECTION]


def shelf_of(term: str) -> str:
    """Returns the shelf of the index on which a term stands."""
    initial = term[0]
    return next((s for s in SHELVES if s[0] <= initial <= s[2]), SHELVES[ord(initial) % len(SHELVES)])


def with_entry(outline: Outline | None, task: Task) -> Outline:
    """Returns the outline with the task's entry."""
    entry = Entry(title=task.title, source=task.source, words=count_words(task.content))
    entries = {**(outline.sections if outline is not None else {}), task.number: entry}
    return Outline(sections=dict(sorted(entries.items())))


def with_terms(shelf: Shelf | None, task: Task, terms: list[str]) -> Shelf:
    """Returns the shelf with the task under each of ``terms``."""
    held = dict(shelf.terms if shelf is not None else {})
    for term in terms:
        held[term] = sorted({*held.get(term, ()), task.number})
    return Shelf(terms=dict(sorted(held.items())))
