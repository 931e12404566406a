"""What is ranked: a claim or a message, prepared once for all questions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from ...text import terms
from .weights import WEIGHTS, Weights

_QUESTION_MARK = re.compile(r"[?\uff1f\u061f]")
_ASKS = re.compile(r"[?\uff1f\u061f]\s*$")
_YEAR = re.compile(r"(?:19|20)\d\d")
_TIMES = frozenset(
    terms(
        """
        yesterday today tonight tomorrow last next week weekend fortnight month year ago recently since morning evening
        monday tuesday wednesday thursday friday saturday sunday january february march april may june july august
        september october november december
        昨天 今天 明天 后天 前天 去年 今年 明年 上周 下周 本周 上个 下个 个月 星期 周末
        """
    )
)


class Document(NamedTuple):
    """Something that may answer a question.

    Attributes:
        id: its id.
        own: the terms that it says itself, with how often.
        own_length: how many these are together.
        terms: all terms by which it is found, weighted: its own, its label's, and those around it.
        length: the sum of their weights.
        names: the terms of whose or about whom it is.
        group: which talk, session or page it is from; empty if none.
        place: its place therein.
        asks: whether it ends as a question.
        answers: whether it follows a question and is none.
        timed: whether it says when.
        time_ms: when it was said or became so.
        confidence: 0 to 1.
        trust: 0 to 1.
    """

    id: str
    own: Mapping[str, int]
    own_length: int
    terms: Mapping[str, float]
    length: float
    names: frozenset[str] = frozenset()
    group: str = ""
    place: int = 0
    asks: bool = False
    answers: bool = False
    timed: bool = False
    time_ms: int = 0
    confidence: float = 1.0
    trust: float = 1.0


def asks(text: str) -> bool:
    """Tells whether a text ends as a question."""
    return _ASKS.search(text) is not None


def document(
    id: str,
    text: str,
    *,
    name: str = "",
    label: str = "",
    before: Sequence[str] = (),
    after: str = "",
    present: Collection[str] = (),
    group: str = "",
    place: int = 0,
    time_ms: int = 0,
    confidence: float = 1.0,
    trust: float = 1.0,
    weights: Weights = WEIGHTS,
) -> Document:
    """Prepares a document.

    Args:
        id: its id.
        text: what it says.
        name: whose it is: who said it, or its subject.
        label: what else is known of it, e.g. the day as ``8 May 2026``.
        before: what stands before it in the same group, the nearest last; at most two are used.
        after: what stands just after it.
        present: who takes part in a talk. Their names in its text are forms of address, and are left out.
        group: which talk, session or page it is from.
        place: its place therein.
        time_ms: when it was said or became so.
        confidence: 0 to 1.
        trust: 0 to 1.
        weights: how much each part counts.
    """
    addressed = frozenset(term for person in present for term in terms(person))
    own = Counter(term for term in terms(text, singles=True) if term not in addressed)
    nearest = before[-1] if before else ""
    follows = _QUESTION_MARK.search(nearest) is not None
    parts = [
        (weights.label, (*terms(name), *terms(label))),
        (weights.before_asking if follows else weights.before, terms(nearest)),
        (weights.two_before, terms(before[-2]) if len(before) > 1 else ()),
        (weights.after, terms(after)),
    ]
    found: dict[str, float] = {term: float(count) for term, count in own.items()}
    for place_of_part, (weight, part) in enumerate(parts):
        for term in part:
            if weight and (place_of_part == 0 or term not in addressed):
                found[term] = found.get(term, 0.0) + weight
    asking = asks(text)
    return Document(
        id=id,
        own=own,
        own_length=own.total(),
        terms=found,
        length=sum(found.values()),
        names=_name_terms(name),
        group=group,
        place=place,
        asks=asking,
        answers=follows and not asking,
        timed=_is_timed(own),
        time_ms=time_ms,
        confidence=confidence,
        trust=trust,
    )


def indexed(id: str, text: str, found_by: Sequence[str], *, name: str = "", time_ms: int = 0) -> Document:
    """Prepares a document that stands alone and whose terms are known, which is several times as fast.

    Args:
        id: its id.
        text: what it says.
        found_by: the terms by which it is found, with repetitions; each counts as its own.
        name: whose it is or what it is about.
        time_ms: when it became so.
    """
    own = Counter(found_by)
    return Document(
        id=id,
        own=own,
        own_length=len(found_by),
        terms=own,
        length=float(len(found_by)),
        names=_name_terms(name),
        asks=asks(text),
        timed=_is_timed(own),
        time_ms=time_ms,
    )


@lru_cache(4_096)
def _name_terms(name: str) -> frozenset[str]:
    return frozenset(terms(name))


def _is_timed(own: Mapping[str, int]) -> bool:
    return not _TIMES.isdisjoint(own) or any(map(_YEAR.fullmatch, own))
