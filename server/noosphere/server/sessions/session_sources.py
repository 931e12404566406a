"""All that facts need of sessions in one place: to find what they rest on, to read it, and to have it forgotten."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from ..memory.cache_drops import CacheDrops
from ..ports.models import Tokenizers
from ..ports.sources import Redacted
from .evidence import Evidence
from .redaction import Redactor
from .scribe import Scribe


class SessionSources(Evidence):
    """Implements ``ports.sources``.

    Args:
        scribe: reads and writes the records of sessions.
        tokenizers: knows the vocabularies.
        rng: makes names for results that are stored anew.
        forget: each is told the id of a session of which it must no longer hold what it has decoded or made.
        cache_drops: has other processes hold nothing of it either; None if there are none.
    """

    def __init__(
        self,
        scribe: Scribe,
        tokenizers: Tokenizers,
        rng: random.Random,
        forget: Sequence[Callable[[str], None]] = (),
        cache_drops: CacheDrops | None = None,
    ) -> None:
        super().__init__(scribe)
        self._redactor = Redactor(scribe, tokenizers, rng, forget, cache_drops)

    async def redact(self, references: Sequence[str], words: Sequence[str]) -> tuple[Redacted, ...]:
        """See :meth:`Redactor.redact`."""
        return await self._redactor.redact(references, words)

    async def mentions(self, words: Sequence[str]) -> tuple[str, ...]:
        """See :meth:`Redactor.mentions`."""
        return await self._redactor.mentions(words)
