"""How likely something helps with a question, by its words: a calibrated figure, for want of a better one.

The figure is the share of the question's words that a text contains, each word weighted by how rare it is among the
candidates, to the fourth power. The power is the calibration: half of the words are much less than half of the chance.
On the five LoCoMo conversations, 1,000 tokens each, packing by it keeps 64 % of the evidence in short even messages and
69 % in long uneven ones. Best first, skipping what does not fit: 64 % and 69 %; stopping there: 64 % and 65 %; the raw
score per token: 62 % and 57 %.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence

_POWER = 4
_TERMS_MAX = 512
_CHARS_MAX = 16_384
_STEM_CHARS = 7
# Words of letters and digits; characters of scripts that have no spaces one by one, to be paired below.
_WORD = re.compile(r"[぀-ヿ㐀-䶿一-鿿豈-﫿가-힯]|[^\W_]+")
_PAIRED = re.compile(r"[぀-ヿ㐀-䶿一-鿿豈-﫿가-힯]")
_STOP = frozenset(
    """
    a an and are as at be but by can did do does for from had has have he her his how i if in is it its me my no not
    of on or our she so that the their them then there they this to was we were what when where which who why will with
    would you your
    """.split()  # noqa: SIM905 # forty quoted words are harder to read
)


def terms(text: str) -> frozenset[str]:
    """Returns the words by which a text is found, at most 512: without the commonest, cut to a stem's length.

    Of a long text only the first 16,384 characters count, which bounds the time that it takes to about 2 ms. Text
    without spaces (Chinese, Japanese) gives its pairs of neighbouring characters.
    """
    found: set[str] = set()
    before = ""
    ended = -1
    for match in _WORD.finditer(text[:_CHARS_MAX].casefold()):
        word = match.group()
        if _PAIRED.match(word):
            if before and match.start() == ended:
                found.add(before + word)
            before, ended = word, match.end()
        else:
            before = ""
            if word not in _STOP:
                found.add(word[:_STEM_CHARS])
        if len(found) >= _TERMS_MAX:
            break
    return frozenset(found)


def relevances(question: frozenset[str], texts: Sequence[frozenset[str]]) -> tuple[float, ...]:
    """Returns how likely each text helps with the question, 0 to 1.

    Args:
        question: its :func:`terms`.
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
