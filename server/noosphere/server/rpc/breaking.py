"""Ends calls from outside the tasks that answer them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import grpc

from noosphere.consistency import Refusal

from .calls import Context
from .errors import abort


class Breaking:
    """Breaks calls off. Lives on one event loop."""

    def __init__(self) -> None:
        self._under_way: set[asyncio.Task[None]] = set()

    def end(self, task: asyncio.Task[Any], context: Context, refusal: Refusal) -> None:
        """Ends a call with a refusal, whatever it waits for. Never waits."""
        # Told first: a call that is cancelled has no say any more.
        breaking = asyncio.create_task(_refuse(context, refusal), name="noosphere-breaking-off")
        self._under_way.add(breaking)
        breaking.add_done_callback(self._under_way.discard)
        asyncio.get_running_loop().call_soon(task.cancel)


async def _refuse(context: Context, refusal: Refusal) -> None:
    # Raised when all is well, too; a caller that has gone needs no status.
    with suppress(grpc.aio.BaseError):
        await abort(context, refusal)
