"""Calls of a client that are looked at while they are read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc


class ReadCall:
    """A call with a stream of answers, as a loop over it and everything else but ``read`` see it.

    Args:
        call: the call.
    """

    def __init__(self, call: Any) -> None:
        self._call = call

    async def read(self) -> Any:
        """Returns the next message; see ``grpc.aio.UnaryStreamCall``."""
        return await self._call.read()

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        message = await self.read()
        if message is grpc.aio.EOF:
            raise StopAsyncIteration
        return message

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)
