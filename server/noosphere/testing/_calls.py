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
    def entered(self, call: Call, *, own_task: bool) -> Iterator[None]:
        """A call is under way inside the block.

        Args:
            call: the call.
            own_task: whether it runs in a task of its own. Then waits for the clock inside the block are its own.
        """
        self._under_way[call] = None
        # A pipelined call changes tasks on its way, and with them what belongs to it.
        token = _CURRENT.set(call) if own_task else None
        self._changed()
        try:
            yield
        finally:
            if token is not None:
                _CURRENT.reset(token)
            del self._under_way[call]
            self._changed()

    async def parked(self, call: Call | None, until_ms: int, waiting: Awaitable[object]) -> None:
        """Waits; the call, if there is one, counts as parked meanwhile."""
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

    async def wait(self, future: asyncio.Future[Any], seconds: float, *, call: Call | None = None) -> None:
        """Suspends the caller, on behalf of ``call``, until ``future`` is done or the clock has been moved so far."""
        await self.calls.parked(call or _CURRENT.get(), self.due_ms(seconds), super().wait(future, seconds))
