"""Messages that a stream's caller does not take: after a while its stream is ended, so that it holds nothing up.

A caller that reads slowly is none: messages wait in the network's buffers, and only when these are full does one
wait here. The time is that of the event loop, for what stalls is the network and not the store.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import grpc
import structlog

from noosphere.consistency import Reason, Refusal

from .calls import Context
from .errors import abort

log = structlog.get_logger(__name__)


class Delivery:
    """The stream of one caller.

    Attributes:
        since: when the message was handed over that is being taken now, in seconds of the event loop; infinite
            while there is none.
        last: of which namespace that message tells, and its head.
    """

    __slots__ = ("_deliveries", "_give_up", "last", "since")

    def __init__(self, deliveries: Deliveries, give_up: Callable[[Delivery], None]) -> None:
        self.since = math.inf
        self.last = ("", 0)
        self._deliveries = deliveries
        self._give_up = give_up

    def begin(self, namespace: str, head: int) -> None:
        """A message is handed over."""
        self.last = (namespace, head)
        self.since = self._deliveries.handed_over()

    def taken(self) -> None:
        """It was taken."""
        self.since = math.inf

    def end(self) -> None:
        """Ends the stream."""
        self.since = math.inf
        self._give_up(self)


class Deliveries:
    """The streams of one server. Bound to the event loop on which messages are handed over.

    Args:
        stall_seconds: how long a message may wait to be taken; infinite for ever.
    """

    def __init__(self, stall_seconds: float) -> None:
        self._stall_seconds = stall_seconds
        self._open: dict[Delivery, None] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    @contextmanager
    def to(self, context: Context) -> Iterator[Delivery]:
        """Watches over the stream of the call that runs in this task, for the length of the block."""
        handler = asyncio.current_task()
        assert handler is not None

        def give_up(delivery: Delivery) -> None:
            namespace, head = delivery.last
            refusal = Refusal(
                Reason.SLOW_CONSUMER,
                f"no message was taken for {self._stall_seconds:g} s; resume after the last one that was",
            )
            refusal.namespace, refusal.head = namespace, head
            log.debug("a watcher takes nothing; its stream is ended", namespace=namespace, head=head)
            # The status follows what is already on its way to the caller, whenever that is taken. Meanwhile
            # nothing but the status is kept of the stream.
            ending = asyncio.create_task(_end(context, refusal), name="noosphere-slow-consumer")
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
            asyncio.get_running_loop().call_soon(handler.cancel)

        delivery = Delivery(self, give_up)
        self._open[delivery] = None
        try:
            yield delivery
        finally:
            self._open.pop(delivery, None)

    def handed_over(self) -> float:
        """Returns the present time, and sees to it that somebody looks again."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if self._timer is None and self._stall_seconds < math.inf:
            self._timer = loop.call_later(self._stall_seconds, self._look)
        return now

    def _look(self) -> None:
        """Ends the streams that have stalled; looks again when the next one may have."""
        loop = asyncio.get_running_loop()
        self._timer = None
        due = loop.time() - self._stall_seconds
        oldest = math.inf
        for delivery in list(self._open):
            if delivery.since <= due:
                delivery.end()
            else:
                oldest = min(oldest, delivery.since)
        if oldest < math.inf:
            self._timer = loop.call_at(oldest + self._stall_seconds, self._look)


async def _end(context: Context, refusal: Refusal) -> None:
    # Raised when all is well, too; a caller that has gone needs no status.
    with suppress(grpc.aio.BaseError):
        await abort(context, refusal)
