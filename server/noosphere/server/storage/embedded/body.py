"""What a loaded namespace holds in memory, all of it synced."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import islice
from operator import attrgetter
from typing import Any, TypeVar

from sortedcontainers import SortedDict, SortedList

from noosphere.consistency import NEVER_MS, RequestMemory

from ...ports.store import CollectionStamps
from ..keys import above, text_bytes
from .codec import Cell, CommitItem, EraseItem, LogItem
from .journal import Image

CELL_OVERHEAD_BYTES = 320
"""Measured cost of a record beside its key and data: objects, dictionary, order."""

LOG_OVERHEAD_BYTES = 240
REQUEST_OVERHEAD_BYTES = 480

PRUNE_MAX = 500
"""Most collections whose stamps are forgotten at once; the others wait for the next fold."""

T = TypeVar("T")

_revision = attrgetter("revision")


class Body:
    """Records, stamps, fences, log and remembered requests of one namespace.

    ``requests`` is the one part that is ahead: it also holds accepted calls that are not synced yet (the
    overlay knows which), because accepting is what must not happen twice.

    Attributes:
        cells: key to cell, ordered by key.
        stamps: collection to ``(changed, members)``.
        absent: the stamps of every other collection; rises when stamps are forgotten, so that a
            collection which comes back never shows a stamp that somebody has seen before.
        fences: lock to the highest token seen.
        dues: ``(due_ms, key)`` of every cell that is ever due.
        log: by ascending revision.
        dirty: keys that the tables do not hold as they are here; likewise the other ``dirty_*``.
        unfolded: ``(batch, item)`` of the log that the tables do not hold.
    """

    __slots__ = (
        "absent",
        "cells",
        "dirty",
        "dirty_fences",
        "dirty_stamps",
        "dues",
        "emptied",
        "fences",
        "log",
        "log_bytes",
        "record_bytes",
        "requests",
        "stamps",
        "unfolded",
    )

    def __init__(self) -> None:
        self.cells: Any = SortedDict()
        self.stamps: dict[str, CollectionStamps] = {}
        self.absent = CollectionStamps(0, 0)
        self.fences: dict[str, int] = {}
        self.dues: Any = SortedList()
        self.log: list[LogItem] = []
        self.log_bytes = 0
        self.record_bytes = 0
        self.requests = RequestMemory()
        self.dirty: set[str] = set()
        self.dirty_stamps: set[str] = set()
        self.dirty_fences: set[str] = set()
        self.emptied: set[str] = set()
        self.unfolded: list[tuple[int, LogItem]] = []

    @classmethod
    def restore(
        cls, image: Image, replay: Iterable[tuple[int, CommitItem | EraseItem]], floor: int, stamps_floor: int = 0
    ) -> Body:
        """Builds a body from a namespace's tables and what they do not contain yet; for a thread."""
        body = cls()
        body.absent = CollectionStamps(stamps_floor, stamps_floor)
        body.cells.update((cell.key, cell) for cell in breathing(image.cells))
        body.record_bytes = sum(text_bytes(cell.key) + len(cell.data or b"") for cell in breathing(image.cells))
        body.dues.update((cell.due_ms, cell.key) for cell in breathing(image.cells) if cell.due_ms != NEVER_MS)
        for mark in image.marks:
            if mark.is_fence:
                body.fences[mark.name] = mark.first
            else:
                body.stamps[mark.name] = CollectionStamps(mark.first, mark.second)
                if mark.first <= stamps_floor:
                    # Perhaps one that was to be forgotten when the server ended.
                    body.emptied.add(mark.name)
        body.log = image.log
        body.log_bytes = sum(item.size for item in breathing(image.log))
        for request in image.requests:
            body.requests.remember(request.ref, request.call)
        for batch, item in breathing(replay):
            if isinstance(item, EraseItem):
                body.requests.erase(item.floor, item.time_ms)
                continue
            if item.request is not None:
                body.requests.remember(item.request.ref, item.request.call)
            body.apply(item, batch, log=batch > image.logged and item.revision > floor)
        return body

    def apply(self, item: CommitItem, batch: int, log: bool = True) -> None:
        """Makes a synced commit visible.

        Applying again what tables already contain ends in the same state, if everything up to the newest commit
        that they contain is applied again.
        """
        revision = item.revision
        logged = size = 0
        for cell in item.cells:
            cell_bytes = self._put(cell)
            if cell.event:
                logged += 1
                size += cell_bytes + len(cell.event)
                self._stamp(cell, revision)
        for lock, token in item.fences:
            if token > self.fences.get(lock, 0):
                self.fences[lock] = token
                self.dirty_fences.add(lock)
        if logged and log:
            cells = item.cells if logged == len(item.cells) else tuple(c for c in item.cells if c.event)
            entry = LogItem(revision, item.time_ms, cells, size)
            self.log.append(entry)
            self.log_bytes += size
            self.unfolded.append((batch, entry))

    def _put(self, cell: Cell) -> int:
        """Stores a cell, unless what is stored is newer; returns the bytes of its key and data."""
        key, data, due_ms = cell.key, cell.data, cell.due_ms
        key_bytes = text_bytes(key)
        cell_bytes = key_bytes + len(data) if data is not None else key_bytes
        old: Cell | None = self.cells.get(key)
        old_due_ms = NEVER_MS
        if old is not None:
            if old.revision > cell.revision:
                return cell_bytes
            self.record_bytes -= key_bytes + len(old.data or b"")
            old_due_ms = old.due_ms
        self.dirty.add(key)
        if data is None:
            due_ms = NEVER_MS
            if old is not None:
                del self.cells[key]
            self.emptied.update(above(key))
        else:
            self.cells[key] = cell
            self.record_bytes += cell_bytes
        if due_ms != old_due_ms:
            if old_due_ms != NEVER_MS:
                self.dues.remove((old_due_ms, key))
            if due_ms != NEVER_MS:
                self.dues.add((due_ms, key))
        return cell_bytes

    def _stamp(self, cell: Cell, revision: int) -> None:
        for collection in above(cell.key):
            members = revision if cell.members else self.stamps.get(collection, self.absent).members
            self.stamps[collection] = CollectionStamps(revision, members)
            self.dirty_stamps.add(collection)

    def range(
        self, collection: str, after: str | None, before: str | None, reverse: bool, count: int | None
    ) -> Iterator[Cell]:
        """Returns up to ``count`` cells of a collection strictly between two keys, in the order asked for."""
        low, high = bounds(collection, after, before)
        keys = self.cells.irange(low, high, (False, False), reverse)
        return map(self.cells.__getitem__, keys if count is None else islice(keys, count))

    def since(self, after: int, count: int) -> list[LogItem]:
        """Returns up to ``count`` log items after a revision."""
        start = bisect_right(self.log, after, key=_revision)
        return self.log[start : start + count]

    def cut_log(self, floor: int) -> list[LogItem]:
        """Drops log items up to ``floor``; returns them, for whoever wants to free them bit by bit."""
        end = bisect_right(self.log, floor, key=_revision)
        gone = self.log[:end]
        self.log_bytes -= sum(item.size for item in gone)
        del self.log[:end]
        return gone

    def dispose(self, count: int) -> bool:
        """Frees about ``count`` parts of each kind of a body that is no longer used; returns whether there are more."""
        for mapping in (self.cells, self.stamps):
            for _ in range(min(len(mapping), count)):
                mapping.popitem()
        del self.dues[-count:]
        # Every item is in the log as well, or was cut off it.
        self.unfolded.clear()
        return dispose_log(self.log, count) or bool(self.cells or self.stamps or self.dues)

    def due(self, now_ms: int, count: int) -> list[str]:
        """Returns up to ``count`` keys whose time has come, earliest first."""
        return [key for _, key in islice(self.dues.irange(maximum=(now_ms + 1,), inclusive=(True, False)), count)]

    @property
    def own_count(self) -> int:
        """How many of the cells are the services' own: those whose keys begin with NUL."""
        count: int = self.cells.bisect_left("\1")
        return count

    @property
    def record_count(self) -> int:
        """How many cells are users' records."""
        return len(self.cells) - self.own_count

    @property
    def next_due_ms(self) -> int:
        """When the first key is due."""
        first: int = self.dues[0][0] if self.dues else NEVER_MS
        return first

    def prune_stamps(self, keep: Iterable[str]) -> None:
        """Forgets the stamps of some collections that became empty, except ``keep``."""
        highest = self.absent.changed
        spared = set(keep)
        for collection in list(islice(self.emptied - spared, PRUNE_MAX)):
            self.emptied.discard(collection)
            if collection in self.stamps and next(self.range(collection, None, None, False, 1), None) is None:
                highest = max(highest, self.stamps.pop(collection).changed)
                self.dirty_stamps.add(collection)
        self.absent = CollectionStamps(highest, highest)

    @property
    def memory_bytes(self) -> int:
        """About how much memory this takes."""
        return (
            self.record_bytes
            + len(self.cells) * CELL_OVERHEAD_BYTES
            + self.log_bytes
            + len(self.log) * LOG_OVERHEAD_BYTES
            + len(self.requests) * REQUEST_OVERHEAD_BYTES
        )


def bounds(collection: str, after: str | None, before: str | None) -> tuple[str | None, str | None]:
    """Returns the exclusive bounds, None if there is none, of the keys of a collection between two keys."""
    low = collection or None
    # A collection ends in "/", and "0" is the code point after it.
    high = collection[:-1] + "0" if collection else None
    if after is not None and (low is None or after > low):
        low = after
    if before is not None and (high is None or before < high):
        high = before
    return low, high


def dispose_log(log: list[LogItem], count: int) -> bool:
    """Frees items with about ``count`` cells from the end; returns whether there are more."""
    while log and count > 0:
        count -= len(log.pop().cells)
    return bool(log)


def breathing(items: Iterable[T]) -> Iterator[T]:
    """Goes over many items in a thread of its own without keeping the event loop from running."""
    for count, item in enumerate(items):
        if not count % 256:
            time.sleep(0)
        yield item
