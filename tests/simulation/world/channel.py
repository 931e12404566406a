"""gRPC over the simulated network, as a client sees it: a channel like ``grpc.aio``'s.

Messages cross as bytes, deadlines go with the call, one connection carries all calls of a channel and is made anew when
it is needed. Errors look like gRPC's own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable
from typing import Any, NamedTuple

import grpc

from .network import Link, Network, host
from .serving import Endpoint, ServerCall, to_bytes

Serializer = Callable[[Any], bytes]
Deserializer = Callable[[bytes], Any]
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


class Status(NamedTuple):
    """How a call has ended."""

    code: grpc.StatusCode
    details: str = ""
    metadata: tuple[tuple[str, Any], ...] = ()


class SimChannel(grpc.aio.Channel):
    """A channel from the present host to a server.

    Args:
        network: what calls go through.
        address: ``host:port`` of a simulated server.
        recorder: sees every unary call, as an interceptor.
    """

    def __init__(self, network: Network, address: str, recorder: Any = None) -> None:
        name, _, port = address.removeprefix("dns:///").rpartition(":")
        self.network = network
        self.host = host.get()
        self.recorder = recorder
        self._peer = name, int(port)
        self._link: Link | None = None
        self._calls: dict[SimCall, None] = {}
        self._closed = False

    async def __aenter__(self) -> SimChannel:
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        await self.close()

    async def close(self, grace: float | None = None) -> None:
        """Ends what is under way."""
        self._closed = True
        for call in tuple(self._calls):
            call.cancel()
        if self._link is not None:
            self._link.close()

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """Returns whether there is a connection."""
        alive = self._link is not None and self._link.alive
        return grpc.ChannelConnectivity.READY if alive else grpc.ChannelConnectivity.IDLE

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Not offered."""
        raise NotImplementedError

    async def channel_ready(self) -> None:
        """Returns at once: the first call connects."""

    def link(self) -> Link:
        """Returns the connection, a new one if the last is broken."""
        if self._link is None or not self._link.alive:
            mine: dict[SimCall, None] = {}
            self._calls = mine

            def broken(why: str) -> None:
                for call in tuple(mine):
                    call.finish(Status(UNAVAILABLE, why))

            self._link = self.network.link(self.host, self._peer[0], broken)
        return self._link

    def enter(self, call: SimCall) -> Link:
        """Takes a call on, for as long as the connection is there."""
        if self._closed:
            raise grpc.aio.UsageError("Channel is closed.")
        link = self.link()
        call.leaves = self._calls
        self._calls[call] = None
        return link

    def endpoint(self) -> Endpoint | None:
        """Returns what listens at the other end; for use there."""
        listener = self.network.listener(*self._peer)
        return None if listener is None else listener.accept

    def unary_unary(self, method: str, *codecs: Any, **more: Any) -> Any:
        """Returns a method."""
        return self._method(method, False, False, *codecs, **more)

    def unary_stream(self, method: str, *codecs: Any, **more: Any) -> Any:
        """Returns a method."""
        return self._method(method, False, True, *codecs, **more)

    def stream_unary(self, method: str, *codecs: Any, **more: Any) -> Any:
        """Returns a method."""
        return self._method(method, True, False, *codecs, **more)

    def stream_stream(self, method: str, *codecs: Any, **more: Any) -> Any:
        """Returns a method."""
        return self._method(method, True, True, *codecs, **more)

    def _method(
        self,
        method: str,
        takes_stream: bool,
        gives_stream: bool,
        request_serializer: Serializer | None = None,
        response_deserializer: Deserializer | None = None,
        **_: Any,
    ) -> _Method:
        return _Method(self, method, request_serializer, response_deserializer, takes_stream, gives_stream)


class _Details(NamedTuple):
    method: str
    timeout: float | None
    metadata: Any
    credentials: Any = None
    wait_for_ready: bool | None = None


class _Method:
    """What a stub calls."""

    def __init__(
        self,
        channel: SimChannel,
        name: str,
        serializer: Serializer | None,
        deserializer: Deserializer | None,
        takes_stream: bool,
        gives_stream: bool,
    ) -> None:
        self._channel = channel
        self._name = name
        self._serializer = serializer or bytes
        self._deserializer = deserializer or bytes
        self._takes_stream = takes_stream
        self._gives_stream = gives_stream

    def __call__(
        self,
        request: Any = None,
        *,
        timeout: float | None = None,
        metadata: Any = None,
        credentials: Any = None,
        wait_for_ready: bool | None = None,
        compression: Any = None,
    ) -> Any:
        recorder = self._channel.recorder
        if recorder is None or self._takes_stream or self._gives_stream:
            return self._begin(request, timeout, metadata)

        async def proceed(details: _Details, sent: Any) -> SimCall:
            return self._begin(sent, details.timeout, details.metadata)

        return _Recorded(recorder.intercept_unary_unary(proceed, _Details(self._name, timeout, metadata), request))

    def _begin(self, request: Any, timeout: float | None, metadata: Any) -> SimCall:
        call = SimCall(
            self._channel, self._name, self._serializer, self._deserializer, self._gives_stream, timeout, metadata
        )
        if self._takes_stream:
            if request is not None:
                call.feed(request)
        else:
            call.send(to_bytes(request, self._serializer), last=True)
        return call


class _Recorded:
    """A unary call that an interceptor makes."""

    def __init__(self, made: Awaitable[Any]) -> None:
        self._made = made

    def __await__(self) -> Generator[Any, None, Any]:
        return self._result().__await__()

    async def _result(self) -> Any:
        return await (await self._made)


class SimCall:
    """A call of any kind, at the client.

    Attributes:
        leaves: the calls of its connection.
    """

    def __init__(
        self,
        channel: SimChannel,
        method: str,
        serializer: Serializer,
        deserializer: Deserializer,
        gives_stream: bool,
        timeout: float | None,
        metadata: Any,
    ) -> None:
        loop = channel.network.loop
        self.leaves: dict[SimCall, None] = {}
        self._loop = loop
        self._serializer = serializer
        self._deserializer = deserializer
        self._gives_stream = gives_stream
        self._status: Status | None = None
        self._messages: deque[Any] = deque()
        self._answer: tuple[Any, ...] = ()
        self._wake: asyncio.Future[None] | None = None
        self._done: list[Callable[[Any], None]] = []
        self._feeder: asyncio.Task[None] | None = None
        self._half_closed = False
        self._server: ServerCall | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._link = link = channel.enter(self)
        network = channel.network
        self._twice = not gives_stream and bool(network.weather.twice) and network.rng.random() < network.weather.twice
        self._sent: list[tuple[bytes, bool]] = []
        due = None if timeout is None else loop.time() + timeout
        pairs = tuple(metadata or ())

        def begin() -> None:
            endpoint = channel.endpoint()
            if endpoint is None:
                link.answer(lambda: self._refused(link))
                return
            self._server = endpoint.begin(method, pairs, due, channel.host, link, self._answered, self._ended)
            if self._twice:
                ghost = endpoint.begin(method, pairs, due, channel.host, link, _ignore, _ignore)
                loop.call_later(network.delay() * 4, _send_again, ghost, self._sent)

        link.send(begin)
        if timeout is not None:
            late = Status(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")
            self._timer = loop.call_later(timeout, self._give_up, late)

    def send(self, data: bytes, *, last: bool) -> None:
        """Sends a message."""
        if self._twice:
            self._sent.append((data, last))

        def arrive() -> None:
            if self._server is not None:
                self._server.receive(data, last)

        self._link.send(arrive)

    def feed(self, requests: Any) -> None:
        """Sends what an iterator gives."""
        self._feeder = self._loop.create_task(self._feed(requests))

    async def _feed(self, requests: Iterable[Any] | AsyncIterator[Any]) -> None:
        if hasattr(requests, "__aiter__"):
            async for request in requests:
                await self.write(request)
        else:
            for request in requests:
                await self.write(request)
        await self.done_writing()

    async def write(self, message: Any) -> None:
        """Sends a message of a stream.

        Raises:
            AioRpcError: the call has ended.
        """
        if self._half_closed:
            raise asyncio.InvalidStateError("the call is half closed")
        await asyncio.sleep(0)
        if self._status is not None:
            if self._status.code is grpc.StatusCode.OK:
                raise asyncio.InvalidStateError("the call has ended")
            raise self._error()
        self.send(to_bytes(message, self._serializer), last=False)

    async def done_writing(self) -> None:
        """Sends no more."""
        if not self._half_closed and self._status is None:
            self._half_closed = True

            def arrive() -> None:
                if self._server is not None:
                    self._server.half_close()

            self._link.send(arrive)

    async def read(self) -> Any:
        """Returns the next message; EOF after the last.

        Raises:
            AioRpcError: the call has failed.
        """
        while not self._messages:
            if self._status is not None:
                if self._status.code is not grpc.StatusCode.OK:
                    raise self._error()
                return grpc.aio.EOF
            wake = self._wake = self._loop.create_future()
            try:
                await wake
            except asyncio.CancelledError:
                self.cancel()
                raise
        return self._messages.popleft()

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._all()

    async def _all(self) -> AsyncIterator[Any]:
        while (message := await self.read()) is not grpc.aio.EOF:
            yield message

    def __await__(self) -> Generator[Any, None, Any]:
        return self._only().__await__()

    async def _only(self) -> Any:
        if self._answer:
            # Interceptors await a call before its caller does.
            return self._answer[0]
        message = await self.read()
        if message is grpc.aio.EOF:
            raise grpc.aio.AioRpcError(grpc.StatusCode.INTERNAL, grpc.aio.Metadata(), grpc.aio.Metadata(), "no answer")
        while await self.read() is not grpc.aio.EOF:
            pass
        self._answer = (message,)
        return message

    def cancel(self) -> bool:
        """Ends the call; the server is told."""
        if self._status is not None:
            return False
        self._give_up(Status(grpc.StatusCode.CANCELLED, "Locally cancelled by application!"))
        return True

    def cancelled(self) -> bool:
        """Tells whether it was cancelled here."""
        return self._status is not None and self._status.code is grpc.StatusCode.CANCELLED

    def done(self) -> bool:
        """Tells whether it has ended."""
        return self._status is not None

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Has a function called once it has ended."""
        if self._status is not None:
            callback(self)
        else:
            self._done.append(callback)

    async def code(self) -> grpc.StatusCode:
        """Returns how it has ended, once it has."""
        if self._status is None:
            ended = asyncio.Event()
            self._done.append(lambda _: ended.set())
            await ended.wait()
        assert self._status is not None
        return self._status.code

    async def initial_metadata(self) -> grpc.aio.Metadata:
        """Returns none."""
        return grpc.aio.Metadata()

    def finish(self, status: Status) -> None:
        """Ends it."""
        if self._status is not None:
            return
        self._status = status
        self.leaves.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
        if self._feeder is not None and self._feeder is not asyncio.current_task(self._loop):
            self._feeder.cancel()
        self._rouse()
        for callback in self._done:
            callback(self)

    def _give_up(self, status: Status) -> None:
        if self._status is not None:
            return

        def arrive() -> None:
            if self._server is not None:
                self._server.cancel()

        self._link.send(arrive)
        self.finish(status)

    def _answered(self, data: bytes) -> None:
        if self._status is None:
            self._messages.append(self._deserializer(data))
            self._rouse()

    def _ended(self, code: grpc.StatusCode, details: str, metadata: tuple[tuple[str, Any], ...]) -> None:
        self.finish(Status(code, details, metadata))

    def _refused(self, link: Link) -> None:
        self.finish(Status(UNAVAILABLE, "connection refused"))
        # Not closed: what else has begun on this connection must hear of it too, and some of that has no deadline.
        link.fail("connection refused")

    def _rouse(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def _error(self) -> BaseException:
        assert self._status is not None
        code, details, metadata = self._status
        if code is grpc.StatusCode.CANCELLED and details.startswith("Locally"):
            return asyncio.CancelledError()
        return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(*metadata), details)


def _send_again(ghost: ServerCall, sent: Iterable[tuple[bytes, bool]]) -> None:
    for data, last in sent:
        ghost.receive(data, last)


def _ignore(*_: Any) -> None:
    """What becomes of the answer to a call that was delivered twice."""
