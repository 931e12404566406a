"""How much there is at the moment: read when somebody asks, from the event loop on which everything lives."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Awaitable, Callable, Iterator
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

ANSWER_SECONDS_MAX = 3.0
"""How long a page of figures waits for those of a busy server; then it is shown without them."""


class State(NamedTuple):
    """How much a server holds, and how it is doing.

    Attributes:
        agents: with a living lease.
        watches: open watch streams.
        namespaces: live ones in the working store.
        records: in the working store; on an embedded one, those in memory.
        record_bytes: of these.
        journal_bytes: that wait to be folded.
        commits: since the store was opened.
        syncs: of its journal, since then.
        epoch: the present one.
        epochs_begun: while this process ran.
        jobs_waiting: candidates and extractions that wait.
        jobs_leased: that are being worked on.
        jobs_dead: that were given up.
        oldest_job_seconds: how long the oldest has waited; 0.0 if none does.
        leads: whether this server does what one does for all.
        facts_misplaced: whether what Weaviate has is not the collection of facts that the fleet uses.
    """

    agents: int = 0
    watches: int = 0
    namespaces: int = 0
    records: int = 0
    record_bytes: int = 0
    journal_bytes: int = 0
    commits: int = 0
    syncs: int = 0
    epoch: int = 0
    epochs_begun: int = 0
    jobs_waiting: int = 0
    jobs_leased: int = 0
    jobs_dead: int = 0
    oldest_job_seconds: float = 0.0
    leads: bool = False
    facts_misplaced: bool = False


_GAUGES = {
    "agents": ("agents", "Agents with a living lease."),
    "watches": ("watches", "Open watch streams."),
    "namespaces": ("namespaces", "Live namespaces."),
    "records": ("records", "Records; of an embedded store those in memory."),
    "record_bytes": ("record_bytes", "Bytes of these records."),
    "journal_bytes": ("journal_bytes", "Bytes of journal that wait to be folded."),
    "epoch": ("epoch", "The present epoch."),
    "oldest_job_seconds": ("fact_job_oldest_seconds", "How long the oldest candidate or extraction has waited."),
    "leads": ("leader", "1 if this server does what one does for all."),
    "facts_misplaced": ("facts_misplaced", "1 if what Weaviate has is not the fleet's collection of facts."),
}
_COUNTERS = {
    "commits": ("store_commits", "Commits since the store was opened."),
    "syncs": ("store_syncs", "Syncs of its journal since then."),
    "epochs_begun": ("epoch_changes", "Epochs that have begun while this process ran."),
}
_JOBS = {"jobs_waiting": "waiting", "jobs_leased": "leased", "jobs_dead": "dead"}


class PrometheusState(Collector):
    """Asks for the state at each scrape.

    Args:
        registry: the figures.
        read: returns the state; raises whatever it likes while the store is away.
        loop: where ``read`` runs.
    """

    def __init__(
        self, registry: CollectorRegistry, read: Callable[[], Awaitable[State]], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._read = read
        self._loop = loop
        registry.register(self)

    def describe(self) -> Iterator[Metric]:
        """Names the figures without asking for them."""
        yield from _families(State())

    def collect(self) -> Iterator[Metric]:
        """Yields the figures, or that there are none at the moment. Waits; not to be called on the event loop."""
        up = GaugeMetricFamily("noosphere_state_known", "1 if the store has told what it holds, 0 while it does not.")

        async def read() -> State:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                return await self._read()

        asked: concurrent.futures.Future[State] | None = None
        try:
            asked = asyncio.run_coroutine_threadsafe(read(), self._loop)
            state = asked.result(2 * ANSWER_SECONDS_MAX)
        except Exception:
            # An engine that is away, a server that ends: figures about calls matter most just then.
            if asked is not None:
                asked.cancel()
            up.add_metric((), 0)
            yield up
            return
        up.add_metric((), 1)
        yield up
        yield from _families(state)


def _families(state: State) -> Iterator[Metric]:
    for field, (name, text) in _GAUGES.items():
        yield GaugeMetricFamily(f"noosphere_{name}", text, value=float(getattr(state, field)))
    for field, (name, text) in _COUNTERS.items():
        yield CounterMetricFamily(f"noosphere_{name}", text, value=float(getattr(state, field)))
    jobs = GaugeMetricFamily("noosphere_fact_jobs", "Candidates and extractions in the queue.", labels=("state",))
    for field, label in _JOBS.items():
        jobs.add_metric((label,), getattr(state, field))
    yield jobs
