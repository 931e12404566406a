"""What each signal of the ranking is worth: round numbers, each with its reason, chosen by hand.

All signals lie between 0 and 1, and a score is their weighted sum, so weights compare: with 0.1, all of a signal makes
up for a tenth of the question's words. What each brings is measured in ``docs/ranking.md``.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, fields


@dataclass(frozen=True, slots=True)
class Weights:
    """The ranking's numbers.

    Attributes:
        label: how often a word of the label (who, which day) counts in a document's terms. Once: it is as much part of
            the claim as if it stood in the sentence.
        before: the same of what stands just before, in the same talk. Half: "Yes, last week" is about it, most
            sentences are not.
        before_asking: the same if that asks something, and so is likely half of the claim.
        two_before: the same of what stands before that. Less than half of half: subjects fade.
        after: the same of what stands just after: reactions repeat what they react to.
        saturation: BM25's k1, the usual value.
        length_share: BM25's b. Below the usual 0.75, since context already evens lengths out.
        keywords: share of the question's terms that a document has, by BM25. The measure of all others.
        group_keywords: the same of all documents of one talk together. A fifth: it tells which talk, not which
            sentence.
        meaning: similarity of vectors. A tenth: a small general model sees topics, and every sentence of a talk
            has the same one; it decides where words tie or are all different.
        neighbour_meaning: mean similarity of what stands beside it, for the same reason as ``before``.
        named: the one person that the question names said it or is its subject.
        asks: a document that ends as a question; it rarely states anything.
        answers: a document after a question, which is likely its answer.
        long: how much is said, up to 40 terms. Short ones are reactions.
        timed: says when, and the question asks when.
        recent: place in the order of time, only for questions about the present state. Twice the small signals,
            since the older of two alike answers such a question wrongly.
        confidence: how sure its producers are.
        trust: how far they are trusted.
    """

    label: float = 1.0
    before: float = 0.4
    before_asking: float = 0.8
    two_before: float = 0.2
    after: float = 0.2
    saturation: float = 1.2
    length_share: float = 0.5
    keywords: float = 1.0
    group_keywords: float = 0.2
    meaning: float = 0.1
    neighbour_meaning: float = 0.2
    named: float = 0.05
    asks: float = -0.05
    answers: float = 0.05
    long: float = 0.1
    timed: float = 0.05
    recent: float = 0.1
    confidence: float = 0.05
    trust: float = 0.05

    @property
    def sha256(self) -> str:
        """The digest of all numbers: figures of one digest are those of one ranking."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


WEIGHTS = Weights()

SIGNALS = tuple(field.name for field in fields(Weights)[[field.name for field in fields(Weights)].index("keywords") :])
"""The weights that are of signals, in order; those before them make documents and BM25."""
