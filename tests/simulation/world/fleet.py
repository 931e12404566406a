"""The world of several servers on Redis and etcd, and what goes wrong with any of them, or between any two.

Redis fails over and loses what its replica had not got; etcd loses its leader, or the answers to what it has done;
servers are killed, and cut off from the one engine or the other while they go on with the other one.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.simulation.world.engines.etcd_member import EtcdMember
from tests.simulation.world.engines.etcd_state import EtcdState
from tests.simulation.world.engines.redis_process import SimulatedRedis
from tests.simulation.world.engines.redis_wire import RedisConnection

from noosphere.client._channel import ServersChannel

from .channel import SimChannel
from .disk import SimDisk
from .nemesis import Fault, blow, one_after_the_other, part
from .network import Listener, Network, Weather
from .process import SimClock
from .replica import SimReplica
from .serving import Endpoint
from .tenure import Tenures

SERVERS_MAX = 3
MEMBERS = 3
START_SECONDS_MAX = 60.0
REDIS_PORT, ETCD_PORT = 6379, 2379


class _Redis:
    """A Redis on a machine of its own.

    Attributes:
        process: what runs there.
        clock: the machine's.
        name: its host.
    """

    def __init__(self, network: Network, name: str, appendfsync: str) -> None:
        self.name = name
        self.clock = SimClock(network.loop)
        self._network = network
        self._listener: Listener | None = None
        self.process = SimulatedRedis(network.loop, network.loop.chance(name), self.clock.wall_ms, appendfsync)
        self._listen()

    @property
    def url(self) -> str:
        return f"redis://{self.name}:{REDIS_PORT}"

    def kill(self, *, power: bool) -> None:
        self._network.loop.trace("redis", self.name, "power cut" if power else "kill")
        self.process.kill(power=power)
        self._network.crash(self.name)
        self._listener = None

    def start(self) -> None:
        if not self.process.up:
            self.process.start()
            self._listen()

    def _listen(self) -> None:
        self._listener = self._network.listen(self.name, REDIS_PORT, lambda: RedisConnection(self.process))


class _ServersChannel(ServersChannel):
    """A client's own channel to several servers, over the simulated network."""

    def __init__(self, network: Network, addresses: Sequence[str], recorder: Any) -> None:
        super().__init__(addresses)
        self._network = network
        self._recorder = recorder

    @property
    def present(self) -> Any:
        """The connection that calls go to now."""
        place = self.place
        if self._channels[place] is None:
            self._channels[place] = SimChannel(self._network, self._addresses[place], self._recorder)
        return self._channels[place]


class FleetWorld:
    """See the module.

    Args:
        network: what everybody is connected to.
        folder: not used: nothing here is on a disk of ours.

    Attributes:
        servers: the replicas.
        redis: both processes, whichever is the primary.
    """

    def __init__(self, network: Network, folder: Path) -> None:
        loop = network.loop
        self._network = network
        self._rng = rng = loop.chance("nemesis")
        appendfsync = rng.choice(("everysec", "everysec", "always"))
        self.redis = [_Redis(network, f"redis-{n}", appendfsync) for n in range(2)]
        self._primary, self._replica = self.redis
        self._replica.process.follow(self._primary.process)
        self.state = EtcdState(loop, loop.chance("etcd leases"))
        self.members = [EtcdMember(self.state, loop, loop.chance(f"etcd-{n}")) for n in range(MEMBERS)]
        for number, member in enumerate(self.members):
            network.listen(f"etcd-{number}", ETCD_PORT, Endpoint(loop, member.service))
        urls = [one.url for one in self.redis]
        endpoints = [f"etcd-{n}:{ETCD_PORT}" for n in range(MEMBERS)]
        self.servers = [
            SimReplica(network, f"server-{n}", urls, endpoints[n:] + endpoints[:n])
            for n in range(rng.randint(2, SERVERS_MAX))
        ]
        self._tenures = Tenures(self.state)

    @property
    def disks(self) -> Sequence[SimDisk]:
        """None."""
        return ()

    @property
    def knows_facts(self) -> bool:
        """No: that would be Weaviate, which is not simulated."""
        return False

    @property
    def may_lose(self) -> bool:
        """Any failover may lose what was acknowledged, and then says so."""
        return True

    def survived(self, space: str) -> list[tuple[int, int]]:
        """Returns what of a namespace was left when each epoch but the first began, by what the primary has."""
        heads = self._primary.process.heads(space)
        epochs = sorted(self._tenures.epochs())[1:]
        return [(epoch, max((head for head in heads if head < epoch << 40), default=0)) for epoch in epochs]

    def channel(self, chance: random.Random, recorder: Any) -> Any:
        """Returns a way to all servers, beginning with any."""
        addresses = [server.address for server in self.servers]
        self._tenures.hears(recorder)
        return _ServersChannel(self._network, chance.sample(addresses, len(addresses)), recorder)

    async def begin(self) -> None:
        """Starts the servers, the first of which begins the first epoch."""
        await self._up()

    async def end(self) -> None:
        """Stops them in good order."""
        for server in self.servers:
            await server.stop()
        self.state.close()

    def problems(self) -> Sequence[str]:
        """Returns why servers have given up, which nothing here gives them reason to, and who served for too long."""
        gave_up = [f"{server.name} gave up: {error!r}" for server in self.servers for error in server.fatal]
        return [*gave_up, *self._tenures.problems()]

    async def trouble(self, seconds: float, agents: Sequence[str]) -> None:
        """Has one thing after the other go wrong."""
        faults: Sequence[tuple[int, Fault]] = (
            (3, self._kill_server),
            (2, self._restart_server),
            (4, self._part_server),
            (2, self._part_agents),
            (2, self._bad_weather),
            (4, self._fail_over),
            (3, self._split),
            (3, self._leave_behind),
            (2, self._restart_redis),
            (2, self._pause_redis),
            (2, self._refuse_writes),
            (1, self._flush_scripts),
            (2, self._lose_leader),
            (2, self._lose_answers),
            (1, self._pause_etcd),
            (1, self._compact),
            (2, self._jump),
        )
        await one_after_the_other(faults, self._network, self._rng, seconds, agents)

    async def heal(self) -> None:
        """Ends everything that is wrong."""
        self._network.weather = Weather()
        self._network.heal()
        for member in self.members:
            member.loses = member.slow_seconds = 0.0
            member.resume()
            member.find_leader()
        self._settle()
        await self._up()

    async def _up(self) -> None:
        """Returns once every server answers."""
        for server in self.servers:
            if not server.alive:
                server.start()
        try:
            async with asyncio.timeout(START_SECONDS_MAX):
                for server in self.servers:
                    await server.settled()
        except TimeoutError:
            raise AssertionError("a server does not start") from None

    def _settle(self) -> None:
        """Has Redis whole again: one primary, which the other one follows."""
        for one in self.redis:
            one.start()
            process = one.process
            process.memory_full = process.disk_failed = process.cut = False
            process.replicas_min = 0
            process.resume()
        if self._primary.process.following is not None:
            self._primary.process.follow(None)
        self._replica.process.follow(self._primary.process)

    async def _outage(self) -> None:
        await asyncio.sleep(self._rng.choice((0.3, 3.0, 14.0)) * self._rng.random())

    async def _kill_server(self, _: Sequence[str]) -> None:
        server = self._rng.choice(self.servers)
        server.crash()
        await self._outage()
        server.start()

    async def _restart_server(self, _: Sequence[str]) -> None:
        server = self._rng.choice(self.servers)
        if server.alive:
            await server.stop()
        server.start()

    async def _part_server(self, _: Sequence[str]) -> None:
        """Cuts a server off from the one engine or the other, or from one process of it; others reach everything."""
        rng, server = self._rng, self._rng.choice(self.servers)
        engines = rng.choice((["redis-0"], ["redis-1"], ["redis-0", "redis-1"], [f"etcd-{n}" for n in range(MEMBERS)]))
        for engine in engines:
            ends = [server.name, engine]
            rng.shuffle(ends)
            self._network.cut(*ends, both=rng.random() < 0.7)
        if rng.random() < 0.4:
            await asyncio.sleep(rng.uniform(0, 2))
            await self._fail_over(())
        await asyncio.sleep(rng.choice((1.0, 15.0, 25.0)) * rng.random())
        self._network.heal()

    async def _part_agents(self, agents: Sequence[str]) -> None:
        await part(self._network, self._rng, agents, lambda: self._rng.choice(self.servers).name, (0.5, 3.0, 8.0))

    async def _bad_weather(self, _: Sequence[str]) -> None:
        rng = self._rng
        weather = Weather(
            delay_seconds=rng.choice((0.0002, 0.02)),
            jitter_seconds=rng.choice((0.001, 0.05)),
            spike=0.03,
            spike_seconds=rng.choice((0.5, 6.0)),
            breaks=rng.choice((0.0, 0.005, 0.02)),
            twice=rng.choice((0.0, 0.1)),
        )
        await blow(self._network, rng, weather)

    async def _fail_over(self, _: Sequence[str]) -> None:
        """Kills the primary and promotes the replica, which may lack the newest."""
        rng, old, new = self._rng, self._primary, self._replica
        new.process.cut = rng.random() < 0.8
        await asyncio.sleep(rng.uniform(0, 1.5))
        old.kill(power=rng.random() < 0.3)
        await asyncio.sleep(rng.choice((0.0, 2.0)) * rng.random())
        self._promote()
        await self._outage()
        self._settle()

    async def _split(self, _: Sequence[str]) -> None:
        """Promotes the replica while the old primary goes on, and whoever is connected to it with it."""
        self._replica.process.cut = self._rng.random() < 0.8
        await asyncio.sleep(self._rng.uniform(0, 1.5))
        self._promote()
        if self._rng.random() < 0.5:
            # One of them sees the new one alone, and so begins an epoch.
            self._network.cut(self._rng.choice(self.servers).name, self._replica.name)
        await asyncio.sleep(self._rng.choice((1.0, 14.0)) * self._rng.random())
        self._settle()
        self._network.heal()

    async def _leave_behind(self, agents: Sequence[str]) -> None:
        """Parts the network: on one side the primary with a server and some agents, everything else on the other.

        There the replica is promoted. Whoever is left behind has nobody to ask which epoch is the newest.
        """
        network, rng, old = self._network, self._rng, self._primary
        server = rng.choice(self.servers)
        behind = {old.name, server.name, *rng.sample(agents, rng.randint(1, len(agents)))}
        machines = {
            *(one.name for one in self.redis),
            *(one.name for one in self.servers),
            *(f"etcd-{n}" for n in range(MEMBERS)),
        }
        for one in sorted(behind):
            for other in sorted(machines - behind):
                network.cut(one, other)
        for other in sorted(set(agents) - behind):
            network.cut(other, server.name)
        self._replica.process.cut = True
        await asyncio.sleep(rng.uniform(0, 2))
        self._promote()
        await asyncio.sleep(rng.choice((3.0, 18.0)))
        self._settle()
        network.heal()

    def _promote(self) -> None:
        self._primary, self._replica = self._replica, self._primary
        self._primary.process.follow(None)
        self._network.loop.trace("promoted", self._primary.name)

    async def _restart_redis(self, _: Sequence[str]) -> None:
        one = self._rng.choice(self.redis)
        one.kill(power=self._rng.random() < 0.5)
        await self._outage()
        one.start()
        self._settle()

    async def _pause_redis(self, _: Sequence[str]) -> None:
        one = self._rng.choice(self.redis)
        one.process.pause()
        await self._outage()
        one.process.resume()

    async def _refuse_writes(self, _: Sequence[str]) -> None:
        process = self._primary.process
        match self._rng.randrange(3):
            case 0:
                process.memory_full = True
            case 1:
                process.disk_failed = True
            case _:
                process.replicas_min = 2
        await self._outage()
        process.memory_full = process.disk_failed = False
        process.replicas_min = 0

    async def _flush_scripts(self, _: Sequence[str]) -> None:
        self._primary.process.execute(b"SCRIPT", [b"FLUSH"])

    async def _lose_leader(self, _: Sequence[str]) -> None:
        rng = self._rng
        lost = rng.sample(self.members, rng.choice((1, MEMBERS)))
        for member in lost:
            member.lose_leader()
        await self._outage()
        self.state.elect()
        for member in lost:
            member.find_leader()

    async def _lose_answers(self, _: Sequence[str]) -> None:
        for member in self.members:
            member.loses, member.slow_seconds = self._rng.choice((0.1, 0.5)), self._rng.choice((0.0, 0.5, 3.0))
        await asyncio.sleep(self._rng.uniform(0.5, 6.0))
        for member in self.members:
            member.loses = member.slow_seconds = 0.0

    async def _pause_etcd(self, _: Sequence[str]) -> None:
        paused = self._rng.sample(self.members, self._rng.choice((1, MEMBERS)))
        for member in paused:
            member.pause()
        await self._outage()
        for member in paused:
            member.resume()

    async def _compact(self, _: Sequence[str]) -> None:
        if self.state.revision > self.state.compacted:
            self.state.compact(self.state.revision)

    async def _jump(self, _: Sequence[str]) -> None:
        clock = self._rng.choice([*(one.clock for one in self.redis), *(server.clock for server in self.servers)])
        clock.ahead_ms += self._rng.choice((-3_600_000, -1_000, 1_000, 60_000))
