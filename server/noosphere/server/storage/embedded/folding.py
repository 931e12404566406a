"""Folding: the synced state goes into tables by namespace, and the journal is trimmed behind it.

It runs beside commits. A chunk holds parts of many small namespaces or a part of a big one, and is one
short job of the writer, so batches never wait long behind it. What is captured later than a fold began is
newer than its row says, which does no harm: see :mod:`.journal`.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TypeVar

from .body import Body
from .codec import Cell, LogItem, Request
from .journal import FoldChunk, Journal, LogStretch, Mark
from .namespace import Namespace, request_key
from .pipeline import Pipeline
from .worker import Worker, run

T = TypeVar("T")
log = logging.getLogger("noosphere.storage")

CHUNK_BYTES = 128 * 1024
"""About how much one job of the writer stores."""

_CELL_BYTES = 512
_MARK_BYTES = 128
_ROW_BYTES = 1024
_REQUEST_BYTES = 128

LOG_ITEMS_MAX = 1_000_000
LOG_BYTES_MAX = 256 * 1024 * 1024
"""Above either, half of a namespace's log goes, whatever its rules say."""


class Folder:
    """Folds namespaces of one store, one fold at a time."""

    def __init__(
        self,
        journal: Journal,
        writer: Worker,
        reader: Worker,
        pipeline: Pipeline,
        load: Callable[[Namespace], Awaitable[Body | None]],
    ) -> None:
        self._journal = journal
        self._writer = writer
        self._reader = reader
        self._pipeline = pipeline
        self._load = load
        self._chunk = FoldChunk()

    async def fold(self, namespaces: Iterable[Namespace]) -> None:
        """Brings the tables of ``namespaces`` up to what is synced now, or later.

        Raises:
            StoreFailed: the disk has failed.
        """
        folded = []
        for namespace in namespaces:
            await self._fold_one(namespace)
            folded.append(namespace)
        await self._flush()
        await self.trim_logs(folded)

    async def trim_logs(self, namespaces: Iterable[Namespace]) -> None:
        """Removes what is below the floor from the logs of ``namespaces``; their floors must be in the tables."""
        for namespace in namespaces:
            floor, of = namespace.floor, namespace.ref.storage_id
            if floor > namespace.trimmed_floor:
                while await self._write(partial(self._journal.trim_log, of, floor)):
                    pass
                namespace.trimmed_floor = floor

    async def purge(self, storage_id: bytes, whole: bool) -> None:
        """Empties a namespace's tables; with ``whole`` its row goes too."""
        await self._flush()
        while await self._write(partial(self._journal.purge, storage_id, whole)):
            pass

    async def trim(self, through: int, time_ms: int) -> None:
        """Removes batches that are folded everywhere."""
        while await self._write(partial(self._journal.trim, through, time_ms)):
            pass

    async def relieve(self) -> None:
        """Moves what was written to its final place, if it is time: most of it beside the writer, the rest in it."""
        if self._journal.wants_relief:
            await run(self._reader, self._journal.relieve)
            await run(self._writer, self._journal.restart)

    async def _write(self, call: Callable[[], T]) -> T:
        if self._pipeline.failure is not None:
            raise self._pipeline.failure
        result = await run(self._writer, call)
        await self.relieve()
        return result

    async def _fold_one(self, namespace: Namespace) -> None:
        forgotten: list[str] = []
        folded = self._pipeline.applied_batch
        if namespace.purge:
            await self.purge(namespace.ref.storage_id, False)
            namespace.purge = False
        elif not namespace.deleted:
            body = await self._load(namespace)
            folded = self._pipeline.applied_batch
            if body is not None:
                forgotten = await self._fold_body(namespace, body, folded)
        # If it was dropped meanwhile, the drop is in a later batch, and the next fold empties the tables.
        requests = _requests_of(namespace)
        self._chunk.rows.append((namespace.row(folded), requests))
        await self._weigh(_ROW_BYTES + len(requests) * _REQUEST_BYTES)
        # Only now: with a stamp gone but the row not there yet, a crash would show an old stamp again.
        for name in forgotten:
            if namespace.body is None or name not in namespace.body.stamps:
                self._chunk.forgotten.append((namespace.ref.storage_id, name))
                await self._weigh(_MARK_BYTES)

    async def _fold_body(self, namespace: Namespace, body: Body, folded: int) -> list[str]:
        """Folds all but the row; returns the collections whose stamps are forgotten."""
        of = namespace.ref.storage_id
        if len(body.log) > LOG_ITEMS_MAX or body.log_bytes > LOG_BYTES_MAX:
            namespace.shorten_log()
            log.warning("the log of %r was shortened: it had reached the limit of this server", namespace.ref.name)
        overlay = namespace.overlay
        body.prune_stamps(overlay.stamps if overlay is not None else ())
        keys, body.dirty = body.dirty, set()
        stamps, body.dirty_stamps = body.dirty_stamps, set()
        locks, body.dirty_fences = body.dirty_fences, set()
        end = bisect_right(body.unfolded, folded, key=lambda entry: entry[0])
        unfolded, body.unfolded = body.unfolded[:end], body.unfolded[end:]
        for key in keys:
            cell: Cell = body.cells.get(key) or Cell(key, 0, None, 0, 0)
            self._chunk.cells.append((of, cell))
            await self._weigh(_CELL_BYTES + len(cell.data or b""))
        for name in stamps:
            if name in body.stamps:
                self._chunk.marks.append((of, Mark(False, name, *body.stamps[name])))
                await self._weigh(_MARK_BYTES)
        for name in locks:
            self._chunk.marks.append((of, Mark(True, name, body.fences[name], 0)))
            await self._weigh(_MARK_BYTES)
        for stretch, size in _stretches(unfolded, namespace.floor):
            self._chunk.log.append((of, stretch))
            await self._weigh(size)
        return [name for name in stamps if name not in body.stamps]

    async def _weigh(self, size: int) -> None:
        self._chunk.weight += size
        if self._chunk.weight >= CHUNK_BYTES:
            await self._flush()

    async def _flush(self) -> None:
        chunk, self._chunk = self._chunk, FoldChunk()
        if chunk.weight:
            await self._write(partial(self._journal.fold, chunk))


def _requests_of(namespace: Namespace) -> list[Request]:
    body, overlay = namespace.body, namespace.overlay
    if body is None:
        return []
    unsynced = overlay.requests if overlay is not None else ()
    return [Request.of(ref, call) for ref, call in body.requests.items() if request_key(ref) not in unsynced]


def _stretches(unfolded: Iterable[tuple[int, LogItem]], floor: int) -> Iterable[tuple[LogStretch, int]]:
    """Cuts a piece of log into rows. Entries of one batch stay together: a batch is logged or it is not."""
    items: list[LogItem] = []
    size = last = 0
    for batch, item in unfolded:
        if items and batch != last and size >= CHUNK_BYTES:
            yield LogStretch(last, tuple(items)), size
            items, size = [], 0
        last = batch
        if item.revision > floor:
            items.append(item)
            size += item.size
    if items:
        yield LogStretch(last, tuple(items)), size
