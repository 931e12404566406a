"""Sessions: transcripts, turns, tool calls and checkpoints, all of it records of the session's namespace."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from ..memory.core import Core
from ..ports.models import Tokenizers
from .checkpoints import Checkpoints
from .control import Control
from .restoring import Restorer
from .retention import Retention
from .rules import SessionRules
from .savepoints import VersionKeeper
from .scribe import Scribe
from .sessions import SessionBook
from .transcript import Transcript
from .turns import AfterTurn, TurnBook

__all__ = ["SessionRules", "Sessions", "VersionKeeper"]


@dataclass(frozen=True)
class Sessions:
    """The services of sessions of one process, wired together."""

    scribe: Scribe
    book: SessionBook
    transcript: Transcript
    turns: TurnBook
    control: Control
    checkpoints: Checkpoints
    restorer: Restorer

    @classmethod
    def build(
        cls,
        core: Core,
        rules: SessionRules,
        *,
        tokenizers: Tokenizers,
        rng: random.Random,
        after_turn: Sequence[AfterTurn] = (),
    ) -> Sessions:
        """Returns the services.

        Args:
            core: what the services of memory share.
            rules: what extends the writes of shared memory; its hooks apply to the writes of sessions too.
            tokenizers: knows the vocabularies.
            rng: makes ids.
            after_turn: what happens at the end of each turn after its checkpoint, in this order.
        """
        scribe = Scribe(core, rules.hooks)
        book = SessionBook(scribe, tokenizers, rng)
        retention = Retention(scribe)
        checkpoints = Checkpoints(scribe, retention)
        return cls(
            scribe=scribe,
            book=book,
            transcript=Transcript(scribe, tokenizers),
            turns=TurnBook(scribe, (checkpoints, *after_turn)),
            control=Control(scribe),
            checkpoints=checkpoints,
            restorer=Restorer(scribe, book, retention),
        )
