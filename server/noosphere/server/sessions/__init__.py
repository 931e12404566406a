"""Sessions: transcripts, turns, tool calls and checkpoints, all of it records of the session's namespace."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..memory.cache_drops import CacheDrops
from ..ports.models import Summariser, Tokenizers
from ..ports.runtime import Clock
from .arrival import Arrivals
from .checkpoints import Checkpoints
from .closing import Closer
from .compacting import Compactor
from .control import Control
from .finishing import Finisher
from .forks import Forker
from .handoffs import Handoffs
from .purging import Purger
from .raw import RawResults
from .restoring import Restorer
from .retention import Retention
from .rules import SessionRules
from .savepoints import VersionKeeper
from .scribe import Scribe
from .sessions import SessionBook
from .summaries import Summaries
from .summary_worker import SummaryWorker
from .toolcalls import ToolCalls
from .transcript import Transcript
from .turns import AfterTurn, TurnBook
from .upkeep import SessionUpkeep
from .users import Users

__all__ = ["Scribe", "SessionRules", "Sessions", "SummaryWorker", "VersionKeeper"]


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
    forker: Forker
    tool_calls: ToolCalls
    finisher: Finisher
    handoffs: Handoffs
    closer: Closer
    purger: Purger
    upkeep: SessionUpkeep
    summaries: Summaries
    summary_worker: SummaryWorker

    @classmethod
    def build(
        cls,
        scribe: Scribe,
        *,
        tokenizers: Tokenizers,
        compactor: Compactor,
        summariser: Summariser,
        fallback: Summariser,
        rng: random.Random,
        clock: Clock,
        upkeep_interval_ms: int,
        after_turn: Sequence[AfterTurn] = (),
        forget: Sequence[Callable[[str], None]] = (),
        cache_drops: CacheDrops | None = None,
    ) -> Sessions:
        """Returns the services.

        Args:
            scribe: reads and writes their records, with the hooks that extend the writes of shared memory.
            tokenizers: knows the vocabularies.
            compactor: makes large results of tools smaller.
            summariser: makes summaries as configured.
            fallback: makes them when that fails; the same object if no model is configured.
            rng: makes ids.
            clock: the source of time.
            upkeep_interval_ms: time between two looks at idle and closed sessions.
            after_turn: what happens at the end of each turn after its checkpoint, in this order.
            forget: each is told the id of an ephemeral session that is gone, to forget what it holds of it.
            cache_drops: has other processes hold nothing of it either; None if there are none.
        """
        scribe.core.access.find_users = Users(scribe).find
        book = SessionBook(scribe, tokenizers, rng)
        retention = Retention(scribe)
        checkpoints = Checkpoints(scribe, retention)
        transcript = Transcript(scribe, tokenizers)
        arrivals = Arrivals(scribe, transcript, tokenizers, compactor)
        finisher = Finisher(scribe, arrivals, RawResults(scribe, rng), tokenizers, checkpoints)
        closer = Closer(scribe, book, finisher, forget=forget, cache_drops=cache_drops)
        purger = Purger(scribe, closer)
        summaries = Summaries(scribe, tokenizers, summariser, fallback)
        summary_worker = SummaryWorker(summaries, clock)
        return cls(
            scribe=scribe,
            book=book,
            transcript=transcript,
            turns=TurnBook(scribe, (checkpoints, *after_turn, summary_worker)),
            control=Control(scribe),
            checkpoints=checkpoints,
            restorer=Restorer(scribe, book, retention),
            forker=Forker(scribe, book),
            tool_calls=ToolCalls(scribe, book.issue_id, checkpoints),
            finisher=finisher,
            handoffs=Handoffs(scribe),
            closer=closer,
            purger=purger,
            upkeep=SessionUpkeep(scribe, closer, purger, retention, clock=clock, interval_ms=upkeep_interval_ms),
            summaries=summaries,
            summary_worker=summary_worker,
        )

    def start(self) -> tuple[asyncio.Task[None], ...]:
        """Starts the background work of each process, without upkeep; the caller cancels it."""
        return (asyncio.create_task(self.summary_worker.run(), name="noosphere-summaries"),)
