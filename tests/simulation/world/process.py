"""Simulated machines: a process on each that can be killed, and a clock that can jump.

``kill -9`` takes a process out between two turns of the event loop. Its tasks are cancelled, so that they go away; but
from that moment nothing that they do on their way out leaves the process: connections are broken, the disk is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import Context
from typing import Any

from .guards import WALL_SECONDS
from .loop import Family, SimLoop, family
from .network import Network, host


class SimClock:
    """A machine's clock, as a server takes it.

    Attributes:
        ahead_ms: how far its wall clock is off.
    """

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self.ahead_ms = 0

    def wall_ms(self) -> int:
        """Returns milliseconds since the Unix epoch; jumps when told to."""
        return int((WALL_SECONDS + self._loop.time()) * 1000) + self.ahead_ms

    def monotonic_ms(self) -> int:
        """Returns milliseconds since some fixed moment."""
        return int(self._loop.time() * 1000)

    async def sleep(self, seconds: float) -> None:
        """Suspends the caller."""
        await asyncio.sleep(seconds)

    async def wait(self, future: asyncio.Future[Any], seconds: float) -> None:
        """Suspends the caller until ``future`` is done, at most for some time."""
        await asyncio.wait((future,), timeout=seconds)


class Process:
    """A process on a machine of its own, whose name is its host's.

    Args:
        network: what it is connected to.
        name: the host.

    Attributes:
        family: its tasks.
        main: what it was started for.
    """

    def __init__(self, network: Network, name: str) -> None:
        self.name = name
        self.family = Family()
        self.main: asyncio.Task[Any] | None = None
        self._network = network
        self._context = Context()
        self._context.run(host.set, name)
        self._context.run(family.set, self.family)
        network.adopt(name, self._context)

    def start(self, main: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Runs a coroutine in the process."""
        loop = self._network.loop
        self.main = loop.create_task(main, name=self.name, context=self._context.copy())
        return self.main

    def kill(self) -> None:
        """Ends the process without a word."""
        if self.family.dead:
            return
        self._network.loop.trace("kill", self.name)
        self.family.dead = True
        self._network.crash(self.name)
        for task in tuple(self.family.tasks):
            task.cancel()
