"""Ranks candidates: a weighted sum of signals, and how likely each candidate helps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .documents import Document
from .keywords import Statistics
from .question import Question
from .signals import signals
from .weights import SIGNALS, WEIGHTS, Weights

CANDIDATES_MAX = 2_000
"""Most candidates of one ranking, which takes about 10 µs for each."""

# As much as one of the small signals: one sign more makes a candidate e times as likely.
_TEMPERATURE = 0.05
# From half of the question's words on, the best candidate is taken to be what was asked for.
_ENOUGH = 0.5
# Vectors of texts that have nothing to do with each other are so similar, with the bundled model.
_NOT_SIMILAR = 0.25


class Ranked(NamedTuple):
    """A candidate's place in the ranking, and why.

    Attributes:
        at: which of the candidates it is.
        score: the weighted sum of its signals.
        relevance: how likely it helps, 0 to 1.
        parts: what each signal adds to the score; zeros are left out.
    """

    at: int
    score: float
    relevance: float
    parts: Mapping[str, float]


def rank(
    asked: Question,
    documents: Sequence[Document],
    *,
    similarities: Sequence[float | None] | None = None,
    known: Statistics | None = None,
    weights: Weights = WEIGHTS,
) -> tuple[Ranked, ...]:
    """Ranks all candidates, best first; of equals the newer, then those that were given first.

    Args:
        asked: the question.
        documents: the candidates, at most 2,000.
        similarities: cosine similarity of each to the question; None where there is no vector.
        known: statistics of everything that is searched; those of the candidates by default.
        weights: what each signal is worth.

    Raises:
        ValueError: there are too many candidates, or not as many similarities as candidates.
    """
    if len(documents) > CANDIDATES_MAX:
        raise ValueError(f"documents: {len(documents)} are more than {CANDIDATES_MAX}")
    if similarities is None:
        similarities = (None,) * len(documents)
    elif len(similarities) != len(documents):
        raise ValueError(f"similarities: {len(similarities)} for {len(documents)} documents")
    found = signals(asked, documents, similarities, known, weights)
    weighed = [(name, getattr(weights, name), found[name]) for name in SIGNALS]
    scores = [math.fsum(weight * values[at] for _, weight, values in weighed) for at in range(len(documents))]
    likely = relevances(scores, found["keywords"], [similarity or 0.0 for similarity in similarities])
    order = sorted(range(len(documents)), key=lambda at: (-scores[at], -documents[at].time_ms, at))
    return tuple(
        Ranked(at, scores[at], likely[at], {name: weight * v[at] for name, weight, v in weighed if weight * v[at]})
        for at in order
    )


def relevances(scores: Sequence[float], keywords: Sequence[float], similarities: Sequence[float]) -> tuple[float, ...]:
    """Returns how likely each candidate helps.

    Candidates share the likelihood that anything helps at all: how much of the question the best of them covers, by
    words or by meaning. So values add up to what packing wants to keep, and a question about nothing known gets
    little of everything.

    Args:
        scores: the scores of all candidates.
        keywords: the share of the question's terms that each has.
        similarities: cosine similarities; 0 where there are none.
    """
    if not scores:
        return ()
    best = max(scores)
    odds = [math.exp((score - best) / _TEMPERATURE) for score in scores]
    whole = math.fsum(odds)
    covered = max(0.0, *keywords) / _ENOUGH
    meant = (max(0.0, *similarities) - _NOT_SIMILAR) / (_ENOUGH - _NOT_SIMILAR)
    any_helps = min(1.0, max(0.0, covered, meant))
    return tuple(any_helps * one / whole for one in odds)
