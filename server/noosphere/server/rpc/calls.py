"""What every rpc method shares: refusals become statuses, anything else becomes one logged INTERNAL.

A call of an incarnation that this process does not know is answered once it does; see ``memory.newcomers``.
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

from ..memory.newcomers import UnknownIncarnation
from .errors import abort

log = structlog.get_logger(__name__)

Servicer = TypeVar("Servicer")
Request = TypeVar("Request")
Response = TypeVar("Response")
T = TypeVar("T")
# The two type parameters of the context are not used by any method of ours.
Context = grpc.aio.ServicerContext[Any, Any]


def unary(
    method: Callable[[Servicer, Request, Context], Awaitable[Response]],
) -> Callable[[Servicer, Request, Context], Awaitable[Response]]:
    """Wraps a unary handler."""

    @wraps(method)
    async def handler(self: Servicer, request: Request, context: Context) -> Response:
        try:
            try:
                return await method(self, request, context)
            except UnknownIncarnation as unknown:
                # A stream of requests cannot be read again: see `certain`.
                if not isinstance(request, Message):
                    raise
                await unknown.settle()
            return await method(self, request, context)
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
        try:
            try:
                async with aclosing(method(self, request, context)) as responses:
                    async for response in responses:
                        begun = True
                        yield response
                return
            except UnknownIncarnation as unknown:
                # It was known when the stream began, so it has ended since.
                if begun:
                    raise
                await unknown.settle()
            async with aclosing(method(self, request, context)) as responses:
                async for response in responses:
                    yield response
        except Refusal as refusal:
            await abort(context, refusal)
        except (asyncio.CancelledError, grpc.aio.AbortError, GeneratorExit):
            raise
        except Exception as error:
            await _internal(context, method.__name__, error)

    return handler


async def certain(attempt: Callable[[], Awaitable[T]]) -> T:
    """Does what a caller asks for, and again if whether the caller is current had to be asked first."""
    try:
        return await attempt()
    except UnknownIncarnation as unknown:
        await unknown.settle()
    return await attempt()


async def _internal(context: Context, method: str, error: Exception) -> NoReturn:
    # The message may hold a caller's value, so it stays in the server's own log.
    log.error("internal error", method=method, exc_info=error)
    await context.abort(grpc.StatusCode.INTERNAL, f"internal error in {method}: {type(error).__name__}")
    raise AssertionError("abort always raises")
