"""The fact service: everything that is done about long-term facts, put together."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from ..memory.core import Core
from ..memory.signals import HeadSignals
from ..memory.types import Call
from ..ports.factqueue import FactQueue
from ..ports.factstore import FactStore
from ..ports.models import Embedder, Extractor, Tokenizers
from ..ports.runtime import Clock
from ..ports.sources import Sources
from .contents import decode_candidate
from .decisions import Decisions
from .explaining import Explaining
from .extracting import Extracting
from .extraction import BACKGROUND_PRIORITY, EXTRACT_PRIORITY, EXTRACTION_JOBS
from .extractions import Extractions
from .intake import Draft, Intake, Taken, decode_waiting
from .ledger import Ledger
from .pipeline import Pipeline
from .policies import Policies
from .reading import Reading
from .recall import ContextFacts
from .retrieval import Retrieval
from .types import Decision
from .vectors import Vectors
from .workers import Handler, Lane, Workers

CANDIDATE_JOBS = "candidate"
"""The kind of a job that decides about a candidate."""

_DECIDING = Lane(priority_max=EXTRACT_PRIORITY - 1)
_EXTRACTING = Lane(batch=4, priority_min=EXTRACT_PRIORITY, priority_max=BACKGROUND_PRIORITY)


class Submitted(NamedTuple):
    """Ids of candidates and, if they were waited for, decisions about them."""

    taken: Taken
    decisions: tuple[Decision, ...]


class Facts:
    """Long-term facts.

    Attributes:
        ledger: where decisions stand.
        store: where words stand.
        queue: where work waits.
        vectors: tells what texts mean.
        intake: takes candidates.
        pipeline: decides about them.
        decisions: tells what became of them.
        policies: the rules of scopes.
        workers: decide about what waits in the queue.
        extractions: finds candidates in sessions and documents.
        retrieval: finds facts.
        reading: reads them.
        explaining: explains them.
        recall: finds them for contexts and the controller.
    """

    def __init__(
        self,
        core: Core,
        signals: HeadSignals,
        store: FactStore,
        queue: FactQueue,
        sources: Sources,
        *,
        embedder: Embedder | None,
        extractor: Extractor,
        tokenizers: Tokenizers,
        clock: Clock,
        rng: random.Random,
        pause: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.ledger = Ledger(core)
        self.store = store
        self.queue = queue
        self.vectors = Vectors(embedder)
        self.pipeline = Pipeline(self.ledger, store, self.vectors, decided=self._heard)
        self._handlers: dict[str, Handler] = {CANDIDATE_JOBS: Handler(self._decide, self._give_up)}
        self.workers = Workers(queue, clock, self._handlers, lane=_DECIDING, pause=pause)
        self.intake = Intake(core, self.ledger, queue, sources, rng=rng, queued=self.workers.wake)
        self.decisions = Decisions(core, self.ledger, queue, store, self.intake, signals, clock)
        self.policies = Policies(self.ledger)
        self._readers = Workers(queue, clock, self._handlers, name="extraction", lane=_EXTRACTING, pause=pause)
        self.extractions = Extractions(
            core, self.ledger, queue, sources, signals, clock=clock, rng=rng, queued=self._readers.wake
        )
        extracting = Extracting(self.ledger, sources, self.intake, extractor, ended=self.extractions.ended)
        self.handle(EXTRACTION_JOBS, Handler(extracting.do, extracting.give_up))
        self.retrieval = Retrieval(core, self.ledger, store, embedder, clock=clock, tokenizers=tokenizers)
        self.reading = Reading(core, self.ledger, store)
        self.explaining = Explaining(self.reading, self.decisions, self.retrieval)
        self.recall = ContextFacts(self.ledger, self.retrieval)

    def handle(self, kind: str, handler: Handler) -> None:
        """Has jobs of another kind done."""
        self._handlers[kind] = handler

    def start(self) -> tuple[asyncio.Task[None], ...]:
        """Starts background work; the caller cancels it."""
        return (
            asyncio.create_task(self.workers.run(), name="noosphere-facts"),
            asyncio.create_task(self._readers.run(), name="noosphere-extraction"),
        )

    async def submit(self, call: Call, drafts: Sequence[Draft], *, wait: bool) -> Submitted:
        """Queues candidates; with ``wait`` returns when they are decided, or after 30 s.

        Raises:
            Refusal: see :meth:`~noosphere.server.facts.intake.Intake.submit`.
        """
        taken = await self.intake.submit(call, drafts)
        decisions = await self.decisions.wait(taken.scope, taken.ids) if wait else ()
        return Submitted(taken, decisions)

    def _heard(self, scope: str, decision: Decision) -> None:
        self.decisions.decided(scope, decision)

    async def _decide(self, job_id: str, body: bytes, attempt: int) -> None:
        waiting = decode_waiting(body)
        await self.pipeline.decide(decode_candidate(bytes(waiting.candidate)), waiting.meaning)

    async def _give_up(self, job_id: str, body: bytes, reason: str) -> None:
        await self.pipeline.give_up(decode_candidate(bytes(decode_waiting(body).candidate)), reason)
