"""gRPC over the simulated network, as a server has it: real handlers, each call in a task, a context like gRPC's.

An :class:`Endpoint` asks whoever it stands for (our switchboard, or a simulated engine) for the handler of a method
and runs it as gRPC does: requests are read from bytes, a deadline or a caller that goes cancels the task, ``abort``
ends the call with a status.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple, NoReturn
from zlib import crc32

import grpc
from google.protobuf.message import Message

from .loop import SimLoop
from .network import Link

Metadata = tuple[tuple[str, Any], ...]
Answered = Callable[[bytes], None]
Ended = Callable[[grpc.StatusCode, str, Metadata], None]

RESPONSE_BYTES_MAX = 32 * 1024 * 1024
REQUEST_BYTES_MAX = 1024 * 1024


class Details(NamedTuple):
    """What gRPC tells of a call before its handler is found."""

    method: str
    invocation_metadata: Metadata


class Endpoint:
    """What answers calls at one address.

    Args:
        loop: where handlers run.
        service: returns what handles a call, given :class:`Details`; None for a method that nobody has.
    """

    def __init__(self, loop: SimLoop, service: Callable[[Any], Any]) -> None:
        self._loop = loop
        self._service = service
        self.calls: dict[ServerCall, None] = {}

    def begin(
        self,
        method: str,
        metadata: Metadata,
        due: float | None,
        peer: str,
        link: Link,
        answered: Answered,
        ended: Ended,
    ) -> ServerCall:
        """Answers a call; to be called in the context of the host."""
        call = ServerCall(self, method, metadata, due, peer, link, answered, ended)
        self.calls[call] = None
        handler = self._service(Details(method, metadata))
        if handler is None:
            call.end(grpc.StatusCode.UNIMPLEMENTED, f"Method {method} not found!")
        else:
            call.start(handler)
        return call

    async def drain(self, seconds: float = 1.0) -> None:
        """Lets calls under way end by themselves for some time, and then breaks them off."""
        for wait in (seconds, None):
            tasks = [call.task for call in self.calls if call.task is not None]
            if not tasks:
                return
            await asyncio.wait(tasks, timeout=wait)
            for call in tuple(self.calls):
                call.cancel()

    @property
    def loop(self) -> SimLoop:
        """Where handlers run."""
        return self._loop


class ServerCall:
    """A call at the server, and the context that its handler gets."""

    def __init__(
        self,
        endpoint: Endpoint,
        method: str,
        metadata: Metadata,
        due: float | None,
        peer: str,
        link: Link,
        answered: Answered,
        ended: Ended,
    ) -> None:
        self._endpoint = endpoint
        self._loop = endpoint.loop
        self._method = method
        self._metadata = metadata
        self._due = due
        self._peer = peer
        self._link = link
        self._answered = answered
        self._ended = ended
        self._requests: deque[bytes] = deque()
        self._complete = False
        self._wake: asyncio.Future[None] | None = None
        self.task: asyncio.Task[None] | None = None
        self._status: tuple[grpc.StatusCode, str] | None = None
        self._trailing: Metadata = ()
        self._callbacks: list[Callable[[Any], None]] = []
        self._serializer: Callable[[Any], bytes] = bytes
        self._timer: asyncio.TimerHandle | None = None
        link.attend(self.cancel)

    def start(self, handler: Any) -> None:
        """Runs the handler."""
        self._serializer = handler.response_serializer or bytes
        self.task = self._loop.create_task(self._run(handler), name=f"rpc {self._method}")
        if self._due is not None:
            self._timer = self._loop.call_at(self._due, self.cancel)

    def receive(self, data: bytes, last: bool) -> None:
        """A message of the request has come."""
        self._loop.trace("request", self._method, crc32(data))
        self._requests.append(data)
        self._complete = self._complete or last
        self._rouse()

    def half_close(self) -> None:
        """No more of the request will come."""
        self._complete = True
        self._rouse()

    def cancel(self) -> None:
        """The caller, or its connection, has gone, or its deadline has passed."""
        if self._status is None:
            self._status = grpc.StatusCode.CANCELLED, "the caller has gone"
        if self.task is not None and not self.task.done():
            self.task.cancel()

    def end(self, code: grpc.StatusCode, details: str) -> None:
        """Ends the call, unless it has ended."""
        if self._timer is not None:
            self._timer.cancel()
        self._link.leave(self.cancel)
        if self not in self._endpoint.calls:
            return
        del self._endpoint.calls[self]
        if self._status is None:
            self._status = code, details
        code, details = self._status
        trailing = self._trailing
        self._endpoint.loop.trace("end", self._method, code.name, details)
        self._link.answer(lambda: self._ended(code, details, trailing))
        for callback in self._callbacks:
            callback(self)

    async def _run(self, handler: Any) -> None:
        try:
            decode = handler.request_deserializer or bytes
            if handler.request_streaming:
                request: Any = self._all(decode)
            else:
                request = decode(await self._next_request())
            match bool(handler.request_streaming), bool(handler.response_streaming):
                case False, False:
                    behaviour = handler.unary_unary
                case False, True:
                    behaviour = handler.unary_stream
                case True, False:
                    behaviour = handler.stream_unary
                case _:
                    behaviour = handler.stream_stream
            found = behaviour(request, self)
            if inspect.isasyncgen(found) or hasattr(found, "__aiter__"):
                async for response in found:
                    await self.write(response)
            elif handler.response_streaming:
                await found
            else:
                await self.write(await found)
            self.end(*(self._status or (grpc.StatusCode.OK, "")))
        except grpc.aio.AbortError:
            self.end(grpc.StatusCode.UNKNOWN, "")
        except asyncio.CancelledError:
            self.end(grpc.StatusCode.CANCELLED, "the caller has gone")
        except Exception as error:
            self._loop.failures.append(error)
            self.end(grpc.StatusCode.UNKNOWN, f"Unexpected {type(error)}: {error}")

    async def _next_request(self) -> bytes:
        while not self._requests:
            wake = self._wake = self._loop.create_future()
            await wake
        return self._requests.popleft()

    async def _all(self, decode: Callable[[bytes], Any]) -> AsyncIterator[Any]:
        while True:
            if self._requests:
                yield decode(self._requests.popleft())
            elif self._complete:
                return
            else:
                wake = self._wake = self._loop.create_future()
                await wake

    def _rouse(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    # What follows is the context that handlers see.

    async def write(self, message: Any) -> None:
        """Sends a message."""
        if message is None:
            return
        data = to_bytes(message, self._serializer)
        if len(data) > RESPONSE_BYTES_MAX:
            await self.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "Sent message larger than max")
        self._loop.trace("response", self._method, crc32(data))
        self._link.answer(lambda: self._answered(data))

    async def read(self) -> Any:
        """Not offered: our handlers iterate."""
        raise NotImplementedError

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: Any = ()) -> NoReturn:
        """Ends the call with a status."""
        if self._status is None:
            self._status = code, details
            self._trailing = tuple(trailing_metadata or ())
        raise grpc.aio.AbortError("Locally aborted.")

    def invocation_metadata(self) -> Metadata:
        """Returns what the caller has sent beside the request."""
        return self._metadata

    def peer(self) -> str:
        """Returns who calls."""
        return f"sim:{self._peer}"

    def auth_context(self) -> dict[str, list[bytes]]:
        """Returns nothing: nobody proves who it is."""
        return {}

    def code(self) -> grpc.StatusCode:
        """Returns the status."""
        return grpc.StatusCode.OK if self._status is None else self._status[0]

    def details(self) -> str:
        """Returns the status's words."""
        return "" if self._status is None else self._status[1]

    def trailing_metadata(self) -> Metadata:
        """Returns what follows the answer."""
        return self._trailing

    def set_trailing_metadata(self, trailing_metadata: Any) -> None:
        """Sets what follows the answer."""
        self._trailing = tuple(trailing_metadata)

    def set_code(self, code: grpc.StatusCode) -> None:
        """Sets the status."""
        self._status = code, self.details()

    def set_details(self, details: str) -> None:
        """Sets the status's words."""
        self._status = self.code(), details

    async def send_initial_metadata(self, initial_metadata: Any) -> None:
        """Sends none."""

    def time_remaining(self) -> float | None:
        """Returns how long the caller still waits, in seconds."""
        return None if self._due is None else max(0.0, self._due - self._loop.time())

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Has a function called once the call has ended."""
        self._callbacks.append(callback)

    def cancelled(self) -> bool:
        """Tells whether the caller has gone."""
        return self.code() is grpc.StatusCode.CANCELLED

    def done(self) -> bool:
        """Tells whether the call has ended."""
        return self not in self._endpoint.calls


def to_bytes(message: Any, serializer: Callable[[Any], bytes]) -> bytes:
    """Returns a message as it is sent. The entries of a map may stand in any order, and here always in the same one."""
    if isinstance(message, Message):
        return message.SerializeToString(deterministic=True)
    return serializer(message)
