"""What a coordinator must offer so that its contract suite can run against it, and the drivers' answers."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from tests.contract.lab import FIRST_EPOCH, EmbeddedLab, until
from tests.support.etcd import EtcdProcess

from noosphere.consistency import NamePattern
from noosphere.consistency.limits import AGENT_LEASE_MS
from noosphere.server.ports.coordinator import Coordinator
from noosphere.server.ports.runtime import SystemClock
from noosphere.server.storage.etcd import EtcdCoordinator
from noosphere.server.storage.etcd import wire_pb2 as wire
from noosphere.testing import ManualClock


class CoordinatorLab(Protocol):
    """A coordinator under test and power over its surroundings."""

    @property
    def coordinator(self) -> Coordinator:
        """The present coordinator."""
        ...

    @property
    def leases_outlive_the_process(self) -> bool:
        """Whether leases are kept elsewhere, where another process can renew them."""
        ...

    async def lapse(self) -> None:
        """Lets every lease lapse that nobody renews."""
        ...

    def advance(self, by_ms: int) -> None:
        """Moves on the time by which callers wait."""
        ...

    async def lapse_lock(self, name: str) -> None:
        """Lets the lease of a lock's holder lapse, which is at most that of an agent."""
        ...

    async def lapse_members(self, group: str) -> None:
        """Lets the leases of a group's members lapse, which are at most those of agents."""
        ...

    def queued(self, name: str) -> int:
        """Returns how many wait for a lock that somebody holds."""
        ...

    async def reopen(self) -> None:
        """Closes in order and opens again."""
        ...

    async def crash(self) -> None:
        """Ends the process and its engine without warning, and opens what is durable."""
        ...


class EmbeddedCoordinatorLab(EmbeddedLab):
    """The embedded coordinator beside its store, whose files a crash leaves as they are."""

    leases_outlive_the_process = False

    async def lapse(self) -> None:
        self.clock.advance(AGENT_LEASE_MS)

    async def lapse_lock(self, name: str) -> None:
        self.clock.advance(AGENT_LEASE_MS)

    async def lapse_members(self, group: str) -> None:
        self.clock.advance(AGENT_LEASE_MS)

    def queued(self, name: str) -> int:
        lock = self.coordinator.locks._locks.get(name)
        return len(lock.queue) if lock is not None else 0


class PacedClock(ManualClock):
    """Time that the test moves; pauses are real ones, because a real process is waited for."""

    async def sleep(self, seconds: float) -> None:
        await SystemClock().sleep(seconds)

    async def wait(self, future: asyncio.Future[Any], seconds: float) -> None:
        await SystemClock().wait(future, seconds)


class EtcdLab:
    """A real etcd that other tests use too, under other roots, and the driver on it."""

    leases_outlive_the_process = True

    def __init__(self, server: EtcdProcess, root: str) -> None:
        self.server = server
        self.root = root
        self.clock = PacedClock()
        self._coordinator: EtcdCoordinator | None = None

    @property
    def coordinator(self) -> EtcdCoordinator:
        assert self._coordinator is not None
        return self._coordinator

    async def open(self) -> None:
        self._coordinator = await self.another()
        if not await self._coordinator.epochs():
            await self._coordinator.begin_epoch("contract test", "nothing", FIRST_EPOCH)

    async def another(self, **options: Any) -> EtcdCoordinator:
        """Opens the coordinator of one more process."""
        return await EtcdCoordinator.open([self.server.endpoint], clock=self.clock, root=self.root, **options)

    async def close(self) -> None:
        await self.coordinator.close()

    async def lapse(self) -> None:
        # Calls that were noted are on their way to etcd.
        await until(lambda: len(self.leases()) >= self.coordinator.active_count())
        self.clock.advance(AGENT_LEASE_MS)
        for lease in self.leases():
            self.server.lapse(lease)
        # Lapses are told in the order in which they were, and before what comes after them.
        await self.coordinator.set_policy(NamePattern("shared/passed", True), None)

    def advance(self, by_ms: int) -> None:
        self.clock.advance(by_ms)

    async def lapse_lock(self, name: str) -> None:
        self.server.lapse(min(self.seats(name), key=lambda kv: kv.create_revision).lease)

    async def lapse_members(self, group: str) -> None:
        for kv in self.server.kvs(f"{self.root}here/{group}\0"):
            self.server.lapse(kv.lease)

    def queued(self, name: str) -> int:
        return len(self.seats(name)) - 1

    def seats(self, name: str) -> list[wire.KeyValue]:
        """Returns who wants a lock."""
        return self.server.kvs(f"{self.root}live/seat/{name}\0")

    def leases(self) -> set[int]:
        """Returns the leases of agents that etcd has."""
        return {kv.lease for kv in self.server.kvs(f"{self.root}live/lease/")}

    async def reopen(self) -> None:
        await self.close()
        await self.open()

    async def crash(self) -> None:
        self.server.kill()
        await self.close()
        self.server.start()
        await self.open()
