"""The seam through which tool results are made smaller; what does so knows nothing of sessions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from ..ports.models import SourceMessage, Tokenizer
from .toolcall import Compaction

KEEP_PATHS_MAX = 32


class Before(NamedTuple):
    """What came before a result; nothing that came after it may be in here.

    Attributes:
        tool: the tool's name.
        arguments: what it was called with.
        goals: what the session is for.
        messages: the newest messages, the oldest first.
    """

    tool: str
    arguments: str
    goals: tuple[str, ...] = ()
    messages: tuple[SourceMessage, ...] = ()


class Compacted(NamedTuple):
    """A result that fits, how that was done, and its size in tokens."""

    text: str
    compaction: Compaction
    tokens: int


class Compactor(Protocol):
    """Makes tool results fit. Equal arguments give equal text."""

    def check_keep(self, keep: Sequence[str]) -> None:
        """Checks the form of paths.

        Raises:
            Refusal: INVALID_FIELD, naming the path as ``keep[…]``.
        """
        ...

    async def compact(
        self, output: str, tokenizer: Tokenizer, *, tokens_max: int, before: Before, keep: Sequence[str]
    ) -> Compacted:
        """Makes a result fit, without holding up the event loop.

        Args:
            output: the result, JSON or any other text, at most 8 MiB.
            tokenizer: counts.
            tokens_max: the budget, 16 to 16,384 tokens.
            before: what came before.
            keep: paths of the fields that the caller wants of a JSON result.
        """
        ...
