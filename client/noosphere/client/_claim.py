"""A claim on a task, kept alive while its holder works and given up in doubt.

The lease runs in the server, by the server's clock, from when the server took the claim. The holder
counts from *before the request was sent*, so its own deadline comes first whatever the network does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from types import TracebackType
from typing import Any, Generic, TypeVar

from noosphere.consistency import Scalar
from noosphere.v1 import memory_service_pb2 as ms

from ._errors import AckedWritesLost, ClaimLost, InvalidArgument, NoosphereError
from ._record import Record
from ._sequence import RequestTicket, explicit
from ._space import Space
from ._transport import LOG, Method
from ._values import JSON, Codec, Payload
from ._wire import from_payload, from_scalars, from_seconds, to_seconds

T = TypeVar("T")
Reply = TypeVar("Reply")

LEASE_MIN = 1.0
LEASE_MAX = 3600.0
WAIT_MAX = 60.0
WAIT_SLICE = 5.0
_RELEASE_TIMEOUT = 2.0


class Claim(Generic[T]):
    """A task that this agent holds.

    Attributes:
        record: the task as it was claimed.
        fence: the claim's revision; larger means later.
        lease: how long the claim lasts without renewal, in seconds.
    """

    def __init__(self, space: Space, record: Record[T], lease: float, timeout: float | None, ends_at: float) -> None:
        state = record.claim
        assert state is not None
        self.record = record
        self.fence: int = state.fence
        self.lease = lease
        self._attempts = state.attempts
        self._space = space
        self._timeout = timeout
        self._ends_at = ends_at
        self._open = True
        self._lost: ClaimLost | None = None
        self._completion: tuple[RequestTicket, Payload | None] | None = None
        # A renewal must not find the task completed by its own holder and call that a loss.
        self._lock = asyncio.Lock()

    @property
    def key(self) -> str:
        """The task's key, with the board's prefix."""
        return self.record.key

    @property
    def value(self) -> T:
        """The task; see ``Record.value``."""
        return self.record.value

    @property
    def attempts(self) -> int:
        """How often the task was handed out, this time included."""
        return self._attempts

    @property
    def is_open(self) -> bool:
        """Whether the task is still held: neither completed, nor released, nor lost."""
        return self._open

    async def complete(
        self, result: Any = None, *, request_id: str | None = None, timeout: float | None = None
    ) -> Record[T]:
        """Marks the task as done, once and for all.

        Args:
            result: what to store beside the task's value: JSON, bytes or a pydantic model; None for
                nothing.
            request_id: a UUID of your own; None uses the client's sequence.
            timeout: the deadline with all retries, in seconds.

        Returns:
            The completed record.

        Raises:
            ClaimLost: somebody else may have the task; nothing was written.
            NoosphereError: anything else. After an ``unknown`` outcome, complete again with the same
                result within 9 minutes: if the first one was applied, that is what it reports.
        """
        payload = JSON.encode(result, "result") if result is not None else None
        async with self._lock:
            self._check_held()
            request = ms.CompleteRequest(namespace=self._space.name, key=self.key, fence=self.fence)
            if payload is not None:
                request.result.CopyFrom(from_payload(payload))
            transport = self._space.transport
            reply: ms.CompleteResponse
            reply, call_id = await self._send(
                transport.stub.Complete,
                request,
                timeout,
                ticket=explicit(request_id) if request_id is not None else self._completion_ticket(payload),
            )
            self._end()
            self._space.acked(request, reply.record.version, call_id, reply.replayed)
            return Record(self._space, self.record._codec, reply.record, reply.head)

    async def release(self, *, request_id: str | None = None, timeout: float | None = None) -> None:
        """Gives the task back; it is free at once. Does nothing if it is not held any more.

        Raises:
            ClaimLost: somebody else may have the task.
            NoosphereError: anything else.
        """
        async with self._lock:
            if not self._open:
                return
            request = ms.ReleaseRequest(namespace=self._space.name, key=self.key, fence=self.fence)
            await self._send(self._space.transport.stub.Release, request, timeout, request_id=request_id)
            self._end()

    async def renew(self, *, timeout: float | None = None) -> None:
        """Extends the claim by its lease, from now. The block of ``board.claim`` does this by itself.

        Raises:
            ClaimLost: somebody else may have the task.
            NoosphereError: anything else.
        """
        async with self._lock:
            self._check_held()
            await self._extend(timeout)

    def __repr__(self) -> str:
        state = "held" if self._open else "lost" if self._lost is not None else "closed"
        return f"Claim({self._space.name!r}, {self.key!r}, fence={self.fence}, {state})"

    def _check_held(self) -> None:
        if not self._open:
            raise ClaimLost(f"{self.key!r} is not held any more", head=self.record.head)

    async def _extend(self, timeout: float | None) -> None:
        sent = self._space.transport.clock()
        request = ms.RenewRequest(
            namespace=self._space.name, key=self.key, fence=self.fence, lease=from_seconds(self.lease)
        )
        await self._send(self._space.transport.stub.Renew, request, timeout)
        self._ends_at = max(self._ends_at, sent + self.lease)

    async def _send(
        self,
        method: Method[Reply],
        request: Any,
        timeout: float | None,
        *,
        request_id: str | None = None,
        ticket: RequestTicket | None = None,
    ) -> tuple[Reply, str]:
        try:
            return await self._space.transport.write(
                method,
                request,
                request_id=request_id,
                timeout=self._timeout if timeout is None else timeout,
                namespace=self._space.name,
                ticket=ticket,
            )
        except ClaimLost as lost:
            self._end(lost)
            raise
        except AckedWritesLost as lost:
            ended = ClaimLost(f"the claim on {self.key!r} is among what was lost: {lost.message}")
            # Whoever is told that the claim is gone is told which other writes are.
            ended.__cause__ = lost
            self._end(ended)
            raise

    def _completion_ticket(self, payload: Payload | None) -> RequestTicket:
        # A completion whose outcome is unknown keeps its id, so completing again is answered by the
        # first one's success instead of "already completed".
        transport = self._space.transport
        if self._completion is not None and self._completion[1] == payload:
            ticket = self._completion[0]
            # An id that the server may have forgotten proves nothing; the fence still lets nobody complete twice.
            if transport.clock() < ticket.repeatable_until(transport.clock()):
                return ticket
        self._close_completion()
        ticket = transport.ticket()
        self._completion = (ticket, payload)
        return ticket

    def _close_completion(self) -> None:
        if self._completion is not None:
            self._completion[0].close()
            self._completion = None

    def _end(self, lost: ClaimLost | None = None) -> None:
        self._open = False
        self._lost = lost if lost is not None else self._lost
        self._close_completion()


class ClaimScope(Generic[T]):
    """The ``async with`` block of a claim; made by ``Board.claim``, for one use."""

    def __init__(
        self,
        space: Space,
        codec: Codec[T],
        collection: str,
        where: Mapping[str, Scalar] | None,
        lease: timedelta | float,
        wait: timedelta | float,
        timeout: float | None,
    ) -> None:
        self._space = space
        self._codec = codec
        self._lease = between("lease", to_seconds("lease", lease), LEASE_MIN, LEASE_MAX)
        self._wait = between("wait", to_seconds("wait", wait) if wait else 0.0, 0.0, WAIT_MAX)
        self._timeout = timeout
        self._request = ms.ClaimNextRequest(
            namespace=space.name,
            collection=collection,
            where=from_scalars("where", where),
            lease=from_seconds(self._lease),
        )
        self._claim: Claim[T] | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._body: asyncio.Task[Any] | None = None
        self._cancelling = 0
        self._in_doubt: ClaimLost | None = None

    async def __aenter__(self) -> Claim[T] | None:
        """Claims a task; None if none was free within ``wait``."""
        if self._body is not None:
            raise RuntimeError("a claim's block is for one use; call board.claim again")
        self._body = asyncio.current_task()
        assert self._body is not None
        self._cancelling = self._body.cancelling()
        claim = await self._take()
        if claim is not None:
            self._claim = claim
            self._keeper = asyncio.create_task(self._keep(claim), name=f"keep claim {claim.key}")
        return claim

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Gives the task back unless it was completed.

        Raises:
            ClaimLost: the block was cancelled, or ended, while the claim was in doubt. If a failover has lost it,
                the AckedWritesLost that says so is its cause.
            AckedWritesLost: a failover has lost the claim, which was heard when it was to be given back.
        """
        claim = self._claim
        if claim is None:
            return
        try:
            await self._stop_keeper()
            if self._in_doubt is not None:
                assert self._body is not None
                mine = self._body.uncancel() <= self._cancelling
                if error is None or (mine and kind is asyncio.CancelledError):
                    raise self._in_doubt from (self._in_doubt.__cause__ or error)
            elif claim.is_open:
                await self._give_back(claim, error)
        finally:
            claim._end(self._in_doubt)

    async def _take(self) -> Claim[T] | None:
        transport = self._space.transport
        end = transport.clock() + self._wait
        while True:
            sent = transport.clock()
            # A long wait is asked for in slices: its request number would otherwise keep the server
            # from forgetting the calls that pass it, and the lease's beginning would be unknown.
            wait = min(max(end - sent, 0.0), WAIT_SLICE, self._lease / 3)
            self._request.wait.CopyFrom(from_seconds(wait))
            reply: ms.ClaimNextResponse
            reply, _ = await transport.write(
                transport.stub.ClaimNext,
                self._request,
                request_id=None,
                timeout=self._timeout,
                namespace=self._space.name,
                wait=wait,
            )
            if reply.HasField("record"):
                claim = await self._settle(Record(self._space, self._codec, reply.record, reply.head), sent)
                if claim is not None:
                    return claim
            if (now := transport.clock()) >= end:
                return None
            if now - sent < wait / 2:
                # Answered before its time, e.g. because the server is about to stop: do not spin.
                await transport.sleep(transport.retry.backoff(1))

    async def _settle(self, record: Record[T], sent: float) -> Claim[T] | None:
        claim = Claim(self._space, record, self._lease, self._timeout, sent + self._lease)
        # The lease began somewhere in the time that the call took. If that was long, begin anew.
        if self._space.transport.clock() - sent > self._lease / 3:
            try:
                await claim.renew()
            except ClaimLost:
                return None
        return claim

    async def _keep(self, claim: Claim[T]) -> None:
        """Renews every third of the lease; when the claim is lost or in doubt, cancels the block."""
        transport = self._space.transport
        pause = claim.lease / 3
        next_at = claim._ends_at - 2 * pause
        while claim.is_open:
            if (early := min(next_at, claim._ends_at) - transport.clock()) > 0:
                await transport.sleep(early)
                continue
            # A completion under way holds the lock: the server decides it by the fence, so it may finish.
            async with claim._lock:
                if not claim.is_open:
                    return
                left = claim._ends_at - transport.clock()
                if left <= 0:
                    problem = f"{claim.key!r} could not be renewed within its lease of {claim.lease:g} s"
                    self._doubt(claim, ClaimLost(problem))
                    return
                try:
                    await claim._extend(min(pause, left))
                    next_at = claim._ends_at - 2 * pause
                except ClaimLost as lost:
                    self._doubt(claim, lost)
                    return
                except AckedWritesLost:
                    assert claim._lost is not None
                    self._doubt(claim, claim._lost)
                    return
                except NoosphereError as error:
                    LOG.debug("could not renew the claim on %r: %s", claim.key, error)
                    next_at = transport.clock() + pause / 8

    def _doubt(self, claim: Claim[T], lost: ClaimLost) -> None:
        self._in_doubt = lost
        claim._end(lost)
        assert self._body is not None
        self._body.cancel()

    async def _stop_keeper(self) -> None:
        assert self._keeper is not None
        self._keeper.cancel()
        await asyncio.wait([self._keeper])
        if not self._keeper.cancelled() and (error := self._keeper.exception()) is not None:
            raise error

    async def _give_back(self, claim: Claim[T], outcome: BaseException | None) -> None:
        try:
            await claim.release(timeout=_RELEASE_TIMEOUT)
        except AckedWritesLost as lost:
            # Nobody else would say what was lost with the claim.
            if outcome is None:
                raise
            self._space.transport.progress.untold(lost)
        except NoosphereError as error:
            # The lease ends by itself; the block's own outcome matters more.
            LOG.debug("could not release the claim on %r: %s", claim.key, error)


def between(field: str, seconds: float, low: float, high: float) -> float:
    """Returns ``seconds``.

    Raises:
        InvalidArgument: it is outside ``low`` to ``high``.
    """
    if not low <= seconds <= high:
        raise InvalidArgument(f"{field}: {seconds:g} s is not between {low:g} and {high:g} s")
    return seconds
