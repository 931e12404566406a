"""Erasing: no byte of what is no longer stored stays in the journal's files.

What a table no longer holds may still stand in the gaps of its pages, in free pages, or in the write-ahead log. So the
journal is written anew from what it holds, beside commits, and the copy put in its place; see :mod:`.rewriting`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from noosphere.consistency import Reason, Refusal

from .journal import Journal, RewriteFailed
from .pipeline import Pipeline, unavailable
from .worker import Worker, run

log = logging.getLogger("noosphere.storage")


class Eraser:
    """Has the journal of one store written anew, once for everybody who waits by then.

    Args:
        journal: the journal.
        writer: the thread of its writes.
        pipeline: says whether the store has failed.
        worker: makes the thread that copies, one for each copy.
        owed: whether an erasure was cut off by the end of the last opening.

    Attributes:
        begins: whether :meth:`run` has to finish what the last life of the store has begun.
        owed: whether something is to be erased that no copy has left out yet. The journal has to be marked before the
            batch that says so is trimmed.
    """

    def __init__(
        self, journal: Journal, writer: Worker, pipeline: Pipeline, worker: Callable[[str], Worker], owed: bool
    ) -> None:
        self._journal = journal
        self._writer = writer
        self._pipeline = pipeline
        self._worker = worker
        self._waiting: list[asyncio.Future[None]] = []
        self.begins = owed
        self.owed = owed

    @property
    def wanted(self) -> bool:
        """Whether :meth:`run` has something to do."""
        return self.begins or bool(self._waiting)

    def request(self) -> asyncio.Future[None]:
        """Returns what is done when a copy that begins from now on is in place.

        Raises:
            Refusal: ENGINE_UNAVAILABLE, here or from the future.
        """
        self._pipeline.check()
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        return waiter

    async def run(self, fold: Callable[[], Awaitable[None]]) -> None:
        """Brings the tables up to date, so that the copy can do without the batches, and replaces the journal.

        A copy that cannot be made (for want of room, say) is no failure of the store: those who wait are refused, and
        the next erasure or opening tries again.

        Args:
            fold: folds and trims everything synced by now. Nothing else may be folded before this returns.

        Raises:
            StoreFailed: the disk has failed.
        """
        waiting, self._waiting = self._waiting, []
        self.begins = False
        try:
            await self.mark()
            # From here on it is owed again by whatever asks for it: that may come too late for this copy.
            self.owed = False
            await fold()
            await self._rewrite()
        except RewriteFailed as error:
            self.owed = True
            log.warning("what was to be erased is still in the files: %s", error)
            _refuse(waiting, _not_rewritten())
        except BaseException:
            _refuse(waiting, unavailable())
            raise
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    async def mark(self) -> None:
        """Notes in the journal that it is owed."""
        await run(self._writer, self._journal.mark_erasing)

    def abandon(self) -> None:
        """Refuses whoever still waits; for the end."""
        waiting, self._waiting = self._waiting, []
        _refuse(waiting, unavailable())

    async def _rewrite(self) -> None:
        copier = self._worker("noosphere-copier")
        try:
            await run(copier, self._journal.copy)
            await run(self._writer, self._journal.swap)
        finally:
            copier.stop()


def _refuse(waiting: list[asyncio.Future[None]], refusal: Refusal) -> None:
    for waiter in waiting:
        if not waiter.done():
            waiter.set_exception(refusal)
            # Seen, as far as asyncio is concerned: its waiter may be cancelled in this very turn.
            waiter.exception()


def _not_rewritten() -> Refusal:
    # What has failed, and where, is for the server's log: callers may be anybody.
    return Refusal(
        Reason.ENGINE_UNAVAILABLE, "the working store could not be written anew; erasing again finishes what was begun"
    )
