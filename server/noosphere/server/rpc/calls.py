"""What every rpc method shares: refusals become statuses, anything else becomes one logged INTERNAL.

What has to be found out first, e.g. whether an incarnation that this process does not know is current, is found out;
see ``security.unsettled``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from functools import wraps
from typing import Any, NoReturn, TypeVar

import grpc
import structlog
from google.protobuf.message import Message

from noosphere.consistency import Refusal

from ..security import Unsettled
from .errors import abort

log = structlog.get_logger(__name__)

Servicer = TypeVar("Servicer")
Request = TypeVar("Request")
Response = TypeVar("Response")
T = TypeVar("T")
SETTLED_MAX = 64
"""How much is found out for one call: whether its incarnation is current, and who uses each session that it names."""

# The two type parameters of the context are not used by any method of ours.
Context = grpc.aio.ServicerContext[Any, Any]


def unary(
    method: Callable[[Servicer, Request, Context], Awaitable[Response]],
) -> Callable[[Servicer, Request, Context], Awaitable[Response]]:
    """Wraps a unary handler."""

    @wraps(method)
    async def handler(self: Servicer, request: Request, context: Context) -> Response:
        try:
            # A stream of requests cannot be read again: see `certain`.
            if not isinstance(request, Message):
                return await method(self, request, context)
            try:
                return await method(self, request, context)
            except Unsettled as unsettled:
                # Most calls have nothing to find out, and pay for no retry.
                await unsettled.settle()
            return await certain(lambda: method(self, request, context))
        except Refusal as refusal:
            await abort(context, refusal)
        except (asyncio.CancelledError, grpc.aio.AbortError):
            raise
        except Exception as error:
            await _internal(context, method.__name__, error)

    return handler


def streaming(
    method: Callable[[Servicer, Request, Context], AsyncGenerator[Response, None]],
) -> Callable[[Servicer, Request, Context], AsyncGenerator[Response, None]]:
    """Wraps a handler that answers with a stream; when that is closed, so is everything behind it, at once."""

    @wraps(method)
    async def handler(self: Servicer, request: Request, context: Context) -> AsyncGenerator[Response, None]:
        begun = False
        left = SETTLED_MAX
        try:
            while True:
                try:
                    async with aclosing(method(self, request, context)) as responses:
                        async for response in responses:
                            begun = True
                            yield response
                    return
                except Unsettled as unsettled:
                    # An incarnation was known when the stream began, so it has ended since.
                    if begun or not left:
                        raise
                    await unsettled.settle()
                    left -= 1
        except Refusal as refusal:
            await abort(context, refusal)
        except (asyncio.CancelledError, grpc.aio.AbortError, GeneratorExit):
            raise
        except Exception as error:
            await _internal(context, method.__name__, error)

    return handler


async def certain(attempt: Callable[[], Awaitable[T]]) -> T:
    """Does what a caller asks for, and again whenever something had to be found out first."""
    for _ in range(SETTLED_MAX):
        try:
            return await attempt()
        except Unsettled as unsettled:
            await unsettled.settle()
    return await attempt()


async def _internal(context: Context, method: str, error: Exception) -> NoReturn:
    # The message may hold a caller's value, so it stays in the server's own log.
    log.error("internal error", method=method, exc_info=error)
    await context.abort(grpc.StatusCode.INTERNAL, f"internal error in {method}: {type(error).__name__}")
    raise AssertionError("abort always raises")
