"""How likely something helps with a question, by its words: a calibrated figure, for want of a better one.

The figure is the share of the question's words that a text contains, each word weighted by how rare it is among the
candidates, to the fourth power. The power is the calibration: half of the words are much less than half of the chance.
On the five LoCoMo conversations, 1,000 tokens each, packing by it keeps 73 % of the evidence in short even messages and
77 % in long uneven ones. Best first, skipping what does not fit: 73 % and 76 %; stopping there: 73 % and 72 %.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

_POWER = 4


def relevances(question: frozenset[str], texts: Sequence[frozenset[str]]) -> tuple[float, ...]:
    """Returns how likely each text helps with the question, 0 to 1.

    Args:
        question: its :func:`~noosphere.server.text.distinct_terms`.
        texts: the terms of every candidate; how rare a word is depends on them all.
    """
    if not question or not texts:
        return (0.0,) * len(texts)
    weights = _weights(question, texts)
    whole = math.fsum(weights.values())
    return tuple(
        min(1.0, (math.fsum(weights[word] for word in question & text) / whole) ** _POWER) if whole else 0.0
        for text in texts
    )


def _weights(question: frozenset[str], texts: Sequence[frozenset[str]]) -> Mapping[str, float]:
    counts = Counter(word for text in texts for word in question & text)
    return {word: math.log(1 + (len(texts) + 0.5) / (counts[word] + 0.5)) for word in sorted(question)}
