"""Group commit: what is accepted while one sync runs becomes the next batch.

So a batch grows with the time that a sync takes, by itself: on a quiet disk it holds one commit, on a
busy one hundreds. After its sync a batch is applied in short steps, in order, and its waiters are told.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from noosphere.consistency import Reason, Refusal

from .codec import encode_batch
from .folder import StoreFailed
from .journal import Journal
from .namespace import Pending
from .storetime import StoreTime
from .worker import Worker

BATCH_BYTES_MAX = 512 * 1024
BATCH_ENTRIES_MAX = 1024
BACKLOG_BYTES_MAX = 16 * 1024 * 1024
"""Accepted but not synced; above it commits wait before they are checked."""

BACKLOG_ENTRIES_MAX = 16 * 1024
STEP_ENTRIES_MAX = 64
STEP_CELLS_MAX = 128
"""How much is applied in one step of the event loop."""


class Pipeline:
    """Accepted entries on their way to the disk and, from there, into the synced state.

    Attributes:
        applied_batch: every batch up to this one is synced and applied.
        sync_count: syncs so far.
        failure: why the store has stopped, once it has.
    """

    def __init__(
        self,
        journal: Journal,
        worker: Worker,
        time: StoreTime,
        last_batch: int,
        apply: Callable[[Pending, int], None],
        on_failure: Callable[[StoreFailed], None],
    ) -> None:
        self._journal = journal
        self._worker = worker
        self._time = time
        self._apply = apply
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._forming: deque[Pending] = deque()
        self._in_flight: list[Pending] = []
        self._synced: deque[tuple[int, deque[Pending]]] = deque()
        self._launching = False
        self._applying = False
        self._backlog_bytes = 0
        self._backlog_entries = 0
        self._waiting_for_room: deque[asyncio.Future[None]] = deque()
        self._idle = asyncio.Event()
        self._idle.set()
        self._last_batch = last_batch
        self.applied_batch = last_batch
        self.sync_count = 0
        self.failure: StoreFailed | None = None

    @property
    def last_batch(self) -> int:
        """The number of the newest batch."""
        return self._last_batch

    @property
    def has_room(self) -> bool:
        """Whether one more entry may be accepted now."""
        return self._backlog_bytes < BACKLOG_BYTES_MAX and self._backlog_entries < BACKLOG_ENTRIES_MAX

    async def room(self) -> None:
        """Waits until one more entry may be accepted, first come first served.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        while not self.has_room:
            self.check()
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._waiting_for_room.append(waiter)
            await waiter
        self.check()

    def check(self) -> None:
        """Checks that the disk has not failed.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        if self.failure is not None:
            raise unavailable()

    def submit(self, pending: Pending) -> None:
        """Queues an accepted entry; never waits."""
        self._backlog_bytes += pending.size
        self._backlog_entries += 1
        self._forming.append(pending)
        if not self._in_flight and not self._launching:
            # One turn of the loop later, so that callers who are ready now share the sync.
            self._launching = True
            self._idle.clear()
            self._loop.call_soon(self._launch)

    async def drain(self) -> None:
        """Waits until everything submitted is applied, or the disk has failed."""
        await self._idle.wait()

    def fail(self, failure: StoreFailed) -> None:
        """Stops for good: nothing more is acknowledged. Whoever waits is told that the outcome is unknown."""
        if self.failure is not None:
            return
        self.failure = failure
        refusal = unavailable()
        doomed = [*self._in_flight, *self._forming]
        self._in_flight = []
        self._forming.clear()
        for pending in doomed:
            pending.fail(refusal)
        self._admit_waiting()
        if not self._synced:
            self._idle.set()
        self._on_failure(failure)

    def _launch(self) -> None:
        self._launching = False
        if self.failure is not None or self._in_flight or not self._forming:
            return
        batch: list[Pending] = []
        size = 0
        while self._forming and len(batch) < BATCH_ENTRIES_MAX:
            size += self._forming[0].size
            if batch and size > BATCH_BYTES_MAX:
                break
            batch.append(self._forming.popleft())
        self._in_flight = batch
        self._last_batch = number = self._last_batch + 1
        now_ms = self._time.now_ms()
        blob = encode_batch(now_ms, [pending.item for pending in batch if pending.item is not None and pending.durable])
        journal = self._journal

        def write() -> None:
            journal.append(number, blob)
            journal.sync()

        self._worker.submit(write, lambda _, error: self._written(number, now_ms, error))

    def _written(self, number: int, now_ms: int, error: BaseException | None) -> None:
        if self.failure is not None:
            return
        if error is not None:
            self.fail(as_failure(error))
            return
        batch, self._in_flight = self._in_flight, []
        self.sync_count += 1
        self._time.persisted(now_ms)
        self._synced.append((number, deque(batch)))
        self._launch()
        if not self._applying:
            self._apply_step()

    def _apply_step(self) -> None:
        entries = cells = 0
        while self._synced and entries < STEP_ENTRIES_MAX and cells < STEP_CELLS_MAX:
            number, batch = self._synced[0]
            pending = batch.popleft()
            self._backlog_bytes -= pending.size
            self._backlog_entries -= 1
            try:
                self._apply(pending, number)
            except Exception as error:
                # A mistake of ours: what is in memory may be torn, what is on disk is not.
                self.fail(as_failure(error))
                pending.fail(unavailable())
            entries += 1
            cells += len(getattr(pending.item, "cells", ()))
            if not batch:
                self._synced.popleft()
                self.applied_batch = number
        self._admit_waiting()
        self._applying = bool(self._synced)
        if self._applying:
            self._loop.call_soon(self._apply_step)
        elif self.failure is not None or (not self._in_flight and not self._forming):
            self._idle.set()

    def _admit_waiting(self) -> None:
        while self._waiting_for_room and (self.has_room or self.failure is not None):
            waiter = self._waiting_for_room.popleft()
            if not waiter.done():
                waiter.set_result(None)
                if self.failure is None and self._backlog_entries + 1 >= BACKLOG_ENTRIES_MAX:
                    return


def unavailable() -> Refusal:
    """Returns the refusal of a call that a failed disk leaves without an answer.

    What has failed, and where, is for the server's log: callers may be anybody.
    """
    return Refusal(Reason.ENGINE_UNAVAILABLE, "the working store has failed, the outcome of this call is unknown")


def as_failure(error: BaseException) -> StoreFailed:
    """Returns ``error`` as what stops the store."""
    if isinstance(error, StoreFailed):
        return error
    failure = StoreFailed(f"the journal failed: {type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure
