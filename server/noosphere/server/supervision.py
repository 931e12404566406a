"""Background tasks run as long as the process: one that ends by itself is noticed, never missed in silence.

What is done in rounds goes on after a round that has failed, by one rule for all: :class:`Troubles`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import structlog

from noosphere.consistency import Reason, Refusal

from .ports.runtime import Clock

log = structlog.get_logger(__name__)

MISTAKES_MAX = 100
"""So many rounds that end with a mistake, one after the other, end the task."""


class TaskEnded(Exception):
    """A background task has ended though nobody cancelled it. Its text is one line; the process has to stop."""


class Troubles:
    """Tells of rounds of background work that fail, without flooding the log, and gives up in the end.

    A refusal is nobody's mistake, an engine may be away for long: it is told of once, and again when it is another
    one. A mistake of ours is told of each time, and is no reason to do nothing of the kind any more; but what has gone
    wrong :data:`MISTAKES_MAX` times on end will not get better in this process.

    Args:
        what: the work, for the log.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._refused = ""
        self._mistakes = 0

    def over(self) -> None:
        """A round has gone well."""
        if self._refused:
            log.info(f"{self._what} goes on")
        self._refused = ""
        self._mistakes = 0

    def met(self, error: Exception) -> None:
        """A round has failed.

        Raises:
            Exception: ``error``, if there were too many mistakes on end: the task has to end with it.
        """
        if isinstance(error, Refusal):
            if error.reason != self._refused:
                log.warning(f"{self._what} is refused", reason=error.reason, message=error.message)
            self._refused = error.reason
            return
        self._mistakes += 1
        log.error(f"{self._what} has failed", mistakes=self._mistakes, exc_info=error)
        if self._mistakes >= MISTAKES_MAX:
            raise error


async def repeat(what: str, round: Callable[[], Awaitable[object]], clock: Clock, interval_ms: int) -> None:
    """Does something again and again, with a rest before each time, until it is cancelled.

    Args:
        what: the work, for the log.
        round: does it once.
        clock: the source of time.
        interval_ms: how long to rest.

    Raises:
        Exception: the last of :data:`MISTAKES_MAX` mistakes on end.
    """
    troubles = Troubles(what)
    while True:
        await clock.sleep(interval_ms / 1000)
        try:
            await round()
        except Exception as error:
            troubles.met(error)
        else:
            troubles.over()


def supervise(
    tasks: Iterable[asyncio.Task[None]],
    on_fatal: Callable[[BaseException], None],
    is_over: Callable[[], bool] = lambda: False,
) -> None:
    """Reports each of ``tasks`` that ends without being cancelled.

    Args:
        tasks: what is to run until it is cancelled.
        on_fatal: called with a :class:`TaskEnded`.
        is_over: tells whether the store has failed, or its epoch has ended: that was told already, and then a task may
            end with ``ENGINE_UNAVAILABLE``.
    """

    def ended(task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, Refusal) and error.reason is Reason.ENGINE_UNAVAILABLE and is_over():
            return
        log.error("a background task has ended", task=task.get_name(), exc_info=error)
        failure = TaskEnded(f"{task.get_name()}: {type(error).__name__ if error is not None else 'returned'}")
        failure.__cause__ = error
        on_fatal(failure)

    for task in tasks:
        task.add_done_callback(ended)


async def cancel(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancels tasks; returns when they have ended."""
    held = tuple(tasks)
    for task in held:
        task.cancel()
    await asyncio.gather(*held, return_exceptions=True)
