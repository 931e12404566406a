"""A third way to the same API: every call that a Pipeline carries goes through one stream of it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
from google.protobuf.message import Message
from google.rpc import status_pb2
from tests.support.statuses import STATUS_KEY, Refused, refused
from tests.support.transport import CALL_SECONDS_MAX, MEMORY, Response, SocketTransport, Stream

from noosphere.v1 import memory_service_pb2 as pb

CARRIED = {
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
"""The field of a pipelined call by the name of its unary twin."""

CODES = {code.value[0]: code for code in grpc.StatusCode}

BATCH_CALLS_MAX = 256
BATCH_BYTES_MAX = 1_000_000


def refused_in(status: bytes) -> Refused:
    """Returns the error in an answer, as its unary twin would have ended."""
    found = status_pb2.Status.FromString(status)
    trailers = ((STATUS_KEY, status),) if found.details else ()
    return refused(CODES[found.code], found.message, trailers)


class PipelinedTransport:
    """Calls through one stream, with as many in a message as wait; others as ``inner`` does them."""

    def __init__(self, inner: SocketTransport) -> None:
        self._inner = inner
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[pb.PipelineReply]] = {}
        self._queue: list[pb.PipelineCall] = []
        self._wake = asyncio.Event()
        self._call = pipeline_of(inner.channel)
        self._tasks = [asyncio.create_task(self._send()), asyncio.create_task(self._receive())]

    async def unary(self, service: str, method: str, request: Message, kind: type[Response]) -> Response:
        """Makes one call."""
        field = CARRIED.get(method)
        if service != MEMORY or field is None:
            return await self._inner.unary(service, method, request, kind)
        number = next(self._numbers)
        answered = self._waiting[number] = asyncio.get_running_loop().create_future()
        call = pb.PipelineCall(id=number)
        getattr(call, field).CopyFrom(request)
        self._queue.append(call)
        self._wake.set()
        reply = await asyncio.wait_for(answered, CALL_SECONDS_MAX)
        if (found := reply.WhichOneof("response")) == "status":
            raise refused_in(reply.status)
        assert found == field, f"a {field} was answered by a {found}"
        response = getattr(reply, field)
        assert isinstance(response, kind)
        return response

    def stream(self, service: str, method: str, request: Message, kind: type[Response]) -> Stream[Response]:
        """Begins a server stream."""
        return self._inner.stream(service, method, request, kind)

    async def upload(self, service: str, method: str, requests: Sequence[Message], kind: type[Response]) -> Response:
        """Makes one call whose request is a stream."""
        return await self._inner.upload(service, method, requests, kind)

    async def aclose(self) -> None:
        """Ends the stream."""
        self._call.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _send(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._queue:
                batch = pb.PipelineRequest()
                size = 0
                while self._queue and len(batch.calls) < BATCH_CALLS_MAX:
                    size += self._queue[0].ByteSize()
                    if batch.calls and size > BATCH_BYTES_MAX:
                        break
                    batch.calls.append(self._queue.pop(0))
                await self._call.write(batch)

    async def _receive(self) -> None:
        try:
            async for message in self._call:
                for reply in message.replies:
                    waiting = self._waiting.pop(reply.id)
                    if not waiting.done():
                        waiting.set_result(reply)
        except grpc.aio.AioRpcError as error:
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(refused(error.code(), error.details(), error.trailing_metadata()))


@asynccontextmanager
async def pipelined(channel: grpc.aio.Channel) -> AsyncIterator[PipelinedTransport]:
    """Opens a stream and cancels it at the end."""
    transport = PipelinedTransport(SocketTransport(channel))
    try:
        yield transport
    finally:
        await transport.aclose()


def pipeline_of(channel: grpc.aio.Channel) -> grpc.aio.StreamStreamCall[Any, Any]:
    """Begins a raw stream, for tests of the stream itself."""
    return channel.stream_stream(
        f"/{MEMORY}/Pipeline",
        request_serializer=pb.PipelineRequest.SerializeToString,
        response_deserializer=pb.PipelineResponse.FromString,
    )()
