"""Requests that are no messages of their type: refused like any other bad input.

gRPC itself would end such a call as UNKNOWN, with a traceback in the log.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

from google.protobuf.message import DecodeError

from noosphere.consistency import Refusal, invalid

from .calls import Context
from .errors import abort


class _Malformed:
    """Stands for a request that could not be decoded."""


_MALFORMED = _Malformed()


def lenient(deserialize: Callable[[bytes], Any] | None) -> Callable[[bytes], Any] | None:
    """Returns what decodes the same, and what cannot be decoded as something that :func:`refusing` knows."""
    if deserialize is None or getattr(deserialize, "lenient", False):
        return deserialize

    def decode(data: bytes) -> Any:
        try:
            return deserialize(data)
        except DecodeError:
            return _MALFORMED

    known: Any = decode
    # A handler is made from another one more than once.
    known.lenient = True
    return decode


def refusing(behaviour: Callable[..., Any], *, takes_stream: bool) -> Callable[..., Any]:
    """Returns a handler that refuses what could not be decoded, and does the same otherwise.

    Args:
        behaviour: a handler as gRPC calls it.
        takes_stream: whether requests come as a stream.
    """
    streams = inspect.isasyncgenfunction(behaviour)

    async def unary(request: Any, context: Context) -> Any:
        if request is _MALFORMED:
            await abort(context, _malformed())
        return await behaviour(_checked(request) if takes_stream else request, context)

    async def streaming(request: Any, context: Context) -> Any:
        if request is _MALFORMED:
            await abort(context, _malformed())
        async with aclosing(behaviour(_checked(request) if takes_stream else request, context)) as responses:
            async for response in responses:
                yield response

    return streaming if streams else unary


async def _checked(requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
    async for request in requests:
        if request is _MALFORMED:
            raise _malformed()
        yield request


def _malformed() -> Refusal:
    return invalid("request", "its bytes are no message of the type that the method takes")
