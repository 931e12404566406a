"""Pipeline: many calls on one stream of batches, each authorised, limited and answered as its unary twin.

In Python a message on an open stream costs about half a unary call, and an operation inside a batch only a
fraction of that. A call runs at once as far as it gets without waiting, which is to the end for a read of
what is in memory; one that waits goes on beside the others, so that writes share a sync.
Flow control works both ways: a stream with too many calls under way, or too many answers that its caller
does not take, is not read any further.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Generator, Mapping
from functools import partial
from typing import Any

import grpc
import structlog
from google.protobuf.message import Message
from google.rpc import code_pb2, status_pb2

from noosphere.consistency import Refusal, exhausted, invalid, too_large
from noosphere.v1 import memory_service_pb2 as pb

from ..memory.core import draining
from ..memory.signals import HeadSignals
from .errors import status_of
from .gate import Gate
from .times import duration_ms

log = structlog.get_logger(__name__)

CALLS_PER_BATCH_MAX = 256
IN_FLIGHT_MAX = 1024
MESSAGE_BYTES_MAX = 1024 * 1024
"""A message of answers is not filled any further beyond this."""
REPLY_BYTES_MAX = 4 * 1024 * 1024 - 64 * 1024
"""The largest single answer: gRPC's default limit of a message elsewhere is 4 MiB, and above it a stream ends."""
UNSENT_BYTES_MAX = 4 * 1024 * 1024
"""While so many bytes of answers wait for the caller to take them, no further call is begun."""
LISTS_MAX = 4
"""How many lists are made at a time: their answers are large."""
TIMEOUT_MS_DEFAULT = 60_000
TIMEOUT_MS_MAX = 24 * 3600 * 1000
TURN_SECONDS = 0.001
"""After so long without waiting for anything, a stream lets others have their turn."""
WORTHWHILE_ANSWERS = 32
BUSY_CALLS = 16
GATHER_SECONDS = 0.001
"""While so many calls are under way, answers leave at most so often: a message costs as much as ten calls."""
LINGER_SECONDS = 1.0
"""How long a stream that was told of the shutdown is still read if its caller does not end it."""

Handler = Callable[[Any], Awaitable[Any]]


class PipelineStream:
    """One stream; made for each.

    Args:
        handlers: what answers each kind of request, by its field name; raises ``Refusal``.
        signals: tells when the process is shutting down.
    """

    def __init__(self, handlers: Mapping[str, Handler], signals: HeadSignals) -> None:
        self._handlers = handlers
        self._signals = signals
        self._loop = asyncio.get_running_loop()
        self._under_way: dict[int, _Waiting | None] = {}
        self._messages: deque[tuple[pb.PipelineResponse, int]] = deque()
        self._unsent = 0
        self._unsent_bytes = 0
        self._lists = asyncio.Semaphore(LISTS_MAX)
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = math.inf
        self._reading = True
        self._inside_batch = False
        self._resting = False
        self._lingers = True
        self._failure: Exception | None = None

    async def run(self, requests: AsyncIterator[pb.PipelineRequest]) -> AsyncGenerator[pb.PipelineResponse, None]:
        """Answers batches until the caller ends its side, or sends one that is none; and then what is under way.

        Once the process begins to shut down the caller is told so, calls that still come are refused, and the
        stream ends soon even if the caller does not end it. Every call of a batch that was read is answered.

        Raises:
            Refusal: INVALID_FIELD or VALUE_TOO_LARGE for a batch that cannot be told apart into calls.
        """
        reader = asyncio.create_task(self._read(requests), name="noosphere-pipeline-reader")
        unsubscribe = self._signals.on_drain(self._wake.set)
        linger: asyncio.TimerHandle | None = None
        sent_at = -math.inf
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                if len(self._under_way) >= BUSY_CALLS and (early := sent_at + GATHER_SECONDS - self._loop.time()) > 0:
                    await asyncio.sleep(early)
                while self._messages and not self._resting:
                    sent_at = self._loop.time()
                    message, size = self._messages.popleft()
                    yield message
                    self._unsent -= len(message.replies)
                    self._unsent_bytes -= size
                    self._room.set()
                if self._signals.draining and linger is None:
                    linger = self._loop.call_later(LINGER_SECONDS, self._end_linger)
                    yield pb.PipelineResponse(draining=True)
                if self._under_way or self._messages or self._inside_batch:
                    continue
                if self._failure is not None:
                    raise self._failure
                if not self._reading or not self._lingers:
                    return
        finally:
            unsubscribe()
            if linger is not None:
                linger.cancel()
            if self._timer is not None:
                self._timer.cancel()
            tasks = [reader, *(waiting.task for waiting in self._under_way.values() if waiting is not None)]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _end_linger(self) -> None:
        self._lingers = False
        self._wake.set()

    async def _read(self, requests: AsyncIterator[pb.PipelineRequest]) -> None:
        try:
            async for batch in requests:
                if len(batch.calls) > CALLS_PER_BATCH_MAX:
                    raise too_large("calls", len(batch.calls), CALLS_PER_BATCH_MAX, "entries")
                self._inside_batch = True
                turn_ends = self._loop.time() + TURN_SECONDS
                for call in batch.calls:
                    while (
                        len(self._under_way) + self._unsent >= IN_FLIGHT_MAX or self._unsent_bytes >= UNSENT_BYTES_MAX
                    ):
                        self._room.clear()
                        self._wake.set()
                        await self._room.wait()
                    self._begin(call)
                    if self._loop.time() > turn_ends:
                        # Enough answers leave, so that the caller works on them while we go on; a few wait for the
                        # rest of the batch: callers who are answered together call together again.
                        self._resting = self._unsent < WORTHWHILE_ANSWERS
                        if not self._resting:
                            self._wake.set()
                        await asyncio.sleep(0)
                        self._resting = False
                        turn_ends = self._loop.time() + TURN_SECONDS
                self._inside_batch = False
                self._wake.set()
        except Exception as error:
            self._failure = error
        finally:
            self._reading = self._inside_batch = False
            self._wake.set()

    def _begin(self, call: pb.PipelineCall) -> None:
        """Runs a call as far as it gets without waiting; if that is not to its end, a task goes on with it."""
        number = call.id
        if number in self._under_way:
            raise invalid("calls.id", f"{number} is the number of a call that is still under way")
        timeout_ms = TIMEOUT_MS_DEFAULT
        self._under_way[number] = None
        try:
            if self._signals.draining:
                raise draining()
            if call.HasField("timeout"):
                timeout_ms = duration_ms("calls.timeout", call.timeout)
                if not 0 < timeout_ms <= TIMEOUT_MS_MAX:
                    raise invalid("calls.timeout", f"{timeout_ms} ms is not between 1 and {TIMEOUT_MS_MAX} ms")
        except Refusal as refusal:
            self._refuse(number, status_of(refusal))
            return
        coroutine = self._answer(call)
        # A context of its own from the beginning, as if it had been a task's.
        context = contextvars.copy_context()
        try:
            waits_for = context.run(coroutine.send, None)
        except StopIteration:
            return
        task = self._loop.create_task(_Begun(coroutine, waits_for), context=context)
        due = self._loop.time() + timeout_ms / 1000
        self._under_way[number] = _Waiting(task, due, timeout_ms)
        if due < self._timer_due:
            self._arm(due)

    async def _answer(self, call: pb.PipelineCall) -> None:
        kind = call.WhichOneof("request")
        try:
            handler = self._handlers.get(kind or "")
            if handler is None or kind is None:
                raise invalid("calls.request", "is required, of a kind that this server knows")
            if kind == "list":
                handler = partial(self._list, handler)
            request = getattr(call, kind)
            response = await handler(request)
            size = response.ByteSize()
            if size > REPLY_BYTES_MAX:
                raise exhausted("calls.reply", size, REPLY_BYTES_MAX, "too large for a stream, make the call by itself")
        except Refusal as refusal:
            self._refuse(call.id, status_of(refusal))
        except Exception as error:
            # The message may hold a caller's value, so it stays in the server's own log.
            log.error("internal error", method=kind, exc_info=error)
            message = f"internal error in {kind}: {type(error).__name__}"
            self._refuse(call.id, status_pb2.Status(code=code_pb2.INTERNAL, message=message))
        else:
            self._reply(call.id, kind, response, size)

    async def _list(self, handler: Handler, request: Any) -> Any:
        async with self._lists:
            return await handler(request)

    def _refuse(self, number: int, status: status_pb2.Status) -> None:
        data = status.SerializeToString()
        self._reply(number, "status", data, len(data))

    def _reply(self, number: int, kind: str, response: Message | bytes, size: int) -> None:
        if number not in self._under_way:
            return  # out of time, and answered so
        waiting = self._under_way.pop(number)
        if not self._messages or self._messages[-1][1] + size > MESSAGE_BYTES_MAX:
            self._messages.append((pb.PipelineResponse(), 0))
        message, held = self._messages[-1]
        message.replies.add(id=number, **{kind: response})
        self._messages[-1] = message, held + size
        self._unsent += 1
        self._unsent_bytes += size
        if waiting is not None:
            # Whoever runs in this turn as well, e.g. because of the same sync, is answered by the same message.
            self._wake.set()

    def _arm(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = due
        self._timer = self._loop.call_at(due, self._expire)

    def _expire(self) -> None:
        """Answers the calls that are out of time, and sets the timer for the next one."""
        now, following = self._loop.time(), math.inf
        for number, waiting in list(self._under_way.items()):
            if waiting is None:
                continue
            if waiting.due <= now:
                message = f"not answered within {waiting.timeout_ms} ms; it may still be applied"
                self._refuse(number, status_pb2.Status(code=code_pb2.DEADLINE_EXCEEDED, message=message))
                waiting.task.cancel()
            else:
                following = min(following, waiting.due)
        self._timer, self._timer_due = None, math.inf
        if following < math.inf:
            self._arm(following)


class _Waiting:
    """A call that waits for something, e.g. a sync."""

    __slots__ = ("due", "task", "timeout_ms")

    def __init__(self, task: asyncio.Task[None], due: float, timeout_ms: int) -> None:
        self.task = task
        self.due = due
        self.timeout_ms = timeout_ms


class _Begun(Coroutine[Any, Any, None]):
    """A coroutine that was begun without a task and has come to wait for something, for a task to go on with.

    No generator: one that is cancelled before its first step ends without having run, and would leave the coroutine
    where it waits, with all that it holds.
    """

    __slots__ = ("_coroutine", "_told", "_waits_for")

    def __init__(self, coroutine: Coroutine[Any, Any, None], waits_for: Any) -> None:
        self._coroutine = coroutine
        self._waits_for = waits_for
        self._told = False

    def send(self, value: Any) -> Any:
        """Tells the task first what is waited for, and goes on from then on."""
        if self._told:
            return self._coroutine.send(value)
        self._told = True
        return self._waits_for

    def throw(self, *error: Any) -> Any:
        """Goes on with an error; one that comes before anything else ends what is waited for, as a task's does."""
        if not self._told:
            self._told = True
            if self._waits_for is not None:
                self._waits_for.cancel()
        return self._coroutine.throw(*error)

    def close(self) -> None:
        """Ends it."""
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, None]:
        """Not offered: it is for a task."""
        raise NotImplementedError


def handlers_of(service: Any, names: Mapping[str, str], gate: Gate, prefix: str) -> Mapping[str, Handler]:
    """Returns a service's methods without what makes them gRPC methods.

    Args:
        service: the servicer.
        names: method name by field name.
        gate: what each of them passes.
        prefix: what full names begin with, ``/noosphere.v1.MemoryService/``.
    """

    def bind(name: str) -> Handler:
        method = getattr(type(service), name).__wrapped__
        return gate.passing_inside(prefix + name, lambda request: method(service, request, _NO_CONTEXT))

    return {field: bind(name) for field, name in names.items()}


# No handler in a pipeline touches its context: there is no call of its own to touch.
_NO_CONTEXT: grpc.aio.ServicerContext[Any, Any] | None = None
