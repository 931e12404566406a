"""The last resort: the beginning and the end of a text, with a mark between that says how much is missing."""

from __future__ import annotations

from typing import NamedTuple

from ...ports.models import Tokenizer

TOKEN_CHARS_MAX = 256
"""No token of a known vocabulary is longer than this."""

_HEAD_SHARE = 2 / 3
_TAIL_TOKENS_MIN = 4


class Cut(NamedTuple):
    """A text without its middle.

    Attributes:
        text: what remains, with the mark.
        kept: how many characters of the text remain.
    """

    text: str
    kept: int


def head_and_tail(text: str, tokenizer: Tokenizer, tokens_max: int) -> Cut:
    """Cuts the middle out of a text.

    Args:
        text: more than fits.
        tokenizer: counts.
        tokens_max: what may remain, the mark included.

    Returns:
        Two thirds from the beginning, the mark, and the rest from the end. Where the budget holds hardly more
        than the mark it is the beginning alone.
    """
    room = tokens_max - tokenizer.count(_mark(len(text)))
    head = tokenizer.cut(text[: tokens_max * TOKEN_CHARS_MAX], max(0, int(room * _HEAD_SHARE)))
    tail_tokens = room - tokenizer.count(head)
    while head and tail_tokens >= _TAIL_TOKENS_MIN:
        tail = _ending(text[len(head) :], tokenizer, tail_tokens)
        whole = head + _mark(len(text) - len(head) - len(tail)) + tail
        # Where pieces meet, tokens may come out otherwise than in each piece.
        if (excess := tokenizer.count(whole) - tokens_max) <= 0:
            return Cut(whole, len(head) + len(tail))
        tail_tokens -= excess
    head = tokenizer.cut(text[: tokens_max * TOKEN_CHARS_MAX], tokens_max)
    return Cut(head, len(head))


def _mark(characters: int) -> str:
    return f"\n[… {characters} characters left out …]\n"


def _ending(text: str, tokenizer: Tokenizer, tokens_max: int) -> str:
    """Returns an ending of at most about so many tokens; token counts grow with length closely enough to search."""
    low, high = 0, min(len(text), tokens_max * TOKEN_CHARS_MAX)
    while low < high:
        middle = (low + high + 1) // 2
        if tokenizer.count(text[len(text) - middle :]) <= tokens_max:
            low = middle
        else:
            high = middle - 1
    return text[len(text) - low :]
