"""Sessions: transcripts, turns, tool calls and checkpoints, all of it records of the session's namespace."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from ..memory.core import Core
from ..ports.models import Tokenizers
from .control import Control
from .rules import SessionRules
from .scribe import Scribe
from .sessions import SessionBook
from .transcript import Transcript
from .turns import AfterTurn, TurnBook

__all__ = ["SessionRules", "Sessions"]


@dataclass(frozen=True)
class Sessions:
    """The services of sessions of one process, wired together."""

    scribe: Scribe
    book: SessionBook
    transcript: Transcript
    turns: TurnBook
    control: Control

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
            after_turn: what happens at the end of each turn, in this order.
        """
        scribe = Scribe(core, rules.hooks)
        return cls(
            scribe=scribe,
            book=SessionBook(scribe, tokenizers, rng),
            transcript=Transcript(scribe, tokenizers),
            turns=TurnBook(scribe, after_turn),
            control=Control(scribe),
        )
