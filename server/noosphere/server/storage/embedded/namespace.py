"""A namespace: its synced state, and over it what is accepted but not synced yet."""

from __future__ import annotations

import asyncio

from noosphere.consistency import NEVER_MS, Cut, Remembered, RequestRef, epoch_of

from ...ports.store import (
    CollectionStamps,
    NamespaceRef,
    NamespaceStats,
    NamespaceSummary,
    NamespaceView,
    StoredEntry,
)
from ..keys import above
from .body import Body, bounds
from .codec import Cell, CommitItem, EraseItem, Item, LogItem
from .journal import NamespaceRow

_NEVER = CollectionStamps(0, 0)

RequestKey = str | tuple[str, int]


def request_key(ref: RequestRef) -> RequestKey:
    """Returns what identifies a call within a namespace."""
    return ref.uuid or (ref.client, ref.sequence)


class Pending:
    """A journal entry on its way to the disk, and who waits for it.

    Attributes:
        namespace: whom it concerns, None if it only carries the time.
        size: about how many bytes it has.
        result: the counts that the waiters get, once it is synced and applied.
    """

    __slots__ = ("item", "namespace", "result", "size", "waiters")

    def __init__(self, namespace: Namespace | None, item: Item | None, size: int) -> None:
        self.namespace = namespace
        self.item = item
        self.size = size
        self.result: tuple[int, ...] = ()
        self.waiters: list[asyncio.Future[tuple[int, ...]]] = []

    @property
    def durable(self) -> bool:
        """Whether it belongs into the journal."""
        return self.namespace is None or not self.namespace.ref.volatile

    def wait(self) -> asyncio.Future[tuple[int, ...]]:
        """Returns a future of its own for one waiter, so that a cancelled one takes nobody along."""
        waiter: asyncio.Future[tuple[int, ...]] = asyncio.get_running_loop().create_future()
        self.waiters.append(waiter)
        return waiter

    def settle(self) -> None:
        """Tells the waiters that it is synced."""
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(self.result)

    def fail(self, error: Exception) -> None:
        """Tells the waiters that it may be lost."""
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_exception(error)
                # Seen, as far as asyncio is concerned: its waiter may be cancelled in this very turn.
                waiter.exception()


class Overlay:
    """What accepted commits change over the synced state.

    Attributes:
        cells: the newest accepted cell of each key touched, removals included.
        requests: calls that are remembered but not synced.
        last: the newest entry; when it is synced, everything is.
    """

    __slots__ = (
        "cells",
        "config_version",
        "cuts",
        "deleted",
        "exists",
        "fences",
        "floor_context",
        "head",
        "last",
        "requests",
        "stamps",
    )

    def __init__(self, under: Namespace, last: Pending) -> None:
        self.cells: dict[str, Cell] = {}
        self.stamps: dict[str, CollectionStamps] = {}
        self.fences: dict[str, int] = {}
        self.requests: set[RequestKey] = set()
        self.last = last
        self.exists = under.exists
        self.deleted = under.deleted
        self.head = under.head
        self.config_version = under.config_version
        self.floor_context = under.floor_context
        self.cuts = under.cuts


class Namespace:
    """One generation of a namespace.

    Attributes:
        body: its contents, None while it is not loaded (or was dropped).
        overlay: None while everything accepted is synced.
        folded: the batch up to which its tables are complete.
        replay: commits and erasures that its tables do not contain, from recovery, until it is loaded.
        purge: whether its tables still hold what a drop has removed.
        trimmed_floor: the tables hold no log up to here.
        used_ms: when it was last used, on the monotonic clock.
    """

    __slots__ = (
        "body",
        "config_version",
        "cuts",
        "deleted",
        "exists",
        "floor",
        "floor_context",
        "folded",
        "head",
        "next_due_ms",
        "overlay",
        "purge",
        "record_bytes",
        "record_count",
        "ref",
        "replay",
        "stamps_floor",
        "trimmed_floor",
        "used_ms",
    )

    def __init__(self, ref: NamespaceRef) -> None:
        self.ref = ref
        self.exists = False
        self.deleted = False
        self.head = ref.origin
        self.config_version = 0
        # What an earlier generation's contexts saw says nothing about keys of this one.
        self.floor_context = ref.origin
        self.floor = ref.origin
        self.trimmed_floor = 0
        self.stamps_floor = 0
        self.cuts: tuple[Cut, ...] = ()
        self.folded = 0
        self.record_count = 0
        self.record_bytes = 0
        self.next_due_ms = NEVER_MS
        self.body: Body | None = None
        self.overlay: Overlay | None = None
        self.replay: list[tuple[int, CommitItem | EraseItem]] = []
        self.purge = False
        self.used_ms = 0

    @classmethod
    def from_row(cls, row: NamespaceRow) -> Namespace:
        """Restores what is known without loading."""
        namespace = cls(NamespaceRef(row.name, row.generation, row.origin))
        namespace.exists = True
        namespace.deleted = row.deleted
        namespace.head = row.head
        namespace.config_version = row.config_version
        namespace.floor_context = row.floor_context
        namespace.floor = row.floor
        namespace.stamps_floor = row.stamps_floor
        namespace.cuts = row.cuts
        namespace.folded = row.folded
        namespace.record_count = row.record_count
        namespace.record_bytes = row.record_bytes
        namespace.next_due_ms = row.next_due_ms
        return namespace

    def row(self, folded: int) -> NamespaceRow:
        """Returns what to store, given that every batch up to ``folded`` is in the tables."""
        count, size, due_ms = self.measure()
        return NamespaceRow(
            self.ref.storage_id,
            self.ref.name,
            self.ref.generation,
            self.ref.origin,
            self.deleted,
            self.head,
            self.config_version,
            self.floor_context,
            self.floor,
            self.body.absent.changed if self.body is not None else self.stamps_floor,
            self.cuts,
            folded,
            count,
            size,
            due_ms,
        )

    def measure(self) -> tuple[int, int, int]:
        """Returns records, their bytes, and when the first is due."""
        body = self.body
        if body is None:
            return self.record_count, self.record_bytes, self.next_due_ms
        return body.record_count, body.record_bytes, body.next_due_ms

    def absorb(self, item: CommitItem) -> None:
        """Raises the header to what a synced commit says; all of it only ever rises."""
        self.exists = True
        if item.revision > self.head:
            self.head = item.revision
        if item.config_version > self.config_version:
            self.config_version = item.config_version
        if item.floor_context > self.floor_context:
            self.floor_context = item.floor_context
        if item.cut is not None and (not self.cuts or self.cuts[-1].epoch < item.cut.epoch):
            self.cuts = (*self.cuts, item.cut)

    def drop(self) -> Body | None:
        """Leaves a tombstone with head and cuts; returns what was held in memory."""
        body, self.body = self.body, None
        self.deleted = self.purge = True
        self.floor = self.head
        self.record_count = self.record_bytes = 0
        self.next_due_ms = NEVER_MS
        self.replay = []
        return body

    def cut_log(self, floor: int) -> list[LogItem]:
        """Drops the log up to ``floor``, if that is higher than before; returns what went."""
        if self.body is None or floor <= self.floor:
            return []
        self.floor = floor
        return self.body.cut_log(floor)

    def shorten_log(self) -> None:
        """Drops the older half of the log."""
        if self.body is not None and self.body.log:
            self.cut_log(self.body.log[len(self.body.log) // 2].revision)

    def erase_requests(self, item: EraseItem) -> int:
        """Empties what is remembered of calls that came before an erasure; returns of how many."""
        if self.body is None:
            return 0
        # Everything before it is synced, so the overlay knows those that were accepted later.
        later = self.overlay.requests if self.overlay is not None else ()
        return self.body.requests.erase(item.floor, item.time_ms, later)

    def remembered(self, request: RequestRef, awake_ms: int, accepted: bool) -> Remembered | None:
        """Returns what is remembered of a call."""
        if self.body is None:
            return None
        if not accepted and self.overlay is not None and request_key(request) in self.overlay.requests:
            return None
        return self.body.requests.find(request, awake_ms)

    def uncover(self, pending: Pending) -> None:
        """Takes from the overlay what is now synced below it."""
        overlay = self.overlay
        if overlay is None:
            return
        if overlay.last is pending:
            self.overlay = None
            return
        item = pending.item
        if not isinstance(item, CommitItem):
            return
        revision = item.revision
        for cell in item.cells:
            if overlay.cells[cell.key].revision == revision:
                del overlay.cells[cell.key]
            if cell.event:
                for collection in above(cell.key):
                    stamps = overlay.stamps.get(collection)
                    if stamps is not None and stamps.changed == revision:
                        del overlay.stamps[collection]
        for lock, token in item.fences:
            if overlay.fences.get(lock) == token:
                del overlay.fences[lock]
        if item.request is not None:
            overlay.requests.discard(request_key(item.request.ref))

    def view(self, epoch: int, now_ms: int, accepted: bool) -> NamespaceView:
        """Returns the state at this moment."""
        state = self.overlay if accepted and self.overlay is not None else self
        cuts = state.cuts
        if not state.exists or epoch_of(state.head) < epoch:
            cuts = (*cuts, Cut(epoch, state.head))
        return NamespaceView(
            state.exists,
            state.deleted,
            state.head,
            epoch,
            now_ms,
            state.config_version,
            state.floor_context,
            self.floor,
            cuts,
        )

    def cell(self, key: str, accepted: bool) -> Cell | None:
        """Returns what is stored at ``key``; the body must be loaded."""
        if accepted and self.overlay is not None:
            found = self.overlay.cells.get(key)
            if found is not None:
                return found if found.data is not None else None
        if self.body is None or (accepted and self.overlay is not None and self.overlay.deleted):
            return None
        synced: Cell | None = self.body.cells.get(key)
        return synced

    def stamps(self, collection: str, accepted: bool) -> CollectionStamps:
        """Returns a collection's stamps."""
        if accepted and self.overlay is not None:
            found = self.overlay.stamps.get(collection)
            if found is not None:
                return found
        body = self.body
        return body.stamps.get(collection, body.absent) if body is not None else _NEVER

    def fence(self, lock: str, accepted: bool) -> int:
        """Returns the highest token seen of ``lock``."""
        synced = self.body.fences.get(lock, 0) if self.body is not None else 0
        if accepted and self.overlay is not None:
            return max(synced, self.overlay.fences.get(lock, 0))
        return synced

    def range(
        self, collection: str, after: str | None, before: str | None, reverse: bool, count: int, accepted: bool
    ) -> list[Cell]:
        """Returns up to ``count`` stored cells of a collection, in the order asked for."""
        overlay = self.overlay if accepted else None
        if self.body is None or (overlay is not None and overlay.deleted):
            return []
        if overlay is None or not overlay.cells:
            return list(self.body.range(collection, after, before, reverse, count))
        low, high = bounds(collection, after, before)
        over = [
            cell for key, cell in overlay.cells.items() if (low is None or key > low) and (high is None or key < high)
        ]
        # Each cell of the overlay hides at most one below it, so this many are enough.
        synced = self.body.range(collection, after, before, reverse, count + len(over))
        cells = {cell.key: cell for cell in synced}
        edge = None
        if len(cells) == count + len(over) and cells:
            edge = next(reversed(cells))
        for cell in over:
            if edge is None or (cell.key >= edge if reverse else cell.key <= edge):
                cells[cell.key] = cell
        kept = [cells[key] for key in sorted(cells, reverse=reverse)]
        return [cell for cell in kept if cell.data is not None][:count]

    def summary(self) -> NamespaceSummary:
        """Returns a listing entry."""
        due_ms = self.body.next_due_ms if self.body is not None else self.next_due_ms
        return NamespaceSummary(self.ref, self.deleted, self.head, due_ms, self.body is not None)

    def stats(self, view: NamespaceView) -> NamespaceStats:
        """Returns how much it holds; the body must be loaded, unless it was dropped or never existed."""
        body = self.body
        if body is None:
            return NamespaceStats(view, 0, 0, 0, 0, 0, 0)
        return NamespaceStats(
            view,
            body.record_count,
            body.record_bytes,
            len(body.log),
            body.log_bytes,
            body.log[0].time_ms if body.log else 0,
            len(body.requests),
            body.own_count,
        )


def entry_of(cell: Cell) -> StoredEntry:
    """Returns what the port shows of a stored cell."""
    return StoredEntry(cell.key, cell.revision, cell.data or b"", cell.live_until_ms)
