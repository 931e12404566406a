"""Counting tokens of messages without holding up the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from noosphere.consistency import invalid

from ..ports.models import ChosenTokenizer, Tokenizer

_INLINE_CHARS_MAX = 8_192
"""Text up to here is counted at once; more would take longer than a step of the event loop may."""


async def count(tokenizer: Tokenizer, texts: Sequence[str]) -> int:
    """Returns how many tokens texts have together, each counted by itself; many in a thread."""
    if sum(map(len, texts)) <= _INLINE_CHARS_MAX:
        return _count(tokenizer, texts)
    return await asyncio.to_thread(_count, tokenizer, texts)


def _count(tokenizer: Tokenizer, texts: Sequence[str]) -> int:
    return sum(map(tokenizer.count, texts))


class _Bytes:
    name = "o200k_base"
    exact = False

    def count(self, text: str) -> int:
        return len(text.encode("utf-8", "surrogatepass"))

    def cut(self, text: str, tokens_max: int) -> str:
        return text.encode("utf-8", "surrogatepass")[:tokens_max].decode("utf-8", "ignore")


class ByteTokenizers:
    """Where no vocabulary is installed: a byte counts as a token, which no vocabulary exceeds."""

    def named(self, name: str) -> Tokenizer:
        """Returns the tokenizer of the default vocabulary.

        Raises:
            Refusal: INVALID_FIELD for any other.
        """
        if name != _Bytes.name:
            raise invalid("tokenizer", f"{name!r} is not known; known is {_Bytes.name}")
        return _Bytes()

    def for_model(self, model: str) -> ChosenTokenizer:
        """Returns the same for every model."""
        return ChosenTokenizer(_Bytes(), True)
