"""What a server tells of itself, put together: figures, counts of callers, and what asks for them."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import AsyncIterator, Callable

import structlog
from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector

from noosphere.consistency import Reason, Refusal

from .addresses import split_address
from .assembly import Engine
from .drivers import Drivers, StartupError
from .facts.service import Facts
from .memory import Memory
from .metrics import (
    Exporter,
    Overview,
    PrometheusCallMetrics,
    PrometheusMemoryMetrics,
    PrometheusModelMetrics,
    PrometheusPortMetrics,
    PrometheusSessionMetrics,
    PrometheusState,
    State,
    measured,
)
from .metrics.measured import EMBEDDER, FACT_STORE, QUEUE, STORE
from .models import Models
from .ports.runtime import Clock
from .ports.tallies import StoreTotals
from .rpc.gate import Step
from .rpc.steps.metrics import MetricsStep
from .rpc.steps.slow import SlowCallStep
from .rpc.steps.usage import UsageStep
from .security import Usage

log = structlog.get_logger(__name__)

STATE_SECONDS_MAX = 2.0
"""How long whoever looks on waits for the store."""

TOTALS_MS = 30_000
"""How old the totals of a store may be that has to go over all namespaces for them."""


class Observed:
    """Everything that a process counts. Lives on one event loop.

    Args:
        clock: the source of time.
        server_id: tells this life of the server from others.

    Attributes:
        registry: where all figures are.
        usage: what callers do.
        calls: figures of calls.
        memory: figures of shared memory.
        ports: figures of drivers.
        sessions: figures of sessions.
        models: figures of models.
        facts_misplaced: tells whether what Weaviate has is not the fleet's collection of facts.
    """

    def __init__(self, clock: Clock, server_id: str) -> None:
        self._clock = clock
        self._server_id = server_id
        self.registry = CollectorRegistry()
        self.usage = Usage(clock.wall_ms)
        self.calls = PrometheusCallMetrics(self.registry)
        self.memory = PrometheusMemoryMetrics(self.registry)
        self.ports = PrometheusPortMetrics(self.registry)
        self.sessions = PrometheusSessionMetrics(self.registry)
        self.models = PrometheusModelMetrics(self.registry)
        self.facts_misplaced: Callable[[], bool] = lambda: False
        # Services of ended epochs must not stay in memory because somebody counts.
        self._memory: Callable[[], Memory | None] = lambda: None
        self._facts: Callable[[], Facts | None] = lambda: None
        self._opened = 0
        self._leads: Callable[[], bool] = lambda: True
        self._totals: tuple[int, StoreTotals] | None = None

    def steps(self, slow_ms: int) -> tuple[Step, ...]:
        """Returns what every call passes to be counted; comes before all that may refuse it.

        Args:
            slow_ms: from how long on the log tells of a call, in milliseconds; 0 for never.
        """
        slow = (SlowCallStep(slow_ms),) if slow_ms else ()
        return MetricsStep(self.calls), UsageStep(self.usage), *slow

    def drivers(self, drivers: Drivers) -> Drivers:
        """Returns the same drivers, timed."""
        return drivers._replace(
            store=measured(drivers.store, "store", STORE, self.ports),
            fact_store=measured(drivers.fact_store, "facts", FACT_STORE, self.ports),
            fact_queue=measured(drivers.fact_queue, "queue", QUEUE, self.ports),
            embedder=drivers.embedder and measured(drivers.embedder, "embedder", EMBEDDER, self.ports),
        )

    def timed(self, models: Models) -> Models:
        """Returns the same models, timed where a call may wait for them."""
        return models._replace(
            summariser=measured(models.summariser, "summariser", ("summarise",), self.ports),
            extractor=measured(models.extractor, "extractor", ("extract",), self.ports),
            policy=models.policy and measured(models.policy, "policy", ("decide",), self.ports),
        )

    def attend(self, engine: Engine, leads: Callable[[], bool]) -> None:
        """Counts what these services do from now on.

        Args:
            engine: the services.
            leads: tells whether this server leads.
        """
        engine.memory.core.metrics = self.memory
        self._memory, self._facts = weakref.ref(engine.memory), weakref.ref(engine.facts)
        self._leads = leads
        self._opened += 1
        self._totals = None

    async def state(self) -> State:
        """Returns how much there is.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        memory, facts = self._memory(), self._facts()
        if memory is None or facts is None:
            raise Refusal(Reason.ENGINE_UNAVAILABLE, "no services are open at the moment")
        core = memory.core
        totals = await self._totals_of(memory)
        jobs = await facts.queue.stats()
        return State(
            agents=core.coordinator.active_count(),
            watches=memory.watches.open_count,
            namespaces=totals.namespace_count,
            records=totals.record_count,
            record_bytes=totals.record_bytes,
            journal_bytes=totals.journal_bytes,
            commits=totals.commit_count,
            syncs=totals.sync_count,
            epoch=core.store.epoch,
            epochs_begun=self._opened - 1,
            jobs_waiting=jobs.waiting,
            jobs_leased=jobs.leased,
            jobs_dead=jobs.dead,
            oldest_job_seconds=max(0, self._clock.wall_ms() - jobs.oldest_ms) / 1000 if jobs.oldest_ms else 0.0,
            leads=self._leads(),
            facts_misplaced=self.facts_misplaced(),
        )

    async def overview(self) -> Overview:
        """Returns how the server is doing."""
        state: State | None = None
        with contextlib.suppress(Refusal, TimeoutError):
            async with asyncio.timeout(STATE_SECONDS_MAX):
                state = await self.state()
        method = "/noosphere.v1.MemoryService/{}".format
        return Overview(
            self._server_id,
            self.calls.call_count,
            self.calls.open_count,
            self.calls.refusal_count,
            self.memory.conflict_count,
            {
                "Get": self.calls.latency_of(method("Get")),
                "Put": self.calls.latency_of(method("Put")),
                "commit": self.ports.latency_of("store", "commit"),
                "watch lag": self.memory.lag,
            },
            state,
            self.sessions.health(),
        )

    async def _totals_of(self, memory: Memory) -> StoreTotals:
        store, now_ms = memory.core.store, self._clock.monotonic_ms()
        if store.remote and self._totals is not None and now_ms - self._totals[0] < TOTALS_MS:
            return self._totals[1]
        totals = await store.totals()
        self._totals = (now_ms, totals)
        return totals

    @contextlib.asynccontextmanager
    async def exported(self, listen: str) -> AsyncIterator[None]:
        """Serves the figures over HTTP for the length of the block.

        Args:
            listen: where, as host and port; "" serves none.

        Raises:
            StartupError: the address cannot be listened on.
        """
        if not listen:
            yield
            return
        PrometheusState(self.registry, self.state, asyncio.get_running_loop())
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        exporter = Exporter(self.registry)
        host, port = split_address(listen)
        try:
            bound = exporter.start(host, port)
        except OSError as error:
            raise StartupError(f"cannot listen on {listen} for metrics: {error.strerror}") from error
        log.info("serving metrics", address=f"{host}:{bound}")
        try:
            yield
        finally:
            await asyncio.to_thread(exporter.stop)
