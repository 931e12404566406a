"""Background work of the embedded store: when to fold, what to evict, and keeping store time on disk.

It runs beside commits, in steps short enough that nobody waits for it, and changes no result: the tables
and the journal together always say the same.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Awaitable, Callable, Iterable

from ...ports.runtime import Clock
from .body import Body, dispose_log
from .codec import LogItem
from .erasing import Eraser
from .folding import Folder
from .journal import Journal
from .namespace import Namespace, Pending
from .pipeline import Pipeline, as_failure
from .registry import Registry
from .storetime import StoreTime
from .worker import Worker

TICK_SECONDS = 1.0
FOLD_BYTES = 8 * 1024 * 1024
"""Folding begins when the journal holds this much."""

FOLD_AGE_MS = 5_000
"""... or when the oldest commit that is not folded is about this old."""

BURY_COUNT = 500
LOOK_STEP = 500
EVICT_MAX = 1_000
EVICT_IDLE_MS = 10_000
"""A namespace in use stays in memory even if memory is short."""


class Keeper:
    """Does the background work of one store.

    Attributes:
        volatile_bytes: what volatile namespaces took in memory when it last looked, about once a second.
    """

    def __init__(
        self,
        registry: Registry,
        journal: Journal,
        writer: Worker,
        reader: Worker,
        pipeline: Pipeline,
        time: StoreTime,
        clock: Clock,
        memory_bytes_max: int,
        load: Callable[[Namespace], Awaitable[Body | None]],
        eraser: Eraser,
        superseded: Iterable[bytes],
    ) -> None:
        self._registry = registry
        self._journal = journal
        self._pipeline = pipeline
        self._time = time
        self._clock = clock
        self._memory_bytes_max = memory_bytes_max
        self._folder = Folder(journal, writer, reader, pipeline, load)
        self._eraser = eraser
        self._dirty: dict[Namespace, None] = {}
        self._dirty_since_ms = 0
        self._wake = asyncio.Event()
        self._ticker: asyncio.Task[None] | None = None
        self._runner: asyncio.Task[None] | None = None
        self._stopping = False
        self._folding = asyncio.Lock()
        # Contents of dropped and evicted namespaces: freeing 100,000 records at once would hold up the event loop.
        self._graveyard: deque[Body | list[LogItem]] = deque()
        self._superseded = deque(superseded)
        self.volatile_bytes = 0

    def start(self) -> None:
        """Starts the background tasks."""
        self._ticker = asyncio.create_task(self._tick(), name="noosphere-store-tick")
        self._runner = asyncio.create_task(self._run(), name="noosphere-store-keeper")
        self._ticker.add_done_callback(self._ticked)
        if self._eraser.wanted:
            self._wake.set()

    async def stop(self) -> None:
        """Stops the background tasks. A round under way is ended, not cancelled: half a fold knows no way back."""
        self._stopping = True
        self._wake.set()
        if self._ticker is not None and self._runner is not None:
            self._ticker.cancel()
            await asyncio.gather(self._ticker, self._runner, return_exceptions=True)
        self._eraser.abandon()

    def changed(self, namespace: Namespace) -> None:
        """Notes that a namespace's tables are behind; a volatile one has none."""
        if namespace.ref.volatile:
            return
        if not self._dirty:
            self._dirty_since_ms = self._clock.monotonic_ms()
        self._dirty[namespace] = None
        if self._journal.held_bytes >= FOLD_BYTES:
            self._wake.set()

    def supersede(self, namespace: Namespace) -> None:
        """Takes a generation that a newer one has replaced out of the store."""
        self.bury_later(namespace.drop())
        self._dirty.pop(namespace, None)
        if not namespace.ref.volatile:
            self._superseded.append(namespace.ref.storage_id)

    def owe_erasure(self) -> None:
        """Notes that the journal holds what is to be erased."""
        self._eraser.owed = True

    async def erase(self) -> None:
        """Returns when no file holds anything that was overwritten, removed or dropped, as synced, before this call.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        erased = self._eraser.request()
        self._wake.set()
        await erased
        await self.bury()

    def bury_later(self, remains: Body | list[LogItem] | None) -> None:
        """Takes over what nobody refers to any more, to free it bit by bit."""
        if remains:
            self._graveyard.append(remains)

    async def fold_all(self) -> None:
        """Folds everything synced by now and trims the journal up to there."""
        async with self._folding:
            await self._fold_all()

    async def _fold_all(self) -> None:
        through = self._pipeline.applied_batch
        if self._eraser.owed:
            await self._eraser.mark()
        dirty, self._dirty = list(self._dirty), {}
        await self._folder.fold(dirty)
        while self._superseded:
            await self._folder.purge(self._superseded[0], True)
            self._superseded.popleft()
        await self._folder.trim(through, self._time.persisted_ms)

    async def _fold_torn(self) -> None:
        await self._fold_all()
        # A floor may have got into the tables in the last life, and what is below it not out of them.
        await self._folder.trim_logs([namespace for namespace in self._registry if not namespace.ref.volatile])

    async def _tick(self) -> None:
        while True:
            await self._clock.sleep(TICK_SECONDS)
            if self._time.overdue and self._pipeline.failure is None:
                self._pipeline.submit(Pending(None, None, 0))
            self._wake.set()

    def _ticked(self, ticker: asyncio.Task[None]) -> None:
        # Without it nothing is folded and store time is not kept: a server may not go on like that quietly.
        if not ticker.cancelled() and (error := ticker.exception()) is not None:
            self._pipeline.fail(as_failure(error))

    async def _run(self) -> None:
        while self._pipeline.failure is None:
            await self._wake.wait()
            if self._stopping:
                return
            self._wake.clear()
            try:
                await self._round()
            except Exception as error:
                # Nothing in a round fails but the disk, or a mistake of ours: neither may go on quietly.
                self._pipeline.fail(as_failure(error))
        self._eraser.abandon()

    async def _round(self) -> None:
        age_ms = self._clock.monotonic_ms() - self._dirty_since_ms
        if self._journal.held_bytes >= FOLD_BYTES or (self._dirty and age_ms >= FOLD_AGE_MS):
            await self.fold_all()
        if self._eraser.wanted:
            async with self._folding:
                await self._eraser.run(self._fold_torn if self._eraser.begins else self._fold_all)
        await self._folder.relieve()
        await self.evict()
        await self.bury()

    async def evict(self) -> None:
        """Unloads namespaces that are idle and folded while memory is short, longest idle first."""
        sizes: dict[Namespace, int] = {}
        volatile_bytes = 0
        for index, namespace in enumerate(list(self._registry)):
            if namespace.body is not None and namespace.ref.volatile:
                # There is no table from which it could be loaded again.
                volatile_bytes += namespace.body.memory_bytes
            elif namespace.body is not None:
                sizes[namespace] = namespace.body.memory_bytes
            if index % LOOK_STEP == LOOK_STEP - 1:
                await asyncio.sleep(0)
        self.volatile_bytes = volatile_bytes
        surplus = sum(sizes.values()) - self._memory_bytes_max
        if surplus <= 0:
            return
        # Not while a fold is under way: it works on what is in memory.
        async with self._folding:
            idle_ms = self._clock.monotonic_ms() - EVICT_IDLE_MS
            chosen = []
            for namespace in heapq.nsmallest(EVICT_MAX, sizes, key=lambda n: n.used_ms):
                if surplus <= 0 or namespace.used_ms > idle_ms:
                    break
                chosen.append(namespace)
                surplus -= sizes[namespace]
            if any(namespace in self._dirty for namespace in chosen):
                await self._fold_all()
            for namespace in chosen:
                if namespace.used_ms <= idle_ms and namespace.overlay is None and namespace not in self._dirty:
                    self._unload(namespace)

    def _unload(self, namespace: Namespace) -> None:
        body = namespace.body
        if body is None:
            return
        namespace.record_count, namespace.record_bytes, namespace.next_due_ms = namespace.measure()
        namespace.stamps_floor = body.absent.changed
        namespace.body = None
        self.bury_later(body)

    async def bury(self) -> None:
        """Frees what nobody refers to any more, in short steps."""
        while self._graveyard:
            remains = self._graveyard[0]
            more = remains.dispose(BURY_COUNT) if isinstance(remains, Body) else dispose_log(remains, BURY_COUNT)
            if not more:
                self._graveyard.popleft()
            await asyncio.sleep(0)
