"""Reservations: a task says that it thinks about a key, so that nobody who asks thinks in vain meanwhile.

Advisory: a reservation keeps nobody from writing, and losing one stops nobody. It is a lease like a claim's,
counted from before its request was sent, and renewed in the background while its holder thinks.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from types import TracebackType
from typing import Literal

from noosphere.v1 import memory_service_pb2 as ms

from ._claim import LEASE_MAX, LEASE_MIN, WAIT_MAX, WAIT_SLICE, between
from ._errors import NoosphereError
from ._space import Space
from ._transport import LOG
from ._wire import from_seconds, to_seconds

ReservePolicy = Literal["never", "on_conflict", "first"]
"""When ``update`` reserves its key: never, after two refused writes, or before it reads."""

_CANCEL_TIMEOUT = 2.0


class Reservation:
    """A key that this task thinks about, or the news that somebody else does.

    Attributes:
        namespace: the namespace.
        key: the key.
        holder: who holds it, as ``agent#incarnation``; empty if that is not known.
        fence: the reservation's revision, 0 unless it is this task's.
    """

    def __init__(self, namespace: str, key: str) -> None:
        self.namespace = namespace
        self.key = key
        self.holder = ""
        self.fence = 0

    @property
    def held(self) -> bool:
        """Whether the reservation is this task's, as far as it knows."""
        return self.fence > 0

    def __repr__(self) -> str:
        state = f"held, fence={self.fence}" if self.held else f"held by {self.holder or 'nobody known'}"
        return f"Reservation({self.namespace!r}, {self.key!r}, {state})"


class ReserveScope:
    """The ``async with`` block of a reservation; made by ``Key.reserve``, for one use."""

    def __init__(
        self, space: Space, key: str, lease: timedelta | float, wait: timedelta | float, timeout: float | None
    ) -> None:
        self._space = space
        self._lease = between("lease", to_seconds("lease", lease), LEASE_MIN, LEASE_MAX)
        self._wait = between("wait", to_seconds("wait", wait) if wait else 0.0, 0.0, WAIT_MAX)
        self._timeout = timeout
        self._request = ms.ReserveRequest(namespace=space.name, key=key, lease=from_seconds(self._lease))
        self._reservation = Reservation(space.name, key)
        self._queue: asyncio.Lock | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._ends_at = 0.0
        self._entered = False

    async def __aenter__(self) -> Reservation:
        """Reserves the key; ``held`` tells whether that worked within ``wait``.

        Raises:
            NoosphereError: the server could not be asked.
        """
        if self._entered:
            raise RuntimeError("a reservation's block is for one use; call reserve again")
        self._entered = True
        end = self._space.transport.clock() + self._wait
        try:
            if await self._turn(end):
                await self._take(end)
        except BaseException:
            self._leave()
            raise
        if self._reservation.held:
            self._keeper = asyncio.create_task(self._keep(), name=f"keep reservation {self._reservation.key}")
        else:
            self._leave()
        return self._reservation

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Gives the reservation up, as far as the server can be reached; otherwise its lease runs out."""
        try:
            if self._keeper is not None:
                self._keeper.cancel()
                await asyncio.wait([self._keeper])
                if not self._keeper.cancelled() and (failure := self._keeper.exception()) is not None:
                    raise failure
            if self._reservation.held:
                await self._cancel()
        finally:
            self._reservation.fence = 0
            self._leave()

    async def _turn(self, end: float) -> bool:
        """Waits for the other tasks of this client, whom the server cannot tell from this one."""
        transport = self._space.transport
        name = (self._space.name, self._reservation.key)
        queue = transport.progress.thinking.get(name)
        if queue is None:
            queue = transport.progress.thinking[name] = asyncio.Lock()
        acquiring = asyncio.ensure_future(queue.acquire())
        pause = asyncio.ensure_future(transport.sleep(max(end - transport.clock(), 0.0)))
        try:
            await asyncio.wait([acquiring, pause], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            if not acquiring.cancel():
                queue.release()
            raise
        finally:
            pause.cancel()
        if not acquiring.done():
            acquiring.cancel()
            self._reservation.holder = transport.actor_name
            return False
        self._queue = queue
        return True

    async def _take(self, end: float) -> None:
        transport = self._space.transport
        while True:
            sent = transport.clock()
            # In slices, for the reasons of a claim: see there.
            wait = min(max(end - sent, 0.0), WAIT_SLICE, self._lease / 3)
            await self._ask(sent, wait, self._timeout)
            if self._reservation.held or (now := transport.clock()) >= end:
                return
            if now - sent < wait / 2:
                # Answered before its time, e.g. because the server is about to stop: do not spin.
                await transport.sleep(transport.retry.backoff(1))

    async def _ask(self, sent: float, wait: float, timeout: float | None) -> None:
        """Reserves, or extends what this task holds, for a lease from ``sent``."""
        transport = self._space.transport
        self._request.wait.CopyFrom(from_seconds(wait))
        reply: ms.ReserveResponse
        reply, _ = await transport.write(
            transport.stub.Reserve,
            self._request,
            request_id=None,
            timeout=timeout,
            namespace=self._space.name,
            wait=wait,
        )
        self._reservation.fence, self._reservation.holder = reply.fence, reply.holder
        self._ends_at = sent + self._lease

    async def _keep(self) -> None:
        """Extends the reservation until it is lost; then whoever else of this client waits may ask the server."""
        await self._extend_until_lost()
        # Only then: until a reservation that is held was cancelled, the server would take theirs for this one.
        self._leave()

    async def _extend_until_lost(self) -> None:
        """Extends the reservation every third of its lease, until somebody else has it or the lease is over."""
        transport, reservation = self._space.transport, self._reservation
        pause = self._lease / 3
        next_at = self._ends_at - 2 * pause
        while reservation.held:
            if (early := min(next_at, self._ends_at) - transport.clock()) > 0:
                await transport.sleep(early)
                continue
            sent = transport.clock()
            if (left := self._ends_at - sent) <= 0:
                reservation.fence, reservation.holder = 0, ""
                return
            try:
                await self._ask(sent, 0.0, min(pause, left))
                next_at = self._ends_at - 2 * pause
            except NoosphereError as error:
                LOG.debug("could not extend the reservation of %r: %s", reservation.key, error)
                next_at = transport.clock() + pause / 8

    async def _cancel(self) -> None:
        transport, reservation = self._space.transport, self._reservation
        request = ms.CancelReservationRequest(namespace=self._space.name, key=reservation.key, fence=reservation.fence)
        try:
            await transport.write(
                transport.stub.CancelReservation,
                request,
                request_id=None,
                timeout=_CANCEL_TIMEOUT,
                namespace=self._space.name,
            )
        except NoosphereError as error:
            # Its lease ends by itself; the block's own outcome matters more.
            LOG.debug("could not cancel the reservation of %r: %s", reservation.key, error)

    def _leave(self) -> None:
        if self._queue is not None:
            self._queue.release()
            self._queue = None
