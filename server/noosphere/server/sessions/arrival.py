"""Compress on arrival: what of a tool's result enters working memory, chosen by what came before it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from noosphere.consistency import Encoding, Record, too_large
from noosphere.consistency.merge import parse_json, render

from ..memory.types import Call
from ..ports.models import Tokenizer, Tokenizers
from .basis import open_goals
from .compacting import KEEP_PATHS_MAX, Before, Compactor
from .counting import INLINE_CHARS_MAX
from .raw import RAW_BYTES_MAX
from .scribe import Scribe
from .sources import source_of
from .toolcall import Compaction, ToolCall
from .transcript import Transcript
from .types import SessionSettings

CONTENT_BYTES_MAX = 64 * 1024
"""Most bytes of a result in working memory, as JSON text."""

MESSAGES_BEFORE = 40
_TOKENS_MIN = 16

T = TypeVar("T")


class Arrival(NamedTuple):
    """A result as it enters working memory.

    Attributes:
        content: its text.
        compaction: how it was made smaller.
        tokens: the text's size.
        raw_bytes: the result's size as it arrived.
        as_arrived: whether the text is all that arrived, byte for byte.
    """

    content: str
    compaction: Compaction
    tokens: int
    raw_bytes: int
    as_arrived: bool


class Arrivals:
    """Takes results in.

    Args:
        scribe: reads goals.
        transcript: reads messages.
        tokenizers: knows the vocabularies.
        compactor: makes results smaller.
    """

    def __init__(self, scribe: Scribe, transcript: Transcript, tokenizers: Tokenizers, compactor: Compactor) -> None:
        self._scribe = scribe
        self._transcript = transcript
        self._tokenizers = tokenizers
        self._compactor = compactor

    def check_keep(self, keep: Sequence[str]) -> None:
        """Checks the paths of fields to keep.

        Raises:
            Refusal: INVALID_FIELD or VALUE_TOO_LARGE.
        """
        if len(keep) > KEEP_PATHS_MAX:
            raise too_large("keep", len(keep), KEEP_PATHS_MAX, "entries")
        self._compactor.check_keep(keep)

    async def take_in(
        self, session_id: str, tool_call: ToolCall, data: bytes, encoding: Encoding, keep: Sequence[str]
    ) -> Arrival:
        """Makes of a result what enters working memory.

        Args:
            session_id: where.
            tool_call: the call that it answers.
            data: the result.
            encoding: how to read it; bytes that are UTF-8 are text.
            keep: paths of the fields to keep of JSON.

        Raises:
            Refusal: VALUE_TOO_LARGE; INVALID_FIELD, for what is not the JSON that it is said to be.
        """
        if len(data) > RAW_BYTES_MAX:
            raise too_large("result", len(data), RAW_BYTES_MAX)
        info = (await self._scribe.peek(session_id)).info
        settings = info.settings if info else SessionSettings()
        tokenizer = self._tokenizers.named(settings.tokenizer)
        text = await _aside(len(data), lambda: _text_of(data, encoding))
        if text is None:
            content = f"[{len(data)} bytes that are no text]"
            return Arrival(content, Compaction.CUT, tokenizer.count(content), len(data), as_arrived=False)
        tokens_max = settings.tool_result_tokens_max
        if len(text) <= INLINE_CHARS_MAX and (tokens := tokenizer.count(text)) <= tokens_max and _fits(text):
            return Arrival(text, Compaction.NONE, tokens, len(data), text.encode() == data)
        before = await self._before(session_id, tool_call)
        return await self._compact(text, data, tokenizer, tokens_max, before, keep)

    async def _compact(
        self, text: str, data: bytes, tokenizer: Tokenizer, tokens_max: int, before: Before, keep: Sequence[str]
    ) -> Arrival:
        while True:
            found = await self._compactor.compact(text, tokenizer, tokens_max=tokens_max, before=before, keep=keep)
            if _fits(found.text) or tokens_max == _TOKENS_MIN:
                as_arrived = found.compaction is Compaction.NONE and found.text.encode() == data
                return Arrival(found.text, found.compaction, found.tokens, len(data), as_arrived)
            # A token may be a long run of one character, so a text can be long and small at once.
            tokens_max = max(tokens_max // 2, _TOKENS_MIN)

    async def _before(self, session_id: str, tool_call: ToolCall) -> Before:
        goals = await open_goals(self._scribe, session_id)
        page = await self._transcript.list(
            Call(), session_id, page_size=MESSAGES_BEFORE, position=None, reverse=True, branch=None, turn=0
        )
        messages = tuple(map(source_of, reversed(page.messages)))
        return Before(tool_call.name, tool_call.arguments, tuple(map(_words, goals.values())), messages)


async def _aside(size: int, function: Callable[[], T]) -> T:
    """Calls a function at once, or in a thread if that could take long."""
    return function() if size <= INLINE_CHARS_MAX else await asyncio.to_thread(function)


def _text_of(data: bytes, encoding: Encoding) -> str | None:
    """Returns a result's text: that of a JSON string, of any other JSON the JSON itself; None for bytes that are none.

    Raises:
        Refusal: INVALID_FIELD or VALUE_TOO_LARGE.
    """
    if encoding is Encoding.JSON:
        value = parse_json("result.data", data)
        return value if isinstance(value, str) else data.decode()
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _fits(text: str) -> bool:
    return len(text) <= CONTENT_BYTES_MAX and len(msgspec.json.encode(text)) <= CONTENT_BYTES_MAX


def _words(goal: Record) -> str:
    """Returns the text of a goal's newest value."""
    data = next((sibling.data for sibling in reversed(goal.siblings) if sibling.data is not None), b"")
    if goal.siblings[-1].encoding is not Encoding.JSON:
        return data.decode(errors="replace")
    shown = render(goal.merge_type, data)
    value = msgspec.json.decode(shown) if shown else ""
    return value if isinstance(value, str) else shown.decode()
