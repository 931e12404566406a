"""Sessions: transcripts, turns, tool calls and checkpoints, all of it records of the session's namespace."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..memory.core import Core
from ..ports.models import Tokenizers
from ..ports.runtime import Clock
from .checkpoints import Checkpoints
from .closing import Closer
from .control import Control
from .purging import Purger
from .restoring import Restorer
from .retention import Retention
from .rules import SessionRules
from .savepoints import VersionKeeper
from .scribe import Scribe
from .sessions import SessionBook
from .transcript import Transcript
from .turns import AfterTurn, TurnBook
from .upkeep import SessionUpkeep

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
    closer: Closer
    purger: Purger
    upkeep: SessionUpkeep

    @classmethod
    def build(
        cls,
        core: Core,
        rules: SessionRules,
        *,
        tokenizers: Tokenizers,
        rng: random.Random,
        clock: Clock,
        upkeep_interval_ms: int,
        after_turn: Sequence[AfterTurn] = (),
        forget: Sequence[Callable[[str], None]] = (),
    ) -> Sessions:
        """Returns the services.

        Args:
            core: what the services of memory share.
            rules: what extends the writes of shared memory; its hooks apply to the writes of sessions too.
            tokenizers: knows the vocabularies.
            rng: makes ids.
            clock: the source of time.
            upkeep_interval_ms: time between two looks at idle and closed sessions.
            after_turn: what happens at the end of each turn after its checkpoint, in this order.
            forget: each is told the id of an ephemeral session that is gone, to forget what it holds of it.
        """
        scribe = Scribe(core, rules.hooks)
        book = SessionBook(scribe, tokenizers, rng)
        retention = Retention(scribe)
        checkpoints = Checkpoints(scribe, retention)
        closer = Closer(scribe, book, forget=forget)
        purger = Purger(scribe, closer)
        return cls(
            scribe=scribe,
            book=book,
            transcript=Transcript(scribe, tokenizers),
            turns=TurnBook(scribe, (checkpoints, *after_turn)),
            control=Control(scribe),
            checkpoints=checkpoints,
            restorer=Restorer(scribe, book, retention),
            closer=closer,
            purger=purger,
            upkeep=SessionUpkeep(scribe, closer, purger, retention, clock=clock, interval_ms=upkeep_interval_ms),
        )

    def start(self) -> tuple[asyncio.Task[None], ...]:
        """Starts the background work; the caller cancels it."""
        return (asyncio.create_task(self.upkeep.run(), name="noosphere-session-upkeep"),)
