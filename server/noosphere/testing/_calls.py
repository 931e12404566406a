"""The calls that a server has under way, and which of them wait for its clock to be moved."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from ._clock import ManualClock


@dataclass(slots=True, eq=False)
class Call:
    """A call under way.

    Attributes:
        method: the method's name.
        agent: who calls; empty if the request does not say.
        parked_until_ms: on the server's monotonic clock; None unless the call waits for that.
    """

    method: str
    agent: str
    parked_until_ms: int | None = None


_CURRENT: ContextVar[Call | None] = ContextVar("noosphere call", default=None)


class Calls:
    """Calls under way in one server.

    Args:
        changed: called whenever a call begins, ends, parks or goes on.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._under_way: dict[Call, None] = {}

    @contextmanager
    def entered(self, call: Call) -> Iterator[None]:
        """A call is under way inside the block, and is what the clock takes waits to belong to."""
        self._under_way[call] = None
        token = _CURRENT.set(call)
        self._changed()
        try:
            yield
        finally:
            _CURRENT.reset(token)
            del self._under_way[call]
            self._changed()

    async def parked(self, until_ms: int, waiting: Awaitable[None]) -> None:
        """Waits; the present call, if there is one, counts as parked meanwhile."""
        call = _CURRENT.get()
        if call is None:
            await waiting
            return
        call.parked_until_ms = until_ms
        self._changed()
        try:
            await waiting
        finally:
            call.parked_until_ms = None
            self._changed()

    @property
    def next_ms(self) -> int | None:
        """The earliest moment for which a parked call waits; None if there is none."""
        return min((c.parked_until_ms for c in self._under_way if c.parked_until_ms is not None), default=None)

    def parked_by_agent(self) -> Counter[str]:
        """Returns how many calls of each agent are parked."""
        return Counter(call.agent for call in self._under_way if call.parked_until_ms is not None)


class ServerClock(ManualClock):
    """The clock of a server whose parked calls are known."""

    def __init__(self, changed: Callable[[], None]) -> None:
        super().__init__()
        self.calls = Calls(changed)

    async def sleep(self, seconds: float) -> None:
        """Suspends the caller until the clock has been moved so far; 0 yields to the event loop."""
        if seconds <= 0:
            await asyncio.sleep(0)
        else:
            await self.calls.parked(self.due_ms(seconds), super().sleep(seconds))

    async def wait(self, future: asyncio.Future[Any], seconds: float) -> None:
        """Suspends the caller until ``future`` is done or the clock has been moved so far."""
        await self.calls.parked(self.due_ms(seconds), super().wait(future, seconds))
