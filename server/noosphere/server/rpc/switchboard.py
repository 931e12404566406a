"""Passes calls on to whoever answers them at present.

The listener and its connections outlive the services: these are closed and opened anew when an epoch begins. In between
calls are refused, so that clients try them again with the same id, and nobody has to connect again.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any, Protocol, TypeAlias

import grpc
import structlog

from noosphere.consistency import Refusal

from .breaking import Breaking
from .calls import Context
from .errors import abort
from .gate import Gate
from .malformed import lenient, refusing


class Shedding(Protocol):
    """Refuses calls that are too many."""

    def refusal(self, method: str) -> Refusal | None:
        """Returns why a call is not even read; None if it is."""
        ...

    async def hold(self, refusal: Refusal, peer: str) -> None:
        """Returns once the caller is to be told."""
        ...


log = structlog.get_logger(__name__)

END_SECONDS_MAX = 5.0
"""How long calls that are broken off may take to notice."""

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Handlers: TypeAlias = Mapping[str, Handler]
"""What answers calls, by the full name of the method."""


class Collected:
    """Takes the place of a server where generated code registers what answers calls.

    Attributes:
        handlers: what it has registered.
    """

    def __init__(self) -> None:
        self.handlers: dict[str, Handler] = {}

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """Does nothing: each method is registered by its name as well."""

    def add_registered_method_handlers(self, service: str, methods: Mapping[str, Handler]) -> None:
        """Takes the methods of a service."""
        self.handlers |= {f"/{service}/{name}": handler for name, handler in methods.items()}


class Switchboard(grpc.GenericRpcHandler):
    """See the module. Lives on one event loop.

    Args:
        gate: what calls pass, whoever answers them.
        shedding: refuses calls before they are read; None: nobody does.
    """

    def __init__(self, gate: Gate | None = None, shedding: Shedding | None = None) -> None:
        self._gate = gate or Gate()
        self._shedding = shedding
        self._present: Handlers = {}
        self._known: Handlers = {}
        self._under_way: dict[asyncio.Task[Any], Context] = {}
        self._breaking = Breaking()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Handler | None:
        """Returns what answers a call; None for a method that nobody has."""
        method = handler_call_details.method
        if self._shedding is not None and (refusal := self._shedding.refusal(method)) is not None:
            return self._shed(refusal)
        return self._present.get(method)

    def connect(self, handlers: Handlers, *, may_end: bool) -> None:
        """Has calls answered from now on.

        Args:
            handlers: what answers them.
            may_end: whether they may be told to end before the server does; calls under way are noted for that.
        """
        self._known = handlers
        passing = {name: self._passing(name, one) for name, one in handlers.items()}
        self._present = {name: self._noted(one) for name, one in passing.items()} if may_end else passing

    def disconnect(self, refusal: Refusal) -> None:
        """Has calls refused from now on. Never waits; those under way go on."""
        self._present = {name: _refusing(handler, refusal) for name, handler in self._known.items()}

    async def break_off(self, refusal: Refusal, after_seconds: float) -> None:
        """Lets calls under way end by themselves for some time, then refuses them, whatever they wait for."""
        if self._under_way:
            await asyncio.wait(tuple(self._under_way), timeout=after_seconds)
        left = dict(self._under_way)
        for task, context in left.items():
            self._breaking.end(task, context, refusal)
        if left:
            _, stubborn = await asyncio.wait(tuple(left), timeout=END_SECONDS_MAX)
            if stubborn:
                log.error("calls do not end", count=len(stubborn))

    def _shed(self, refusal: Refusal) -> Handler:
        shedding = self._shedding
        assert shedding is not None

        async def refuse(_: Any, context: Context) -> None:
            await shedding.hold(refusal, context.peer())
            await abort(context, refusal)

        # Of whatever kind the method is: a handler of streams does not wait for a request.
        made: Callable[..., Handler] = grpc.stream_stream_rpc_method_handler
        return made(refuse)

    def _passing(self, method: str, handler: Handler) -> Handler:
        takes_stream = bool(handler.request_streaming)

        def passing(behaviour: Callable[..., Any]) -> Callable[..., Any]:
            return refusing(self._gate.passing(method, behaviour, takes_stream=takes_stream), takes_stream=takes_stream)

        return _with(handler, passing)

    def _noted(self, handler: Handler) -> Handler:
        """Returns a handler that does the same and is known while it runs."""
        under_way = self._under_way

        def unary(behaviour: Callable[..., Any]) -> Callable[..., Any]:
            async def noted(request: Any, context: Context) -> Any:
                task = asyncio.current_task()
                assert task is not None
                under_way[task] = context
                try:
                    return await behaviour(request, context)
                finally:
                    under_way.pop(task, None)

            return noted

        def streaming(behaviour: Callable[..., Any]) -> Callable[..., Any]:
            async def noted(request: Any, context: Context) -> Any:
                task = asyncio.current_task()
                assert task is not None
                under_way[task] = context
                try:
                    async with aclosing(behaviour(request, context)) as responses:
                        async for response in responses:
                            yield response
                finally:
                    under_way.pop(task, None)

            return noted

        def either(behaviour: Callable[..., Any]) -> Callable[..., Any]:
            return (streaming if inspect.isasyncgenfunction(behaviour) else unary)(behaviour)

        return _with(handler, either)


def _refusing(handler: Handler, refusal: Refusal) -> Handler:
    async def refuse(_: Any, context: Context) -> None:
        await abort(context, refusal)

    return _with(handler, lambda _: refuse)


def _with(handler: Handler, change: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Handler:
    """Returns a handler of the same method that behaves otherwise."""
    found: Any = handler
    match found.request_streaming, found.response_streaming:
        case False, False:
            make, behaviour = grpc.unary_unary_rpc_method_handler, found.unary_unary
        case False, True:
            make, behaviour = grpc.unary_stream_rpc_method_handler, found.unary_stream
        case True, False:
            make, behaviour = grpc.stream_unary_rpc_method_handler, found.stream_unary
        case _:
            make, behaviour = grpc.stream_stream_rpc_method_handler, found.stream_stream
    made: Callable[..., Handler] = make
    return made(change(behaviour), lenient(found.request_deserializer), found.response_serializer)
