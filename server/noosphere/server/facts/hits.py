"""Hits: what a search found, ranked, with what ranks before all words and meaning, and packed into a budget.

Nothing here waits or reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ..text import terms
from .conflicts import preference
from .contents import fact_of
from .naming import Asked
from .prepared import Prepared
from .ranking import PACKED_MAX, WEIGHTS, Choice, Document, Question, Statistics, pack, rank, relevances
from .slots import USER, subject_form
from .standing import Standing
from .types import Contender, Fact, MemoryType
from .wording import readable

EXACT = 2.0
"""State of work whose key is the question stands before everything: nobody asks for a key by chance."""

PROCEDURE = 1.0
"""What is known of how to do just that stands before whatever has the question's words in it."""

NEAR_TIE = 0.15
"""Of claims that contradict each other the newest stands first, unless the question's words tell which is meant."""

SUBJECT = 0.2
"""A fact about what the question names, word for word: as much as the words of a talk, which tell no more than that."""

PREDICATE = 0.2
"""And of the property that it asks for: as telling, and words alone miss other forms ("citizenship" of a citizen)."""

LINKED = 0.5
"""What else is known of a hit's subject is worth half of the hit."""

LINKS_MAX = 8
"""Most subjects and objects whose other facts are looked for."""


class Option(NamedTuple):
    """A version of a fact that may become a hit: what counts, its content, and its similarity to the question."""

    standing: Standing
    prepared: Prepared
    similarity: float | None = None


class Scores(NamedTuple):
    """Why a hit stands where it stands.

    Attributes:
        keyword: by keywords, 0 to 1.
        dense: by meaning, 0 to 1; 0 if the question was not embedded.
        total: everything together; the order of hits.
        relevance: how likely it helps, 0 to 1.
        parts: what each sign adds to the total; zeros are left out.
    """

    keyword: float = 0.0
    dense: float = 0.0
    total: float = 0.0
    relevance: float = 0.0
    parts: Mapping[str, float] = {}


class Hit(NamedTuple):
    """A fact that a search found, why it stands where it stands, and its size in tokens."""

    fact: Fact
    scores: Scores
    tokens: int


class Placed(NamedTuple):
    """An option in its place."""

    option: Option
    scores: Scores

    def hit(self) -> Hit:
        """Returns it as callers see it."""
        (scope, note, version), prepared = self.option.standing, self.option.prepared
        return Hit(fact_of(scope, note, version, prepared.content), self.scores, prepared.tokens)


def placed(
    query: str,
    asked: Question,
    options: Sequence[Option],
    known: Statistics | None,
    links: Mapping[str, float] | None = None,
) -> tuple[Placed, ...]:
    """Ranks options, best first.

    Args:
        query: the question.
        asked: the same, read.
        options: what may become hits, at most 2,000.
        known: statistics of everything that the filters leave.
        links: the totals of hits by the names of their subjects and objects; what is known of these is lifted.
    """
    documents = [_document(option) for option in options]
    ranking = rank(asked, documents, similarities=[option.similarity for option in options], known=known)
    parts = {one.at: dict(one.parts) for one in ranking}
    slots = _in_slots(query, options)
    for at, option in enumerate(options):
        parts[at] |= _before_words(query, asked, option) | slots[at]
        if links:
            lift = LINKED * max((links.get(name, 0.0) for name in option.prepared.names), default=0.0)
            # A hit is linked to itself; its own score is worth more than half of that.
            if lift > sum(parts[at].values()):
                parts[at]["linked"] = lift - sum(parts[at].values())
    totals = [sum(parts[at].values()) for at in range(len(options))]
    for at, total in _contested(options, totals).items():
        parts[at]["contested"] = total - totals[at]
        totals[at] = total
    keywords = [parts[at].get("keywords", 0.0) / WEIGHTS.keywords for at in range(len(options))]
    near = [max(0.0, option.similarity or 0.0) for option in options]
    likely = relevances(totals, keywords, near)
    order = sorted(
        range(len(options)),
        key=lambda at: (-totals[at], -documents[at].time_ms, options[at].standing.key),
    )
    return tuple(
        Placed(
            options[at],
            Scores(keywords[at], near[at], totals[at], likely[at], {k: v for k, v in parts[at].items() if v}),
        )
        for at in order
    )


def packed(ranking: Sequence[Placed], limit: int, tokens_max: int) -> tuple[Placed, ...]:
    """Returns the hits to show, best first: at most ``limit``, of at most ``tokens_max`` tokens; 0 for no limit."""
    if not tokens_max:
        return tuple(ranking[:limit])
    # The most likely so many, or the most likely for their tokens as far as they are not too many: what helps more.
    tries = (_fitting(ranking[:limit], tokens_max), _fitting(ranking[:PACKED_MAX], tokens_max)[:limit])
    return max(tries, key=lambda chosen: sum(one.scores.relevance for one in chosen))


def names_of(ranking: Iterable[Placed]) -> dict[str, float]:
    """Returns the subjects and objects of hits, at most 8, each with the best total of those that name it."""
    found: dict[str, float] = {}
    for one in ranking:
        for name in sorted(one.option.prepared.names):
            if len(found) < LINKS_MAX:
                found.setdefault(name, one.scores.total)
    return found


def _document(option: Option) -> Document:
    note, version = option.standing.note, option.standing.version
    return option.prepared.document._replace(
        time_ms=version.valid_from_ms, confidence=note.confidence, trust=note.trust
    )


def _before_words(query: str, asked: Question, option: Option) -> dict[str, float]:
    """Returns what puts an option before everything that was only found by words or meaning."""
    body = option.prepared.body
    match option.standing.note.memory_type:
        case MemoryType.WORKING:
            keys = {body.subject, f"{body.subject} {body.predicate}"}
            return {"exact_key": EXACT} if body.subject and subject_form(readable(query)) in keys else {}
        case MemoryType.PROCEDURAL:
            pattern = frozenset(terms(body.subject))
            return {"procedure": PROCEDURE} if asked.how and pattern and pattern <= frozenset(asked.terms) else {}
        case _:
            return {}


def _in_slots(query: str, options: Sequence[Option]) -> list[dict[str, float]]:
    """Returns what it is worth that options are in the slot that the question asks for.

    Of claims that contradict each other each is about what any of them is about, whether or not a slot was found in it.
    """
    asked = Asked(query, [option.prepared.body.subject for option in options])
    parts: list[dict[str, float]] = []
    for option in options:
        body = option.prepared.body
        part = {"subject": SUBJECT} if body.subject in asked.subjects else {}
        if part or body.subject == USER:
            part["predicate"] = PREDICATE * asked.share_of(body.predicate)
        parts.append(part)
    for group in _contradicting(options):
        most = max((parts[at] for at in group), key=lambda part: sum(part.values()))
        for at in group:
            parts[at] = most
    return parts


def _contested(options: Sequence[Option], totals: Sequence[float]) -> dict[int, float]:
    """Returns new totals of options that contradict each other: the same ones, the best for what is preferred."""
    changed: dict[int, float] = {}
    for group in _contradicting(options):
        left = sorted(group, key=lambda at: -totals[at])
        while left:
            tied = [at for at in left if totals[at] >= totals[left[0]] - NEAR_TIE]
            left = left[len(tied) :]
            preferred = sorted(tied, key=lambda at: preference(_contender(options[at])), reverse=True)
            changed |= {at: totals[best] for at, best in zip(preferred, tied, strict=True) if at != best}
    return changed


def _contradicting(options: Sequence[Option]) -> list[list[int]]:
    """Returns groups of options that contradict each other, or one that contradicts another."""
    place = {option.standing.note.id: at for at, option in enumerate(options)}
    beside: dict[int, set[int]] = {}
    for at, option in enumerate(options):
        for other in option.standing.note.contested_by:
            if (found := place.get(other)) is not None:
                beside.setdefault(at, set()).add(found)
                beside.setdefault(found, set()).add(at)
    groups: list[list[int]] = []
    while beside:
        first = next(iter(beside))
        group, waiting = [first], beside.pop(first)
        while waiting:
            one = waiting.pop()
            if one in beside:
                group.append(one)
                waiting |= beside.pop(one)
        groups.append(group)
    return groups


def _contender(option: Option) -> Contender:
    note, version = option.standing.note, option.standing.version
    return Contender(note.id, note.value, note.trust, version.valid_from_ms, version.recorded_ms)


def _fitting(ranking: Sequence[Placed], tokens_max: int) -> tuple[Placed, ...]:
    choices = [Choice(one.scores.relevance, (one.option.prepared.tokens,), (1.0,)) for one in ranking]
    return tuple(one for one, pick in zip(ranking, pack(choices, tokens_max), strict=True) if pick == 0)
