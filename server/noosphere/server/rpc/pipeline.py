"""Pipeline: many calls on one stream of batches, each authorised, limited and answered as its unary twin.

In Python a message on an open stream costs about half a unary call, and an operation inside a batch only a
fraction of that. Reads are answered as they come; writes run side by side, so that they share a sync.
Flow control works both ways: a stream with too many calls under way is not read any further, and answers
that the caller does not take pile up only as far as that.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import grpc
import structlog
from google.rpc import code_pb2, status_pb2

from noosphere.consistency import Refusal, invalid, too_large
from noosphere.v1 import memory_service_pb2 as pb

from ..memory.signals import HeadSignals
from .errors import status_of
from .times import duration_ms

log = structlog.get_logger(__name__)

CALLS_PER_BATCH_MAX = 256
IN_FLIGHT_MAX = 1024
REPLY_BYTES_MAX = 1024 * 1024
TIMEOUT_MS_DEFAULT = 60_000
TIMEOUT_MS_MAX = 24 * 3600 * 1000
_INLINE = frozenset({"get", "batch_get"})

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
        self._replies: list[pb.PipelineReply] = []
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._under_way: set[int] = set()
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._reading = True
        self._failure: Refusal | None = None

    async def run(self, requests: AsyncIterator[pb.PipelineRequest]) -> AsyncGenerator[pb.PipelineResponse, None]:
        """Answers batches until the caller ends its side or the server drains.

        Raises:
            Refusal: INVALID_FIELD or VALUE_TOO_LARGE for a batch that cannot be told apart into calls; what
                was under way then has an unknown outcome.
        """
        reader = asyncio.create_task(self._read(requests), name="noosphere-pipeline-reader")
        unsubscribe = self._signals.on_drain(self._wake.set)
        told_draining = False
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._replies:
                    yield pb.PipelineResponse(replies=self._take())
                if self._failure is not None:
                    raise self._failure
                if self._signals.draining and not told_draining:
                    told_draining = True
                    self._reading = False
                    reader.cancel()
                    yield pb.PipelineResponse(draining=True)
                if not self._reading and not self._under_way and not self._replies:
                    return
        finally:
            unsubscribe()
            reader.cancel()
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(reader, *self._tasks.values(), return_exceptions=True)

    async def _read(self, requests: AsyncIterator[pb.PipelineRequest]) -> None:
        try:
            async for batch in requests:
                if len(batch.calls) > CALLS_PER_BATCH_MAX:
                    raise too_large("calls", len(batch.calls), CALLS_PER_BATCH_MAX, "entries")
                for call in batch.calls:
                    await self._begin(call)
                self._wake.set()
        except Refusal as refusal:
            self._failure = refusal
        finally:
            self._reading = False
            self._wake.set()

    async def _begin(self, call: pb.PipelineCall) -> None:
        if call.id in self._under_way:
            raise invalid("calls.id", f"{call.id} is the number of a call that is still under way")
        while len(self._under_way) >= IN_FLIGHT_MAX:
            self._room.clear()
            self._wake.set()
            await self._room.wait()
        self._under_way.add(call.id)
        kind = call.WhichOneof("request")
        if kind in _INLINE:
            await self._answer(call, kind)
            return
        task = asyncio.create_task(self._answer_in_time(call, kind))
        self._tasks[call.id] = task

    async def _answer_in_time(self, call: pb.PipelineCall, kind: str | None) -> None:
        try:
            timeout_ms = duration_ms("calls.timeout", call.timeout) if call.HasField("timeout") else TIMEOUT_MS_DEFAULT
            if not 0 < timeout_ms <= TIMEOUT_MS_MAX:
                raise invalid("calls.timeout", f"{timeout_ms} ms is not between 1 and {TIMEOUT_MS_MAX} ms")
            async with asyncio.timeout(timeout_ms / 1000):
                await self._answer(call, kind)
        except Refusal as refusal:
            self._reply(pb.PipelineReply(id=call.id, status=status_of(refusal).SerializeToString()))
        except TimeoutError:
            message = f"not answered within {timeout_ms} ms; it may still be applied"
            self._reply(_failed(call.id, code_pb2.DEADLINE_EXCEEDED, message))

    async def _answer(self, call: pb.PipelineCall, kind: str | None) -> None:
        try:
            handler = self._handlers.get(kind or "")
            if handler is None or kind is None:
                raise invalid("calls.request", "is required")
            response = await handler(getattr(call, kind))
            reply = pb.PipelineReply(id=call.id)
            getattr(reply, kind).CopyFrom(response)
        except Refusal as refusal:
            reply = pb.PipelineReply(id=call.id, status=status_of(refusal).SerializeToString())
        except Exception as error:
            # The message may hold a caller's value, so it stays in the server's own log.
            log.error("internal error", method=kind, exc_info=error)
            reply = _failed(call.id, code_pb2.INTERNAL, f"internal error in {kind}: {type(error).__name__}")
        self._reply(reply)

    def _reply(self, reply: pb.PipelineReply) -> None:
        self._tasks.pop(reply.id, None)
        self._replies.append(reply)
        self._wake.set()

    def _take(self) -> list[pb.PipelineReply]:
        """Returns the answers of the next message; at least one, and no more than fit."""
        size = count = 0
        for reply in self._replies:
            size += reply.ByteSize()
            if count and size > REPLY_BYTES_MAX:
                break
            count += 1
            self._under_way.discard(reply.id)
        taken, self._replies = self._replies[:count], self._replies[count:]
        if len(self._under_way) < IN_FLIGHT_MAX:
            self._room.set()
        return taken


def _failed(call_id: int, code: int, message: str) -> pb.PipelineReply:
    return pb.PipelineReply(id=call_id, status=status_pb2.Status(code=code, message=message).SerializeToString())


def handlers_of(service: Any, names: Mapping[str, str]) -> Mapping[str, Handler]:
    """Returns a service's methods without what makes them gRPC methods.

    Args:
        service: the servicer.
        names: method name by field name.
    """

    def bind(name: str) -> Handler:
        method = getattr(type(service), name).__wrapped__
        return lambda request: method(service, request, _NO_CONTEXT)

    return {field: bind(name) for field, name in names.items()}


# No handler in a pipeline touches its context: there is no call of its own to touch.
_NO_CONTEXT: grpc.aio.ServicerContext[Any, Any] | None = None
