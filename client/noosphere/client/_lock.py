"""Locks and elections: held while a block runs, and given up in doubt.

The lease runs in the server, from when it granted or renewed the lock. The holder counts from *before the request was
sent*, so its own deadline comes first whatever the network does. A lock alone still keeps nobody from writing who does
not look at the clock: what is written under it carries its token, ``client.fenced(lock.fence)``.
"""

from __future__ import annotations

import asyncio
import math
from datetime import timedelta
from types import TracebackType
from typing import Any

from noosphere.v1 import coordination_service_pb2 as pb

from ._background import noticed
from ._claim import WAIT_MAX
from ._coordination import LEASE_DEFAULT, CoordinationLink, checked_lease, checked_name
from ._coordination_data import Fence, LockInfo, write_data
from ._errors import LockHeld, LockLost, NoosphereError, StaleFence
from ._sequence import RequestTicket
from ._transport import LOG
from ._wire import from_seconds, to_seconds

_RELEASE_TIMEOUT = 2.0
_ABANDONING: set[asyncio.Task[None]] = set()
"""Calls under way that nobody waits for: the event loop keeps none of them alive."""


class Lock:
    """A lock that this client holds, made by the block of ``Client.lock`` or ``Election.lead``.

    Attributes:
        name: the lock's name.
        token: the fencing token: larger means later.
        lease: how long it is held without a renewal, in seconds.
    """

    def __init__(self, link: CoordinationLink, name: str, token: int, lease: float, ends_at: float) -> None:
        self.name = name
        self.token = token
        self.lease = lease
        self._link = link
        self._ends_at = ends_at
        self._open = True
        self._lost: LockLost | None = None

    @property
    def fence(self) -> Fence:
        """What goes into the writes under this lock: ``client.fenced(lock.fence)``."""
        return Fence(self.name, self.token)

    @property
    def is_held(self) -> bool:
        """Whether the lock is still held: neither released, nor lost, nor in doubt."""
        return self._open

    async def renew(self, *, timeout: float | None = None) -> None:
        """Begins the lease anew. The block does this by itself.

        Raises:
            LockLost: somebody else may have the lock.
            NoosphereError: anything else.
        """
        self._check_held()
        await self._extend(timeout)

    async def release(self, *, timeout: float | None = None) -> None:
        """Gives the lock back before the end of the block. Does nothing if it is not held any more.

        Raises:
            NoosphereError: the server could not be told; the lease ends by itself.
        """
        if not self._open:
            return
        # Whatever comes of it: nobody may count on the lock any more.
        self._end()
        request = pb.ReleaseLockRequest(name=self.name, token=self.token)
        await self._link.transport.write(
            self._link.stub.ReleaseLock, request, request_id=None, timeout=timeout, namespace=""
        )

    def __repr__(self) -> str:
        state = "held" if self._open else "lost" if self._lost is not None else "released"
        return f"Lock({self.name!r}, token={self.token}, {state})"

    def _check_held(self) -> None:
        if not self._open:
            raise LockLost(f"lock {self.name!r} is not held any more")

    async def _extend(self, timeout: float | None) -> None:
        transport = self._link.transport
        sent = transport.clock()
        request = pb.RenewLockRequest(name=self.name, token=self.token)
        try:
            await transport.write(self._link.stub.RenewLock, request, request_id=None, timeout=timeout, namespace="")
        except StaleFence as stale:
            lost = LockLost(stale.message, request_id=stale.request_id)
            self._end(lost)
            raise lost from None
        self._ends_at = max(self._ends_at, sent + self.lease)

    def _end(self, lost: LockLost | None = None) -> None:
        self._open = False
        self._lost = lost if lost is not None else self._lost


class LockScope:
    """The ``async with`` block of a lock; made by ``Client.lock`` or ``Election.lead``, for one use."""

    def __init__(
        self,
        link: CoordinationLink,
        name: str,
        data: Any,
        lease: timedelta | float,
        wait: timedelta | float | None,
        timeout: float | None,
    ) -> None:
        self._link = link
        self._lease = checked_lease(lease)
        self._wait = math.inf if wait is None else to_seconds("wait", wait) if wait else 0.0
        self._timeout = timeout
        self._request = pb.AcquireLockRequest(
            name=checked_name(name), lease=from_seconds(self._lease), data=write_data(data)
        )
        self._lock: Lock | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._body: asyncio.Task[Any] | None = None
        self._cancelling = 0
        self._in_doubt: LockLost | None = None

    async def __aenter__(self) -> Lock:
        """Takes the lock.

        Raises:
            LockHeld: it was not free within ``wait``.
            NoosphereError: anything else, see the tree.
        """
        if self._body is not None:
            raise RuntimeError("a lock's block is for one use; call client.lock again")
        self._body = asyncio.current_task()
        assert self._body is not None
        self._cancelling = self._body.cancelling()
        self._lock = lock = await self._take()
        self._keeper = asyncio.create_task(self._keep(lock), name=f"keep lock {lock.name}")
        return lock

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Gives the lock back.

        Raises:
            LockLost: the block was cancelled, or ended, while the lock was in doubt.
        """
        lock, keeper = self._lock, self._keeper
        assert lock is not None
        assert keeper is not None
        try:
            keeper.cancel()
            await asyncio.wait([keeper])
            if not keeper.cancelled() and (failure := keeper.exception()) is not None:
                raise failure
            if self._in_doubt is not None:
                assert self._body is not None
                mine = self._body.uncancel() <= self._cancelling
                if error is None or (mine and kind is asyncio.CancelledError):
                    raise self._in_doubt from error
            elif lock.is_held:
                await self._give_back(lock)
        finally:
            lock._end(self._in_doubt)

    async def _take(self) -> Lock:
        transport, name = self._link.transport, self._request.name
        end = transport.clock() + self._wait
        while True:
            sent = transport.clock()
            # The server waits for so long at a time; between two times a place in the queue is lost.
            wait = min(max(end - sent, 0.0), WAIT_MAX)
            self._request.wait.CopyFrom(from_seconds(wait))
            reply = await self._ask(wait)
            if reply.HasField("lock"):
                lock = Lock(self._link, name, reply.lock.token, self._lease, sent + self._lease)
                if await self._settled(lock, sent):
                    return lock
            elif (now := transport.clock()) >= end:
                raise await self._held(name)
            elif now - sent < wait / 2:
                # Answered before its time: do not spin.
                await transport.sleep(transport.retry.backoff(1))

    async def _ask(self, wait: float) -> pb.AcquireLockResponse:
        """Asks for the lock once; if what came of it is unknown, it is given back in the background."""
        transport = self._link.transport
        # A call that waits must not keep the server from forgetting the calls that pass it.
        ticket = transport.sequencer.apart() if wait else transport.ticket()
        try:
            reply: pb.AcquireLockResponse
            reply, _ = await transport.write(
                self._link.stub.AcquireLock,
                self._request,
                request_id=None,
                timeout=self._timeout,
                namespace="",
                wait=wait,
                ticket=ticket,
            )
        except BaseException as error:
            if isinstance(error, NoosphereError) and error.outcome == "not_applied":
                ticket.close()
                raise
            abandoning = asyncio.create_task(self._abandon(ticket), name=f"abandon lock {self._request.name}")
            noticed(abandoning)
            _ABANDONING.add(abandoning)
            abandoning.add_done_callback(_ABANDONING.discard)
            raise
        ticket.close()
        return reply

    async def _abandon(self, ticket: RequestTicket) -> None:
        """Gives back what a call may have been granted whose answer nobody has heard."""
        link, name = self._link, self._request.name
        request = pb.AcquireLockRequest(name=name, lease=self._request.lease, data=self._request.data)
        try:
            # The same call again: it is told the token, or takes the lock that it is about to give back.
            reply: pb.AcquireLockResponse
            reply, _ = await link.transport.write(
                link.stub.AcquireLock,
                request,
                request_id=None,
                timeout=_RELEASE_TIMEOUT,
                namespace="",
                ticket=ticket,
            )
            if reply.HasField("lock"):
                await self._give_back(Lock(link, name, reply.lock.token, self._lease, 0.0))
        except NoosphereError as error:
            # Its lease ends by itself.
            LOG.debug("could not give back what may be held of the lock %r: %s", name, error)
        finally:
            ticket.close()

    async def _settled(self, lock: Lock, sent: float) -> bool:
        """Tells whether a lock is held that the server granted somewhere in the time that the call took."""
        if self._link.transport.clock() - sent <= self._lease / 3:
            return True
        try:
            await lock._extend(self._timeout)
        except LockLost:
            return False
        return True

    async def _held(self, name: str) -> LockHeld:
        holder = await self._link.holder(name, self._timeout)
        error = LockHeld(f"lock {name!r} was not free within {self._wait:g} s")
        if holder is not None:
            error.holder = holder.holder
            error.message += f"; {holder.holder} has it"
        return error

    async def _keep(self, lock: Lock) -> None:
        """Renews every third of the lease; when the lock is lost or in doubt, cancels the block."""
        transport = self._link.transport
        pause = lock.lease / 3
        next_at = lock._ends_at - 2 * pause
        while lock.is_held:
            if (early := min(next_at, lock._ends_at) - transport.clock()) > 0:
                await transport.sleep(early)
                continue
            left = lock._ends_at - transport.clock()
            if left <= 0:
                self._doubt(
                    lock, LockLost(f"lock {lock.name!r} could not be renewed within its lease of {lock.lease:g} s")
                )
                return
            try:
                await lock._extend(min(pause, left))
                next_at = lock._ends_at - 2 * pause
            except LockLost as lost:
                self._doubt(lock, lost)
                return
            except NoosphereError as error:
                LOG.debug("could not renew the lock %r: %s", lock.name, error)
                next_at = transport.clock() + pause / 8

    def _doubt(self, lock: Lock, lost: LockLost) -> None:
        self._in_doubt = lost
        lock._end(lost)
        assert self._body is not None
        self._body.cancel()

    async def _give_back(self, lock: Lock) -> None:
        try:
            await lock.release(timeout=_RELEASE_TIMEOUT)
        except NoosphereError as error:
            # The lease ends by itself; the block's own outcome matters more.
            LOG.debug("could not release the lock %r: %s", lock.name, error)


class Election:
    """An election among agents: a lock whose holder leads, and is asked for."""

    def __init__(self, link: CoordinationLink, name: str) -> None:
        self.name = checked_name(name)
        self._link = link

    def lead(
        self,
        *,
        data: Any = None,
        lease: timedelta | float = LEASE_DEFAULT,
        wait: timedelta | float | None = None,
        timeout: float | None = None,
    ) -> LockScope:
        """Leads for the length of an ``async with`` block, which begins once nobody else leads.

        The arguments, the block and what it raises are those of ``Client.lock``.

        Args:
            data: what is to be known of the leader, a JSON value of at most 4 KiB: where to find it, say.
            lease: how long it leads without a renewal, in seconds or as a span: 1 s to 1 h.
            wait: how long to wait for its turn, in seconds or as a span; None for as long as it takes.
            timeout: the deadline of each call with its retries, in seconds, beyond ``wait``.

        Returns:
            A context manager that gives a :class:`Lock`.
        """
        return LockScope(self._link, self.name, data, lease, wait, timeout)

    async def leader(self, *, timeout: float | None = None) -> LockInfo | None:
        """Returns who leads, None if nobody does at the moment.

        Args:
            timeout: the deadline with all retries, in seconds.
        """
        return await self._link.holder(self.name, timeout)

    def __repr__(self) -> str:
        return f"Election({self.name!r})"
