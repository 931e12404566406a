"""What every call passes on its way in and out: who calls, how much at once, what is noted of it.

Steps are told when a call begins, in order, and may refuse it before any work is done; those that let it pass are told
when it ends, in the opposite order. They never wait: what has to be found out first is raised as
``Unsettled``. A call inside a Pipeline passes like its unary twin.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from contextvars import ContextVar
from typing import Any, Protocol

import grpc
import structlog
from google.protobuf.message import Message

from noosphere.consistency import Refusal

from ..security import Unsettled
from .calls import SETTLED_MAX, Context, certain
from .errors import abort, last_refusal

log = structlog.get_logger(__name__)

_CODE_OF = {code.value[0]: code for code in grpc.StatusCode}


class Rpc:
    """A call under way.

    Attributes:
        method: its full name, ``/noosphere.v1.MemoryService/Get``.
        context: gRPC's; that of the stream for a call inside a Pipeline.
        message: the request; None for a stream of requests.
        streams: whether it answers with a stream.
        parent: the Pipeline that it came by; None for a call by itself.
        refusal: why it was refused; None as long as it is not.
        code: how it ended.
        notes: what steps remember of it, each under a key of its own.
        response: the answer of one that answers with a single message; None before that.
        sent_bytes: of what was answered, so far.
        ended: whether all is done about it.
        began_seconds: when it came, by the clock of the step that measures; 0.0 if none does.
    """

    __slots__ = (
        "began_seconds",
        "code",
        "context",
        "ended",
        "message",
        "method",
        "notes",
        "parent",
        "refusal",
        "response",
        "sent_bytes",
        "streams",
    )

    def __init__(
        self, method: str, context: Context | None, message: Message | None, *, streams: bool, parent: Rpc | None = None
    ) -> None:
        self.method = method
        self.context = context
        self.message = message
        self.streams = streams
        self.parent = parent
        self.refusal: Refusal | None = None
        self.code = grpc.StatusCode.OK
        self.notes: dict[str, Any] = {}
        self.response: Message | None = None
        self.sent_bytes = 0
        self.ended = False
        self.began_seconds = 0.0

    def answered(self, response: Message) -> None:
        """Takes note of an answer, or of one message of it."""
        self.sent_bytes += response.ByteSize()
        if not self.streams:
            self.response = response


under_way: ContextVar[Rpc | None] = ContextVar("under_way", default=None)
"""The call that this task answers."""


class Step(Protocol):
    """One thing that is done about every call. Shared by all of them, and never waits."""

    def begin(self, rpc: Rpc) -> None:
        """Is told that a call has come.

        Raises:
            Refusal: it may not go on.
            Unsettled: it is not known yet whether it may; once that is settled, this step is told again.
        """
        ...

    def end(self, rpc: Rpc) -> None:
        """Is told how a call that it let pass has ended. Must not raise."""
        ...


class Gate:
    """See the module.

    Args:
        steps: in the order in which they are told of a call that begins.
    """

    def __init__(self, steps: Sequence[Step] = ()) -> None:
        self._steps = tuple(steps)

    def passing(self, method: str, behaviour: Callable[..., Any], *, takes_stream: bool) -> Callable[..., Any]:
        """Returns what answers a call that comes by itself.

        Args:
            method: the full name.
            behaviour: a handler as gRPC calls it; it ends refused calls itself.
            takes_stream: whether requests come as a stream.
        """
        if not self._steps:
            return behaviour
        streams = inspect.isasyncgenfunction(behaviour)

        async def unary(request: Any, context: Context) -> Any:
            rpc = Rpc(method, context, None if takes_stream else request, streams=False)
            begun = await self._begin_or_abort(rpc, context)
            try:
                response = await behaviour(request, context)
                rpc.answered(response)
                return response
            except BaseException as error:
                _note_end(rpc, error)
                raise
            finally:
                self._end(rpc, begun)

        async def streaming(request: Any, context: Context) -> Any:
            rpc = Rpc(method, context, None if takes_stream else request, streams=True)
            begun = await self._begin_or_abort(rpc, context)
            try:
                async with aclosing(behaviour(request, context)) as responses:
                    async for response in responses:
                        rpc.answered(response)
                        yield response
            except BaseException as error:
                _note_end(rpc, error)
                raise
            finally:
                self._end(rpc, begun)

        return streaming if streams else unary

    def passing_inside(
        self, method: str, behaviour: Callable[[Any], Awaitable[Any]]
    ) -> Callable[[Any], Awaitable[Any]]:
        """Returns what answers a call inside a Pipeline.

        Args:
            method: the full name of its unary twin.
            behaviour: answers a request; raises ``Refusal``.
        """
        if not self._steps:
            return lambda request: certain(lambda: behaviour(request))

        async def inside(request: Any) -> Any:
            parent = under_way.get()
            rpc = Rpc(method, parent.context if parent else None, request, streams=False, parent=parent)
            under_way.set(rpc)
            begun = 0
            try:
                for step in self._steps:
                    try:
                        step.begin(rpc)
                    except Unsettled as unsettled:
                        await _settle(step, rpc, unsettled)
                    begun += 1
                response = await certain(lambda: behaviour(request))
                rpc.answered(response)
                return response
            except BaseException as error:
                _note_end(rpc, error)
                raise
            finally:
                self._end(rpc, begun)

        return inside

    async def _begin_or_abort(self, rpc: Rpc, context: Context) -> int:
        """Begins every step; returns how many. Ends the call if one of them refuses it."""
        under_way.set(rpc)
        begun = 0
        try:
            for step in self._steps:
                try:
                    step.begin(rpc)
                except Unsettled as unsettled:
                    await _settle(step, rpc, unsettled)
                begun += 1
        except Refusal as refusal:
            rpc.refusal, rpc.code = refusal, grpc.StatusCode[refusal.code.value]
            self._end(rpc, begun)
            await abort(context, refusal)
        except Exception as error:
            log.error("a call could not begin", method=rpc.method, exc_info=error)
            rpc.code = grpc.StatusCode.INTERNAL
            self._end(rpc, begun)
            await context.abort(rpc.code, f"internal error before {rpc.method}: {type(error).__name__}")
        return begun

    def _end(self, rpc: Rpc, begun: int) -> None:
        for step in reversed(self._steps[:begun]):
            try:
                step.end(rpc)
            except Exception as error:
                # The caller has got its answer, and the other steps must know.
                log.error("the end of a call could not be noted", method=rpc.method, exc_info=error)
        rpc.ended = True


async def _settle(step: Step, rpc: Rpc, unsettled: Unsettled) -> None:
    """Begins a step that had to find something out first.

    Raises:
        Refusal: the call may not go on.
    """
    for _ in range(SETTLED_MAX):
        await unsettled.settle()
        try:
            step.begin(rpc)
        except Unsettled as more:
            unsettled = more
        else:
            return
    raise unsettled


def _note_end(rpc: Rpc, error: BaseException) -> None:
    """Notes how a call has ended otherwise than well."""
    match error:
        case Refusal():
            rpc.refusal, rpc.code = error, grpc.StatusCode[error.code.value]
        case grpc.aio.AbortError():
            rpc.refusal = last_refusal(rpc.context)
            # gRPC keeps a number, whatever its types say.
            code: Any = rpc.context.code() if rpc.context is not None else grpc.StatusCode.UNKNOWN
            rpc.code = code if isinstance(code, grpc.StatusCode) else _CODE_OF.get(code, grpc.StatusCode.UNKNOWN)
        case asyncio.CancelledError() | GeneratorExit():
            rpc.code = grpc.StatusCode.CANCELLED
        case _:
            rpc.code = grpc.StatusCode.INTERNAL
