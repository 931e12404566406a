"""Restores a dump into engines that nobody serves: the data folder, or Redis, etcd and Weaviate.

The dump is verified to its last byte before anything is written. From the first write to the last one the target is
marked, and no server takes it: a restore that was cut off is begun anew, and nothing of it is ever taken for the whole.
What is restored begins an epoch above that of the dump and those of the target, so whoever has seen something that the
dump does not have is told that it is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Protocol

from noosphere.consistency import NamePattern, NamespacePolicy, Refusal
from noosphere.consistency.limits import AGENT_LEASE_MS

from .addresses import split_list
from .config import Settings
from .drivers import StartupError, is_replica, may_end, on_etcd
from .dumping import DumpError, DumpFile, Summary
from .dumping.bodies import bytes_of
from .dumping.lines import Entry, FactLine, FenceLine, Granted, Header, JobLine, Line, RecordLine, Rule, Space
from .dumping.meanings import content_of, grant_of, image_of, job_of, record_of, rule_of
from .fact_stores import ELSEWHERE, mark_elsewhere, weaviate_store
from .ports.coordinator import Coordinator, PolicyTable
from .ports.factqueue import FactQueue, Job
from .ports.factstore import BATCH_MAX as FACTS_MAX
from .ports.factstore import FactContent, FactStore, StoreModel
from .ports.grants import GrantKey, Verb
from .ports.images import PAGE_BYTES_MAX, PAGE_RECORDS_MAX, ImageRecord, NamespaceImage
from .ports.runtime import Clock
from .storage.embedded import DataFolder, DataFolderError, EmbeddedCoordinator, StoreFailed
from .storage.embedded.images import ImageWriter
from .storage.embedded.sqlite import FILE as WORKING
from .storage.embedded.sqlite import SqliteJournal
from .storage.facts import EmbeddedFactQueue, EmbeddedFactStore
from .storage.facts.checks import check_contents, check_jobs
from .storage.facts.queue import FILE as QUEUE
from .storage.facts.store import FILE as FACTS
from .storage.weaviate.lineage import Noted, note

if TYPE_CHECKING:
    from .storage.weaviate import WeaviateFactStore

CAUSE = "restored from a dump"
JOBS_AT_ONCE = 100
_WORKER = "noosphere-restore"
_LEASE_MS = 60_000


class RestoreError(Exception):
    """The dump was not restored. Its text is one line that says what is there now and what to do."""


class Sink(Protocol):
    """Where namespaces go."""

    async def begin(self, image: NamespaceImage) -> None:
        """Begins a namespace."""
        ...

    async def add(self, image: NamespaceImage, records: list[ImageRecord]) -> None:
        """Adds records to it."""
        ...


async def restore(
    settings: Settings,
    dump: DumpFile,
    *,
    clock: Clock,
    replace: bool = False,
    without_facts: bool = False,
    told: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[Summary, int]:
    """Restores a dump; returns what it holds, and the epoch that has begun with it.

    Args:
        settings: says where to, as for a server.
        dump: the dump.
        clock: the source of time.
        replace: whether what is there may be removed first.
        without_facts: whether words of facts may be left out where there is no fact store for them.
        told: is told now and then how many lines are done, and how many there are.

    Raises:
        DumpError: the dump cannot be used; nothing was changed.
        RestoreError: the target is not empty, cannot be used, or is not complete now.
    """
    summary = await asyncio.to_thread(dump.verify, check_line)
    if is_replica(settings) and not settings.weaviate_url and summary.facts and not without_facts:
        raise RestoreError(
            f"the dump has {summary.facts:,} versions of facts, and replicas (etcd_endpoints) have no fact store for "
            "them without weaviate_url; with --without-facts everything else is restored"
        )
    try:
        async with _opened(settings, summary, clock, replace) as (coordinator, sink, epoch, fact_store, fact_queue):
            filling = _Filling(sink, coordinator, fact_store, fact_queue, told, summary.lines)
            for line in dump.lines():
                await filling.take(line)
            await filling.end(summary)
    except (DataFolderError, StartupError) as error:
        raise RestoreError(str(error)) from error
    except (Refusal, StoreFailed, DumpError) as error:
        raise RestoreError(
            f"the restore was cut off: {error}; what is there is not complete, and no server takes it until a restore "
            "with --replace has ended"
        ) from error
    return summary, epoch


def check_line(line: Line, header: Header) -> None:
    """Checks what would be refused when it is written, and what was there before would be gone by then.

    Raises:
        Refusal: INVALID_FIELD or VALUE_TOO_LARGE.
    """
    match line:
        case FactLine():
            check_contents((content_of(line),), header.dimension)
        case JobLine():
            check_jobs((job_of(line),))
        case _:
            pass


class _Filling:
    """Takes the lines of a dump in their order."""

    def __init__(
        self,
        sink: Sink,
        coordinator: Coordinator,
        fact_store: FactStore | None,
        fact_queue: FactQueue,
        told: Callable[[int, int], None],
        total: int,
    ) -> None:
        self._sink = sink
        self._coordinator = coordinator
        self._fact_store = fact_store
        self._fact_queue = fact_queue
        self._told = told
        self._total = total
        self._done = 0
        self._rules: dict[NamePattern, NamespacePolicy] = {}
        self._grants: dict[GrantKey, frozenset[Verb]] = {}
        self._entries: set[tuple[str, str]] = set()
        self._space: Space | None = None
        self._fences: list[FenceLine] = []
        self._image: NamespaceImage | None = None
        self._records: list[ImageRecord] = []
        self._record_bytes = 0
        self._contents: list[FactContent] = []
        self._jobs: list[Job] = []
        self._dead: list[tuple[Job, str]] = []

    async def take(self, line: Line) -> None:
        """Takes one line."""
        self._done += 1
        if not self._done % 1_000:
            self._told(self._done, self._total)
            await asyncio.sleep(0)
        if self._space is not None and not isinstance(line, FenceLine | RecordLine):
            await self._end_namespace()
        match line:
            case Rule():
                pattern, policy = rule_of(line)
                self._rules[pattern] = policy
            case Granted():
                key, verbs = grant_of(line)
                self._grants[key] = verbs
            case Entry():
                self._entries.add((line.table, line.key))
                await self._coordinator.put_entry(line.table, line.key, bytes_of(line.value))
            case Space():
                self._space, self._fences = line, []
            case FenceLine():
                self._fences.append(line)
            case RecordLine():
                await self._take_record(record_of(line))
            case FactLine():
                self._contents.append(content_of(line))
                if len(self._contents) == FACTS_MAX:
                    await self._write_facts()
            case JobLine(dead=True):
                self._dead.append((job_of(line), line.reason))
                if len(self._dead) == JOBS_AT_ONCE:
                    await self._bury()
            case JobLine():
                await self._bury()
                self._jobs.append(job_of(line))
                if len(self._jobs) == JOBS_AT_ONCE:
                    await self._queue()
            case _:
                pass

    async def end(self, summary: Summary) -> None:
        """Stores what is left, and has the coordinator go on from there."""
        await self._write_facts()
        await self._bury()
        await self._queue()
        for table in summary.header.tables:
            for key in list(self._coordinator.table(table)):
                if (table, key) not in self._entries:
                    await self._coordinator.put_entry(table, key, None)
        counters = summary.counters
        await self._coordinator.resume(counters.number, PolicyTable(counters.config_version, self._rules, self._grants))
        self._told(self._total, self._total)

    async def _begin_namespace(self) -> NamespaceImage:
        if self._image is None:
            assert self._space is not None, "verified before"
            self._image = image_of(self._space, self._fences)
            await self._sink.begin(self._image)
        return self._image

    async def _end_namespace(self) -> None:
        image = await self._begin_namespace()
        await self._write_records(image)
        self._space = self._image = None

    async def _take_record(self, record: ImageRecord) -> None:
        image = await self._begin_namespace()
        self._records.append(record)
        self._record_bytes += len(record.data)
        if len(self._records) >= PAGE_RECORDS_MAX or self._record_bytes >= PAGE_BYTES_MAX:
            await self._write_records(image)

    async def _write_records(self, image: NamespaceImage) -> None:
        records, self._records, self._record_bytes = self._records, [], 0
        if records:
            await self._sink.add(image, records)

    async def _write_facts(self) -> None:
        contents, self._contents = self._contents, []
        if contents and self._fact_store is not None:
            await self._fact_store.write(contents)

    async def _queue(self) -> None:
        jobs, self._jobs = self._jobs, []
        if jobs:
            await self._fact_queue.put(jobs)

    async def _bury(self) -> None:
        """Gives jobs up that were given up before; nothing else is queued yet."""
        dead, self._dead = self._dead, []
        if not dead:
            return
        await self._fact_queue.put([job for job, _ in dead])
        reasons = {job.id: reason for job, reason in dead}
        while reasons:
            leased = await self._fact_queue.take(_WORKER, len(reasons), _LEASE_MS)
            for one in leased:
                await self._fact_queue.fail(one.lease, reasons.pop(one.job.id), retry_after_ms=None)


_Opened = tuple[Coordinator, Sink, int, FactStore | None, FactQueue]


@contextlib.asynccontextmanager
async def _opened(settings: Settings, summary: Summary, clock: Clock, replace: bool) -> AsyncIterator[_Opened]:
    """Opens the target, marked and empty; takes the mark off if all went well."""
    async with contextlib.AsyncExitStack() as stack:
        folder: DataFolder | None = None
        fact_store: FactStore | None = None
        coordinator: Coordinator
        if is_replica(settings):
            etcd = await on_etcd(settings, clock)
            stack.push_async_callback(etcd.close)
            coordinator = etcd
        else:
            folder = DataFolder.lock(settings.data, restores=True)
            stack.callback(folder.release)
            _check_folder(folder, replace)
        elsewhere = await _weaviate(settings, summary, clock, replace, stack) if settings.weaviate_url else None
        if may_end(settings):
            if folder is not None:
                coordinator = await _coordinator_in(folder, clock, stack)
            _check_rules(coordinator, replace)
            target = await stack.enter_async_context(_redis(settings, coordinator, summary, clock, replace))
            if folder is not None:
                _empty(folder)
            fact_store = await _facts_in(elsewhere, folder, settings, summary, coordinator, stack)
            yield (coordinator, *target[:2], fact_store, target[2])
        else:
            assert folder is not None, "replicas are on Redis"
            coordinator = await _coordinator_in(folder, clock, stack)
            _check_rules(coordinator, replace)
            _empty(folder)
            newest = (await coordinator.epochs() or [None])[-1]
            least = max(summary.header.epoch, 0 if newest is None else newest.epoch) + 1
            epoch = await coordinator.begin_epoch(CAUSE, _words(summary), least)
            fact_store = await _facts_in(elsewhere, folder, settings, summary, coordinator, stack)
            queue = await EmbeddedFactQueue.open(folder.path, clock=clock, durability=settings.durability)
            stack.push_async_callback(queue.close)
            with _journal(folder, settings, epoch, max(clock.wall_ms(), summary.counters.store_time_ms)) as writer:
                yield coordinator, _FolderSink(writer), epoch, fact_store, queue
        if folder is not None:
            folder.end_restore()


def _words(summary: Summary) -> str:
    return f"{summary.namespaces} namespaces, {summary.records} records as of epoch {summary.header.epoch}"


async def _coordinator_in(folder: DataFolder, clock: Clock, stack: contextlib.AsyncExitStack) -> Coordinator:
    coordinator = await EmbeddedCoordinator.open(folder.path, clock=clock, agent_lease_ms=AGENT_LEASE_MS)
    stack.push_async_callback(coordinator.close)
    return coordinator


async def _weaviate(
    settings: Settings, summary: Summary, clock: Clock, replace: bool, stack: contextlib.AsyncExitStack
) -> WeaviateFactStore:
    """Opens Weaviate and looks at what is there; changes nothing."""
    store = await weaviate_store(settings, StoreModel(summary.header.model, summary.header.dimension), clock)
    stack.push_async_callback(store.close)
    try:
        await store.ready()
        held = (await store.stats()).versions
    except Refusal as error:
        raise StartupError(f"the fact store cannot be used: {error}") from error
    if held and not replace:
        raise RestoreError(
            f"{settings.weaviate_collection} at {settings.weaviate_url} is not empty: it holds {held:,} versions of "
            "facts; with --replace they are removed first"
        )
    return store


async def _facts_in(
    elsewhere: WeaviateFactStore | None,
    folder: DataFolder | None,
    settings: Settings,
    summary: Summary,
    coordinator: Coordinator,
    stack: contextlib.AsyncExitStack,
) -> FactStore | None:
    """Returns an empty fact store; None if there is none. The target is marked by now."""
    if elsewhere is not None:
        await elsewhere.begin_anew()
        await elsewhere.ready()
        # From here on it is the target's, whichever was before.
        made = Noted(elsewhere.collection_id or "", settings.weaviate_collection, holds=bool(summary.facts))
        await note(coordinator, made)
        if folder is not None:
            mark_elsewhere(settings)
        return elsewhere
    await note(coordinator, None)
    if folder is None:
        return None
    model = StoreModel(summary.header.model, summary.header.dimension)
    store = await EmbeddedFactStore.open(folder.path, model=model, durability=settings.durability)
    stack.push_async_callback(store.close)
    return store


def _check_folder(folder: DataFolder, replace: bool) -> None:
    held = [name for name in (WORKING, FACTS, QUEUE) if (folder.path / name).exists()]
    if held and not replace:
        raise RestoreError(
            f"{folder.path} is not empty: it holds {', '.join(held)}; with --replace that is removed first"
        )


def _check_rules(coordinator: Coordinator, replace: bool) -> None:
    table = coordinator.policies()
    if (table.entries or table.grants) and not replace:
        raise RestoreError(
            f"the coordinator is not empty: it has {len(table.entries)} patterns with rules and {len(table.grants)} "
            "grants; with --replace they are removed first"
        )


def _empty(folder: DataFolder) -> None:
    """Marks a folder and removes what it holds, except what the coordinator knows of epochs and numbers.

    Raises:
        RestoreError: it cannot be.
    """
    try:
        folder.begin_restore()
        for name in (WORKING, FACTS, QUEUE, ELSEWHERE):
            for path in folder.path.glob(f"{name}*"):
                path.unlink()
    except OSError as error:
        raise RestoreError(f"cannot empty {folder.path}: {error.strerror}") from None


@contextlib.contextmanager
def _journal(folder: DataFolder, settings: Settings, epoch: int, time_ms: int) -> Iterator[ImageWriter]:
    journal = SqliteJournal(folder.path, settings.durability)
    journal.recover()
    try:
        journal.begin(epoch, time_ms, 0, 0)
        writer = ImageWriter(journal)
        yield writer
        writer.end()
        journal.finish(epoch, time_ms, 0)
    finally:
        journal.close()


class _FolderSink:
    """Namespaces go into a new journal."""

    def __init__(self, writer: ImageWriter) -> None:
        self._writer = writer

    async def begin(self, image: NamespaceImage) -> None:
        self._writer.begin(image)

    async def add(self, image: NamespaceImage, records: list[ImageRecord]) -> None:
        self._writer.add(records)


@contextlib.asynccontextmanager
async def _redis(
    settings: Settings, coordinator: Coordinator, summary: Summary, clock: Clock, replace: bool
) -> AsyncIterator[tuple[Sink, int, FactQueue]]:
    try:
        from .storage.redis import RedisFactQueue, RedisStore, Trust, UnfitRedis
    except ImportError as error:
        raise StartupError(f"redis_urls needs another package: pip install 'noosphere[redis]' ({error})") from error
    urls = split_list(settings.redis_urls.get_secret_value())
    try:
        store = await RedisStore.open(
            urls,
            coordinator,
            clock=clock,
            restores=True,
            trust=Trust(settings.redis_tls_ca, settings.redis_tls_certificate, settings.redis_tls_key),
        )
    except UnfitRedis as error:
        raise StartupError(f"the working store on Redis cannot be opened: {error}") from error
    try:
        if not await store.images.is_empty() and not replace:
            raise RestoreError("this Redis is not empty; with --replace what is there is removed first")
        store.time.heard(summary.counters.store_time_ms)
        await store.images.mark()
        epoch = await store.scripts.begin_epoch(CAUSE, summary.header.epoch + 1)
        await store.images.clear()
        yield store.images, epoch, RedisFactQueue.beside(store)
        await store.images.unmark()
    finally:
        await store.close()
