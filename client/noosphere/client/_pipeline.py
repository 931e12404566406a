"""Coalescing: concurrent calls share the messages of one stream, as Redis clients share a connection.

A message costs far more than a call inside it, so calls made in the same turn of the event loop leave in
one batch, and so do those that come while a batch is on its way. A single call takes the stream too, on which
it takes about two thirds of a unary call's time. To a caller nothing differs from a unary
call: it has its own deadline, its own error, and exactly its own answer, found by a number that is never
used twice. A caller that is cancelled disturbs nobody; its answer is dropped when it comes.

When a stream fails, each call under way on it fails as ``UNAVAILABLE``, and whoever made it repeats it
under its request id. When the server announces the end of a stream, new calls take another one while the
old one finishes. A server without ``Pipeline`` is called unary from then on.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.duration_pb2 import Duration

from noosphere.v1 import errors_pb2
from noosphere.v1 import memory_service_pb2 as ms

from ._background import noticed
from ._status import Failure, read_failure, read_status

if TYPE_CHECKING:
    # Exists for type checkers only; at run time a stub is asynchronous if its channel is.
    from noosphere.v1.memory_service_pb2_grpc import MemoryServiceAsyncStub

CALLS_PER_BATCH_MAX = 256
BATCH_BYTES_MAX = 1024 * 1024 - 16 * 1024
"""Bytes of the calls of one batch, below the 1 MiB of the contract by the room for their numbers."""
CALL_BYTES_MAX = 256 * 1024
"""A call larger than this goes unary: it gains nothing, and one that is refused whole must not take others along."""
IN_FLIGHT_MAX = 1024
WORTHWHILE_CALLS = 32
BUSY_CALLS = 16
GATHER_SECONDS = 0.001
"""While so many calls are under way, batches leave at most so often: many callers fall into step again, whom
answers in small groups have scattered, and a message costs as much as ten calls."""
TICKS_PER_SECOND = 64
"""Deadlines are told to the server in these steps, rounded up; ours are exact."""

CARRIED: Mapping[str, str] = {
    "Get": "get",
    "BatchGet": "batch_get",
    "List": "list",
    "Put": "put",
    "Delete": "delete",
    "Merge": "merge",
    "Transact": "transact",
    "Commit": "commit",
    "Renew": "renew",
    "Release": "release",
    "Complete": "complete",
}
"""What the stream carries: the field of a call by the name of its unary twin."""

_Call = grpc.aio.StreamStreamCall[ms.PipelineRequest, ms.PipelineResponse]


class AttemptFailed(Exception):
    """One attempt of a call failed.

    Attributes:
        failure: why.
        unary: how to make the call instead, at once, because the stream cannot carry it; else None.
    """

    def __init__(self, failure: Failure, unary: Callable[..., Awaitable[Any]] | None = None) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.unary = unary


class _Pending:
    """A call that waits for its answer."""

    __slots__ = ("due", "future", "method", "request", "size", "ticks")

    def __init__(
        self, method: CoalescedMethod, request: Any, size: int, due: float, ticks: int, future: asyncio.Future[Any]
    ) -> None:
        self.method = method
        self.request = request
        self.size = size
        self.due = due
        self.ticks = ticks
        self.future = future

    def fail(self, failure: Failure, unary: Callable[..., Awaitable[Any]] | None = None) -> None:
        """Fails the attempt, unless nobody waits for it any more."""
        if not self.future.done():
            self.future.set_exception(AttemptFailed(failure, unary))


class CoalescedMethod:
    """A method of the stub whose calls share a stream; called like its unary twin.

    It raises ``AttemptFailed`` where the twin raises ``AioRpcError``.
    """

    __slots__ = ("_pipeline", "field", "unary")

    def __init__(self, pipeline: Pipeline, field: str, unary: Callable[..., Awaitable[Any]]) -> None:
        self._pipeline = pipeline
        self.field = field
        self.unary = unary

    def __call__(self, request: Any, *, timeout: float | None = None) -> Awaitable[Any]:
        """Sends one attempt."""
        return self._pipeline.call(self, request, timeout)


class Pipeline:
    """The calls of one client on a stream that is opened when the first is made. Bound to one event loop.

    At most ``IN_FLIGHT_MAX`` calls are under way on a stream; further ones wait for their turn within
    their own deadlines.

    Args:
        stub: the client's stub; its methods that the stream carries are replaced by coalescing ones.
        on_draining: told when the server announces the end of a stream, before another is opened.
    """

    def __init__(self, stub: MemoryServiceAsyncStub, on_draining: Callable[[], None] = lambda: None) -> None:
        self._open_stream = stub.Pipeline
        self._on_draining = on_draining
        self._queue: deque[_Pending] = deque()
        self._streams: set[_Stream] = set()
        self._current: _Stream | None = None
        self._number = 0
        self._supported = True
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = math.inf
        for name, field in CARRIED.items():
            setattr(stub, name, CoalescedMethod(self, field, getattr(stub, name)))

    def call(self, method: CoalescedMethod, request: Any, timeout: float | None) -> Awaitable[Any]:
        """Queues one attempt; see :class:`CoalescedMethod`."""
        size = request.ByteSize()
        if size > CALL_BYTES_MAX or not self._supported or self._closed:
            return method.unary(request, timeout=timeout)
        future: asyncio.Future[Any] = self._loop.create_future()
        due, ticks = math.inf, 0
        if timeout is not None:
            due, ticks = self._loop.time() + timeout, int(timeout * TICKS_PER_SECOND) + 1
            if due < self._timer_due:
                self._arm(due)
        self._queue.append(_Pending(method, request, size, due, ticks, future))
        if self._current is None:
            self._current = _Stream(self, self._open_stream())
            self._streams.add(self._current)
        self._current.wake()
        return future

    async def close(self) -> None:
        """Ends the streams; whoever still waits for an answer is cancelled."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        waiting = [*self._queue, *(pending for stream in self._streams for pending in stream.pending.values())]
        self._queue.clear()
        for pending in waiting:
            pending.future.cancel()
        await asyncio.gather(*(stream.close() for stream in tuple(self._streams)))

    def take(self, room: int) -> tuple[ms.PipelineRequest, dict[int, _Pending]]:
        """Returns the next batch, of at most ``room`` calls, and the calls by their numbers; may be empty."""
        queue, size = self._queue, 0
        taken: dict[int, _Pending] = {}
        batch = ms.PipelineRequest()
        add = batch.calls.add
        number, ticks, timeout = self._number, 0, None
        room = min(room, CALLS_PER_BATCH_MAX)
        while queue and room:
            pending = queue[0]
            if pending.future.done():
                # Cancelled or out of time before it was sent.
                queue.popleft()
                continue
            size += pending.size
            if size > BATCH_BYTES_MAX and taken:
                break
            queue.popleft()
            number += 1
            room -= 1
            if pending.ticks != ticks:
                ticks = pending.ticks
                timeout = Duration(
                    seconds=ticks // TICKS_PER_SECOND,
                    nanos=ticks % TICKS_PER_SECOND * (1_000_000_000 // TICKS_PER_SECOND),
                )
            add(id=number, timeout=timeout, **{pending.method.field: pending.request})
            taken[number] = pending
        self._number = number
        return batch, taken

    @property
    def waiting(self) -> int:
        """How many calls wait to be sent."""
        return len(self._queue)

    def retire(self, stream: _Stream) -> None:
        """Sends nothing more on a stream that is about to end; what waits takes another one."""
        if self._current is stream:
            self._current = None
            if self._queue and not self._closed:
                self._current = _Stream(self, self._open_stream())
                self._streams.add(self._current)
                self._current.wake()

    def draining(self, stream: _Stream) -> None:
        """Leaves a stream whose server is about to end it."""
        self._on_draining()
        self.retire(stream)

    def move(self) -> None:
        """Sends what comes from here on on another stream: the channel leads elsewhere now."""
        if self._current is not None:
            self._current.finish()

    def ended(self, stream: _Stream, failure: Failure) -> None:
        """Fails what an ended stream has left unanswered."""
        self._streams.discard(stream)
        unary = failure.code == "UNIMPLEMENTED" and not stream.answered
        if unary:
            self._supported = False
            for pending in self._queue:
                pending.fail(failure, pending.method.unary)
            self._queue.clear()
        for pending in stream.pending.values():
            pending.fail(failure, pending.method.unary if unary else None)
        stream.pending.clear()
        self.retire(stream)

    def _arm(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = due
        self._timer = self._loop.call_at(due, self._expire)

    def _expire(self) -> None:
        """Fails the calls that are out of time, and sets the timer for the next one."""
        now, following = self._loop.time(), math.inf
        late = Failure("DEADLINE_EXCEEDED", "the answer did not come in time")
        for calls in (self._queue, *(stream.pending.values() for stream in self._streams)):
            for pending in calls:
                if pending.future.done():
                    continue
                if pending.due <= now:
                    pending.fail(late)
                elif pending.due < following:
                    following = pending.due
        for stream in tuple(self._streams):
            stream.abandon_if_idle()
        self._timer, self._timer_due = None, math.inf
        if following < math.inf:
            self._arm(following)


class _Stream:
    """One stream: a task that sends batches and a task that hands out answers."""

    def __init__(self, pipeline: Pipeline, call: _Call) -> None:
        self.pending: dict[int, _Pending] = {}
        self.answered = False
        self._pipeline = pipeline
        self._call = call
        self._wake: asyncio.Future[None] | None = None
        self._retired = False
        self._sender = asyncio.create_task(self._send(), name="noosphere pipeline sender")
        self._receiver = asyncio.create_task(self._receive(), name="noosphere pipeline receiver")
        # A stream on which nothing is sent any more must not take calls.
        noticed(self._sender, lambda _: call.cancel())
        noticed(self._receiver)

    def wake(self) -> None:
        """Has the queue looked at once everybody who runs in this turn of the event loop has run."""
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def finish(self) -> None:
        """Sends nothing more; the stream ends once what is under way on it was answered, or given up."""
        self._retired = True
        self.abandon_if_idle()
        self._pipeline.retire(self)
        self.wake()

    def abandon_if_idle(self) -> None:
        """Ends the stream if nothing more is to come on it: a server that hangs would never do so."""
        if self._retired and all(waiting.future.done() for waiting in self.pending.values()):
            self._call.cancel()

    async def close(self) -> None:
        """Ends the stream without waiting for answers."""
        self._call.cancel()
        self._sender.cancel()
        self._receiver.cancel()
        await asyncio.wait([self._sender, self._receiver])

    async def _send(self) -> None:
        loop = asyncio.get_running_loop()
        sent_at = -math.inf
        # The reader tells how the stream ended; a write that fails knows no more.
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError, grpc.aio.UsageError):
            while not self._retired:
                room = IN_FLIGHT_MAX - len(self.pending)
                if room <= 0 or not self._pipeline.waiting:
                    self._wake = loop.create_future()
                    await self._wake
                    continue
                if len(self.pending) >= BUSY_CALLS and self._pipeline.waiting < WORTHWHILE_CALLS:
                    early = sent_at + GATHER_SECONDS - loop.time()
                    if early > 0:
                        await asyncio.sleep(early)
                        continue
                batch, taken = self._pipeline.take(room)
                if taken:
                    self.pending.update(taken)
                    sent_at = loop.time()
                    await self._call.write(batch)
            await self._call.done_writing()

    async def _receive(self) -> None:
        failure = Failure("UNAVAILABLE", "the server ended the stream")
        try:
            while True:
                message = await self._call.read()
                if not isinstance(message, ms.PipelineResponse):
                    break
                self._hand_out(message)
        except grpc.aio.AioRpcError as error:
            failure = _of_stream(read_failure(error), self.answered)
        except grpc.aio.UsageError:
            failure = Failure("UNAVAILABLE", "the channel is closed")
        finally:
            self._retired = True
            self.wake()
            self._pipeline.ended(self, failure)

    def _hand_out(self, message: ms.PipelineResponse) -> None:
        self.answered = True
        replies, pending = message.replies, self.pending
        # A part of a message keeps all of it in memory; what is handed out must not keep its neighbours.
        alone = len(replies) == 1
        for reply in replies:
            waiting = pending.pop(reply.id, None)
            if waiting is None or waiting.future.done():
                continue
            field = reply.WhichOneof("response")
            if field == waiting.method.field:
                answer = getattr(reply, field)
                if not alone:
                    own = type(answer)()
                    own.CopyFrom(answer)
                    answer = own
                waiting.future.set_result(answer)
            else:
                _refuse(waiting, reply)
        if message.draining and not self._retired:
            self._retired = True
            self._pipeline.draining(self)
        self.wake()


def _refuse(waiting: _Pending, reply: ms.PipelineReply) -> None:
    if reply.WhichOneof("response") != "status":
        waiting.fail(Failure("INTERNAL", f"call {reply.id} was answered by something else"))
        return
    failure = read_status(reply.status)
    detail = failure.detail
    too_large = isinstance(detail, errors_pb2.LimitDetail) and detail.field == "calls.reply"
    waiting.fail(failure, waiting.method.unary if too_large else None)


def _of_stream(failure: Failure, answered: bool) -> Failure:
    """Returns what the failure of a stream means to each call under way on it."""
    if not answered and failure.code in {"UNIMPLEMENTED", "UNAUTHENTICATED", "PERMISSION_DENIED"}:
        return failure
    # Whatever the stream failed of, nobody knows of a single call whether it was executed.
    message = failure.message if failure.code == "UNAVAILABLE" else f"{failure.code}: {failure.message}"
    return Failure("UNAVAILABLE", f"the stream ended: {message}", retry_delay=failure.retry_delay)
