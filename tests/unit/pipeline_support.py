"""A stream of the pipeline without a network: a caller on one side, slow or failing calls on the other."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from tests.support.pipelined import refused_in
from tests.support.statuses import Refused

from noosphere.consistency import Reason, Refusal
from noosphere.server.memory.signals import HeadSignals
from noosphere.server.rpc.pipeline import PipelineStream
from noosphere.v1 import memory_service_pb2 as pb

SECONDS_MAX = 30.0
"""A bound against hanging."""

Handler = Callable[[Any], Awaitable[Any]]


class Calls:
    """Scripted handlers: a get answers at once, a put when it is let go, by what their keys say.

    Attributes:
        begun: calls that were begun, by key.
        running: calls that are under way.
        most: the most that ever were.
        gone: keys of calls that were cancelled.
    """

    def __init__(self) -> None:
        self.begun: Counter[str] = Counter()
        self.running = 0
        self.most = 0
        self.gone: list[str] = []
        self.let_go = asyncio.Event()
        self.size = 0

    async def get(self, request: pb.GetRequest) -> pb.GetResponse:
        self.begun[request.key] += 1
        if request.key.startswith("refused"):
            raise Refusal(Reason.CONFLICT, f"{request.key} is refused")
        if request.key.startswith("broken"):
            raise ValueError("a caller's secret")
        response = pb.GetResponse(head=int(request.key or 0))
        if self.size:
            response.record.values.add().value.data = bytes(self.size)
        return response

    async def put(self, request: pb.PutRequest) -> pb.PutResponse:
        self.begun[request.put.key] += 1
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.let_go.wait()
        except asyncio.CancelledError:
            self.gone.append(request.put.key)
            raise
        finally:
            self.running -= 1
        return pb.PutResponse(head=int(request.put.key))

    async def list(self, request: pb.ListRequest) -> pb.ListResponse:
        await self.put(pb.PutRequest(put=pb.PutOperation(key=request.collection)))
        return pb.ListResponse(head=int(request.collection))


class Line:
    """Both ends of a stream.

    Attributes:
        calls: what answers.
        signals: tells of a shutdown.
        answers: what has come, by number.
        sizes: how many answers each message had.
        drained: whether the notice has come.
    """

    def __init__(self) -> None:
        self.calls = Calls()
        self.signals = HeadSignals()
        self.answers: dict[int, pb.PipelineReply] = {}
        self.sizes: list[int] = []
        self.drained = False
        self._requests: asyncio.Queue[pb.PipelineRequest | Exception | None] = asyncio.Queue()
        self.taken = 0
        handlers: dict[str, Handler] = {"get": self.calls.get, "put": self.calls.put, "list": self.calls.list}
        self.stream = PipelineStream(handlers, self.signals).run(self._read())

    async def _read(self) -> AsyncIterator[pb.PipelineRequest]:
        while (found := await self._requests.get()) is not None:
            if isinstance(found, Exception):
                raise found
            self.taken += 1
            yield found

    def send(self, *calls: pb.PipelineCall) -> None:
        """Sends a batch."""
        self._requests.put_nowait(pb.PipelineRequest(calls=calls))

    def break_off(self, error: Exception) -> None:
        """Has the connection fail."""
        self._requests.put_nowait(error)

    def end(self) -> None:
        """Ends the caller's side."""
        self._requests.put_nowait(None)

    async def message(self) -> None:
        """Takes the next message."""
        message = await asyncio.wait_for(anext(self.stream), SECONDS_MAX)
        self.drained = self.drained or message.draining
        self.sizes.append(len(message.replies))
        for reply in message.replies:
            assert reply.id not in self.answers, f"{reply.id} was answered twice"
            self.answers[reply.id] = reply

    async def until(self, count: int) -> None:
        """Takes messages until so many answers have come."""
        while len(self.answers) < count:
            await self.message()

    async def rest(self) -> None:
        """Takes messages until the stream ends, which raises what it ended with."""
        try:
            while True:
                await self.message()
        except StopAsyncIteration:
            return

    def status(self, number: int) -> Refused:
        """Returns the error of a call."""
        assert self.answers[number].WhichOneof("response") == "status"
        return refused_in(self.answers[number].status)


@asynccontextmanager
async def line() -> AsyncIterator[Line]:
    found = Line()
    try:
        yield found
    finally:
        await found.stream.aclose()


def get(number: int, key: str | None = None, **options: Any) -> pb.PipelineCall:
    return pb.PipelineCall(id=number, get=pb.GetRequest(key=str(number) if key is None else key), **options)


def put(number: int, **options: Any) -> pb.PipelineCall:
    return pb.PipelineCall(id=number, put=pb.PutRequest(put=pb.PutOperation(key=str(number))), **options)


def lists(number: int) -> pb.PipelineCall:
    return pb.PipelineCall(id=number, list=pb.ListRequest(collection=str(number)))


def batches(calls: Iterable[pb.PipelineCall], size: int = 256) -> list[list[pb.PipelineCall]]:
    found = list(calls)
    return [found[start : start + size] for start in range(0, len(found), size)]


async def settled() -> None:
    """Lets everybody run until they wait."""
    for _ in range(64):
        await asyncio.sleep(0)
