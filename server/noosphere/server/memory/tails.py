"""The newest part of each watched namespace's log, read once for all its watchers in this process.

Whoever moves on with a log asks its tail. A move is read by the first that asks, the others wait for that reading or
find what it left; so a commit costs the store one reading, however many watch. Nothing runs by itself: while
nobody asks, nothing is read, and one that does not take what it was given holds nobody up.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import NamedTuple

from ..ports.runtime import Clock
from ..ports.store import Changes, Compacted, LoggedBatch, NamespaceRef
from .core import Core
from .log import view_batch
from .signals import HeadSignals
from .types import BatchView

PAGE_MAX = 64
"""Batches that are read, and handed to a watcher, at once."""

KEPT_MAX = 4_096
KEPT_BYTES_MAX = 16 * 1024 * 1024
"""Most batches that the tails of a process keep together, and their bytes as stored. Watchers that are further behind
read the store themselves."""

REFRESH_MS = 1_000
"""A watcher that is to be told that nothing was missed needs a reading no older than this."""


class Batch:
    """One commit's changes, decoded when somebody first looks at them."""

    __slots__ = ("_logged", "_view", "revision", "size")

    def __init__(self, logged: LoggedBatch) -> None:
        self.revision = logged.revision
        self.size = sum(len(change.data or b"") + len(change.event) for change in logged.changes)
        self._logged: LoggedBatch | None = logged
        self._view: BatchView | None = None

    def view(self, collection: str) -> BatchView:
        """Returns the changes of a collection's keys; of all keys if it is empty."""
        whole = self._view
        if whole is None:
            assert self._logged is not None
            whole = self._view = view_batch(self._logged, lambda _key: True)
            self._logged = None
        if not collection:
            return whole
        return whole._replace(changes=tuple(c for c in whole.changes if c.key.startswith(collection)))


class Page(NamedTuple):
    """What follows a revision, oldest first.

    Attributes:
        batches: at most :data:`PAGE_MAX`.
        end: nothing up to this revision is missing from them.
        head: the synced head as the log was read.
        moved: None if there is more to ask for at once, else done once there may be more.
    """

    batches: tuple[Batch, ...]
    end: int
    head: int
    moved: asyncio.Future[None] | None


class Tail:
    """One namespace's newest changes. Made by :meth:`Tails.join`."""

    def __init__(self, tails: Tails, ref: NamespaceRef) -> None:
        self.watcher_count = 0
        self._tails = tails
        self._ref = ref
        self._kept: deque[Batch] = deque()
        # What is kept is everything that was logged after `_begin` and up to `_end`; None: nothing was read yet.
        self._begin: int | None = None
        self._end = 0
        self._head = 0
        self._read_ms = 0
        self._reading: asyncio.Future[None] | None = None
        self._stale = False
        self._moved = self._next_move()

    async def after(self, cursor: int, *, at_least: int = 0, refresh: bool = False) -> Page | Compacted:
        """Returns what is logged after a revision.

        Args:
            cursor: the revision, exclusive.
            at_least: a head that the caller has seen, up to which it wants to know.
            refresh: whether the answer may be no older than :data:`REFRESH_MS`, whatever has been told of moves.

        Raises:
            Refusal: NAMESPACE_DELETED, ENGINE_UNAVAILABLE.
        """
        waited = asked = False
        while True:
            if self._begin is None or cursor < self._begin:
                return await self._behind(cursor)
            # What is kept is shown unless it was told that the log has moved on, or is gone, and nobody has looked.
            if cursor < self._end and (waited or not self._moved.done()):
                return self._page(cursor)
            # One reading of its own is enough: a log that never rests must not keep anybody from what is there.
            if asked or not self._outdated(at_least, refresh):
                return Page((), cursor, max(cursor, self._head), self._wait_for())
            waited = True
            if self._reading is None:
                asked = True
                await self._advance()
            else:
                await asyncio.wait((self._reading,))

    def _outdated(self, at_least: int, refresh: bool) -> bool:
        if self._stale or self._moved.done() or self._end < at_least:
            return True
        return refresh and self._tails.clock.monotonic_ms() - self._read_ms >= REFRESH_MS

    def _page(self, cursor: int) -> Page:
        newest: list[Batch] = []
        # Those who keep up need only the last few.
        for batch in reversed(self._kept):
            if batch.revision <= cursor:
                break
            newest.append(batch)
        batches = tuple(islice(reversed(newest), PAGE_MAX))
        if len(batches) < len(newest):
            return Page(batches, batches[-1].revision, self._head, None)
        return Page(batches, self._end, self._head, self._wait_for())

    async def _advance(self) -> None:
        """Reads on where the tail ends."""
        self._reading = reading = asyncio.get_running_loop().create_future()
        try:
            await self._read_on()
        except Exception:
            # Everybody asks the store themselves, and hears it from there.
            self.forget(begin=None)
            raise
        finally:
            self._reading = None
            reading.set_result(None)

    async def _read_on(self) -> None:
        # Registered before looking, so that a move in between is not slept through; and nobody is to wait for it who
        # has not seen what this reading finds.
        moved = self._next_move()
        read_ms, forgotten = self._tails.clock.monotonic_ms(), self._tails.forgotten_count
        found = await self._tails.core.store.changes(self._ref, self._end, PAGE_MAX)
        if isinstance(found, Compacted):
            self.forget(begin=None)
            return
        told = self._stale or self._moved.done()
        self._moved, self._read_ms, self._stale = moved, read_ms, found.more
        self._take(found, keep=forgotten == self._tails.forgotten_count)
        if found.batches and not told:
            # Found before it was told, or instead: those who wait wait for being told.
            self._tails.signals.fire(self._ref.storage_id)

    async def _behind(self, cursor: int) -> Page | Compacted:
        """Reads the store for one that needs what is not kept; the first that reaches the head begins the tail."""
        moved = self._next_move()
        read_ms, forgotten = self._tails.clock.monotonic_ms(), self._tails.forgotten_count
        found = await self._tails.core.store.changes(self._ref, cursor, PAGE_MAX)
        if isinstance(found, Compacted):
            return found
        if found.more:
            batches = tuple(map(Batch, found.batches))
            return Page(batches, batches[-1].revision, found.head, None)
        if self._begin is None:
            self._begin = self._end = cursor
            self._moved, self._stale, self._read_ms = moved, False, read_ms
            batches = self._take(found, keep=forgotten == self._tails.forgotten_count)
        else:
            batches = tuple(map(Batch, found.batches))
        return Page(batches, max(cursor, found.head), max(cursor, found.head), moved)

    def _take(self, found: Changes, *, keep: bool) -> tuple[Batch, ...]:
        batches = tuple(map(Batch, found.batches))
        self._head = found.head
        self._end = batches[-1].revision if found.more else max(self._end, found.head)
        if not keep:
            self.forget(begin=self._end)
            return batches
        for batch in batches:
            self._kept.append(batch)
            self._tails.kept(self, batch.size)
        return batches

    def drop_oldest(self) -> int:
        """Keeps one batch less, if any; returns its bytes."""
        if not self._kept:
            return 0
        batch = self._kept.popleft()
        if self._begin is not None:
            self._begin = batch.revision
        return batch.size

    def forget(self, *, begin: int | None) -> None:
        """Keeps nothing of what was read; ``begin`` is where the tail then begins, None: with the next reading."""
        self._tails.released(sum(batch.size for batch in self._kept))
        self._kept.clear()
        self._begin = begin

    def forget_kept(self) -> None:
        """Keeps nothing of what was read; whoever is behind asks the store."""
        self.forget(begin=None if self._begin is None else self._end)

    def _wait_for(self) -> asyncio.Future[None] | None:
        return None if self._stale else self._moved

    def _next_move(self) -> asyncio.Future[None]:
        return self._tails.signals.next_move(self._ref.storage_id)


class Tails:
    """The tails of one process, one for each namespace that is watched.

    Attributes:
        forgotten_count: how often everything was forgotten.
    """

    def __init__(self, core: Core, signals: HeadSignals, clock: Clock) -> None:
        self.core = core
        self.signals = signals
        self.clock = clock
        self.forgotten_count = 0
        self._tails: dict[bytes, Tail] = {}
        # Whose the kept batches are, oldest first; with entries of tails that have dropped theirs since.
        self._order: deque[Tail] = deque()
        self._bytes = 0

    @contextmanager
    def join(self, ref: NamespaceRef) -> Iterator[Tail]:
        """Lends the tail of a namespace, which has to be followed all the while (:class:`~.signals.Following`)."""
        tail = self._tails.get(ref.storage_id)
        if tail is None:
            tail = self._tails[ref.storage_id] = Tail(self, ref)
        tail.watcher_count += 1
        try:
            yield tail
        finally:
            tail.watcher_count -= 1
            if not tail.watcher_count:
                tail.forget(begin=None)
                del self._tails[ref.storage_id]

    def forget(self) -> None:
        """Keeps no content of anything that was read so far."""
        self.forgotten_count += 1
        for tail in self._tails.values():
            tail.forget_kept()
        self._order.clear()

    def kept(self, tail: Tail, size: int) -> None:
        """Hears that a tail keeps one more batch; whatever is too much then goes, the oldest first."""
        self._order.append(tail)
        self._bytes += size
        while len(self._order) > KEPT_MAX or self._bytes > KEPT_BYTES_MAX:
            # Each batch that is kept has an entry, so as long as there are bytes there is one.
            self._bytes -= self._order.popleft().drop_oldest()

    def released(self, size: int) -> None:
        """Hears that so many bytes are not kept any more."""
        self._bytes -= size
