"""A gRPC channel that knows what on it waits for an answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

from noosphere.v1 import coordination_service_pb2
from noosphere.v1 import memory_service_pb2 as pb

from ._reading import ReadCall
from ._streams import Streams

_SERVICE = pb.DESCRIPTOR.services_by_name["MemoryService"].full_name
_COORDINATION = coordination_service_pb2.DESCRIPTOR.services_by_name["CoordinationService"].full_name
_WATCHES = frozenset({f"/{_SERVICE}/Watch", f"/{_COORDINATION}/WatchMembers"})
_PIPELINE = f"/{_SERVICE}/Pipeline"


class Meter:
    """Counts the calls of one client, alone or in pipelines.

    Args:
        changed: called, on any thread, whenever the number changes.

    Attributes:
        under_way: calls that were sent and not answered.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self.under_way = 0
        self._changed = changed

    def add(self, count: int) -> None:
        """Counts calls that begin, or with a negative number end."""
        self.under_way += count
        self._changed()


class MeteredChannel(grpc.aio.Channel):
    """Passes everything on to a real channel.

    Args:
        channel: the channel.
        meter: where to count calls.
        streams: where to count the messages of watches.
        closed: called when the channel is closed.
    """

    def __init__(self, channel: grpc.aio.Channel, meter: Meter, streams: Streams, closed: Callable[[], None]) -> None:
        self._channel = channel
        self._meter = meter
        self._streams = streams
        self._closed = closed

    async def __aenter__(self) -> MeteredChannel:
        return self

    async def __aexit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
        await self.close()

    async def close(self, grace: float | None = None) -> None:
        """Closes the channel."""
        try:
            await self._channel.close(grace)
        finally:
            self._closed()

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """Returns the state of the connection."""
        return self._channel.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Waits for another state of the connection."""
        await self._channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        """Waits for the connection."""
        await self._channel.channel_ready()

    def unary_unary(self, *args: Any, **kwargs: Any) -> Any:
        """Returns a method whose calls are counted."""
        return self._counted(self._channel.unary_unary(*args, **kwargs))

    def _counted(self, method: Any) -> Any:
        async def call(request: Any, **options: Any) -> Any:
            self._meter.add(1)
            try:
                return await method(request, **options)
            finally:
                self._meter.add(-1)

        return call

    def unary_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Returns a method; the messages of a watch are counted, and any other call until it ends."""
        plain = self._channel.unary_stream(method, *args, **kwargs)
        if method in _WATCHES:
            return lambda request, **options: self._streams.open(plain, request, options)

        def begin(request: Any, **options: Any) -> Any:
            call = plain(request, **options)
            self._meter.add(1)
            call.add_done_callback(lambda _: self._meter.add(-1))
            return call

        return begin

    def stream_unary(self, *args: Any, **kwargs: Any) -> Any:
        """Returns a method whose calls are counted."""
        return self._counted(self._channel.stream_unary(*args, **kwargs))

    def stream_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Returns a method; if it is the pipeline, the calls in it are counted."""
        plain = self._channel.stream_stream(method, *args, **kwargs)
        if method != _PIPELINE:
            return plain
        return lambda *a, **options: _MeteredPipeline(plain(*a, **options), self._meter)


class _MeteredPipeline(ReadCall):
    """A pipeline's stream, used by ``write`` and ``read``."""

    def __init__(self, call: Any, meter: Meter) -> None:
        super().__init__(call)
        self._meter = meter
        self._under_way = 0
        self._ended = False
        call.add_done_callback(lambda _: self._end())

    async def write(self, request: pb.PipelineRequest) -> None:
        self._count(len(request.calls))
        await self._call.write(request)

    async def read(self) -> Any:
        message = await self._call.read()
        if isinstance(message, pb.PipelineResponse):
            self._count(-len(message.replies))
        return message

    def _count(self, calls: int) -> None:
        if not self._ended:
            self._under_way += calls
            self._meter.add(calls)

    def _end(self) -> None:
        self._count(-self._under_way)
        self._ended = True
