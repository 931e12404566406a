"""Two ways to the same API: through a socket, and straight into the handlers. Errors look the same."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, NoReturn, Protocol, TypeVar

import grpc
from google.protobuf.message import Message
from tests.support.statuses import Refused, refused

from noosphere.server.rpc.admin import AdminRpc
from noosphere.server.rpc.context import ContextRpc
from noosphere.server.rpc.coordination import CoordinationRpc
from noosphere.server.rpc.facts import FactRpc
from noosphere.server.rpc.memory import MemoryRpc
from noosphere.server.rpc.sessions import SessionRpc

Response = TypeVar("Response", bound=Message)
Streamed = TypeVar("Streamed", bound=Message, covariant=True)

CALL_SECONDS_MAX = 60.0
"""A bound against hanging, far above what any call takes."""

MEMORY = "noosphere.v1.MemoryService"
ADMIN = "noosphere.v1.AdminService"
SESSIONS = "noosphere.v1.SessionService"
CONTEXTS = "noosphere.v1.ContextService"
FACTS = "noosphere.v1.FactService"
COORDINATION = "noosphere.v1.CoordinationService"


class Stream(Protocol[Streamed]):
    """A running server stream."""

    def __aiter__(self) -> AsyncIterator[Streamed]:
        """Iterates over the messages; a status other than OK raises ``Refused``."""
        ...

    async def __anext__(self) -> Streamed:
        """Returns the next message."""
        ...

    async def aclose(self) -> None:
        """Cancels the stream."""
        ...


class Transport(Protocol):
    """Carries calls to a server."""

    async def unary(self, service: str, method: str, request: Message, kind: type[Response]) -> Response:
        """Makes one call.

        Raises:
            Refused: it ended with another status than OK.
        """
        ...

    def stream(self, service: str, method: str, request: Message, kind: type[Response]) -> Stream[Response]:
        """Begins a server stream."""
        ...

    async def upload(self, service: str, method: str, requests: Sequence[Message], kind: type[Response]) -> Response:
        """Makes one call whose request is a stream.

        Raises:
            Refused: it ended with another status than OK.
        """
        ...


class SocketTransport:
    """Calls over a gRPC channel, with nothing of our client in between."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel

    async def unary(self, service: str, method: str, request: Message, kind: type[Response]) -> Response:
        """Makes one call."""
        call = self.channel.unary_unary(
            f"/{service}/{method}", request_serializer=_to_bytes, response_deserializer=kind.FromString
        )
        try:
            return await call(request, timeout=CALL_SECONDS_MAX)
        except grpc.aio.AioRpcError as error:
            raise refused(error.code(), error.details(), error.trailing_metadata()) from None

    def stream(self, service: str, method: str, request: Message, kind: type[Response]) -> Stream[Response]:
        """Begins a server stream."""
        call = self.channel.unary_stream(
            f"/{service}/{method}", request_serializer=_to_bytes, response_deserializer=kind.FromString
        )
        return _SocketStream(call(request))

    async def upload(self, service: str, method: str, requests: Sequence[Message], kind: type[Response]) -> Response:
        """Makes one call whose request is a stream."""
        call = self.channel.stream_unary(
            f"/{service}/{method}", request_serializer=_to_bytes, response_deserializer=kind.FromString
        )
        try:
            return await call(iter(requests), timeout=CALL_SECONDS_MAX)
        except grpc.aio.AioRpcError as error:
            raise refused(error.code(), error.details(), error.trailing_metadata()) from None


class _SocketStream(Stream[Response]):
    def __init__(self, call: grpc.aio.UnaryStreamCall[Any, Response]) -> None:
        self._call = call
        self._messages = aiter(call)

    def __aiter__(self) -> AsyncIterator[Response]:
        return self

    async def __anext__(self) -> Response:
        try:
            return await anext(self._messages)
        except grpc.aio.AioRpcError as error:
            raise refused(error.code(), error.details(), error.trailing_metadata()) from None

    async def aclose(self) -> None:
        self._call.cancel()


class HandlerTransport:
    """Calls the real handlers without a network; messages still cross as bytes, as they would on the wire."""

    def __init__(
        self,
        memory: MemoryRpc,
        admin: AdminRpc,
        sessions: SessionRpc,
        contexts: ContextRpc,
        facts: FactRpc | None = None,
        coordination: CoordinationRpc | None = None,
    ) -> None:
        self._servicers: dict[str, Any] = {
            MEMORY: memory,
            ADMIN: admin,
            SESSIONS: sessions,
            CONTEXTS: contexts,
            FACTS: facts,
            COORDINATION: coordination,
        }

    async def unary(self, service: str, method: str, request: Message, kind: type[Response]) -> Response:
        """Makes one call."""
        handler = getattr(self._servicers[service], method)
        response = await handler(type(request).FromString(request.SerializeToString()), _Context())
        return kind.FromString(response.SerializeToString())

    def stream(self, service: str, method: str, request: Message, kind: type[Response]) -> Stream[Response]:
        """Begins a server stream."""
        handler = getattr(self._servicers[service], method)
        return _HandlerStream(handler(type(request).FromString(request.SerializeToString()), _Context()), kind)

    async def upload(self, service: str, method: str, requests: Sequence[Message], kind: type[Response]) -> Response:
        """Makes one call whose request is a stream."""

        async def sent() -> AsyncIterator[Message]:
            for request in requests:
                yield type(request).FromString(request.SerializeToString())

        response = await getattr(self._servicers[service], method)(sent(), _Context())
        return kind.FromString(response.SerializeToString())


class ScatteringTransport:
    """Carries each call to any of several servers, none of which knows what the others were asked.

    Args:
        transports: to each of them.
        between: given the method's name, awaited before each unary call, as time passes before anybody goes elsewhere.
        after: the same after each unary call, before anybody goes elsewhere.
    """

    def __init__(
        self,
        transports: Sequence[Transport],
        between: Callable[[str], Awaitable[None]],
        after: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        self._transports = transports
        self._between = between
        self._after = after
        # The same choices in each run of a test.
        self._rng = random.Random(0)

    async def unary(self, service: str, method: str, request: Message, kind: type[Response]) -> Response:
        """Makes one call."""
        await self._between(method)
        reply = await self._any().unary(service, method, request, kind)
        if self._after is not None:
            await self._after(method)
        return reply

    def stream(self, service: str, method: str, request: Message, kind: type[Response]) -> Stream[Response]:
        """Begins a server stream."""
        return self._any().stream(service, method, request, kind)

    async def upload(self, service: str, method: str, requests: Sequence[Message], kind: type[Response]) -> Response:
        """Makes one call whose request is a stream."""
        return await self._any().upload(service, method, requests, kind)

    def _any(self) -> Transport:
        return self._rng.choice(self._transports)


class _HandlerStream(Stream[Response]):
    def __init__(self, messages: Any, kind: type[Response]) -> None:
        self._messages = messages
        self._kind = kind

    def __aiter__(self) -> AsyncIterator[Response]:
        return self

    async def __anext__(self) -> Response:
        message: Message = await anext(self._messages)
        return self._kind.FromString(message.SerializeToString())

    async def aclose(self) -> None:
        await self._messages.aclose()


class _Context:
    """What the handlers use of a ``grpc.aio.ServicerContext``."""

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: Any = ()) -> NoReturn:
        raise refused(code, details, trailing_metadata)

    def time_remaining(self) -> float | None:
        """Nobody has set a deadline."""
        return None


def _to_bytes(message: Message) -> bytes:
    return message.SerializeToString()


__all__ = ["ADMIN", "MEMORY", "SESSIONS", "HandlerTransport", "Refused", "SocketTransport", "Stream", "Transport"]
