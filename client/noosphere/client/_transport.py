"""One client's way to the server: channel, identity, deadlines and retries. Knows no record."""

from __future__ import annotations

import asyncio
import copy
import logging
import math
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

import grpc
from google.protobuf.message import Message

from noosphere.consistency import actor_name
from noosphere.v1 import memory_service_pb2_grpc, types_pb2

from ._arguments import shown
from ._channel import REQUEST_BYTES_MAX, ServersChannel
from ._errors import ClientClosed, DeadlineExceeded, InvalidArgument, NoosphereError, Outcome, ValueTooLarge
from ._mapping import is_ambiguous, outcome_of, to_error
from ._pipeline import AttemptFailed, Pipeline
from ._progress import Progress
from ._retry import RetryPolicy
from ._sequence import OPEN_MAX, RequestTicket, Sequencer, explicit
from ._status import Failure, read_failure
from ._throttle import Throttle
from ._tracing import traced

if TYPE_CHECKING:
    from ._cache import NearCache

LOG = logging.getLogger("noosphere.client")

TIMEOUT_MAX = 24 * 3600.0
_KEEPING = frozenset(
    {
        "CloseAgentRequest",
        "CompleteRequest",
        "KeepAgentRequest",
        "KeepMemberRequest",
        "LeaveGroupRequest",
        "ReleaseLockRequest",
        "ReleaseRequest",
        "RenewLockRequest",
        "RenewRequest",
    }
)

Reply = TypeVar("Reply")
Reply_co = TypeVar("Reply_co", covariant=True)


class Method(Protocol[Reply_co]):
    """A unary method of a stub."""

    def __call__(self, request: Any, *, timeout: float | None = None) -> Awaitable[Reply_co]:
        """Sends one attempt."""
        ...


@dataclass(slots=True)
class _Life:
    """What all views of one client's transport share.

    Attributes:
        closed: whether the client was closed.
        renewed_at: when the newest successful call was sent.
    """

    closed: bool = False
    renewed_at: float = -math.inf


@dataclass(slots=True)
class Transport:
    """What every call of one client goes through. Not thread-safe; bound to one event loop.

    Attributes:
        channel: the gRPC channel.
        server: the address, for messages.
        timeout: the default deadline of a call with all its retries, in seconds.
        retry: when to try again.
        clock: monotonic seconds.
        sleep: waits for so many seconds.
        actor: who calls; set once the agent is open.
        progress: what the answers have told.
        coalesce: whether concurrent calls share a stream; bound to the running event loop then.
        caches: the open near caches by namespace.
        fences: the locks under which every write is made.
        explain: tells what gRPC's words about a connection that was not made mean.
    """

    channel: grpc.aio.Channel
    server: str
    timeout: float
    retry: RetryPolicy
    clock: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    sequencer: Sequencer = field(default_factory=Sequencer)
    progress: Progress = field(default_factory=Progress)
    actor: types_pb2.Actor = field(default_factory=types_pb2.Actor)
    coalesce: bool = False
    caches: dict[str, NearCache] = field(default_factory=dict)
    fences: tuple[types_pb2.Fence, ...] = ()
    explain: Callable[[str], str] = str
    _life: _Life = field(default_factory=_Life)
    stub: memory_service_pb2_grpc.MemoryServiceAsyncStub = field(init=False)
    _pipeline: Pipeline | None = field(init=False)
    _servers: ServersChannel | None = field(init=False)
    _throttle: Throttle = field(init=False)

    def __post_init__(self) -> None:
        self._throttle = Throttle(self.clock)
        self.stub = memory_service_pb2_grpc.MemoryServiceStub(self.channel)
        self._servers = self.channel if isinstance(self.channel, ServersChannel) else None
        self._pipeline = Pipeline(self.stub, self._leave_draining) if self.coalesce else None

    @property
    def closed(self) -> bool:
        """Whether the client was closed."""
        return self._life.closed

    @property
    def renewed_at(self) -> float:
        """When the newest successful call was sent, which renewed the agent's lease."""
        return self._life.renewed_at

    @renewed_at.setter
    def renewed_at(self, sent: float) -> None:
        self._life.renewed_at = sent

    def fenced(self, fences: Iterable[types_pb2.Fence]) -> Transport:
        """Returns the same way to the server, on which every write is made under some more locks."""
        made = copy.copy(self)
        made.fences = (*self.fences, *fences)
        return made

    async def close(self) -> None:
        """Ends what is under way: whoever waits is told that the client was closed. The channel stays open."""
        self._life.closed = True
        if self._pipeline is not None:
            await self._pipeline.close()

    @property
    def turn(self) -> int:
        """How often the client has moved on to another server."""
        return self._servers.turn if self._servers is not None else 0

    def leave(self, turn: int) -> None:
        """Goes on with another server, if there are several: the one of this turn has failed, or will.

        What is under way there ends there.
        """
        if self._servers is not None and self._servers.leave(turn):
            LOG.debug("%s goes on at %s", self.actor_name, self._servers.address(self._servers.turn))
            if self._pipeline is not None:
                self._pipeline.move()

    def renew_token(self) -> bool:
        """Has calls from here on made with the token as it is now; returns whether that may be another one."""
        if self._servers is None or self._servers.token is None or not self._servers.token.rotates:
            return False
        if self._pipeline is not None:
            # A stream goes on with the token that it was begun with.
            self._pipeline.move()
        return True

    def _leave_draining(self) -> None:
        self.leave(self.turn)

    @property
    def actor_name(self) -> str:
        """Who calls, as ``agent#incarnation``."""
        return actor_name(self.actor.agent_id, self.actor.incarnation)

    def deadline(self, timeout: float | None) -> float:
        """Returns the length of a call's deadline, in seconds.

        Raises:
            InvalidArgument: ``timeout`` is no positive number of seconds.
        """
        if timeout is None:
            return self.timeout
        if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout <= TIMEOUT_MAX:
            raise InvalidArgument(
                f"timeout: {shown(timeout)} is not a number of seconds between 0 and {TIMEOUT_MAX:.0f}"
            )
        return float(timeout)

    async def read(self, method: Method[Reply], request: Any, *, timeout: float | None, namespace: str) -> Reply:
        """Sends a call that changes nothing. ``request`` has a field ``call``."""
        request.call.actor.CopyFrom(self.actor)
        try:
            reply = await self.invoke(method, request, timeout=self.deadline(timeout), namespace=namespace)
        except NoosphereError as error:
            self.progress.refused(namespace, error)
            raise
        self.progress.answered(namespace, reply, getattr(request, "consistency", 0))
        return reply

    async def write(
        self,
        method: Method[Reply],
        request: Any,
        *,
        request_id: str | None,
        timeout: float | None,
        namespace: str,
        wait: float = 0.0,
        ticket: RequestTicket | None = None,
        opened: Callable[[Any], str] | None = None,
    ) -> tuple[Reply, str]:
        """Sends a mutating call, all attempts under one request id.

        Args:
            method: the stub's method.
            request: its request, with a field ``call``.
            request_id: the caller's own UUID, or None for the next number.
            timeout: the deadline with all retries, in seconds, beyond ``wait``.
            namespace: the namespace, for messages.
            wait: how long the server is asked to wait, in seconds.
            ticket: an id that the caller holds and closes; None for one of this call's own.
            opened: tells from a reply which namespace its ``head`` is of, where that is not ``namespace``.

        Returns:
            The reply, and the request id for messages.
        """
        seconds = self.deadline(timeout)
        if ticket is not None:
            held = ticket
        elif request_id is None and not wait and not self.sequencer.has_room:
            began = self.clock()
            held = await self._admitted(seconds)
            seconds = max(seconds - (self.clock() - began), 0.0)
        else:
            held = self.sequencer.apart() if request_id is None and wait else self.ticket(request_id)
        try:
            request.call.actor.CopyFrom(self.actor)
            request.call.request_id.CopyFrom(held.wire())
            if self.fences:
                del request.call.fences[:]
                request.call.fences.extend(self.fences)
            call_id = held.describe(self.actor_name)
            reply = await self.invoke(
                method, request, timeout=seconds + wait, namespace=namespace, request_id=call_id, wait=wait, ticket=held
            )
            self.progress.answered(namespace if opened is None else opened(reply), reply)
            return reply, call_id
        except NoosphereError as error:
            self.progress.refused(namespace, error)
            raise
        finally:
            # Answered, refused, out of time or cancelled: from here on nobody retries this call.
            if ticket is None:
                held.close()

    def ticket(self, request_id: str | None = None) -> RequestTicket:
        """Returns the id of a new mutating call; whoever asks for it closes it."""
        return self.sequencer.begin() if request_id is None else explicit(request_id)

    async def _admitted(self, seconds: float) -> RequestTicket:
        """Returns the id of a mutating call once others have made room for it.

        Raises:
            DeadlineExceeded: not within so many seconds.
        """
        try:
            async with asyncio.timeout(seconds):
                return await self.sequencer.admit()
        except TimeoutError:
            raise DeadlineExceeded(
                f"{OPEN_MAX} writes of this client are under way, and none made room within {seconds:g} s"
            ) from None

    async def invoke(
        self,
        method: Method[Reply],
        request: Any,
        *,
        timeout: float,
        namespace: str = "",
        request_id: str | None = None,
        wait: float = 0.0,
        ticket: RequestTicket | None = None,
    ) -> Reply:
        """Sends a call and repeats it while that is safe and the deadline allows.

        Args:
            method: the stub's method.
            request: its request.
            timeout: the deadline, in seconds.
            namespace: the namespace, for messages.
            request_id: the id of a mutating call, for messages; None if the call changes nothing.
            wait: how long the server is asked to wait, in seconds.
            ticket: the id that the request carries. An attempt that may have been executed is repeated only as
                long as the server certainly knows that id, however long the deadline.

        Raises:
            NoosphereError: the last failure.
        """
        with traced(request):
            _check_size(request, request_id)
            return await self._invoke(method, request, timeout, namespace, request_id, wait, ticket)

    async def _invoke(
        self,
        method: Method[Reply],
        request: Any,
        timeout: float,
        namespace: str,
        request_id: str | None,
        wait: float,
        ticket: RequestTicket | None,
    ) -> Reply:
        began = self.clock()
        end = began + timeout
        attempts = 0
        tried: dict[str, None] = {}
        told: Failure | None = None
        renewed = False
        doubt = ticket is not None and ticket.doubtful_since is not None
        while True:
            self.check_open(request_id, doubt=doubt)
            sent = self.clock()
            until = end if ticket is None else min(end, ticket.repeatable_until(sent))
            turn = self.turn
            if (pause := self._throttle.turn(until - sent)) and not _keeps(request):
                if pause >= until - sent:
                    failure = told or Failure("RESOURCE_EXHAUSTED", "the server has asked this client to slow down")
                    failure = replace(failure, retry_delay=pause)
                    raise self._error(failure, request_id, doubt, attempts, timeout, namespace, self.server)
                await self.sleep(pause)
                sent = self.clock()
            attempts += 1
            try:
                reply = await method(request, timeout=self.retry.attempt_timeout(max(until - sent, 0.001), wait))
            except grpc.aio.AioRpcError as error:
                failure = read_failure(error)
            except AttemptFailed as attempt:
                failure = attempt.failure
                if attempt.unary is not None:
                    method = attempt.unary
                    continue
            except asyncio.CancelledError:
                if ticket is not None:
                    ticket.doubt(sent)
                self.reraise_cancelled(request_id)
            except grpc.aio.UsageError as error:
                outcome: Outcome = "unknown" if doubt and request_id is not None else "not_applied"
                raise ClientClosed("the channel is closed", request_id=request_id, outcome=outcome) from error
            else:
                self._throttle.answered()
                if sent > self.renewed_at:
                    self.renewed_at = sent
                return reply
            if failure.code == "RESOURCE_EXHAUSTED" and failure.retry_delay is not None:
                self._throttle.slow_down(failure.retry_delay, sent)
            if failure.code == "UNAUTHENTICATED" and not renewed and self.renew_token() and self.clock() < until:
                # Refused before anything was done.
                renewed = True
                continue
            if failure.reason:
                told = failure
            if is_ambiguous(failure):
                doubt = True
                if ticket is not None:
                    ticket.doubt(sent)
            if not doubt:
                until = end
            delay = None
            if self._servers is not None:
                tried[self._servers.address(turn)] = None
                if is_elsewhere(failure):
                    self.leave(turn)
            if _repeatable(failure):
                delay = self.retry.next_delay(attempts, until - self.clock(), failure.retry_delay)
            if delay is None:
                where = ", ".join(tried) or self.server
                last = self._error(failure, request_id, doubt, attempts, until - began, namespace, where)
                if told is not None and not failure.reason:
                    # An attempt that ran out of time says nothing of why the earlier ones failed.
                    last.message += f"; an earlier attempt: {told.reason}: {told.message}"
                if until < end and _repeatable(failure):
                    last.message += "; not repeated: the server may soon forget whether it has executed the call"
                raise last
            LOG.debug("attempt %d of %s failed: %s: %s", attempts, request_id, failure.code, failure.message)
            await self.sleep(delay)

    def check_open(self, request_id: str | None = None, *, doubt: bool = False) -> None:
        """Checks that the client is open.

        Args:
            request_id: the call's id, for the error.
            doubt: whether an earlier attempt of a mutating call may have been executed.

        Raises:
            ClientClosed: it is not.
        """
        if self.closed:
            outcome: Outcome = "unknown" if doubt and request_id is not None else "not_applied"
            raise ClientClosed("the client is closed", request_id=request_id, outcome=outcome)

    def reraise_cancelled(self, request_id: str | None = None) -> NoReturn:
        """Re-raises a cancellation; one that closing the channel caused becomes ClientClosed.

        Raises:
            CancelledError: the caller's task was cancelled.
            ClientClosed: nobody cancelled it.
        """
        task = asyncio.current_task()
        if task is not None and task.cancelling() == 0:
            outcome: Outcome = "unknown" if request_id is not None else "not_applied"
            raise ClientClosed("the client was closed during the call", request_id=request_id, outcome=outcome)
        raise  # noqa: PLE0704 - called from an except block only

    def _error(
        self,
        failure: Failure,
        request_id: str | None,
        doubt: bool,
        attempts: int,
        timeout: float,
        namespace: str,
        where: str,
    ) -> NoosphereError:
        outcome = outcome_of(failure, mutating=request_id is not None, doubt=doubt)
        error = to_error(failure, request_id=request_id, outcome=outcome, namespace=namespace)
        if isinstance(error, DeadlineExceeded) or (not failure.reason and failure.code == "UNAVAILABLE"):
            tries = f"{attempts} attempt{'s' if attempts > 1 else ''}"
            kind = "no answer from" if isinstance(error, DeadlineExceeded) else "cannot reach"
            error.message = f"{kind} {where} within {timeout:g} s ({tries}): {self.explain(failure.message)}"
        return error


def _check_size(request: Any, request_id: str | None) -> None:
    # A stream of requests has no size; each of them is its caller's business.
    if isinstance(request, Message) and (size := request.ByteSize()) > REQUEST_BYTES_MAX:
        error = ValueTooLarge(f"request has {size} bytes, the limit is {REQUEST_BYTES_MAX}", request_id=request_id)
        error.field, error.actual, error.limit = "request", size, REQUEST_BYTES_MAX
        raise error


def _keeps(request: Any) -> bool:
    """Tells whether a call keeps what the caller has, or gives it back: it makes room, and does not wait for any."""
    return isinstance(request, Message) and request.DESCRIPTOR.name in _KEEPING


def is_elsewhere(failure: Failure) -> bool:
    """Tells whether what failed so may succeed at another server: this one does not answer, or cannot."""
    return failure.code in {"UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED"}


def _repeatable(failure: Failure) -> bool:
    # ABORTED is never here: what to do about a conflict is the caller's decision.
    if failure.code == "RESOURCE_EXHAUSTED":
        return failure.retry_delay is not None
    # A server that shuts down cancels what it has not begun; a cancellation by our caller never comes this way.
    return is_elsewhere(failure)
