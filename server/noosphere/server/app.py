"""Runs a whole server: configuration → drivers → services → gRPC."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
import secrets
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial

import grpc
import structlog

from noosphere.consistency import Refusal

from . import __version__
from .addresses import split_address
from .assembly import Engine, open_services
from .auditing import audited
from .authentication import authentication, authorizing, check_reach
from .config import ConfigError, Settings
from .coordination import AlwaysLeads, Leadership, Leads, Membership, ServerInfo, Servers
from .drivers import Lasting, StartupError, is_replica, may_end, open_drivers, open_lasting
from .generations import Generations, Probe
from .logs import configure_logging
from .models import Models
from .models import build as build_models
from .observing import Observed
from .ports.coordinator import Coordinator
from .ports.metrics import ModelMetrics, SessionMetrics
from .ports.runtime import Clock, SystemClock, system_random
from .rpc.admin import AdminRpc
from .rpc.context import ContextRpc
from .rpc.coordination import CoordinationRpc
from .rpc.credentials import ReloadedCredentials, TlsFiles
from .rpc.faces import COORDINATION, FACTS, Faces
from .rpc.facts import FactRpc
from .rpc.gate import Gate
from .rpc.health import Health
from .rpc.memory import MemoryRpc
from .rpc.probes import health_served
from .rpc.server import RpcServer
from .rpc.sessions import SessionRpc
from .rpc.steps.authorization import AuthorizationStep
from .rpc.steps.limits import limits_step
from .rpc.steps.shedding import shedding_step
from .security.keypairs import UnfitCertificate
from .security.limit_rules import LimitRules
from .security.minting import ApiTokens
from .storage.embedded import Journal, StoreFailed
from .supervision import cancel, supervise
from .tracing import traced

__all__ = ["EXIT_FAILED", "EXIT_OK", "Engine", "StartupError", "open_engine", "run", "serve"]

log = structlog.get_logger(__name__)

SWITCH_SECONDS = 0.0005
GC_YOUNG_OBJECTS = 10_000
REPLICA_CONNECTION_AGE_SECONDS = 600.0
EXIT_OK = 0
EXIT_FAILED = 3


class EpochEnded(Exception):
    """Redis was restarted or has failed over; what an engine without a server has read may be undone."""

    def __init__(self, epoch: int) -> None:
        super().__init__(f"epoch {epoch} has begun: Redis was restarted, or another one was promoted")


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
        StartupError: the data folder, the configured Redis or etcd cannot be used.
    """
    clock = clock or SystemClock()
    async with contextlib.AsyncExitStack() as stack:
        models = _models(settings, clock, model_metrics)
        stack.push_async_callback(models.aclose)
        lasting = await stack.enter_async_context(open_lasting(settings, clock=clock, models=models, on_fatal=on_fatal))
        yield await stack.enter_async_context(
            _open_working(
                settings,
                lasting,
                models,
                clock=clock,
                journal=journal,
                metrics=metrics,
                leads=AlwaysLeads(),
                on_fatal=on_fatal,
                on_epoch=lambda epoch: on_fatal(EpochEnded(epoch)),
            )
        )


@contextlib.asynccontextmanager
async def _open_working(
    settings: Settings,
    lasting: Lasting,
    models: Models,
    *,
    clock: Clock,
    journal: Journal | None = None,
    metrics: SessionMetrics | None,
    observed: Observed | None = None,
    leads: Leads,
    on_fatal: Callable[[BaseException], None],
    on_epoch: Callable[[int], None],
) -> AsyncIterator[Engine]:
    """Opens what an epoch ends: the working store, and the services, which keep in memory what they have read."""
    ends: list[BaseException | int] = []

    def failed(error: BaseException) -> None:
        ends.append(error)
        on_fatal(error)

    def begun(epoch: int) -> None:
        ends.append(epoch)
        on_epoch(epoch)

    async with (
        open_drivers(settings, lasting, clock=clock, journal=journal, on_fatal=failed, on_epoch=begun) as drivers,
        open_services(
            settings,
            drivers if observed is None else observed.drivers(drivers),
            models,
            clock=clock,
            metrics=metrics,
            leads=leads,
            on_fatal=on_fatal,
            is_over=lambda: bool(ends),
        ) as engine,
    ):
        if observed is not None:
            observed.attend(engine, lambda: leads.leads)
        yield engine


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


async def serve(
    settings: Settings, *, ready: Callable[[str], None] | None = None, stop: asyncio.Event | None = None
) -> int:
    """Runs a server until SIGTERM, SIGINT or a storage failure.

    Args:
        settings: the configuration.
        ready: called with the address once calls are answered.
        stop: ends it when set; with it signals are left to the program that embeds the server.

    Returns:
        The process's exit code: 0 after an orderly shutdown, 3 after a storage failure.

    Raises:
        StartupError: it cannot start.
    """
    if stop is None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
    fatal = _Fatal(stop)
    clock = SystemClock()
    # Found out first, so that a start in vain leaves the data folder and its epoch alone.
    check_reach(settings)
    for listen in filter(None, (settings.listen, settings.health_listen)):
        _check_port(listen)
    credentials = _credentials(settings, clock)
    server_id = secrets.token_hex(8)
    observed = Observed(clock, server_id)
    async with contextlib.AsyncExitStack() as stack:
        models = _models(settings, clock, observed.models)
        stack.push_async_callback(models.aclose)
        lasting = await stack.enter_async_context(open_lasting(settings, clock=clock, models=models, on_fatal=fatal))
        observed.facts_misplaced = lasting.facts_misplaced
        own = ServerInfo(server_id, "", __version__, clock.wall_ms(), leads=False)
        servers = Servers(lasting.coordinator, own, shared=is_replica(settings))
        leadership = Leadership(lasting.coordinator.locks, own.id, clock) if is_replica(settings) else None
        leads: Leads = leadership or AlwaysLeads()
        limit_rules = LimitRules(lasting.coordinator, settings)
        authorization = await stack.enter_async_context(authorizing(settings, clock, fatal))
        shedding = shedding_step(settings, clock, system_random())
        gate = Gate(
            (
                *await stack.enter_async_context(traced(settings, own.id)),
                *observed.steps(settings.slow_call_ms),
                shedding,
                # Before authentication: it also tells of those who proved nothing.
                *stack.enter_context(audited(settings, clock, observed.registry)),
                *await stack.enter_async_context(authentication(settings, lasting.coordinator, clock, fatal)),
                authorization,
                limits_step(limit_rules, clock),
            )
        )
        server = RpcServer(
            enable_reflection=settings.reflection,
            gate=gate,
            credentials=credentials,
            message_bytes_max=settings.limits_message_bytes_max,
            shedding=shedding,
            connection_age_seconds=_connection_age(settings),
            absent=() if lasting.fact_store is not None else (FACTS,),
        )
        probes: dict[str, Probe] = {}
        if is_replica(settings):
            probes[COORDINATION] = lasting.coordinator.epochs
        if lasting.fact_probe is not None:
            probes[FACTS] = lasting.fact_probe
        generations = Generations(
            lambda on_epoch: _open_working(
                settings,
                lasting,
                observed.timed(models),
                clock=clock,
                metrics=observed.sessions,
                observed=observed,
                leads=leads,
                on_fatal=fatal,
                on_epoch=on_epoch,
            ),
            partial(_faces, settings, clock, clock.monotonic_ms(), servers, gate, observed, authorization),
            server,
            clock,
            may_end=may_end(settings),
            probes=probes,
        )
        stack.push_async_callback(generations.close)
        # Nobody but the generations holds on to services: those of ended epochs would stay in memory.
        try:
            epoch = (await generations.open()).store.epoch
        except Refusal as error:
            raise StartupError(f"the services cannot be opened: {error}") from error
        await stack.enter_async_context(observed.exported(settings.metrics_listen))
        host, _, _ = settings.listen.rpartition(":")
        try:
            port = await server.start(settings.listen, await generations.away())
        except OSError as error:
            raise StartupError(f"cannot listen on {settings.listen}: {error}") from error
        await stack.enter_async_context(_probed(settings, server.health))
        if may_end(settings) or probes:
            renewing = asyncio.create_task(generations.run(), name="noosphere-generations")
            supervise((renewing,), fatal)
            stack.push_async_callback(cancel, (renewing,))
        probing = asyncio.create_task(shedding.run(server.probe), name="noosphere-shedding")
        supervise((probing,), fatal)
        stack.push_async_callback(cancel, (probing,))
        address = f"{host}:{port}"
        servers.serves_on(address)
        among_others = await stack.enter_async_context(contextlib.AsyncExitStack())
        if leadership is not None:
            await among_others.enter_async_context(
                _among_others(lasting.coordinator, servers, leadership, clock, fatal)
            )
        log.info("serving", address=address, kept_in=_kept_in(settings), epoch=epoch)
        if ready is not None:
            ready(address)
        await stop.wait()
        log.info("stopping", drain_seconds=settings.drain_seconds)
        await server.drain()
        # Others take over while calls finish here.
        await among_others.aclose()
        # After a storage failure no call can finish any more.
        await server.stop(0 if fatal.error is not None else settings.drain_seconds)
    return EXIT_OK if fatal.error is None else EXIT_FAILED


def _connection_age(settings: Settings) -> float:
    """Returns after how long a connection takes no further calls, in seconds; 0 for never."""
    if settings.connection_age_seconds is not None:
        return settings.connection_age_seconds
    return REPLICA_CONNECTION_AGE_SECONDS if is_replica(settings) else 0


@contextlib.asynccontextmanager
async def _probed(settings: Settings, health: Health) -> AsyncIterator[None]:
    """Tells health on an address of its own, if that is configured.

    Raises:
        StartupError: the address cannot be listened on.
    """
    if not settings.health_listen:
        yield
        return
    async with contextlib.AsyncExitStack() as stack:
        try:
            port = await stack.enter_async_context(health_served(health, settings.health_listen))
        except OSError as error:
            raise StartupError(f"cannot listen on {settings.health_listen} for health: {error}") from error
        host, _, _ = settings.health_listen.rpartition(":")
        log.info("telling health", address=f"{host}:{port}")
        yield


def _kept_in(settings: Settings) -> str:
    """Returns where everything is, in words: urls of Redis are secrets."""
    places = ["Redis"] if settings.redis_urls.get_secret_value() else []
    places.append(f"etcd at {settings.etcd_endpoints}" if is_replica(settings) else str(settings.data))
    if settings.weaviate_url:
        places.append(f"Weaviate at {settings.weaviate_url}")
    return " and ".join(filter(None, (", ".join(places[:-1]), places[-1])))


@contextlib.asynccontextmanager
async def _among_others(
    coordinator: Coordinator,
    servers: Servers,
    leadership: Leadership,
    clock: Clock,
    on_fatal: Callable[[BaseException], None],
) -> AsyncIterator[None]:
    """Keeps a replica among the servers of its fleet, and stands for election; afterwards hands over, and leaves."""
    membership = Membership(coordinator, servers, clock)
    tasks = (
        asyncio.create_task(membership.run(), name="noosphere-membership"),
        asyncio.create_task(leadership.run(), name="noosphere-leadership"),
    )
    supervise(tasks, on_fatal)
    try:
        yield
    finally:
        await cancel(tasks)
        await leadership.close()
        await membership.close()


def _faces(
    settings: Settings,
    clock: Clock,
    started_ms: int,
    servers: Servers,
    gate: Gate,
    observed: Observed,
    authorization: AuthorizationStep,
    engine: Engine,
) -> Faces:
    authorization.decide_by(engine.memory.core.access)
    return Faces(
        engine.memory.signals,
        MemoryRpc(engine.memory, settings.watch_stall_seconds, gate),
        AdminRpc(
            engine.memory,
            clock,
            started_ms,
            servers,
            usage=observed.usage,
            overview=observed.overview,
            tokens=ApiTokens(engine.memory.core.coordinator, clock, os.urandom, taken=settings.tokens),
            dumper=engine.dumper,
            agents=engine.agents,
            limits=LimitRules(engine.memory.core.coordinator, settings),
        ),
        SessionRpc(engine.sessions, engine.transitions),
        ContextRpc(engine.contexts),
        FactRpc(engine.facts, engine.owners),
        CoordinationRpc(engine.coordination, settings.watch_stall_seconds),
    )


def _credentials(settings: Settings, clock: Clock) -> grpc.ServerCredentials | None:
    """Returns what TLS shows to clients, None where it is not configured.

    Raises:
        StartupError: the files cannot be used.
    """
    if settings.tls_certificate is None or settings.tls_key is None:
        return None
    try:
        return ReloadedCredentials(
            TlsFiles(settings.tls_certificate, settings.tls_key, settings.tls_client_ca), clock
        ).grpc
    except UnfitCertificate as error:
        raise StartupError(f"TLS cannot be used: {error}") from error


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
