"""Whether two claims say the same, contrary things about the same, or different things."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

from ..text.characters import MARKS, PICTURES, UNSPACED
from .types import Cardinality, Claim
from .vocabulary import words
from .wording import comparable

SIMILARITY_MIN = 0.7
"""Least cosine similarity of vectors for the same claim: as a check on rules that look at words alone."""


class Likeness(StrEnum):
    """How two claims relate."""

    SAME = "same"
    CONTRARY = "contrary"
    DIFFERENT = "different"


class Compared(NamedTuple):
    """A claim, with the words by which it is compared: worked out once for however many comparisons."""

    claim: Claim
    tokens: tuple[str, ...]


_TOKEN = re.compile(
    rf"\d+(?:[.,:/-]\d+)*|[{UNSPACED}]|(?:(?![{UNSPACED}])[^\W_]|[{MARKS}])+(?:'(?:(?![{UNSPACED}])[^\W_])+)?[+#]*|[{PICTURES}]|[^\s\w.,;:!()\"'-]"
)
_NOTHING = words("a an the really very quite just actually currently now please")
_SAME_WORDS = {
    "favorite": "favourite", "color": "colour", "flavor": "flavour", "center": "centre", "organisation": "organization",
    "resides": "lives", "reside": "live", "movie": "film", "movies": "films", "i": "user", "my": "user's", "me": "user",
    "e-mail": "email", "mum": "mother", "mom": "mother", "dad": "father", "ok": "okay", "percent": "%",
    "isn't": "not", "aren't": "not", "wasn't": "not", "don't": "not", "doesn't": "not", "didn't": "not", "can't": "not",
    "cannot": "not", "won't": "not", "never": "not", "no": "not",
}  # fmt: skip
_NEGATIONS = frozenset(["not", "不", "没", "非", "未", "别", "without"])
_AUXILIARIES = words("do does did has have is are was were am be been longer 有 是 了 再")
_OPPOSITES = {
    frozenset(pair.split("/"))
    for pair in words("""
        on/off up/down open/closed enabled/disabled enable/disable true/false yes/no hot/cold tall/short big/small
        likes/dislikes like/dislike loves/hates love/hate likes/hates like/hate in/out with/without before/after
        increase/decrease increases/decreases high/low fast/slow old/new first/last more/less most/least max/min
        maximum/minimum left/right north/south east/west morning/evening day/night always/never active/inactive
        public/private allowed/forbidden accepts/rejects accept/reject safe/unsafe valid/invalid online/offline
        married/divorced alive/dead passed/failed buy/sell import/export start/stop light/dark optional/required
        喜欢/讨厌 开/关 高/低 大/小 有/无 左/右 早/晚
    """)
}
_OPENERS = words("is are was were in at on of by to for with as from named called from costs takes weighs uses")
_STATES = words("is are was were")
_HAN_OPENERS = frozenset("是为在于叫到用")
_COMMON_MIN = 3


def likeness(a: Claim, b: Claim, similarity: float | None) -> Likeness:
    """Tells how two claims of one owner in one scope relate. It does not matter which comes first.

    SAME needs the same words in the same order, but for articles, words that add nothing, and spellings; so it is the
    equality of a form, and never joins A with C because both are like B. Vectors can only speak against it.

    CONTRARY is one thing of which both say something else: one slot with other values, one negates the other, opposite
    words, or the same beginning with another value at its end. Such claims are kept, and flagged.

    Args:
        a: one claim.
        b: another one.
        similarity: cosine similarity of their vectors; None if there are none.
    """
    return relation(compared(a), compared(b), similarity)


def compared(claim: Claim) -> Compared:
    """Returns a claim ready to be compared."""
    return Compared(claim, _tokens(claim.text))


def relation(one: Compared, other: Compared, similarity: float | None) -> Likeness:
    """Does what :func:`likeness` does, for claims that are ready to be compared."""
    (a, first), (b, second) = one, other
    if a.key == b.key:
        return Likeness.SAME
    in_slot = bool(a.slot and b.slot and a.value and b.value)
    if in_slot and a.slot == b.slot:
        if a.cardinality is Cardinality.MULTI or b.cardinality is Cardinality.MULTI:
            return Likeness.DIFFERENT
        return Likeness.CONTRARY
    if first and first == second:
        near = similarity is None or similarity >= SIMILARITY_MIN
        return Likeness.SAME if near and not in_slot else Likeness.DIFFERENT
    if _opposed(first, second):
        return Likeness.CONTRARY
    if in_slot or not _same_frame(first, second):
        return Likeness.DIFFERENT
    return Likeness.CONTRARY


def _tokens(text: str) -> tuple[str, ...]:
    found = (_SAME_WORDS.get(token, token) for token in _TOKEN.findall(comparable(text)))
    tokens = tuple(token for token in found if token not in _NOTHING)
    return tokens[1:] if tokens[:1] == ("this",) and tokens[1:2] == ("user",) else tokens


def _opposed(first: tuple[str, ...], second: tuple[str, ...]) -> bool:
    """Tells whether the only difference is a negation or a pair of opposite words."""
    denied = [tuple(t for t in one if t in _NEGATIONS) for one in (first, second)]
    if len(denied[0]) != len(denied[1]):
        bare = [_bare(one) for one in (first, second)]
        return bool(bare[0]) and bare[0] == bare[1]
    if len(first) != len(second):
        return False
    different = [(x, y) for x, y in zip(first, second, strict=True) if x != y]
    return len(first) > 1 and len(different) == 1 and frozenset(different[0]) in _OPPOSITES


def _bare(tokens: tuple[str, ...]) -> tuple[str, ...]:
    left = (token for token in tokens if token not in _NEGATIONS and token not in _AUXILIARIES)
    return tuple(token[:-1] if len(token) > 3 and token.endswith("s") and token.isascii() else token for token in left)


def _same_frame(first: tuple[str, ...], second: tuple[str, ...]) -> bool:
    """Tells whether both begin alike, up to a word after which a value stands, and only that value differs."""
    common = 0
    while common < min(len(first), len(second)) and first[common] == second[common]:
        common += 1
    ending = 0
    while ending < min(len(first), len(second)) - common and first[-1 - ending] == second[-1 - ending]:
        ending += 1
    rests = [one[common : len(one) - ending] for one in (first, second)]
    if common + ending < _COMMON_MIN or not all(rests) or max(map(len, rests)) > common + ending:
        return False
    opener = first[common - 1] if common else ""
    # After a preposition a value may have others in it ("of Trinidad and Tobago"), after "is" it is another clause.
    ends = _STATES if opener in _OPENERS - _STATES else _OPENERS
    if any(token in ends for rest in rests for token in rest):
        return False
    numbers = all(rest[0][0].isdigit() for rest in rests)
    return bool(common) and (numbers or opener in _OPENERS or (len(opener) == 1 and opener in _HAN_OPENERS))
