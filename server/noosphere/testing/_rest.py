"""When server and clients have come to rest, so that nothing more happens until time moves on.

At rest every call of a client is parked at the server's clock, no client is about to make one, and whoever
reads a watch has read everything that the server has sent.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from dataclasses import dataclass

from ._calls import Calls
from ._meter import Meter
from ._streams import Streams
from ._time import ClientTime

SECONDS_MAX = 10.0
"""Of real time. Far more than any chain of calls takes that waits for nothing."""

_TURNS = 32
"""More turns of the event loop than lie between any two steps of such a chain."""


@dataclass(frozen=True, slots=True, eq=False)
class Participant:
    """A client in this process: its time, and its calls under way."""

    time: ClientTime
    meter: Meter


class Rest:
    """Finds out when everybody is at rest; lives on the server's event loop.

    Attributes:
        clients: the clients in this process.
        streams: their watches.
    """

    def __init__(self) -> None:
        self.clients: dict[Participant, None] = {}
        self.streams = Streams(self.changed)
        self._loop = asyncio.get_running_loop()
        self._changes = 0
        self._changed = asyncio.Event()

    def changed(self) -> None:
        """Says that something has happened; may be called on any thread."""
        self._changes += 1
        try:
            if asyncio.get_running_loop() is self._loop:
                self._changed.set()
                return
        except RuntimeError:
            pass
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._changed.set)

    async def come(self, calls: Calls) -> None:
        """Returns once everybody is at rest.

        Raises:
            TimeoutError: after 10 seconds somebody still calls and calls.
        """
        busy: dict[str, int] = {}
        try:
            async with asyncio.timeout(SECONDS_MAX):
                while True:
                    seen = self._changes
                    await self._turn()
                    # Who calls without a pause may just be between two calls when the time is over.
                    busy = self._restless(calls) or busy
                    if self._changes != seen:
                        continue
                    if self._at_rest(calls):
                        return
                    self._changed.clear()
                    if self._changes == seen:
                        await self._changed.wait()
        except TimeoutError:
            raise TimeoutError(
                f"time cannot move: after {SECONDS_MAX:g} s {self._describe(self._restless(calls) or busy)}; "
                "a task that calls without a pause keeps the test's time from moving"
            ) from None

    async def _turn(self) -> None:
        """Lets whatever can run without waiting run, here and on the clients' event loops."""
        await _turns()
        for loop in {client.time.loop for client in self.clients} - {self._loop}:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_turns(), loop))

    def _at_rest(self, calls: Calls) -> bool:
        return not self._restless(calls) and self.streams.at_rest

    def _restless(self, calls: Calls) -> dict[str, int]:
        """Returns by agent how much goes on that is not parked."""
        found: Counter[str] = Counter()
        for client in self.clients:
            found[client.time.agent] += client.meter.under_way + client.time.restless
        parked = calls.parked_by_agent()
        return {agent: count - parked[agent] for agent, count in found.items() if count != parked[agent]}

    def _describe(self, busy: dict[str, int]) -> str:
        told = [f"{agent} has {count} calls under way" for agent, count in busy.items()]
        return ", ".join(told) or "a watch has messages under way"

    def next_seconds(self) -> float:
        """Returns how long until some client's wait ends; infinite if nobody waits."""
        return min((client.time.next_seconds for client in self.clients), default=math.inf)

    async def move(self, seconds: float) -> None:
        """Moves the time of every client."""
        for client in self.clients:
            if client.time.loop is self._loop:
                client.time.move(seconds)
            else:
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_move(client, seconds), client.time.loop))


async def _turns() -> None:
    for _ in range(_TURNS):
        await asyncio.sleep(0)


async def _move(client: Participant, seconds: float) -> None:
    client.time.move(seconds)
