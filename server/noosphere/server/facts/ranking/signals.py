"""The signals of a ranking: one number between 0 and 1 for each document and each kind of sign that it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .documents import Document
from .keywords import Bag, Statistics, shares, statistics
from .question import Question
from .weights import Weights

LONG_TERMS = 40
# All that a talk says is long, and says a word often: it saturates later, and length counts as usual.
_GROUP_SATURATION = 2.0
_GROUP_LENGTH_SHARE = 0.75

Signals = Mapping[str, tuple[float, ...]]


def signals(
    asked: Question,
    documents: Sequence[Document],
    similarities: Sequence[float | None],
    known: Statistics | None,
    weights: Weights,
) -> Signals:
    """Returns every signal of ``weights`` for all documents, in their order.

    Args:
        asked: the question.
        documents: the candidates.
        similarities: cosine similarity of each to the question; None where there is no vector.
        known: statistics of everything that is searched; those of the candidates by default.
        weights: BM25's numbers are used.
    """
    bags = [Bag(one.terms, one.length) for one in documents]
    people = frozenset(one.names for one in documents if not one.names.isdisjoint(asked.terms))
    spoken = frozenset(term for names in people for term in names)
    subject = [word for word in asked.terms if word not in spoken]
    near = [max(0.0, similarity or 0.0) for similarity in similarities]
    return {
        "keywords": shares(
            asked.terms,
            bags,
            known or statistics(bags, asked.terms),
            saturation=weights.saturation,
            length_share=weights.length_share,
        ),
        "group_keywords": _group_keywords(subject, documents),
        "meaning": tuple(near),
        "neighbour_meaning": _beside(documents, near),
        # Two people named: the question is about both, and tells nothing apart.
        "named": tuple(float(len(people) == 1 and one.names in people) for one in documents),
        "asks": tuple(float(one.asks) for one in documents),
        "answers": tuple(float(one.answers) for one in documents),
        "long": tuple(min(1.0, one.own_length / LONG_TERMS) for one in documents),
        "timed": tuple(float(asked.when and one.timed) for one in documents),
        "recent": _recent(documents) if asked.current else (0.0,) * len(documents),
        "confidence": tuple(one.confidence for one in documents),
        "trust": tuple(one.trust for one in documents),
    }


def _members(documents: Sequence[Document]) -> Mapping[str, list[int]]:
    members: dict[str, list[int]] = {}
    for at, one in enumerate(documents):
        if one.group:
            members.setdefault(one.group, []).append(at)
    return members


def _spread(documents: Sequence[Document], of_group: Mapping[str, float]) -> tuple[float, ...]:
    return tuple(of_group.get(one.group, 0.0) for one in documents)


def _group_keywords(words: Sequence[str], documents: Sequence[Document]) -> tuple[float, ...]:
    wanted = frozenset(words)
    bags: dict[str, Bag] = {}
    for group, members in _members(documents).items():
        found: dict[str, float] = {}
        for at in members:
            # A day's words are in all labels of a talk; once in each is enough.
            for word in wanted & documents[at].terms.keys():
                found[word] = found.get(word, 0.0) + max(1, documents[at].own.get(word, 0))
        bags[group] = Bag(found, float(sum(documents[at].own_length for at in members)))
    scored = list(bags.values())
    values = shares(
        words,
        scored,
        statistics(scored, words),
        saturation=_GROUP_SATURATION,
        length_share=_GROUP_LENGTH_SHARE,
    )
    return _spread(documents, dict(zip(bags, values, strict=True)))


def _beside(documents: Sequence[Document], near: Sequence[float]) -> tuple[float, ...]:
    by_place = {(one.group, one.place): value for one, value in zip(documents, near, strict=True) if one.group}
    return tuple(
        (by_place.get((one.group, one.place - 1), 0.0) + by_place.get((one.group, one.place + 1), 0.0)) / 2
        for one in documents
    )


def _recent(documents: Sequence[Document]) -> tuple[float, ...]:
    """Returns each document's place in the order of time: a scale of days would suit only some collections."""
    times = sorted({one.time_ms for one in documents})
    places = {time_ms: place / max(1, len(times) - 1) for place, time_ms in enumerate(times)}
    return tuple(places[one.time_ms] if len(times) > 1 else 0.0 for one in documents)
