"""The fact service: everything that is done about long-term facts, put together."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from noosphere.consistency import Reason, Refusal

from ..memory.access import OPERATOR_PREFIX
from ..memory.admission import require_writer
from ..memory.cache_drops import CacheDrops
from ..memory.core import Core
from ..memory.signals import HeadSignals
from ..memory.types import Call
from ..ports.factqueue import FactQueue, QueueStats
from ..ports.factstore import NO_STORE, FactKey, FactStore
from ..ports.grants import Verb
from ..ports.models import Embedder, Extractor, Summariser, Tokenizers
from ..ports.runtime import Clock
from ..ports.sources import Redaction, Sources
from .candidate_jobs import CANDIDATE_JOBS, decode_waiting, group_of
from .compressing import EventCompressor
from .contents import decode_candidate
from .decisions import Decisions
from .explaining import Explaining
from .extracting import Extracting
from .extraction import BACKGROUND_PRIORITY, EXTRACT_PRIORITY, EXTRACTION_JOBS, ExtractionNote
from .extractions import ExtractAsked, Extractions
from .forgetting import Forgetting
from .intake import CANDIDATES_MAX, Intake, Submission, Taken
from .ledger import Ledger
from .lines import Lines
from .near import KnownClaims
from .pending import Pending
from .pipeline import Pipeline
from .planning import Planner
from .policies import Policies
from .reading import Reading
from .recall import ContextFacts
from .retrieval import TOKENIZER, Retrieval
from .sanitise import findings
from .scopes import IdKind, check_scope, operates, require_write, scope_of
from .sweeping import DeadJobs, Sweeper
from .telling import forget_said
from .types import Decision, Status
from .upkeep import FactUpkeep, Report, ScopeRound
from .vectors import Vectors
from .workers import Handler, Lane, Workers

_DECIDING = Lane(priority_max=EXTRACT_PRIORITY - 1)
_EXTRACTING = Lane(batch=4, batches=1, priority_min=EXTRACT_PRIORITY, priority_max=BACKGROUND_PRIORITY)


class Submitted(NamedTuple):
    """Ids of candidates and, if they were waited for, decisions about them."""

    taken: Taken
    decisions: tuple[Decision, ...]


class Facts:
    """Long-term facts.

    Args:
        core: admits callers, and has the working store in which ledgers stand.
        signals: tells of moved ledgers, and when the process shuts down.
        store: where words stand; without one (:data:`~noosphere.server.ports.factstore.NO_STORE`) candidates wait.
        queue: where work waits.
        sources: what facts rest on.
        redaction: overwrites that.
        embedder: makes vectors; None finds facts by words alone.
        extractor: finds what texts claim.
        summariser: sums up old events, without a model.
        tokenizers: count.
        clock: the source of time.
        rng: makes ids for calls without a request id.
        entropy: makes secrets.
        upkeep_interval_ms: how long upkeep rests between rounds over all scopes.
        cache_drops: has every process drop what it keeps of what is forgotten.
        pause: returns when there is nothing more urgent to do than facts.
        store_ready: asks whether the fact store can be reached, and refuses as a call would; None if it always is.

    Attributes:
        core: admits callers.
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
        forgetting: forgets them.
        upkeep: keeps them in order.
    """

    def __init__(
        self,
        core: Core,
        signals: HeadSignals,
        store: FactStore,
        queue: FactQueue,
        sources: Sources,
        redaction: Redaction,
        *,
        embedder: Embedder | None,
        extractor: Extractor,
        summariser: Summariser,
        tokenizers: Tokenizers,
        clock: Clock,
        rng: random.Random,
        entropy: Callable[[int], bytes],
        upkeep_interval_ms: int,
        cache_drops: CacheDrops,
        pause: Callable[[], Awaitable[None]] | None = None,
        store_ready: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.core = core
        self.ledger = Ledger(core)
        self.store = store
        self._has_store = store.engine != NO_STORE
        self.queue = queue
        self.vectors = Vectors(embedder, clock)
        claims = KnownClaims()
        self.pipeline = Pipeline(self.ledger, store, self.vectors, claims, decided=self._heard)
        self._lines = Lines()
        self._handlers: dict[str, Handler] = {CANDIDATE_JOBS: Handler(self._decide, self._give_up, self._prepare)}
        self.workers = Workers(queue, clock, self._handlers, lane=_DECIDING, pause=pause, ready=store_ready)
        pending = Pending(self.ledger, queue, decided=self._heard, ended=lambda note: self.extractions.ended(note))
        self.intake = Intake(core, self.ledger, queue, pending, sources, rng=rng, queued=self.workers.wake)
        self.decisions = Decisions(
            core, self.ledger, queue, store, self.intake, signals, clock, lambda: self.workers.waits_for
        )
        self.policies = Policies(self.ledger)
        self._readers = Workers(queue, clock, self._handlers, name="extraction", lane=_EXTRACTING, pause=pause)
        self.extractions = Extractions(
            core, self.ledger, queue, pending, sources, signals, clock=clock, rng=rng, queued=self._readers.wake
        )
        extracting = Extracting(self.ledger, sources, self.intake, extractor, ended=self.extractions.ended)
        self.handle(EXTRACTION_JOBS, Handler(extracting.do, extracting.give_up))
        self.retrieval = Retrieval(core, self.ledger, store, embedder, clock=clock, tokenizers=tokenizers)
        self.reading = Reading(core, self.ledger, store)
        self.explaining = Explaining(self.reading, self.decisions, self.retrieval)
        self.recall = ContextFacts(self.ledger, self.retrieval)

        def dropped(keys: Sequence[FactKey]) -> None:
            self.retrieval.forget(keys)
            claims.forget(keys)
            forget_said()

        for drop in (self.retrieval.contents.forget_all, claims.forget_all, forget_said):
            cache_drops.register(drop)
        self.forgetting = Forgetting(
            core,
            self.ledger,
            store,
            queue,
            redaction,
            entropy=entropy,
            dropped=dropped,
            decided=self._heard,
            cache_drops=cache_drops,
        )
        tokenizer = tokenizers.named(TOKENIZER)
        compressor = EventCompressor(self.ledger, store, summariser, tokenizer, self.vectors)
        self.upkeep = FactUpkeep(
            self.ledger,
            Planner(self.ledger, store, self.policies, claims, compressor, clock=clock, dropped=dropped),
            Sweeper(self.ledger, store),
            DeadJobs(self.ledger, queue),
            self.forgetting.resume,
            pending.settle,
            clock=clock,
            interval_ms=upkeep_interval_ms,
            has_store=self._has_store,
        )

    def handle(self, kind: str, handler: Handler) -> None:
        """Has jobs of another kind done."""
        self._handlers[kind] = handler

    def start(self) -> tuple[asyncio.Task[None], ...]:
        """Starts background work; the caller cancels it. Where there is no fact store, nothing is decided.

        Upkeep is started by the caller, since one server does it for all.
        """
        work = {"noosphere-extraction": self._readers.run}
        if self._has_store:
            work["noosphere-facts"] = self.workers.run
        return tuple(asyncio.create_task(run(), name=name) for name, run in work.items())

    async def submit(self, call: Call, submissions: Sequence[Submission], *, wait_seconds: float) -> Submitted:
        """Queues candidates; returns when they are decided, or after so long, 30 s at most; at once if nothing decides.

        Raises:
            Refusal: see :meth:`~noosphere.server.facts.intake.Intake.submit`.
        """
        taken = await self.intake.submit(call, submissions)
        decisions = await self.decisions.wait(taken.scope, taken.ids, wait_seconds) if wait_seconds else ()
        return Submitted(taken, decisions)

    async def extract(self, call: Call, asked: ExtractAsked, *, wait: bool) -> ExtractionNote:
        """Queues an extraction; with ``wait`` returns when it has ended and its candidates are decided.

        The end is waited for for 30 s, and so are the decisions.

        Raises:
            Refusal: see :meth:`~noosphere.server.facts.extractions.Extractions.submit`.
        """
        note = await self.extractions.submit(call, asked, wait=wait)
        ids = note.candidate_ids if wait else ()
        for start in range(0, len(ids), CANDIDATES_MAX):
            decisions = await self.decisions.wait(scope_of(note.id, IdKind.JOB), ids[start : start + CANDIDATES_MAX])
            if any(decision.status is Status.QUEUED for decision in decisions):
                break
        return note

    async def run_upkeep(self, call: Call, scope: str, *, dry_run: bool) -> Report:
        """Runs upkeep in a scope, or in all, which is for the operator.

        Raises:
            Refusal: INVALID_FIELD, PERMISSION_DENIED, STALE_INCARNATION, ENGINE_UNAVAILABLE.
        """
        require_writer(call)
        self._admit_operator(call, scope)
        return await self.upkeep.round(scope, dry_run=dry_run)

    async def upkeep_status(self, call: Call, scope: str) -> tuple[tuple[ScopeRound, ...], QueueStats]:
        """Returns the newest rounds, of a scope or of all, and how much waits.

        Raises:
            Refusal: INVALID_FIELD, PERMISSION_DENIED, ENGINE_UNAVAILABLE.
        """
        self._admit_operator(call, scope)
        scopes = [scope] if scope else [found async for found in self.ledger.scopes()]
        return await self.upkeep.rounds(scopes), await self.queue.stats()

    def _admit_operator(self, call: Call, scope: str) -> None:
        if scope:
            check_scope(scope)
            require_write(self.core, call, scope, scope, Verb.ADMIN)
        elif not operates(call, Verb.ADMIN):
            raise Refusal(Reason.PERMISSION_DENIED, f"upkeep of all scopes is for the operator ({OPERATOR_PREFIX}…)")
        self.core.require_current(call)

    def _heard(self, decision: Decision) -> None:
        self.decisions.decided(decision)

    async def _decide(self, job_id: str, body: bytes, attempt: int) -> None:
        waiting = decode_waiting(body)
        candidate = decode_candidate(bytes(waiting.candidate))
        # What one owner's candidates say of each other depends on their order; and decided side by side they would
        # only make each other decide again.
        try:
            async with self._lines.turn(group_of(candidate.scope, candidate.owner)):
                await self.pipeline.decide(candidate, waiting.meaning)
        finally:
            self.vectors.drop(candidate.text)

    def _prepare(self, body: bytes) -> None:
        """Has a claim embedded while those before it are decided, unless it has to be kept from a model."""
        candidate = decode_candidate(bytes(decode_waiting(body).candidate))
        if self.vectors.exist and not findings(candidate.text, trust=candidate.trust):
            self.vectors.ahead(candidate.text)

    async def _give_up(self, job_id: str, body: bytes, reason: str) -> None:
        await self.pipeline.give_up(decode_candidate(bytes(decode_waiting(body).candidate)), reason)
