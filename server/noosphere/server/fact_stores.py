"""Opens the store of facts: the embedded one in the data folder, or Weaviate, which servers share.

Weaviate need not be there when a server starts, and may go and come while it runs: see :class:`Fitting`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import structlog

from noosphere.consistency import Refusal

from .addresses import address_of_weaviate
from .config import Settings
from .models import Models
from .ports.coordinator import Coordinator
from .ports.factstore import FactStore, FactStoreStats, StoreModel
from .ports.models import Embedder, EmbedderError
from .ports.runtime import Clock
from .startup import StartupError
from .storage.embedded import DataFolderError
from .storage.embedded.worker import Worker
from .storage.facts import NO_MODEL, EmbeddedFactStore
from .storage.facts.store import FILE

if TYPE_CHECKING:
    from .storage.weaviate import WeaviateAccess, WeaviateFactStore

log = structlog.get_logger(__name__)

ELSEWHERE = "facts.elsewhere"
"""Is in a data folder whose facts are not: their words would be missed without a word about it."""

GRPC_PORT = 50_051
"""Where Weaviate's gRPC interface is if nothing else is said."""


class OpenedFacts(NamedTuple):
    """A store of facts, and what makes its vectors.

    Attributes:
        store: the store.
        embedder: makes vectors; None finds facts by words alone.
        probe: asks whether the store can be reached; None if it cannot be away. Raises what a call would.
        misplaced: tells whether what the probe has found is not the collection that the fleet uses.
    """

    store: FactStore
    embedder: Embedder | None
    probe: Callable[[], Awaitable[None]] | None = None
    misplaced: Callable[[], bool] = lambda: False


def model_of(embedder: Embedder | None) -> StoreModel:
    """Returns whose vectors an embedder makes."""
    return NO_MODEL if embedder is None else StoreModel(embedder.name, embedder.dimension)


async def keep_apart(settings: Settings) -> None:
    """Sees to it that the facts of a data folder, whose lock is held, are in one place.

    Raises:
        StartupError: they are not where this configuration looks for them.
        DataFolderError: a file cannot be used.
    """
    mark = settings.data / ELSEWHERE
    if not settings.weaviate_url:
        if mark.exists():
            raise StartupError(
                f"the facts of {settings.data} are on Weaviate ({mark.name}): set weaviate_url, or dump the folder "
                "with it and restore that without"
            )
        return
    if not mark.exists() and (settings.data / FILE).exists():
        store = await EmbeddedFactStore.open(settings.data, model=NO_MODEL, keep_model=True)
        try:
            versions = (await store.stats()).versions
        finally:
            await store.close()
        if versions:
            raise StartupError(
                f"{settings.data} holds {versions:,} versions of facts, which would not be found on Weaviate: start "
                "without weaviate_url, or dump it and restore that with weaviate_url"
            )
    mark_elsewhere(settings)


def mark_elsewhere(settings: Settings) -> None:
    """Notes in the data folder that its facts are on Weaviate.

    Raises:
        DataFolderError: the disk refuses.
    """
    mark = settings.data / ELSEWHERE
    if not mark.exists():
        try:
            mark.write_text("the facts of this folder are on Weaviate\n", "utf-8")
        except OSError as error:
            raise DataFolderError(f"{mark} cannot be written: {error.strerror}") from None


async def open_embedded(
    settings: Settings,
    models: Models,
    stack: contextlib.AsyncExitStack,
    on_fatal: Callable[[BaseException], None],
    worker: Callable[[str], Worker],
) -> OpenedFacts:
    """Opens the store in the data folder, whose lock is held.

    Args:
        settings: the configuration.
        models: one of them makes the vectors.
        stack: closes the store.
        on_fatal: called if the disk fails.
        worker: makes what blocking calls run on, given a name.

    Raises:
        DataFolderError: it cannot be used.
    """
    store = await EmbeddedFactStore.open(
        settings.data,
        model=model_of(models.embedder),
        keep_model=True,
        durability=settings.durability,
        on_fatal=on_fatal,
        worker=worker,
    )
    stack.push_async_callback(store.close)
    stats = await store.stats()
    if not fits(store.model, models.embedder):
        return OpenedFacts(store, None)
    begin_to_load(models, stats)
    return OpenedFacts(store, models.embedder)


async def open_weaviate(
    settings: Settings, models: Models, coordinator: Coordinator, stack: contextlib.AsyncExitStack, clock: Clock
) -> OpenedFacts:
    """Opens the store on Weaviate, whether that is there or not.

    Args:
        settings: the configuration.
        models: one of them makes the vectors.
        coordinator: notes which collection is the fleet's.
        stack: closes the store.
        clock: the source of time.

    Raises:
        StartupError: a package is missing, or a file for TLS cannot be used.
    """
    store = await weaviate_store(settings, model_of(models.embedder), clock, coordinator)
    stack.push_async_callback(store.close)
    fitting = Fitting(store, models)
    try:
        await fitting.probe()
    except Refusal as error:
        if not fitting.misplaced:
            log.warning("facts are refused until Weaviate can be reached", why=str(error))
    embedder = None if models.embedder is None else fitting
    return OpenedFacts(store, embedder, fitting.probe, lambda: fitting.misplaced)


async def weaviate_store(
    settings: Settings, model: StoreModel, clock: Clock, coordinator: Coordinator | None = None
) -> WeaviateFactStore:
    """Opens the store on Weaviate that is configured, for vectors of a model.

    Args:
        settings: the configuration.
        model: whose vectors.
        clock: the source of time.
        coordinator: notes which collection is the fleet's; without it whichever is there is used.

    Raises:
        StartupError: a package is missing, or a file for TLS cannot be used.
    """
    try:
        from .storage.weaviate import WeaviateFactStore

        return await WeaviateFactStore.open(weaviate_access(settings), model=model, clock=clock, tables=coordinator)
    except ImportError as error:
        raise StartupError(
            f"weaviate_url needs another package: pip install 'noosphere[weaviate]' ({error})"
        ) from error


def weaviate_access(settings: Settings) -> WeaviateAccess:
    """Returns how Weaviate is spoken to."""
    from .storage.weaviate import WeaviateAccess

    address = address_of_weaviate(settings.weaviate_url)
    host = address.rpartition(":")[0]
    return WeaviateAccess(
        f"{settings.weaviate_url.partition(':')[0]}://{address}",
        settings.weaviate_grpc or f"{host}:{GRPC_PORT}",
        api_key=settings.weaviate_api_key.get_secret_value(),
        tls_ca=settings.weaviate_tls_ca,
        collection=settings.weaviate_collection,
        replication=settings.weaviate_replication,
        buckets=settings.weaviate_buckets,
        call_ms_max=settings.weaviate_call_ms_max,
    )


def fits(stored: StoreModel, embedder: Embedder | None) -> bool:
    """Tells whether stored vectors are of an embedder; the log tells of it if they are not."""
    if stored == model_of(embedder):
        return True
    log.warning(
        "facts are found by keywords alone, because their vectors are of another model; `noosphere facts reindex` "
        "makes them anew",
        stored=stored.name or "none",
        configured=model_of(embedder).name or "none",
    )
    return False


def begin_to_load(models: Models, stats: FactStoreStats) -> None:
    """Has the embedder loaded where there are facts to be found, while nobody waits for it."""
    if models.embedder is not None and stats.versions:
        models.warm()
        if not stats.vectors:
            log.info("facts from before have no vectors; `noosphere facts reindex` makes them", versions=stats.versions)


class Fitting:
    """An embedder for a store of which it is not known from the beginning whose vectors it has.

    As long as that is unknown, no fact can be written, and vectors are made in the hope that they fit.

    Args:
        store: the store.
        models: one of them makes the vectors.

    Attributes:
        misplaced: whether what was there when it was last asked is not the collection that the fleet uses.
    """

    def __init__(self, store: WeaviateFactStore, models: Models) -> None:
        self._store = store
        self._models = models
        self._looked = False
        self.misplaced = False

    @property
    def name(self) -> str:
        """The embedder's name."""
        return model_of(self._models.embedder).name

    @property
    def dimension(self) -> int:
        """The embedder's dimension."""
        return model_of(self._models.embedder).dimension

    async def embed(self, texts: Sequence[str]) -> tuple[tuple[float, ...], ...]:
        """Returns a vector for each text.

        Raises:
            EmbedderError: see the port; also if the store's vectors are of another model.
        """
        stored, embedder = self._store.model, self._models.embedder
        if embedder is None or (stored is not None and stored != model_of(embedder)):
            raise EmbedderError(
                f"the fact store has vectors of {stored.name if stored and stored.name else 'no model'}"
            )
        return await embedder.embed(texts)

    async def probe(self) -> None:
        """Asks whether the store can be reached; when it is for the first time, looks at what it holds.

        Raises:
            Refusal: it cannot be, or is not the one that the fleet uses.
        """
        from .storage.weaviate import OtherCollection

        try:
            await self._store.ready()
        except OtherCollection as error:
            if not self.misplaced:
                self.misplaced = True
                log.error("facts are refused: what Weaviate has is not this fleet's collection of them", why=str(error))
            raise
        if self.misplaced:
            self.misplaced = False
            log.info("the fleet's collection of facts is there")
        if self._looked or self._store.model is None:
            return
        self._looked = True
        stats = await self._store.stats()
        if fits(self._store.model, self._models.embedder):
            begin_to_load(self._models, stats)
