"""The time of the clients of a test's server: it passes by itself, and jumps when the test moves the server's.

So retries and deadlines run on as they do in production, while whatever a client does now and then (renew a
lease or a claim, wait for a task) happens when it would have: a test that moves time by ten minutes finds
the claims of its agents still held.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

SHORT_SECONDS = 0.1
"""A client that waits no longer than this is about to do something; such waits pass by themselves."""


class ClientTime:
    """One client's time, on the event loop that it was made on.

    Args:
        agent: the client's agent.
        changed: called, on any thread, whenever the client begins or ends a wait.

    Attributes:
        loop: the client's event loop.
        restless: how many short waits are going on.
    """

    def __init__(self, agent: str, changed: Callable[[], None]) -> None:
        self.agent = agent
        self.loop = asyncio.get_running_loop()
        self.restless = 0
        self._changed = changed
        self._ahead = 0.0
        self._held_back = 0.0
        self._suspended = False
        self._sleepers: dict[asyncio.Future[None], float] = {}

    def clock(self) -> float:
        """Returns monotonic seconds."""
        return self.loop.time() + self._ahead

    async def sleep(self, seconds: float) -> None:
        """Waits for so many seconds, by itself or until :meth:`move` has passed over them."""
        if seconds <= SHORT_SECONDS:
            self.restless += 1
            try:
                await asyncio.sleep(seconds)
            finally:
                self.restless -= 1
                self._changed()
            return
        future: asyncio.Future[None] = self.loop.create_future()
        self._sleepers[future] = self.clock() + seconds
        by_itself = self.loop.call_later(seconds, _wake, future)
        self._changed()
        try:
            await future
        finally:
            by_itself.cancel()
            del self._sleepers[future]
            self._changed()

    @property
    def next_seconds(self) -> float:
        """How long until the next wait ends; infinite if there is none, or time is kept from the client."""
        if self._suspended:
            return math.inf
        return (
            min((due for future, due in self._sleepers.items() if not future.done()), default=math.inf) - self.clock()
        )

    def move(self, seconds: float) -> None:
        """Moves on, unless suspended; whoever is due wakes."""
        if self._suspended:
            self._held_back += seconds
            return
        self._ahead += seconds
        now = self.clock()
        for future, due in self._sleepers.items():
            if due <= now:
                _wake(future)

    def suspend(self) -> None:
        """Keeps jumps from the client: for it, the test's time stands still."""
        self._suspended = True

    def resume(self) -> None:
        """Catches up with what was kept from it."""
        self._suspended = False
        seconds, self._held_back = self._held_back, 0.0
        self.move(seconds)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
