"""Records every call of a gRPC channel in a history, as an interceptor.

It stands where the calls leave the client, below its retries: all attempts under one request id are one
call of the history, which begins with the first and ends with the one that was answered. What was never
answered, or refused after an attempt whose outcome is open, has an unknown outcome.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import grpc
from google.protobuf.message import DecodeError, Message

from .history import Call, Outcome, Reply
from .recording import Known, refusal, to_call, to_reply
from .writer import HistoryWriter

_OPEN_MAX = 4096
_TRAILER = "grpc-status-details-bin"

# After these the call may have been executed, or may yet be.
_AMBIGUOUS = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.INTERNAL,
        # Our client repeats such a call, so its outcome is that of a later attempt.
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    }
)


class _Attempted(NamedTuple):
    """A call that has been sent at least once and not been answered."""

    call: Call
    doubtful: bool


class Recorder(grpc.aio.UnaryUnaryClientInterceptor):  # type: ignore[misc, unused-ignore] # depends on the stubs' version
    """Writes what goes over a channel into a history.

    ::

        async with connect(address, coalesce=False, interceptors=[Recorder(writer, "agent-1")]) as client: ...

    It sees unary calls only, so the client must not coalesce them.

    Args:
        writer: where to.
        process: the name of this process in the history.
        clock_ns: monotonic nanoseconds, comparable between the processes of the machine.
    """

    def __init__(self, writer: HistoryWriter, process: str, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._writer = writer
        self._process = process
        self._clock_ns = clock_ns
        self._number = 0
        self._known = Known()
        self._open: OrderedDict[bytes, _Attempted] = OrderedDict()

    async def intercept_unary_unary(
        self, continuation: Callable[..., Awaitable[Any]], client_call_details: Any, request: Any
    ) -> Any:
        """Sends one attempt and records what comes of it."""
        name = _request_id(request)
        attempted = self._open.get(name) if name else None
        call = attempted.call if attempted is not None else self._begin(request)
        if call is None:
            return await continuation(client_call_details, request)
        if name and attempted is None:
            self._open[name] = attempted = _Attempted(call, doubtful=False)
            while len(self._open) > _OPEN_MAX:
                self._open.popitem(last=False)
        rpc = await continuation(client_call_details, request)
        try:
            reply = await rpc
        except grpc.aio.AioRpcError as error:
            self._failed(call, name, error)
        except BaseException:
            self._doubt(name)
            raise
        else:
            self._end(to_reply(call, request, reply, self._clock_ns(), self._known), name)
        return rpc

    def _begin(self, request: Message) -> Call | None:
        call = to_call(request, self._process, self._number + 1, self._clock_ns(), self._known)
        if call is not None:
            self._number += 1
            self._writer.begin(call)
        return call

    def _failed(self, call: Call, name: bytes, error: grpc.aio.AioRpcError) -> None:
        code = error.code()
        if code in _AMBIGUOUS:
            if code is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                self._doubt(name)
            return
        reason, head = code.name, 0
        for key, value in error.trailing_metadata() or ():
            if key == _TRAILER and isinstance(value, bytes):
                try:
                    found, head = refusal(value)
                except DecodeError:
                    continue
                reason = found or reason
        self._end(Reply(call.process, call.call, self._clock_ns(), Outcome.REFUSED, reason, head), name)

    def _doubt(self, name: bytes) -> None:
        if name in self._open:
            self._open[name] = self._open[name]._replace(doubtful=True)

    def _end(self, reply: Reply, name: bytes) -> None:
        attempted = self._open.pop(name, None)
        if attempted is not None and attempted.doubtful and reply.outcome is Outcome.REFUSED:
            # Left without a reply, it counts as unknown: the doubtful attempt may have been executed.
            return
        self._writer.end(reply)


def _request_id(request: Message) -> bytes:
    """Returns what attempts of one call have in common; empty for calls that change nothing."""
    call = getattr(request, "call", None)
    if call is None or not call.HasField("request_id"):
        return b""
    identity = (
        call.request_id.uuid or f"{call.actor.agent_id}#{call.actor.incarnation}/{call.request_id.sequence.sequence}"
    )
    return f"{type(request).__name__} {identity}".encode()
