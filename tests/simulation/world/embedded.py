"""The world of one server on embedded drivers, and what goes wrong: crashes, the disk, the clock, the network."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .channel import SimChannel
from .disk import Drive, SimDisk
from .nemesis import Fault, blow, one_after_the_other, part
from .network import Network, Weather
from .server import SimServer

OUTAGE_SECONDS_MAX = 3.0
START_SECONDS_MAX = 60.0


class EmbeddedWorld:
    """See the module.

    Args:
        network: what everybody is connected to.
        folder: where the disk's files go.

    Attributes:
        server: the server.
    """

    def __init__(self, network: Network, folder: Path) -> None:
        self._network = network
        self._rng = network.loop.chance("nemesis")
        self._durability = self._rng.choice(("fsync", "fsync", "os"))
        self._power_cut = False
        self._broken_disk = False
        self.server = SimServer(network, SimDisk(network.loop, folder, "server"), durability=self._durability)

    @property
    def disks(self) -> Sequence[SimDisk]:
        """The one disk."""
        return (self.server.disk,)

    @property
    def knows_facts(self) -> bool:
        """Yes: SQLite keeps them."""
        return True

    @property
    def may_lose(self) -> bool:
        """Only a power cut loses anything, and only if syncs were not asked for."""
        return self._power_cut and self._durability == "os"

    def survived(self, space: str) -> list[tuple[int, int]]:
        """Returns what the server has found when each epoch began."""
        return [(epoch, heads.get(space, 0)) for epoch, heads in sorted(self.server.survived.items())]

    def channel(self, chance: random.Random, recorder: Any) -> SimChannel:
        """Returns a way to the server."""
        return SimChannel(self._network, self.server.address, recorder)

    async def begin(self) -> None:
        """Starts the server."""
        await self._up()

    async def end(self) -> None:
        """Stops it in good order."""
        await self.server.stop()

    def problems(self) -> Sequence[str]:
        """Returns why the server has given up, if its disk is not to blame."""
        return [f"the server gave up: {error!r}" for error in self.server.fatal if not self._broken_disk]

    async def trouble(self, seconds: float, agents: Sequence[str]) -> None:
        """Has one thing after the other go wrong."""
        faults: Sequence[tuple[int, Fault]] = (
            (3, self._crash),
            (3, self._cut_power),
            (2, self._restart),
            (4, self._partition),
            (3, self._bad_weather),
            (2, self._slow_disk),
            (3, self._crash_in_sync),
            (2, self._failing_disk),
            (2, self._jump),
        )
        await one_after_the_other(faults, self._network, self._rng, seconds, agents)

    async def heal(self) -> None:
        """Ends everything that is wrong."""
        self._network.weather = Weather()
        self._network.heal()
        self.server.disk.drive = Drive()
        await self._up()

    async def _up(self) -> None:
        """Returns once the server answers."""
        while not self.server.running.is_set():
            if not self.server.alive:
                self.server.start()
            try:
                async with asyncio.timeout(START_SECONDS_MAX):
                    await self.server.settled()
            except TimeoutError:
                raise AssertionError("the server does not start") from None

    async def _crash(self, _: Sequence[str]) -> None:
        self.server.crash(power=False)
        await self._outage()

    async def _cut_power(self, _: Sequence[str]) -> None:
        self._power_cut = True
        self.server.crash(power=True)
        await self._outage()

    async def _restart(self, _: Sequence[str]) -> None:
        await self.server.stop()
        await self._outage()

    async def _outage(self) -> None:
        await asyncio.sleep(self._rng.uniform(0, OUTAGE_SECONDS_MAX))
        await self._up()

    async def _partition(self, agents: Sequence[str]) -> None:
        await part(self._network, self._rng, agents, lambda: self.server.name, (0.5, 3.0, 8.0, 25.0))

    async def _bad_weather(self, _: Sequence[str]) -> None:
        rng = self._rng
        weather = Weather(
            delay_seconds=rng.choice((0.0002, 0.02)),
            jitter_seconds=rng.choice((0.001, 0.1)),
            spike=0.05,
            spike_seconds=rng.choice((0.5, 6.0)),
            breaks=rng.choice((0.0, 0.01, 0.05)),
            twice=rng.choice((0.0, 0.1)),
            half_open=0.3,
        )
        await blow(self._network, rng, weather)

    async def _slow_disk(self, _: Sequence[str]) -> None:
        rng = self._rng
        self.server.disk.drive = Drive(0.005, 0.05, spike=0.05, spike_seconds=rng.choice((0.5, 3.0)))
        await asyncio.sleep(rng.uniform(0.5, 4.0))
        self.server.disk.drive = Drive()

    async def _crash_in_sync(self, _: Sequence[str]) -> None:
        """What is accepted and not yet synced goes with the process."""
        self.server.disk.drive = Drive(1.0, 1.0)
        await asyncio.sleep(self._rng.uniform(0.2, 2.0))
        self.server.disk.drive = Drive()
        self.server.crash(power=False)
        await self._outage()

    async def _failing_disk(self, _: Sequence[str]) -> None:
        self._broken_disk = True
        self.server.disk.drive = Drive(fault=self._rng.choice(("full", "broken")))
        await asyncio.sleep(self._rng.uniform(0.1, 2.0))
        self.server.disk.drive = Drive()
        # What a supervisor does: a server that has given up is started again.
        await self._outage()

    async def _jump(self, _: Sequence[str]) -> None:
        self.server.clock.ahead_ms += self._rng.choice((-3_600_000, -1_000, 1_000, 3_600_000))
