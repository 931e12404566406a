"""For tests of the client: a server that follows a script on the wire, and time that a test moves.

The script plays what a real server does not do on demand: lost replies, refusals to connect, drains.
What a real server answers to real calls is tested against a real server.
"""

from __future__ import annotations

import asyncio
import heapq
import inspect
import itertools
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped, unused-ignore] # ships no py.typed

from noosphere.client._channel import CHANNEL_OPTIONS
from noosphere.client._pipeline import CARRIED
from noosphere.client._retry import RetryPolicy
from noosphere.client._transport import Transport
from noosphere.consistency import CODE_OF, Reason
from noosphere.v1 import fact_service_pb2 as fs
from noosphere.v1 import memory_service_pb2 as ms
from noosphere.v1 import types_pb2 as pb

TWINS = {field: name for name, field in CARRIED.items()}
"""The unary method by the field of a call on a stream."""

STORE_MS = 1_800_000_000_000
"""Store time of scripts that say nothing else, in milliseconds."""

_SERVICES = (ms.DESCRIPTOR.services_by_name["MemoryService"], fs.DESCRIPTOR.services_by_name["FactService"])
QUICK = RetryPolicy(first_delay=0.001, delay_max=0.002, attempt_min=0.05)


@dataclass(frozen=True)
class Fault:
    """Ends a call with a status.

    Attributes:
        code: the gRPC status code by name; empty for that of ``reason``.
        reason: the ErrorInfo's reason; empty for a status without details.
        message: the status message.
        detail: the typed detail.
        retry_delay: the RetryInfo's delay, in seconds.
    """

    code: str = ""
    reason: str = ""
    message: str = "scripted"
    detail: Message | None = None
    retry_delay: float | None = None

    def status(self) -> Any:
        """Returns the ``google.rpc.Status`` for the trailer."""
        status = status_pb2.Status(code=self.status_code.value[0], message=self.message)
        if self.reason:
            status.details.add().Pack(error_details_pb2.ErrorInfo(reason=self.reason, domain="noosphere"))
        if self.detail is not None:
            status.details.add().Pack(self.detail)
        if self.retry_delay is not None:
            retry = error_details_pb2.RetryInfo()
            retry.retry_delay.FromNanoseconds(round(self.retry_delay * 1e9))
            status.details.add().Pack(retry)
        return status

    @property
    def status_code(self) -> grpc.StatusCode:
        """The status code."""
        return grpc.StatusCode[self.code or CODE_OF[Reason(self.reason)].value]


class Silence:
    """A call that is received and never answered."""


SILENCE = Silence()


class End:
    """The end of a stream in good order."""


END = End()

Step = Message | Fault | Silence | End | Callable[[Any], Any]


class ScriptedServer:
    """Answers the calls of each method by the steps of its script, in order, and keeps the requests.

    ``OpenAgent``, ``KeepAgent``, ``CloseAgent`` and ``GetServerInfo`` are answered without a script.

    Attributes:
        requests: what came, by method; the batches of streams under ``Pipeline``.
        streams: how many pipelines were opened.
        last_words: what the next pipeline says once its caller sends nothing more.
        store_ms: store time, as ``GetServerInfo`` tells it.
    """

    def __init__(self) -> None:
        self.address = ""
        self.requests: dict[str, list[Any]] = defaultdict(list)
        self._steps: dict[str, deque[Any]] = defaultdict(deque)
        self._arrivals: dict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(0))
        self._incarnation = 0
        self.streams = 0
        self.store_ms = STORE_MS
        self.last_words: Callable[[], Awaitable[Message]] | None = None

    def script(self, method: str, *steps: Step) -> None:
        """Appends steps for a unary method."""
        assert any(method in service.methods_by_name for service in _SERVICES)
        self._steps[method].extend(steps)

    def forget(self, method: str) -> None:
        """Drops the steps of a method that were not played."""
        self._steps[method].clear()

    def script_watch(self, *streams: Sequence[Any] | asyncio.Queue[Any], method: str = "Watch") -> None:
        """Appends streams; each is a sequence of messages that may end in a fault or in silence, or a queue of them."""
        self._steps[method].extend(streams)

    async def arrival(self, method: str) -> None:
        """Returns once one more call of ``method`` has arrived."""
        await self._arrivals[method].acquire()

    def _receive(self, method: str, request: Any) -> Any:
        self.requests[method].append(request)
        self._arrivals[method].release()
        if self._steps[method]:
            return self._steps[method].popleft()
        return self._default(method, request)

    def _default(self, method: str, request: Any) -> Message | Fault:
        if method == "OpenAgent":
            self._incarnation += 1
            reply = ms.OpenAgentResponse(actor=pb.Actor(agent_id=request.agent_id, incarnation=self._incarnation))
            reply.lease.seconds = 3600
            return reply
        if method == "KeepAgent":
            return ms.KeepAgentResponse()
        if method == "CloseAgent":
            return ms.CloseAgentResponse()
        if method == "GetServerInfo":
            info = ms.GetServerInfoResponse(version="1.2.3", epoch=1)
            info.store_time.FromMilliseconds(self.store_ms)
            return info
        return Fault("UNKNOWN", message=f"the script has no step for {method}")

    async def unary(self, method: str, request: Any, context: Any) -> Any:
        """Plays one step."""
        step = self._receive(method, request)
        if isinstance(step, Silence):
            await asyncio.Event().wait()
        if callable(step):
            step = step(request)
        if inspect.isawaitable(step):
            step = await step
        if isinstance(step, Fault):
            await _abort(context, step)
        return step

    async def stream(self, method: str, request: Any, context: Any) -> AsyncIterator[Any]:
        """Plays one stream."""
        steps = self._receive(method, request)
        if isinstance(steps, asyncio.Queue):
            while True:
                step = await steps.get()
                if isinstance(step, Fault):
                    await _abort(context, step)
                yield step
        for step in (steps,) if isinstance(steps, Fault) else steps:
            if isinstance(step, Silence):
                await asyncio.Event().wait()
            if isinstance(step, Fault):
                await _abort(context, step)
            yield step

    async def pipeline(self, batches: AsyncIterator[ms.PipelineRequest], context: Any) -> AsyncIterator[Any]:
        """Answers each call of a stream by the script of its unary twin, unless ``Pipeline`` has a step of its own.

        Steps of ``Pipeline`` are for whole batches: a fault ends the stream, :data:`END` ends it in good order,
        silence swallows the batch, a message is sent as it is, and a function of the batch returns one of these or
        a list of them.
        """
        self.streams += 1
        answers: asyncio.Queue[Any] = asyncio.Queue()

        async def answer(call: ms.PipelineCall) -> None:
            name = call.WhichOneof("request")
            assert name is not None
            reply = ms.PipelineReply(id=call.id)
            step = self._receive(TWINS[name], getattr(call, name))
            if callable(step):
                step = step(getattr(call, name))
            if isinstance(step, Silence):
                return
            if isinstance(step, Fault):
                reply.status = step.status().SerializeToString()
            else:
                getattr(reply, name).CopyFrom(step)
            answers.put_nowait(ms.PipelineResponse(replies=[reply]))

        async def read() -> None:
            async for batch in batches:
                self.requests["Pipeline"].append(batch)
                self._arrivals["Pipeline"].release()
                if not self._steps["Pipeline"]:
                    for call in batch.calls:
                        await answer(call)
                    continue
                step = self._steps["Pipeline"].popleft()
                if callable(step):
                    step = step(batch)
                for one in step if isinstance(step, list) else [step]:
                    if not isinstance(one, Silence):
                        answers.put_nowait(one)
            if self.last_words is not None:
                last_words, self.last_words = self.last_words, None
                answers.put_nowait(await last_words())
            answers.put_nowait(END)

        reader = asyncio.create_task(read())
        try:
            while not isinstance(said := await answers.get(), End):
                if isinstance(said, Fault):
                    await _abort(context, said)
                yield said
        finally:
            reader.cancel()


async def _abort(context: Any, fault: Fault) -> None:
    trailer = (("grpc-status-details-bin", fault.status().SerializeToString()),)
    await context.abort(fault.status_code, fault.message, trailing_metadata=trailer)


def _handlers(script: ScriptedServer, service: Any) -> grpc.GenericRpcHandler:
    handlers: dict[str, Any] = {}
    for method in service.methods:
        read: Callable[[bytes], Any] = GetMessageClass(method.input_type).FromString
        write: Callable[[Any], bytes] = GetMessageClass(method.output_type).SerializeToString
        if method.client_streaming:
            handlers[method.name] = grpc.stream_stream_rpc_method_handler(script.pipeline, read, write)
        elif method.server_streaming:
            handlers[method.name] = grpc.unary_stream_rpc_method_handler(_stream(script, method.name), read, write)
        else:
            handlers[method.name] = grpc.unary_unary_rpc_method_handler(_unary(script, method.name), read, write)
    return grpc.method_handlers_generic_handler(service.full_name, handlers)


def _unary(script: ScriptedServer, method: str) -> Callable[..., Any]:
    async def handler(request: Any, context: Any) -> Any:
        return await script.unary(method, request, context)

    return handler


def _stream(script: ScriptedServer, method: str) -> Callable[..., AsyncIterator[Any]]:
    # gRPC asks of the function itself whether it is a generator.
    async def handler(request: Any, context: Any) -> AsyncIterator[Any]:
        async for message in script.stream(method, request, context):
            yield message

    return handler


@asynccontextmanager
async def scripted_server(address: str = "127.0.0.1:0") -> AsyncIterator[ScriptedServer]:
    """Serves a script on a free port."""
    script = ScriptedServer()
    server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
    server.add_generic_rpc_handlers(tuple(_handlers(script, service) for service in _SERVICES))
    script.address = f"127.0.0.1:{server.add_insecure_port(address)}"
    await server.start()
    try:
        yield script
    finally:
        await server.stop(None)


class ManualTime:
    """A monotonic clock in seconds that moves only when a test says so."""

    def __init__(self) -> None:
        self._now = 1_000.0
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._sleeping = asyncio.Condition()

    def clock(self) -> float:
        """Returns the time, in seconds."""
        return self._now

    async def sleep(self, seconds: float) -> None:
        """Returns once the clock has moved so far."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, next(self._order), future))
        async with self._sleeping:
            self._sleeping.notify_all()
        await future

    async def sleeper(self) -> float:
        """Waits until somebody sleeps; returns for how long yet, in seconds."""
        async with self._sleeping:
            await self._sleeping.wait_for(self._due)
        return self._sleepers[0][0] - self._now

    def advance(self, seconds: float) -> None:
        """Moves the clock and wakes who is due."""
        self._now += seconds
        while self._sleepers and self._sleepers[0][0] <= self._now:
            future = heapq.heappop(self._sleepers)[2]
            if not future.done():
                future.set_result(None)

    def _due(self) -> bool:
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        return bool(self._sleepers)


@asynccontextmanager
async def manual_transport(script: ScriptedServer, time: ManualTime) -> AsyncIterator[Transport]:
    """A transport on a script, its clock and sleep in the test's hand, as ``tester#1``."""
    async with grpc.aio.insecure_channel(script.address, options=CHANNEL_OPTIONS) as channel:
        transport = Transport(channel, script.address, 5.0, QUICK, time.clock, time.sleep)
        transport.actor.CopyFrom(pb.Actor(agent_id="tester", incarnation=1))
        yield transport


def live_record(key: str, data: bytes, *, dot: int = 7, actor: str = "other#1", version: int = 0) -> pb.Record:
    """Returns a record with one JSON value."""
    value = pb.LiveValue(dot=dot, actor=actor, value=pb.Value(data=data, encoding=pb.ENCODING_JSON))
    value.write_time.FromSeconds(1_800_000_000)
    return pb.Record(key=key, version=version or dot, context=pb.CausalContext(prefix=version or dot), values=[value])


def got(key: str, data: bytes, *, dot: int = 7) -> ms.GetResponse:
    """Returns the answer to a read of a live key."""
    return ms.GetResponse(record=live_record(key, data, dot=dot), head=dot)


def put_applied(revision: int, *, replayed: bool = False) -> ms.PutResponse:
    """Returns the answer to an applied put."""
    applied = pb.Applied(
        revision=revision, version=revision, context=pb.CausalContext(prefix=revision), replayed=replayed
    )
    return ms.PutResponse(applied=applied, head=revision)


def put_refused(reason: Reason, current: pb.Record) -> ms.PutResponse:
    """Returns the answer to a refused put."""
    unseen = [pb.DotInfo(dot=v.dot, actor=v.actor, write_time=v.write_time) for v in current.values]
    refused = pb.NotApplied(
        reason=reason.value, message="scripted", current=current, unseen=unseen, as_of=current.version
    )
    return ms.PutResponse(not_applied=refused, head=current.version)
