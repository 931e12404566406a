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
from .requests import agent_of

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
        ended_seconds: when it had ended, by that clock; 0.0 before that.
    """

    __slots__ = (
        "_agent",
        "_request_bytes",
        "began_seconds",
        "code",
        "context",
        "ended",
        "ended_seconds",
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
        self.ended_seconds = 0.0
        self._agent: str | None = None
        self._request_bytes = -1

    @property
    def agent(self) -> str:
        """The agent in whose name it comes, as the request says; "" if in none."""
        found = self._agent
        if found is None:
            found = self._agent = "" if self.message is None else agent_of(self.message)
        return found

    @property
    def request_bytes(self) -> int:
        """The size of the request; 0 for a stream of requests. To measure one costs as much as to encode it."""
        size = self._request_bytes
        if size < 0:
            size = self._request_bytes = 0 if self.message is None else self.message.ByteSize()
        return size

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
        """Is told that a call has come. A step with nothing to do then says ``begin = nothing``.

        Raises:
            Refusal: it may not go on.
            Unsettled: it is not known yet whether it may; once that is settled, this step is told again.
        """
        ...

    def end(self, rpc: Rpc) -> None:
        """Is told how a call that it let pass has ended. Must not raise."""
        ...


def nothing(_step: Step, _rpc: Rpc) -> None:
    """Is the ``begin``, or the ``end``, of a step that does nothing there: it is not even called."""


class Gate:
    """See the module.

    Args:
        steps: in the order in which they are told of a call that begins.
    """

    def __init__(self, steps: Sequence[Step] = ()) -> None:
        self._steps = tuple(steps)
        self._begins = tuple(None if _idle(step.begin) else step.begin for step in self._steps)
        self._ends = tuple(step.end for step in reversed(self._steps) if not _idle(step.end))

    def passing(self, method: str, behaviour: Callable[..., Any], *, takes_stream: bool) -> Callable[..., Any]:
        """Returns what answers a call that comes by itself.

        Args:
            method: the full name.
            behaviour: a handler as gRPC calls it; it ends refused calls itself.
            takes_stream: whether requests come as a stream.
        """
        if not self._steps:
            return behaviour
        streams, begins = inspect.isasyncgenfunction(behaviour), self._begins

        async def unary(request: Any, context: Context) -> Any:
            rpc = Rpc(method, context, None if takes_stream else request, streams=False)
            under_way.set(rpc)
            begun = 0
            try:
                for begin in begins:
                    if begin is not None:
                        begin(rpc)
                    begun += 1
            except BaseException as error:
                await self._begin_rest(rpc, begun, error, context)
            try:
                response = await behaviour(request, context)
                rpc.answered(response)
                return response
            except BaseException as error:
                _note_end(rpc, error)
                raise
            finally:
                self._end(rpc)

        async def streaming(request: Any, context: Context) -> Any:
            rpc = Rpc(method, context, None if takes_stream else request, streams=True)
            under_way.set(rpc)
            begun, error = self._begin(rpc, 0)
            if error is not None:
                await self._begin_rest(rpc, begun, error, context)
            try:
                async with aclosing(behaviour(request, context)) as responses:
                    async for response in responses:
                        rpc.answered(response)
                        yield response
            except BaseException as error:
                _note_end(rpc, error)
                raise
            finally:
                self._end(rpc)

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
            begun, error = self._begin(rpc, 0)
            if error is not None:
                await self._begin_rest(rpc, begun, error)
            try:
                response = await certain(lambda: behaviour(request))
                rpc.answered(response)
                return response
            except BaseException as error:
                _note_end(rpc, error)
                raise
            finally:
                self._end(rpc)

        return inside

    def _begin(self, rpc: Rpc, first: int) -> tuple[int, BaseException | None]:
        """Begins steps from the first one on; returns how many have begun, and what kept the next from it."""
        begun = first
        try:
            for begin in self._begins[first:]:
                if begin is not None:
                    begin(rpc)
                begun += 1
        except BaseException as error:
            return begun, error
        return begun, None

    async def _begin_rest(
        self, rpc: Rpc, begun: int, error: BaseException | None, context: Context | None = None
    ) -> None:
        """Begins the steps that are left, one of which was kept from it by an error.

        Args:
            rpc: the call.
            begun: how many steps have begun.
            error: what kept the next one from it.
            context: ends the call if a step refuses it; None if whoever called ends it.

        Raises:
            BaseException: it may not go on; the steps that had begun have been told of its end.
        """
        try:
            while error is not None:
                if not isinstance(error, Unsettled):
                    raise error
                await _settle(self._steps[begun], rpc, error)
                begun, error = self._begin(rpc, begun + 1)
        except BaseException as failed:
            _note_end(rpc, failed)
            self._end(rpc, begun)
            if context is not None and isinstance(failed, Refusal):
                await abort(context, failed)
            if context is not None and isinstance(failed, Exception):
                log.error("a call could not begin", method=rpc.method, exc_info=failed)
                await context.abort(rpc.code, f"internal error before {rpc.method}: {type(failed).__name__}")
            raise

    def _end(self, rpc: Rpc, begun: int | None = None) -> None:
        """Tells the steps that have begun, all of them unless told how many."""
        ends = self._ends if begun is None else [step.end for step in reversed(self._steps[:begun])]
        for end in ends:
            try:
                end(rpc)
            except Exception as error:
                # The caller has got its answer, and the other steps must know.
                log.error("the end of a call could not be noted", method=rpc.method, exc_info=error)
        rpc.ended = True


def _idle(bound: Callable[[Rpc], None]) -> bool:
    return getattr(bound, "__func__", None) is nothing


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
