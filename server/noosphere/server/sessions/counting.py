"""Counting tokens of messages without holding up the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ..ports.models import Tokenizer
from .types import Message

INLINE_CHARS_MAX = 65_536
"""Text up to here is counted at once; more would take longer than a step of the event loop may."""


async def count(tokenizer: Tokenizer, texts: Sequence[str]) -> int:
    """Returns how many tokens texts have together, each counted by itself; many in a thread."""
    if sum(map(len, texts)) <= INLINE_CHARS_MAX:
        return _count(tokenizer, texts)
    return await asyncio.to_thread(_count, tokenizer, texts)


def _count(tokenizer: Tokenizer, texts: Sequence[str]) -> int:
    return sum(map(tokenizer.count, texts))


def texts_of(message: Message) -> tuple[str, ...]:
    """Returns what of a message is counted: its text, and names and arguments of tool calls. Other data is not."""
    calls = (text for use in message.tool_calls for text in (use.name, use.arguments))
    return (*(part.text for part in message.parts if part.text), *calls)
