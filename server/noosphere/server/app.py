"""Wires a whole server: configuration → drivers → services → gRPC. The only module that knows every part."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import structlog
from prometheus_client import CollectorRegistry

from noosphere.consistency.limits import AGENT_LEASE_MS

from .config import ConfigError, Settings, split_address
from .context import ContextService
from .context.arriving import ResultCompactor
from .context.observing import ContextFigures
from .context.relevance import relevances
from .context.shown import ContextsShown
from .facts.service import Facts
from .logs import configure_logging
from .memory import Memory
from .memory.foreground import Foreground
from .memory.types import Call
from .metrics import Exporter, PrometheusModelMetrics, PrometheusSessionMetrics
from .models import Models
from .models import build as build_models
from .ports.coordinator import Coordinator
from .ports.factstore import StoreModel
from .ports.metrics import ModelMetrics, SessionMetrics
from .ports.models import Embedder
from .ports.runtime import Clock, SystemClock, system_random
from .ports.store import WorkingStore
from .rpc.encode import forget_shown
from .rpc.server import RpcServer
from .sessions import Scribe, SessionRules, Sessions, SummaryWorker, VersionKeeper
from .sessions.draining import OutboxDrain
from .sessions.session_sources import SessionSources
from .sessions.teaching import TeachesAfterTurn
from .storage.embedded import (
    DataFolder,
    DataFolderError,
    EmbeddedCoordinator,
    EmbeddedStore,
    Journal,
    StoreFailed,
)
from .storage.facts import NO_MODEL, EmbeddedFactQueue, EmbeddedFactStore
from .supervision import supervise
from .text import distinct_terms
from .transitions import Controller, HealthReporter, Learner, RecordedBasis, SessionWatch, Transitions
from .transitions.chronicle import ContextNote

log = structlog.get_logger(__name__)

SWITCH_SECONDS = 0.0005
GC_YOUNG_OBJECTS = 10_000
EXIT_OK = 0
EXIT_FAILED = 3


class StartupError(Exception):
    """The server cannot start; the message is one line that says why and what to do."""


class EpochEnded(Exception):
    """Redis was restarted or has failed over; what this process knows may be undone."""

    def __init__(self, epoch: int) -> None:
        super().__init__(f"epoch {epoch} has begun: Redis was restarted, or another one was promoted")


class Engine(NamedTuple):
    """The services on opened drivers, without a network."""

    memory: Memory
    sessions: Sessions
    transitions: Transitions
    contexts: ContextService
    facts: Facts
    store: WorkingStore


@dataclass
class _Fatal:
    """Remembers the first failure that must end the process."""

    happened: asyncio.Event
    error: BaseException | None = None

    def __call__(self, error: BaseException) -> None:
        if self.error is None:
            self.error = error
            failed = isinstance(error, (StoreFailed, EpochEnded))
            what = "storage failed" if failed else "a part of the server has ended"
            log.critical(f"{what}; the process stops", error=str(error))
            self.happened.set()


@contextlib.asynccontextmanager
async def open_engine(
    settings: Settings,
    *,
    clock: Clock | None = None,
    journal: Journal | None = None,
    metrics: SessionMetrics | None = None,
    model_metrics: ModelMetrics | None = None,
    on_fatal: Callable[[BaseException], None],
) -> AsyncIterator[Engine]:
    """Opens the drivers, the embedded ones on the data folder, and runs the services on them.

    Args:
        settings: the configuration.
        clock: the source of time; the machine's by default.
        journal: the journal of the working store; by default one on SQLite, in the data folder.
        metrics: hears how sessions fare.
        model_metrics: hears what calls of models cost.
        on_fatal: called if a disk fails or Redis fails over, after which nothing is acknowledged any more, or if
            background work ends.

    Raises:
        StartupError: the data folder or the configured Redis cannot be used.
    """
    clock = clock or SystemClock()
    try:
        folder = DataFolder.lock(settings.data)
    except DataFolderError as error:
        raise StartupError(str(error)) from error
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(folder.release)
        models = _models(settings, clock, model_metrics)
        stack.push_async_callback(models.aclose)
        try:
            coordinator = await EmbeddedCoordinator.open(
                settings.data, clock=clock, agent_lease_ms=AGENT_LEASE_MS, on_fatal=on_fatal
            )
            stack.push_async_callback(coordinator.close)
            store: WorkingStore
            if settings.redis_urls.get_secret_value():
                store = await _on_redis(settings, coordinator, clock, on_fatal)
            else:
                store = await EmbeddedStore.open(
                    settings.data,
                    coordinator,
                    clock=clock,
                    durability=settings.durability,
                    memory_bytes_max=settings.memory_mib_max * 1024 * 1024,
                    journal=journal,
                    on_fatal=on_fatal,
                )
            stack.push_async_callback(store.close)
            fact_store = await EmbeddedFactStore.open(
                settings.data,
                model=_model_of(models.embedder),
                keep_model=True,
                durability=settings.durability,
                on_fatal=on_fatal,
            )
            stack.push_async_callback(fact_store.close)
            fact_queue = await EmbeddedFactQueue.open(
                settings.data, clock=clock, durability=settings.durability, on_fatal=on_fatal
            )
            stack.push_async_callback(fact_queue.close)
        except DataFolderError as error:
            raise StartupError(str(error)) from error
        watch = SessionWatch()
        rules = SessionRules(models.tokenizers, (VersionKeeper(),), (watch,))
        memory = Memory.build(
            store,
            coordinator,
            clock=clock,
            agent_lease_ms=AGENT_LEASE_MS,
            sweep_interval_ms=int(settings.sweep_seconds * 1000),
            extension=rules,
        )
        scribe = Scribe(memory.core, rules.hooks)
        sources = SessionSources(
            scribe,
            models.tokenizers,
            system_random(),
            forget=(
                lambda _: memory.watches.forget_decoded(),
                lambda _: forget_shown(),
                lambda session_id: contexts.forget(session_id),
            ),
        )
        foreground = Foreground()
        facts = Facts(
            memory.core,
            memory.signals,
            fact_store,
            fact_queue,
            sources,
            sources,
            embedder=await _fitting(models, fact_store),
            extractor=models.extractor,
            summariser=models.fallback,
            tokenizers=models.tokenizers,
            clock=clock,
            rng=system_random(),
            entropy=os.urandom,
            upkeep_interval_ms=int(settings.sweep_seconds * 1000),
            pause=foreground.idle,
        )
        controller = Controller(
            scribe,
            watch,
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

        async def learn(session_id: str, turn: int, *, agent: str, owner: str) -> None:
            await facts.extractions.after_turn(session_id, turn, agent=agent, owner=owner)

        sessions = Sessions.build(
            scribe,
            tokenizers=models.tokenizers,
            compactor=ResultCompactor(),
            summariser=models.summariser,
            fallback=models.fallback,
            rng=system_random(),
            clock=clock,
            upkeep_interval_ms=int(settings.sweep_seconds * 1000),
            after_turn=(controller, TeachesAfterTurn(scribe, learn)) if learns else (controller,),
            forget=(
                lambda _: memory.watches.forget_decoded(),
                lambda _: forget_shown(),
                watch.forget,
                lambda session_id: contexts.forget(session_id),
            ),
        )
        contexts = ContextService(
            scribe,
            tokenizers=models.tokenizers,
            facts=facts.recall,
            clock=clock,
            rng=system_random(),
            entropy=os.urandom,
            observers=(_Watched(watch, sessions.summary_worker),),
            foreground=foreground,
        )
        sources.heed(ContextsShown(contexts.book))
        drain = OutboxDrain(scribe, sources, facts.intake, clock=clock, interval_ms=int(settings.sweep_seconds * 1000))
        draining = asyncio.create_task(drain.run(), name="noosphere-outboxes")
        tasks = (*memory.start(), *sessions.start(), *contexts.start(), *facts.start(), draining)
        supervise(tasks, on_fatal)
        stack.push_async_callback(_cancel, tasks)
        # Manifests that wait are written as long as the drivers are open.
        stack.push_async_callback(contexts.book.settle)
        transitions = Transitions(watch, controller, HealthReporter(scribe, watch))
        yield Engine(memory, sessions, transitions, contexts, facts, store)


async def _on_redis(
    settings: Settings, coordinator: Coordinator, clock: Clock, on_fatal: Callable[[BaseException], None]
) -> WorkingStore:
    try:
        from .storage.redis import RedisStore, UnfitRedis
    except ImportError as error:
        raise StartupError(f"redis_urls needs another package: pip install 'noosphere[redis]' ({error})") from error
    urls = [url.strip() for url in settings.redis_urls.get_secret_value().split(",")]
    try:
        # The services keep in memory what they have read; a failover may have undone it.
        store = await RedisStore.open(urls, coordinator, clock=clock, on_epoch=lambda e: on_fatal(EpochEnded(e)))
    except UnfitRedis as error:
        raise StartupError(f"the working store on Redis cannot be opened: {error}") from error
    if settings.durability == "fsync" and store.durability != "fsync":
        log.warning(
            "durability is fsync, but this Redis acknowledges before it is on disk; set appendonly yes and appendfsync "
            "always there, or durability os here"
        )
    return store


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


def _model_of(embedder: Embedder | None) -> StoreModel:
    return NO_MODEL if embedder is None else StoreModel(embedder.name, embedder.dimension)


async def _fitting(models: Models, store: EmbeddedFactStore) -> Embedder | None:
    """Returns the embedder if the store's vectors are its own; begins to load it where there are facts to be found."""
    stats = await store.stats()
    if store.model != _model_of(models.embedder):
        log.warning(
            "facts are found by keywords alone, because their vectors are of another model; stop the server and run "
            "`noosphere facts reindex`",
            stored=store.model.name,
            configured=_model_of(models.embedder).name or "none",
        )
        return None
    if models.embedder is not None and stats.versions:
        models.warm()
        if not stats.vectors:
            log.info("facts from before have no vectors; `noosphere facts reindex` makes them", versions=stats.versions)
    return models.embedder


def _relate(question: str, texts: Sequence[str]) -> Sequence[float]:
    return relevances(distinct_terms(question), [distinct_terms(text) for text in texts])


def _models(settings: Settings, clock: Clock, metrics: ModelMetrics | None) -> Models:
    try:
        return build_models(settings, clock=clock, metrics=metrics)
    except ConfigError as error:
        raise StartupError(str(error)) from error


def run(settings: Settings, *, ready: Callable[[str], None] | None = None) -> int:
    """Runs :func:`serve` on the fastest event loop at hand, with logging set up.

    Raises:
        StartupError: it cannot start.
    """
    configure_logging(settings.log_level, settings.log_format)
    _tune_process()
    try:
        import uvloop
    except ImportError:
        return asyncio.run(serve(settings, ready=ready))
    return uvloop.run(serve(settings, ready=ready))


def _tune_process() -> None:
    """Sets what only a program that has the process to itself may set."""
    # The journal's thread hands batches back and forth: with the default of 5 ms it waits for the event loop's
    # thread longer than for the disk.
    sys.setswitchinterval(SWITCH_SECONDS)
    # Calls make many short-lived objects and no cycles; the young collections find nothing.
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_YOUNG_OBJECTS, 10, 10)


async def serve(settings: Settings, *, ready: Callable[[str], None] | None = None) -> int:
    """Runs a server until SIGTERM, SIGINT or a storage failure.

    Args:
        settings: the configuration.
        ready: called with the address once calls are answered.

    Returns:
        The process's exit code: 0 after an orderly shutdown, 3 after a storage failure.

    Raises:
        StartupError: it cannot start.
    """
    stop = asyncio.Event()
    fatal = _Fatal(stop)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    clock = SystemClock()
    # Found out first, so that a start in vain leaves the data folder and its epoch alone.
    _check_port(settings.listen)
    registry = CollectorRegistry()
    metrics = PrometheusSessionMetrics(registry)
    model_metrics = PrometheusModelMetrics(registry)
    async with (
        open_engine(settings, clock=clock, metrics=metrics, model_metrics=model_metrics, on_fatal=fatal) as engine,
        _exported(settings, registry),
    ):
        server = RpcServer(
            engine.memory,
            engine.sessions,
            engine.transitions,
            engine.contexts,
            engine.facts,
            clock,
            enable_reflection=settings.reflection,
            watch_stall_seconds=settings.watch_stall_seconds,
        )
        host, _, _ = settings.listen.rpartition(":")
        try:
            port = await server.start(settings.listen)
        except OSError as error:
            raise StartupError(f"cannot listen on {settings.listen}: {error}") from error
        address = f"{host}:{port}"
        log.info("serving", address=address, data=str(settings.data), epoch=engine.store.epoch)
        if ready is not None:
            ready(address)
        await stop.wait()
        log.info("stopping", drain_seconds=settings.drain_seconds)
        # After a storage failure no call can finish any more.
        await server.stop(0 if fatal.error is not None else settings.drain_seconds)
    return EXIT_OK if fatal.error is None else EXIT_FAILED


@contextlib.asynccontextmanager
async def _exported(settings: Settings, registry: CollectorRegistry) -> AsyncIterator[None]:
    """Serves the metrics, if that is configured.

    Raises:
        StartupError: the address cannot be listened on.
    """
    if not settings.metrics_listen:
        yield
        return
    exporter = Exporter(registry)
    host, port = split_address(settings.metrics_listen)
    try:
        bound = exporter.start(host, port)
    except OSError as error:
        raise StartupError(f"cannot listen on {settings.metrics_listen} for metrics: {error.strerror}") from error
    log.info("serving metrics", address=f"{host}:{bound}")
    try:
        yield
    finally:
        await asyncio.to_thread(exporter.stop)


def _check_port(listen: str) -> None:
    """Checks that an address can be listened on; gRPC does not tell why it cannot.

    Raises:
        StartupError: the port is in use, or the address is not this machine's.
    """
    host, port = split_address(listen)
    failures: list[OSError] = []
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for family, kind, protocol, _, address in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                # As gRPC does: a port that only waits for stray packets of a former server is free.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
        except OSError as error:
            failures.append(error)
    # `localhost` may name an IPv6 address on a machine without IPv6; one that works is enough.
    in_use = [error for error in failures if error.errno == errno.EADDRINUSE]
    if in_use or len(failures) == len(found):
        reason = (in_use or failures)[0].strerror
        hint = "; is a server running there already? --listen takes another address" if in_use else ""
        raise StartupError(f"cannot listen on {listen}: {reason}{hint}")


async def _cancel(tasks: tuple[asyncio.Task[None], ...]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
