"""The Redis driver's answer to what the contract suites need: on one process, on a pair, and on a cluster."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from tests.contract.factlab import QUEUE_MAX
from tests.contract.lab import FIRST_EPOCH, Gate
from tests.support.redis import RedisProcess, catch_up
from tests.support.redis_cluster import RedisCluster

from noosphere.server.ports.runtime import SystemClock
from noosphere.server.ports.store import NamespaceRef
from noosphere.server.storage.embedded import EmbeddedCoordinator
from noosphere.server.storage.redis import RedisFactQueue, RedisStore
from noosphere.server.storage.redis.fence import META
from noosphere.testing import ManualClock

START_MS = 4_000_000_000_000
"""Far ahead of any real clock: store time never goes back, so it stays where a test puts it."""


class LabClock(ManualClock):
    """Time that the test moves; pauses are real ones, because a real process is waited for."""

    async def sleep(self, seconds: float) -> None:
        await SystemClock().sleep(seconds)


class RedisLab:
    """A real Redis process that may be used again, emptied, and the driver on it."""

    def __init__(self, folder: Path, *servers: RedisProcess) -> None:
        self.folder = folder
        self.servers = list(servers)
        self.clock = LabClock(START_MS)
        self._store: RedisStore | None = None
        self._coordinator: EmbeddedCoordinator | None = None

    @property
    def store(self) -> RedisStore:
        assert self._store is not None
        return self._store

    @property
    def coordinator(self) -> EmbeddedCoordinator:
        assert self._coordinator is not None
        return self._coordinator

    @property
    def loads_when_asked(self) -> bool:
        return False

    @property
    def awake_ms(self) -> int:
        return self.store.now_ms()

    async def open(self) -> None:
        self._coordinator = await EmbeddedCoordinator.open(self.folder, clock=self.clock)
        if not await self._coordinator.epochs():
            await self._coordinator.begin_epoch("contract test", "nothing", FIRST_EPOCH)
        # As if the machine's clock had been there already.
        self.with_catalogue().ask("HSET", META, "t", self.clock.wall_ms())
        urls = [server.url for server in self.servers]
        self._store = await RedisStore.open(urls, self._coordinator, clock=self.clock)

    def with_catalogue(self) -> RedisProcess:
        """Returns the primary that holds what there is once only."""
        return self.servers[0]

    async def close(self) -> None:
        await self.store.close()
        await self.coordinator.close()

    async def warm(self, ref: NamespaceRef) -> None:
        """Lets calls that are made at once keep their order: the first commit of all notes the name before."""
        await self.store.read(ref, ())
        await self.store._catalogue.note(ref)

    def advance(self, by_ms: int) -> None:
        self.clock.advance(by_ms)
        # What somebody has been told goes to Redis with the next call.
        self.store.now_ms()

    def set_wall_back(self, by_ms: int) -> None:
        pytest.skip("the clock is that of the machine")

    def holding(self) -> contextlib.AbstractAsyncContextManager[Gate]:
        pytest.skip("Redis syncs within its commits: there is nothing to hold")

    async def reopen(self) -> None:
        await self.close()
        await self.open()

    async def crash(self) -> None:
        for server in self.servers:
            server.kill()
        await self.store.close()
        await self.coordinator.close()
        self.start_again()
        await self.open()

    def start_again(self) -> None:
        """Starts what was killed; returns once it can be used."""
        for server in self.servers:
            server.start()

    def bytes_at_rest(self) -> bytes:
        return b"\n".join(
            file.read_bytes()
            for server in self.servers
            for file in sorted(server.folder.rglob("*"))
            if file.is_file() and file.name != "redis.log"
        )


class RedisPairLab(RedisLab):
    """A primary with a replica; a crash is a failover, in which nothing is lost."""

    def start_again(self) -> None:
        raise AssertionError("a pair is not started again: one takes the other's place")

    async def crash(self) -> None:
        primary, replica = self.servers
        catch_up(primary, replica)
        primary.kill()
        replica.ask("REPLICAOF", "NO", "ONE")
        await self.store.close()
        await self.coordinator.close()
        primary.start()
        self.servers = [replica, primary]
        follow(primary, replica)
        await self.open()
        if self.store._finishing is not None:
            await self.store._finishing

    def bytes_at_rest(self) -> bytes:
        # A replica has files of its own; it does not erase before it is promoted.
        return b"\n".join(
            file.read_bytes()
            for file in sorted(self.servers[0].folder.rglob("*"))
            if file.is_file() and file.name != "redis.log"
        )


class RedisClusterLab(RedisLab):
    """Three nodes; a crash is one of all of them."""

    def __init__(self, folder: Path, cluster: RedisCluster) -> None:
        super().__init__(folder, *cluster.nodes)
        self.cluster = cluster

    def with_catalogue(self) -> RedisProcess:
        return self.cluster.of(META)

    def start_again(self) -> None:
        super().start_again()
        self.cluster.settle()


def follow(replica: RedisProcess, primary: RedisProcess) -> None:
    """Makes the one a replica of the other, with all it has."""
    primary.ask("REPLICAOF", "NO", "ONE")
    replica.ask("REPLICAOF", "127.0.0.1", primary.port)
    catch_up(primary, replica)


class RedisQueueLab(RedisLab):
    """The fact queue on the same Redis."""

    _queue: RedisFactQueue | None = None

    @property
    def queue(self) -> RedisFactQueue:
        assert self._queue is not None
        return self._queue

    async def open(self) -> None:
        await super().open()
        self._queue = RedisFactQueue.beside(self.store, jobs_max=QUEUE_MAX)

    async def close(self) -> None:
        await self.queue.close()
        await super().close()


class RedisClusterQueueLab(RedisQueueLab, RedisClusterLab):
    """The fact queue on a cluster."""
