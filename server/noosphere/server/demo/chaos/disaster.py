"""One disaster in the middle of a job: a server is killed, and Redis fails over and loses what it had acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from noosphere.server.fleet import FleetError, RedisError

from ..protocol import Claimed, Completed, Counted, Event, Overwrote, Updated
from .faults import Damage, FleetFaults
from .held import Held
from .losses import Signals


class Disaster:
    """Happens once. The agents tell of every acknowledged write, so it knows how many there are to lose.

    Args:
        faults: does it.
        namespace: where the job is.
        lose: how many acknowledged writes are to be lost at least.
        agents: how many agents there are: each may have one event under way that is older than it looks.
        tell: gets a line about each step.

    Attributes:
        signals: what the agents say about it.
    """

    def __init__(
        self, faults: FleetFaults, namespace: str, lose: int, agents: int, tell: Callable[[str], None]
    ) -> None:
        self.signals = Signals()
        self._faults = faults
        self._namespace = namespace
        self._lose = lose
        self._agents = agents
        self._tell = tell
        self._acknowledged = 0
        self._over = False
        self._moved = asyncio.Event()
        self._old: Held | None = None

    @property
    def damage(self) -> Damage:
        """What was done."""
        return self._faults.damage

    def add(self, agent: str, event: Event) -> None:
        """Takes note of what an agent says."""
        self.signals.add(agent, event)
        match event:
            case Claimed() | Updated() | Overwrote() | Completed() | Counted(again=False):
                self._acknowledged += 1
                self._moved.set()

    def work_is_over(self) -> None:
        """Nothing more is going to be written: what is not lost by now never will be."""
        self._over = True
        self._moved.set()

    async def happen(self) -> None:
        """Does the damage, and mends it, also if anything stops it half way.

        Raises:
            FleetError: it could not be done, or not be mended.
        """
        try:
            await self._damage()
        except (OSError, RedisError) as error:
            await self._mend()
            raise FleetError(f"Redis does not answer as it should: {error}") from None
        except BaseException:
            await self._mend()
            raise
        await self._mend()
        self._tell(f"{self.damage.old} is back as a replica, and {self.damage.server} serves again")

    async def look_back(self) -> tuple[Held, Held]:
        """Returns what the old primary held when it died, and what the new one holds now.

        Raises:
            FleetError: the new one does not tell.
        """
        try:
            new = await asyncio.to_thread(self._faults.read_new, self._namespace)
        except (OSError, RedisError) as error:
            raise FleetError(f"{self.damage.new} does not tell what it holds: {error}") from None
        assert self._old is not None
        return self._old, new

    async def _damage(self) -> None:
        faults = self._faults
        name = await asyncio.to_thread(faults.kill_server, 0)
        self._tell(f"killed {name}")
        await asyncio.to_thread(faults.cut_replica)
        self._tell(f"cut {self.damage.new} off from {self.damage.old}: what is written now will be lost")
        begun = self._acknowledged
        while self._acknowledged - begun < self._lose + self._agents and not self._over:
            self._moved.clear()
            await self._moved.wait()
        await asyncio.to_thread(faults.fail_over)
        self._tell(f"killed {self.damage.old} and promoted {self.damage.new}")
        self._old = await asyncio.to_thread(faults.read_old, self._namespace)

    async def _mend(self) -> None:
        # Whoever interrupts the demo does not get a fleet that is cut in two.
        await asyncio.shield(asyncio.to_thread(self._faults.mend))
