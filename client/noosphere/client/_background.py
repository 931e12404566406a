"""Background tasks of a client: a mistake that ends one is told, never kept to itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

LOG = logging.getLogger("noosphere.client")


def noticed(task: asyncio.Task[Any], react: Callable[[Exception], object] | None = None) -> None:
    """Has the end of a task by a mistake logged; being cancelled, or ending in order, is none.

    Args:
        task: the task.
        react: called with the mistake, so that nobody waits for what the task does not do any more.
    """

    def ended(task: asyncio.Task[Any]) -> None:
        if task.cancelled() or (error := task.exception()) is None:
            return
        LOG.error("%s has failed", task.get_name(), exc_info=error)
        if react is not None and isinstance(error, Exception):
            react(error)

    task.add_done_callback(ended)
