"""Opens the drivers behind the ports: the embedded ones on a data folder, or those on Redis, etcd and Weaviate.

Some outlive an epoch and some do not: see :class:`Lasting` and :class:`Drivers`.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple

import structlog

from noosphere.consistency import Refusal
from noosphere.consistency.limits import AGENT_LEASE_MS

from .addresses import split_list
from .config import Settings
from .fact_stores import keep_apart, open_embedded, open_weaviate
from .models import Models
from .ports.coordinator import Coordinator, fleet_of
from .ports.factqueue import FactQueue
from .ports.factstore import FactStore
from .ports.models import Embedder
from .ports.runtime import Clock
from .ports.store import WorkingStore
from .startup import StartupError as StartupError
from .storage.embedded import DataFolder, DataFolderError, EmbeddedCoordinator, EmbeddedStore, Journal
from .storage.embedded.worker import ThreadWorker, Worker
from .storage.etcd import Access, EtcdCoordinator, UnfitEtcd
from .storage.facts import AwayFactStore, EmbeddedFactQueue

log = structlog.get_logger(__name__)

NO_FACTS = (
    "this server has no fact store: replicas (etcd_endpoints) need weaviate_url for one; candidates are taken, and wait"
)


class Lasting(NamedTuple):
    """What an epoch of the working store leaves alone.

    Attributes:
        coordinator: incarnations, epochs, rules, locks, presence.
        fact_store: words of facts; None if there is nowhere to keep them.
        fact_queue: work for the fact pipeline; None if it fails over together with the working store.
        embedder: makes the vectors of the fact store; None finds facts by words alone.
        fact_probe: asks whether the fact store can be reached, and raises what a call would; None if it is always there
            or never.
        facts_misplaced: tells whether what that has found is not the collection of facts that the fleet uses.
    """

    coordinator: Coordinator
    fact_store: FactStore | None
    fact_queue: FactQueue | None
    embedder: Embedder | None
    fact_probe: Callable[[], Awaitable[None]] | None = None
    facts_misplaced: Callable[[], bool] = lambda: False


class Drivers(NamedTuple):
    """What the services of one epoch work on.

    Attributes:
        coordinator: incarnations, epochs, rules, locks, presence.
        store: the working store.
        fact_store: words of facts.
        fact_queue: work for the fact pipeline.
        embedder: makes the vectors of the fact store; None finds facts by words alone.
        shared: whether other processes work on them too.
        fleet: stands for whoever shares the coordinator, 0 if that is not known.
        fact_probe: see :class:`Lasting`.
    """

    coordinator: Coordinator
    store: WorkingStore
    fact_store: FactStore
    fact_queue: FactQueue
    embedder: Embedder | None
    shared: bool = False
    fleet: int = 0
    fact_probe: Callable[[], Awaitable[None]] | None = None


def is_replica(settings: Settings) -> bool:
    """Returns whether a server shares its working store and its coordinator with others, and has no data folder."""
    return bool(settings.etcd_endpoints)


def may_end(settings: Settings) -> bool:
    """Returns whether an epoch can begin while a server runs, as it does when Redis fails over."""
    return bool(settings.redis_urls.get_secret_value())


@contextlib.asynccontextmanager
async def open_lasting(
    settings: Settings,
    *,
    clock: Clock,
    models: Models,
    on_fatal: Callable[[BaseException], None],
    worker: Callable[[str], Worker] = ThreadWorker,
) -> AsyncIterator[Lasting]:
    """Opens what outlives an epoch.

    Args:
        settings: the configuration.
        clock: the source of time.
        models: one of them makes the vectors that the fact store keeps.
        on_fatal: called if a disk fails.
        worker: makes what the embedded drivers run blocking calls on, given a name.

    Raises:
        StartupError: the data folder or etcd cannot be used, or what Weaviate needs is missing.
    """
    async with contextlib.AsyncExitStack() as stack:
        if is_replica(settings):
            coordinator = await on_etcd(settings, clock)
            stack.push_async_callback(coordinator.close)
            if settings.weaviate_url:
                facts = await open_weaviate(settings, models, coordinator, stack, clock)
                yield Lasting(coordinator, facts.store, None, facts.embedder, facts.probe, facts.misplaced)
            else:
                yield Lasting(coordinator, None, None, None)
            return
        try:
            folder = DataFolder.lock(settings.data)
            stack.callback(folder.release)
            embedded = await EmbeddedCoordinator.open(
                settings.data, clock=clock, agent_lease_ms=AGENT_LEASE_MS, on_fatal=on_fatal, worker=worker
            )
            stack.push_async_callback(embedded.close)
            await keep_apart(settings)
            if settings.weaviate_url:
                facts = await open_weaviate(settings, models, embedded, stack, clock)
            else:
                facts = await open_embedded(settings, models, stack, on_fatal, worker)
            fact_queue: EmbeddedFactQueue | None = None
            if not settings.redis_urls.get_secret_value():
                fact_queue = await EmbeddedFactQueue.open(
                    settings.data, clock=clock, durability=settings.durability, on_fatal=on_fatal, worker=worker
                )
                stack.push_async_callback(fact_queue.close)
        except DataFolderError as error:
            raise StartupError(str(error)) from error
        yield Lasting(embedded, facts.store, fact_queue, facts.embedder, facts.probe, facts.misplaced)


@contextlib.asynccontextmanager
async def open_drivers(
    settings: Settings,
    lasting: Lasting,
    *,
    clock: Clock,
    journal: Journal | None = None,
    on_fatal: Callable[[BaseException], None],
    on_epoch: Callable[[int], None],
    worker: Callable[[str], Worker] = ThreadWorker,
) -> AsyncIterator[Drivers]:
    """Opens what an epoch ends.

    Args:
        settings: the configuration.
        lasting: what outlives it.
        clock: the source of time.
        journal: the journal of an embedded working store; by default one on SQLite, in the data folder.
        on_fatal: called if a disk fails.
        on_epoch: called if an epoch begins, from which on the working store refuses every call.
        worker: makes what the embedded driver runs blocking calls on, given a name.

    Raises:
        StartupError: the working store cannot be used.
    """
    store: WorkingStore
    if may_end(settings):
        store = await _on_redis(settings, lasting.coordinator, clock, on_epoch)
    else:
        try:
            store = await EmbeddedStore.open(
                settings.data,
                lasting.coordinator,
                clock=clock,
                durability=settings.durability,
                memory_bytes_max=settings.memory_mib_max * 1024 * 1024,
                journal=journal,
                on_fatal=on_fatal,
                worker=worker,
            )
        except DataFolderError as error:
            raise StartupError(str(error)) from error
    try:
        try:
            fleet = fleet_of(await lasting.coordinator.epochs())
        except Refusal as error:
            raise StartupError(f"the coordinator cannot be used: {error}") from error
        yield Drivers(
            lasting.coordinator,
            store,
            lasting.fact_store or AwayFactStore(NO_FACTS),
            lasting.fact_queue or _queue_beside(store),
            lasting.embedder,
            shared=is_replica(settings),
            fleet=int(fleet[:8] or "0", 16),
            fact_probe=lasting.fact_probe,
        )
    finally:
        await store.close()


def access_of(settings: Settings) -> Access:
    """Returns how etcd is spoken to."""
    return Access(
        settings.etcd_tls_ca,
        settings.etcd_tls_certificate,
        settings.etcd_tls_key,
        settings.etcd_username,
        settings.etcd_password.get_secret_value(),
    )


async def on_etcd(settings: Settings, clock: Clock) -> EtcdCoordinator:
    """Opens the coordinator of replicas.

    Raises:
        StartupError: etcd cannot be used.
    """
    endpoints = split_list(settings.etcd_endpoints)
    try:
        return await EtcdCoordinator.open(
            endpoints,
            clock=clock,
            root=settings.etcd_root,
            agent_lease_ms=AGENT_LEASE_MS,
            access=access_of(settings),
        )
    except (Refusal, UnfitEtcd) as error:
        # A call's unknown outcome matters to nobody yet: the next start does the same again.
        why, _, _ = str(error).partition(", the outcome")
        raise StartupError(f"etcd at {', '.join(endpoints)} cannot be used: {why}") from error


async def _on_redis(
    settings: Settings, coordinator: Coordinator, clock: Clock, on_epoch: Callable[[int], None]
) -> WorkingStore:
    try:
        from .storage.redis import RedisStore, Trust, UnfitRedis
    except ImportError as error:
        raise StartupError(f"redis_urls needs another package: pip install 'noosphere[redis]' ({error})") from error
    try:
        store = await RedisStore.open(
            split_list(settings.redis_urls.get_secret_value()),
            coordinator,
            clock=clock,
            on_epoch=on_epoch,
            trust=Trust(settings.redis_tls_ca, settings.redis_tls_certificate, settings.redis_tls_key),
        )
    except UnfitRedis as error:
        raise StartupError(f"the working store on Redis cannot be opened: {error}") from error
    if settings.durability == "fsync" and store.durability != "fsync":
        log.warning(
            "durability is fsync, but this Redis acknowledges before it is on disk; set appendonly yes and appendfsync "
            "always there, or durability os here"
        )
    return store


def _queue_beside(store: WorkingStore) -> FactQueue:
    """Returns the queue that fails over together with a working store on Redis."""
    from .storage.redis import RedisFactQueue, RedisStore

    assert isinstance(store, RedisStore), "elsewhere the queue is in the data folder"
    return RedisFactQueue.beside(store)


@contextlib.asynccontextmanager
async def open_coordinator(
    settings: Settings, *, clock: Clock, on_fatal: Callable[[BaseException], None]
) -> AsyncIterator[Coordinator]:
    """Opens the coordinator alone, for what is done while no server uses the data folder, or beside those on etcd.

    Args:
        settings: the configuration.
        clock: the source of time.
        on_fatal: called if a disk fails.

    Raises:
        StartupError: the data folder or etcd cannot be used.
    """
    if is_replica(settings):
        coordinator = await on_etcd(settings, clock)
        try:
            yield coordinator
        finally:
            await coordinator.close()
        return
    try:
        with DataFolder.lock(settings.data):
            embedded = await EmbeddedCoordinator.open(
                settings.data, clock=clock, agent_lease_ms=AGENT_LEASE_MS, on_fatal=on_fatal
            )
            try:
                yield embedded
            finally:
                await embedded.close()
    except DataFolderError as error:
        raise StartupError(str(error)) from error
