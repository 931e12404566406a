"""Agents that are killed in the middle of their work, and begin another life under the same name some time later.

What a killed agent held runs out, as nobody renews it: claims, locks, turns. What it had half done is there for its
next life to find. That life is another process: it has seen nothing, and what it does is recorded as somebody else's.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from .network import Network
from .process import Process

PAUSES_SECONDS_MAX = (1.5, 6.0)
"""Between two kills, about; each run has one of them, or nobody is killed."""
ABSENCES_SECONDS_MAX = (0.2, 2.0, 8.0)
"""After a kill, until the agent is started again. Locks are held for 3 s: the last is longer than that."""


class Agent:
    """An agent on a machine of its own, through all its lives.

    Args:
        network: what it is connected to.
        name: the agent's, and its host's.
        live: what it does, given the number of its life, from 1.

    Attributes:
        name: as given.
        task: what its present life does.
    """

    def __init__(self, network: Network, name: str, live: Callable[[int], Coroutine[Any, Any, None]]) -> None:
        self.name = name
        self._network = network
        self._live = live
        self._lives = 0
        self.start()

    def start(self) -> None:
        """Begins a life."""
        self._lives += 1
        self._process = Process(self._network, self.name)
        self.task: asyncio.Task[None] = self._process.start(self._live(self._lives))

    def kill(self) -> None:
        """Ends a life without a word."""
        self._process.kill()


async def kill_some(agents: Sequence[Agent], rng: random.Random, stop: asyncio.Event) -> None:
    """Kills agents, one at a time, until it is told to stop; all of them live when it returns."""
    pause = rng.choice((*PAUSES_SECONDS_MAX, None))
    while pause is not None and not await _stopped(stop, rng.uniform(0.2, pause)):
        agent = rng.choice(agents)
        agent.kill()
        await _stopped(stop, rng.random() * rng.choice(ABSENCES_SECONDS_MAX))
        agent.start()


async def _stopped(stop: asyncio.Event, seconds: float) -> bool:
    """Waits for so long, or until it is told to stop; returns whether it was."""
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return False
    return True
