"""Background tasks run as long as the process: one that ends by itself is noticed, never missed in silence."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import structlog

from noosphere.consistency import Reason, Refusal

log = structlog.get_logger(__name__)


class TaskEnded(Exception):
    """A background task has ended though nobody cancelled it. Its text is one line; the process has to stop."""


def supervise(tasks: Iterable[asyncio.Task[None]], on_fatal: Callable[[BaseException], None]) -> None:
    """Reports each of ``tasks`` that ends without being cancelled.

    Args:
        tasks: what is to run until it is cancelled.
        on_fatal: called with a :class:`TaskEnded`; not for a store that has failed, which has said so itself.
    """

    def ended(task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, Refusal) and error.reason is Reason.ENGINE_UNAVAILABLE:
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
