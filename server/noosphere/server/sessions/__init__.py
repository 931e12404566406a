"""Sessions: transcripts, turns, tool calls and checkpoints, all of it records of the session's namespace."""

from __future__ import annotations

import random
from dataclasses import dataclass

from ..memory.core import Core
from ..ports.models import Tokenizers
from .scribe import Scribe
from .sessions import SessionBook

__all__ = ["Sessions"]


@dataclass(frozen=True)
class Sessions:
    """The services of sessions of one process, wired together."""

    scribe: Scribe
    book: SessionBook

    @classmethod
    def build(cls, core: Core, *, tokenizers: Tokenizers, rng: random.Random) -> Sessions:
        """Returns the services on what the services of memory share."""
        scribe = Scribe(core)
        return cls(scribe=scribe, book=SessionBook(scribe, tokenizers, rng))
