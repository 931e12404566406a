"""Builds the services on opened drivers, without a network."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import AsyncIterator, Callable, Sequence
from typing import NamedTuple

from noosphere.consistency.limits import AGENT_LEASE_MS

from . import __version__
from .config import Settings
from .context import ContextService
from .context.arriving import ResultCompactor
from .context.observing import ContextFigures
from .context.relevance import relevances
from .context.shown import ContextsShown
from .coordination import Coordination, Leads
from .drivers import Drivers
from .dumping import Dumper
from .facts.service import Facts
from .memory import Memory
from .memory.cache_drops import CacheDrops
from .memory.codec import forget_decoded
from .memory.foreground import Foreground
from .memory.makers import Makers
from .memory.quotas import Quotas
from .memory.types import Call
from .models import Models
from .owners import AgentKeeper, OwnerEraser
from .ports.metrics import SessionMetrics
from .ports.runtime import Clock, system_random
from .ports.store import WorkingStore
from .rpc.encode import forget_shown
from .security.limit_rules import LimitRules
from .sessions import Scribe, SessionRules, Sessions, SummaryWorker, VersionKeeper
from .sessions.draining import OutboxDrain
from .sessions.session_sources import SessionSources
from .sessions.teaching import TeachesAfterTurn
from .supervision import cancel, supervise
from .text import distinct_terms
from .transitions import Controller, HealthReporter, Learner, Notes, RecordedBasis, SessionWatch, Transitions
from .transitions.chronicle import ContextNote


class Engine(NamedTuple):
    """The services on opened drivers, without a network."""

    memory: Memory
    sessions: Sessions
    transitions: Transitions
    contexts: ContextService
    facts: Facts
    coordination: Coordination
    owners: OwnerEraser
    agents: AgentKeeper
    store: WorkingStore
    dumper: Dumper


@contextlib.asynccontextmanager
async def open_services(
    settings: Settings,
    drivers: Drivers,
    models: Models,
    *,
    clock: Clock,
    metrics: SessionMetrics | None = None,
    leads: Leads,
    on_fatal: Callable[[BaseException], None],
    is_over: Callable[[], bool] = lambda: False,
    entropy: Callable[[int], bytes] = os.urandom,
    rng: Callable[[], random.Random] = system_random,
) -> AsyncIterator[Engine]:
    """Runs the services on drivers, and their background work.

    Args:
        settings: the configuration.
        drivers: what they work on; closed by whoever opened it, afterwards.
        models: summarise, embed, extract and decide.
        clock: the source of time.
        metrics: hears how sessions fare.
        leads: has work done that one server does for all.
        on_fatal: called if background work ends.
        is_over: tells whether the working store has failed, or its epoch has ended.
        entropy: makes secrets of so many bytes.
        rng: makes generators of chance, for ids above all.
    """
    interval_ms = int(settings.sweep_seconds * 1000)
    async with contextlib.AsyncExitStack() as stack:
        watch = SessionWatch()
        rules = SessionRules(models.tokenizers, (VersionKeeper(),), (watch,))
        memory = Memory.build(
            drivers.store,
            drivers.coordinator,
            clock=clock,
            agent_lease_ms=AGENT_LEASE_MS,
            sweep_interval_ms=interval_ms,
            extension=rules,
        )
        memory.core.fleet = drivers.fleet
        memory.core.key_bytes_max = settings.limits_key_bytes_max
        memory.core.value_bytes_max = settings.limits_value_bytes_max
        limit_rules = LimitRules(drivers.coordinator, settings)
        memory.core.quotas = Quotas(drivers.store, clock, limit_rules.of)
        memory.core.makers = Makers(drivers.store, limit_rules.of)
        cache_drops = CacheDrops(memory.core, clock, shared=drivers.shared)
        for drop in (forget_decoded, forget_shown, memory.watches.forget_decoded):
            cache_drops.register(drop)
        scribe = Scribe(memory.core, rules.hooks)
        sources = SessionSources(
            scribe,
            models.tokenizers,
            rng(),
            forget=(
                lambda _: memory.watches.forget_decoded(),
                lambda _: forget_shown(),
                lambda session_id: contexts.forget(session_id),
            ),
            cache_drops=cache_drops,
        )
        foreground = Foreground()
        facts = Facts(
            memory.core,
            memory.signals,
            drivers.fact_store,
            drivers.fact_queue,
            sources,
            sources,
            embedder=drivers.embedder,
            extractor=models.extractor,
            summariser=models.fallback,
            tokenizers=models.tokenizers,
            clock=clock,
            rng=rng(),
            entropy=entropy,
            upkeep_interval_ms=interval_ms,
            cache_drops=cache_drops,
            pause=foreground.idle,
            store_ready=drivers.fact_probe,
        )
        notes = Notes(scribe, watch, clock, entropy(16).hex() if drivers.shared else "")
        controller = Controller(
            scribe,
            notes,
            summariser=models.fallback,
            tokenizers=models.tokenizers,
            relate=_relate,
            basis=RecordedBasis(scribe),
            policy=models.policy,
            recall=facts.recall,
            metrics=metrics,
            learner=Learner(scribe),
        )
        learns = settings.extract_after == "turn"

        async def learn(call: Call, session_id: str, turn: int, *, agent: str, owner: str) -> None:
            await facts.extractions.after_turn(call, session_id, turn, agent=agent, owner=owner)

        sessions = Sessions.build(
            scribe,
            tokenizers=models.tokenizers,
            compactor=ResultCompactor(),
            summariser=models.summariser,
            fallback=models.fallback,
            rng=rng(),
            clock=clock,
            upkeep_interval_ms=interval_ms,
            after_turn=(controller, TeachesAfterTurn(scribe, learn)) if learns else (controller,),
            forget=(
                lambda _: memory.watches.forget_decoded(),
                lambda _: forget_shown(),
                watch.forget,
                lambda session_id: contexts.forget(session_id),
            ),
            cache_drops=cache_drops,
        )
        owners = OwnerEraser(
            scribe,
            facts.ledger,
            facts.forgetting,
            clock,
            forget=(
                lambda _: memory.watches.forget_decoded(),
                lambda _: forget_shown(),
                watch.forget,
                lambda session_id: contexts.forget(session_id),
            ),
            cache_drops=cache_drops,
        )
        contexts = ContextService(
            scribe,
            tokenizers=models.tokenizers,
            facts=facts.recall,
            clock=clock,
            rng=rng(),
            entropy=entropy,
            observers=(_Watched(watch, sessions.summary_worker),),
            foreground=foreground,
            shared=drivers.shared,
        )
        cache_drops.register(contexts.forget_all)
        sources.heed(ContextsShown(contexts.book))
        drain = OutboxDrain(
            scribe, sources, facts.intake, clock=clock, interval_ms=interval_ms, leads=lambda: leads.leads
        )
        tasks = (
            *memory.start(),
            *sessions.start(),
            *contexts.start(),
            *facts.start(),
            asyncio.create_task(drain.run(), name="noosphere-outboxes"),
            asyncio.create_task(leads.do(memory.upkeep.run), name="noosphere-upkeep"),
            asyncio.create_task(leads.do(sessions.upkeep.run), name="noosphere-session-upkeep"),
            asyncio.create_task(leads.do(facts.upkeep.run), name="noosphere-fact-upkeep"),
            asyncio.create_task(leads.do(owners.run), name="noosphere-erasures"),
        )
        if drivers.shared:
            tasks = (
                *tasks,
                asyncio.create_task(notes.run(), name="noosphere-notes"),
                asyncio.create_task(cache_drops.run(), name="noosphere-cache-drops"),
            )
        supervise(tasks, on_fatal, is_over)
        stack.push_async_callback(cancel, tasks)
        # Manifests that wait are written as long as the drivers are open.
        stack.push_async_callback(contexts.book.settle)
        stack.push_async_callback(notes.settle)
        coordination = Coordination.build(memory.core, memory.signals)
        transitions = Transitions(watch, notes, controller, HealthReporter(scribe, notes))
        dumper = Dumper(drivers.store, drivers.coordinator, drivers.fact_store, drivers.fact_queue, clock, __version__)
        agents = AgentKeeper(memory, scribe, clock, shared=drivers.shared)
        yield Engine(
            memory, sessions, transitions, contexts, facts, coordination, owners, agents, drivers.store, dumper
        )


class _Watched:
    """Tells the controller of contexts, and those who make summaries of what contexts had to leave out."""

    def __init__(self, watch: SessionWatch, summaries: SummaryWorker) -> None:
        self._watch = watch
        self._summaries = summaries

    def assembled(self, session_id: str, figures: ContextFigures) -> None:
        self._watch.assembled(session_id, ContextNote(*figures))

    def missing(self, session_id: str) -> None:
        self._summaries.nudge(session_id, urgent=True)

    def accessed(self, call: Call, session_id: str, key: str) -> None:
        self._watch.accessed(call, session_id, key)


def _relate(question: str, texts: Sequence[str]) -> Sequence[float]:
    return relevances(distinct_terms(question), [distinct_terms(text) for text in texts])
