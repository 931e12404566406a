"""The embedded working store: the working set in memory, durable through a journal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from noosphere.consistency import Reason, Refusal, Remembered, RequestRef, exhausted

from ...ports.coordinator import Coordinator
from ...ports.images import ImageRecords, NamespaceImage
from ...ports.runtime import Clock
from ...ports.store import (
    Changes,
    Commit,
    CommitResult,
    Committed,
    Compacted,
    Dropped,
    Erased,
    Failed,
    Failure,
    FailureKind,
    HeadMoved,
    LoggedBatch,
    LoggedChange,
    NamespaceRef,
    NamespaceStats,
    NamespaceSummary,
    ReadResult,
    Replayed,
    ScanResult,
    StoreTotals,
)
from ..bounds import check_commit
from ..heads import Followed, HeadFeeds
from .accept import accept, judge
from .applying import Applier
from .body import Body
from .codec import CommitItem, DamagedBlob, DropItem, EraseItem, FloorItem, LogItem
from .database import damaged
from .erasing import Eraser
from .folder import StoreFailed, log_failure
from .images import image_of, pages_of
from .journal import Journal
from .keeper import Keeper
from .loading import Loader
from .namespace import Namespace, Overlay, Pending, entry_of
from .opening import Recovery, replay, settle_epoch
from .pipeline import Pipeline, unavailable
from .registry import Registry
from .sqlite import FILE, SqliteJournal
from .storetime import StoreTime
from .worker import ThreadWorker, Worker, run

MEMORY_BYTES_MAX = 1024 * 1024 * 1024
VOLATILE_BYTES_MAX = 256 * 1024 * 1024
"""What volatile namespaces may take together; nothing of them can leave memory."""

SCAN_ENTRIES_MAX = 2_048
CHANGES_MAX = 512
"""Most entries of a page and batches of an answer, so that neither holds up the event loop."""

_PAGE_SMALL = 64
_HEADER_BYTES = 64


class EmbeddedStore:
    """See :class:`~noosphere.server.ports.store.WorkingStore`. Lives on one event loop.

    Reads of loaded namespaces and everything a commit does before its sync run without waiting, so each is
    atomic. Only loading, back-pressure and syncs suspend a caller.
    """

    def __init__(
        self,
        journal: Journal,
        writer: Worker,
        reader: Worker,
        recovery: Recovery,
        last_batch: int,
        time: StoreTime,
        epoch: int,
        clock: Clock,
        durability: str,
        memory_bytes_max: int,
        on_fatal: Callable[[BaseException], None],
        worker: Callable[[str], Worker],
    ) -> None:
        self._journal = journal
        self._writer = writer
        self._reader = reader
        self._registry: Registry = recovery.registry
        self._time = time
        self._epoch = epoch
        self._clock = clock
        self._durability = durability
        self._on_fatal = on_fatal
        self._feeds = HeadFeeds()
        self._followed = Followed()
        self._closed = False
        self._pipeline = Pipeline(journal, writer, time, last_batch, self._apply, self._failed)
        self._loader = Loader(journal, reader, self._pipeline, clock)
        self._keeper = Keeper(
            self._registry,
            journal,
            writer,
            reader,
            self._pipeline,
            time,
            clock,
            memory_bytes_max,
            self._loader.load,
            Eraser(journal, writer, self._pipeline, worker, recovery.erasing),
            recovery.superseded,
        )
        self._applier = Applier(self._registry, self._keeper, self._feeds)
        for namespace in recovery.behind:
            self._keeper.changed(namespace)

    @classmethod
    async def open(
        cls,
        folder: Path,
        coordinator: Coordinator,
        *,
        clock: Clock,
        durability: Literal["fsync", "os"] = "fsync",
        memory_bytes_max: int = MEMORY_BYTES_MAX,
        journal: Journal | None = None,
        on_fatal: Callable[[BaseException], None] = log_failure,
        worker: Callable[[str], Worker] = ThreadWorker,
    ) -> EmbeddedStore:
        """Opens the store in a locked data folder, or creates it.

        Args:
            folder: see :class:`~.folder.DataFolder`.
            coordinator: where an epoch is begun if this is needed.
            clock: the source of time.
            durability: what "synced" means.
            memory_bytes_max: above it idle namespaces leave memory.
            journal: another journal than the one on SQLite.
            on_fatal: called once if the disk fails; the process has to stop then.
            worker: makes what runs blocking calls.

        Raises:
            DataFolderError: damaged, unreadable, or of a newer format; nothing was changed.
        """
        journal = journal or SqliteJournal(folder, durability)
        writer = worker("noosphere-journal")
        reader = worker("noosphere-loader")
        try:
            recovered = await run(writer, journal.recover)
            try:
                recovery = await run(writer, partial(replay, recovered))
            except DamagedBlob as error:
                raise damaged(folder / FILE, error) from None
            epoch = await settle_epoch(coordinator, recovered, recovery)
            time = StoreTime(clock, recovery.time_ms, recovered.clean, recovered.asleep_ms)
            await run(writer, partial(journal.begin, epoch, time.now_ms(), time.asleep_ms, recovered.last_batch))
        except BaseException:
            await run(writer, journal.close)
            writer.stop()
            reader.stop()
            raise
        store = cls(
            journal,
            writer,
            reader,
            recovery,
            recovered.last_batch,
            time,
            epoch,
            clock,
            durability,
            memory_bytes_max,
            on_fatal,
            worker,
        )
        store._keeper.start()
        return store

    @property
    def engine(self) -> str:
        """The driver's name."""
        return "embedded"

    @property
    def durability(self) -> str:
        """What "synced" means."""
        return self._durability

    @property
    def remote(self) -> bool:
        """False: what is read is in memory."""
        return False

    @property
    def epoch(self) -> int:
        """The epoch of this opening."""
        return self._epoch

    def now_ms(self) -> int:
        """Returns store time."""
        return self._time.now_ms()

    async def read(
        self,
        namespace: NamespaceRef,
        keys: Sequence[str],
        *,
        request: RequestRef | None = None,
        locks: Sequence[str] = (),
        accepted: bool = False,
        counted: bool = False,
        bytes_max: int = 0,
    ) -> ReadResult:
        """Reads keys, a remembered request and fencing tokens at one head. Nothing is moved: nothing is too large."""
        found = await self._find(namespace)
        now_ms = self._time.now_ms()
        cells = [found.cell(key, accepted) for key in keys]
        return ReadResult(
            found.view(self._epoch, now_ms, accepted),
            tuple(None if cell is None else entry_of(cell) for cell in cells),
            None if request is None else found.remembered(request, self._time.awake_ms(now_ms), accepted),
            tuple((lock, found.fence(lock, accepted)) for lock in locks),
            (0 if found.body is None else found.body.record_count) if counted else None,
        )

    async def scan(
        self,
        namespace: NamespaceRef,
        collection: str,
        *,
        after: str | None = None,
        before: str | None = None,
        limit: int,
        reverse: bool = False,
        accepted: bool = False,
    ) -> ScanResult:
        """Reads up to ``limit`` (and at most 2,048) entries of a collection in key order."""
        count = max(1, min(limit, SCAN_ENTRIES_MAX))
        if count > _PAGE_SMALL:
            # Nothing here waits, so a caller who goes from page to page would never let anybody else run.
            await asyncio.sleep(0)
        found = await self._find(namespace)
        cells = found.range(collection, after, before, reverse, count + 1, accepted)
        return ScanResult(
            found.view(self._epoch, self._time.now_ms(), accepted),
            tuple(map(entry_of, cells[:count])),
            len(cells) > count,
            found.stamps(collection, accepted),
        )

    async def commit(self, namespace: NamespaceRef, commit: Commit) -> CommitResult:
        """Makes a commit; returns when it is synced. A cancelled caller does not take its commit back."""
        size = check_commit(commit)
        if namespace.volatile and any(mutation.data is not None for mutation in commit.mutations):
            held = self._keeper.volatile_bytes
            if held > VOLATILE_BYTES_MAX:
                raise exhausted("namespace", held, VOLATILE_BYTES_MAX, "too many bytes in ephemeral sessions")
        while True:
            found = await self._find(namespace)
            if self._pipeline.has_room:
                break
            await self._pipeline.room()
        now_ms = self._time.now_ms()
        try:
            verdict = judge(found, commit, self._epoch, now_ms, self._time.awake_ms(now_ms))
        except Refusal:
            await self._settle(found)
            raise
        if verdict:
            await self._settle(found)
            return Replayed(verdict) if isinstance(verdict, Remembered) else Failed(verdict)
        state = found.overlay or found
        if state.exists and not commit.mutations and commit.request is None:
            head = state.head
            await self._settle(found)
            return Committed(head, now_ms)
        if not state.exists:
            found.used_ms = self._clock.monotonic_ms()
            self._registry.add(found)
        pending = accept(found, commit, self._epoch, now_ms, self._time.awake_ms(now_ms), size + _HEADER_BYTES)
        self._pipeline.submit(pending)
        item = pending.item
        await pending.wait()
        return Committed(item.revision if isinstance(item, CommitItem) else 0, now_ms)

    async def settle(self, namespace: NamespaceRef) -> None:
        """Returns when everything accepted so far in this namespace is synced."""
        self._check()
        found = self._registry.find(namespace)
        if found is not None:
            await self._settle(found)

    async def changes(self, namespace: NamespaceRef, after: int, limit: int) -> Changes | Compacted:
        """Returns up to ``limit`` (and at most 512) logged batches after a revision.

        Raises:
            Refusal: NAMESPACE_DELETED.
        """
        found = await self._find(namespace)
        if found.deleted:
            raise Refusal(Reason.NAMESPACE_DELETED, f"namespace {namespace.name!r} was deleted")
        if after < found.floor:
            return Compacted(found.floor, found.head)
        if found.body is None:
            return Changes((), found.head, False)
        count = max(1, min(limit, CHANGES_MAX))
        items = found.body.since(after, count + 1)
        return Changes(tuple(map(_batch_of, items[:count])), found.head, len(items) > count)

    async def namespaces(self, prefix: str, after: str, limit: int) -> tuple[NamespaceSummary, ...]:
        """Lists the newest generation of each namespace by name."""
        self._check()
        return tuple(n.summary() for n in self._registry.listing(prefix, after, max(0, limit)))

    async def drop(self, namespace: NamespaceRef, expected_head: int | None) -> Dropped | Failed:
        """Drops a namespace; fails with kind KEY and an empty name if its head is not the expected one.

        One that does not exist has nothing to leave: its head is that of its origin, and so it stays.
        """
        found = await self._find(namespace)
        state = found.overlay or found
        failure = None
        if state.deleted:
            failure = Failure(FailureKind.DELETED, namespace.name, state.head)
        elif expected_head is not None and expected_head != state.head:
            failure = Failure(FailureKind.KEY, "", state.head)
        if failure is not None:
            await self._settle(found)
            return Failed((failure,))
        if not state.exists:
            return Dropped(state.head, 0)
        pending = Pending(found, DropItem(namespace.storage_id), _HEADER_BYTES)
        overlay = found.overlay = found.overlay or Overlay(found, pending)
        overlay.last, overlay.deleted = pending, True
        head = overlay.head
        self._pipeline.submit(pending)
        (count,) = await pending.wait()
        return Dropped(head, count)

    async def due(self, namespace: NamespaceRef, now_ms: int, limit: int) -> tuple[str, ...]:
        """Returns keys whose time has come, earliest first."""
        found = await self._find(namespace, use=False)
        return tuple(found.body.due(now_ms, limit)) if found.body is not None else ()

    async def compact(self, namespace: NamespaceRef, floor: int) -> None:
        """Drops logged batches up to ``floor``, or the head if that is lower."""
        found = await self._find(namespace, use=False)
        floor = min(floor, found.head)
        if found.body is None or floor <= found.floor:
            return
        pending = Pending(found, FloorItem(namespace.storage_id, floor), _HEADER_BYTES)
        self._pipeline.submit(pending)
        await pending.wait()

    async def erase(self, namespace: NamespaceRef) -> Erased:
        """Leaves no copy of what is no longer stored; see the port. Commits wait for the last moments of it only."""
        found = await self._find(namespace)
        state = found.overlay or found
        erased = Erased(state.head, 0, 0)
        if not state.exists:
            return erased
        if state.deleted:
            await self._settle(found)
        else:
            item = EraseItem(namespace.storage_id, state.head, self._time.awake_ms(self._time.now_ms()))
            pending = Pending(found, item, _HEADER_BYTES)
            self._pipeline.submit(pending)
            erased = Erased(*await pending.wait())
        if not namespace.volatile:
            self._check()
            await self._keeper.erase()
        return erased

    async def forget_client(self, client: str) -> None:
        """Drops the remembered requests of an incarnation that has ended, where they are in memory."""
        self._check()
        async for namespace in self._each():
            if namespace.body is not None:
                namespace.body.requests.forget_client(client)

    async def stats(self, namespace: NamespaceRef) -> NamespaceStats:
        """Returns how much a namespace holds."""
        found = await self._find(namespace, use=False)
        return found.stats(found.view(self._epoch, self._time.now_ms(), False))

    async def totals(self) -> StoreTotals:
        """Returns how much the store holds."""
        self._check()
        loaded = records = record_bytes = 0
        async for namespace in self._each():
            loaded += namespace.body is not None
            count, size, _ = namespace.measure()
            records += count
            record_bytes += size
        return StoreTotals(
            len(self._registry),
            loaded,
            records,
            record_bytes,
            self._applier.commit_count,
            self._pipeline.sync_count,
            self._journal.held_bytes,
        )

    async def export(self, namespace: NamespaceRef) -> AsyncGenerator[NamespaceImage | ImageRecords, None]:
        """Yields an image and its records, all as they are synced at this moment."""
        found = await self._find(namespace, use=False)
        if not found.exists:
            return
        image, cells = image_of(found)
        yield image
        for page in pages_of(cells):
            yield page
            # Nothing here waits, and there may be many.
            await asyncio.sleep(0)

    def heads(self) -> AsyncIterator[HeadMoved]:
        """Streams moved heads, the newest of each namespace."""
        return self._feeds.open()

    async def follow(self, namespace: NamespaceRef) -> None:
        """Counts; every namespace is told of anyway."""
        self._check()
        self._followed.add(namespace)

    def unfollow(self, namespace: NamespaceRef) -> None:
        """Counts one less."""
        self._followed.remove(namespace)

    async def close(self) -> None:
        """Syncs, folds and closes; after a failed disk it only closes, and the next opening is unclean."""
        if self._closed:
            return
        self._closed = True
        await self._keeper.stop()
        await self._pipeline.drain()
        await self._loader.settle()
        if self._pipeline.failure is None:
            try:
                await self._keeper.fold_all()
                last = self._pipeline.last_batch
                await run(self._writer, partial(self._journal.finish, self._epoch, self._time.now_ms(), last))
            except StoreFailed as failure:
                self._pipeline.fail(failure)
        await run(self._writer, self._journal.close)
        self._writer.stop()
        self._reader.stop()
        self._feeds.close()

    def _check(self) -> None:
        self._pipeline.check()
        if self._closed:
            raise Refusal(Reason.ENGINE_UNAVAILABLE, "the working store is closed")

    async def _each(self) -> AsyncIterator[Namespace]:
        """Goes over all namespaces in short steps."""
        for index, namespace in enumerate(list(self._registry)):
            yield namespace
            if index % 500 == 499:
                await asyncio.sleep(0)

    async def _find(self, ref: NamespaceRef, use: bool = True) -> Namespace:
        """Returns a namespace with its contents; a passing one if it does not exist."""
        self._check()
        found = self._registry.find(ref)
        if found is None:
            found = Namespace(ref)
            found.body = Body()
            return found
        while found.body is None and not found.deleted:
            await self._loader.load(found)
            self._check()
        if use:
            found.used_ms = self._clock.monotonic_ms()
        return found

    async def _settle(self, namespace: Namespace) -> None:
        if namespace.overlay is not None:
            await namespace.overlay.last.wait()
        self._pipeline.check()

    def _apply(self, pending: Pending, batch: int) -> None:
        self._applier.apply(pending, batch)

    def _failed(self, failure: StoreFailed) -> None:
        self._feeds.close(unavailable())
        self._on_fatal(failure)


def _batch_of(item: LogItem) -> LoggedBatch:
    return LoggedBatch(item.revision, item.time_ms, tuple(LoggedChange(c.key, c.data, c.event) for c in item.cells))
