"""One limit over several calls and the caller's own thinking between them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar, cast

from ._errors import DeadlineExceeded
from ._transport import Transport

T = TypeVar("T")
P = ParamSpec("P")


class Budget:
    """What is left of the time for something that takes several calls.

    Args:
        transport: the client's way to the server.
        timeout: the limit, in seconds; None sets none beyond the default deadline of each call.
        what: what is limited, for the error.
    """

    def __init__(self, transport: Transport, timeout: float | None, what: str) -> None:
        self._clock = transport.clock
        self._default = transport.timeout
        self._limit = transport.deadline(timeout)
        self._end = None if timeout is None else self._clock() + self._limit
        self._what = what

    def call(self) -> float | None:
        """Returns the deadline of the next call, in seconds.

        Raises:
            DeadlineExceeded: nothing is left.
        """
        return None if self._end is None else min(self._left(), self._default)

    def within(self, seconds: float) -> float:
        """Returns as much of ``seconds`` as is left.

        Raises:
            DeadlineExceeded: nothing is left.
        """
        return seconds if self._end is None else min(self._left(), seconds)

    async def run(self, function: Callable[P, T | Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a function of the caller's, which may be async, within what is left.

        Raises:
            DeadlineExceeded: nothing is left.
        """
        scope = asyncio.timeout(None if self._end is None else self._left())
        try:
            async with scope:
                found = function(*args, **kwargs)
                return await cast("Awaitable[T]", found) if inspect.isawaitable(found) else found
        except TimeoutError:
            # The function's own TimeoutError is not ours to translate.
            if scope.expired():
                raise self._exceeded() from None
            raise

    def _left(self) -> float:
        assert self._end is not None
        if (left := self._end - self._clock()) <= 0:
            raise self._exceeded()
        return left

    def _exceeded(self) -> DeadlineExceeded:
        return DeadlineExceeded(f"the {self._what} was not finished within {self._limit:g} s")
