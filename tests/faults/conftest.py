"""Real servers and engines for the fault tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from tests.support.api import Api
from tests.support.dying import DyingServer
from tests.support.etcd import EtcdProcess
from tests.support.process import ServerProcess
from tests.support.redis import RedisProcess, catch_up
from tests.support.transport import SocketTransport

from noosphere.server.ports.runtime import SystemClock
from noosphere.server.storage.embedded import EmbeddedCoordinator
from noosphere.server.storage.redis import RedisStore


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server of the test's own, started."""
    process = ServerProcess(tmp_path / "data")
    try:
        process.start()
        yield process
    finally:
        process.close()


@pytest.fixture
def dying(tmp_path: Path) -> Iterator[DyingServer]:
    """A server of the test's own, started, that ends itself when it is told to; it finds facts by words alone."""
    process = DyingServer(tmp_path / "data", ("--embedder", "none"))
    try:
        process.start()
        yield process
    finally:
        process.close()


@pytest.fixture
def primary(tmp_path: Path) -> Iterator[RedisProcess]:
    """A Redis."""
    server = RedisProcess(tmp_path / "primary")
    server.start()
    yield server
    server.kill()


@pytest.fixture
def replica(tmp_path: Path, primary: RedisProcess) -> Iterator[RedisProcess]:
    """Another one that follows it."""
    server = RedisProcess(tmp_path / "replica", replicaof=f"127.0.0.1 {primary.port}")
    server.start()
    catch_up(primary, server)
    yield server
    server.kill()


@pytest.fixture
async def coordinator(tmp_path: Path) -> AsyncIterator[EmbeddedCoordinator]:
    """What all servers share; its first epoch is 9,000."""
    folder = tmp_path / "coordination"
    folder.mkdir()
    made = await EmbeddedCoordinator.open(folder, clock=SystemClock())
    await made.begin_epoch("test", "nothing", 9_000)
    yield made
    await made.close()


@pytest.fixture
async def store(
    primary: RedisProcess, replica: RedisProcess, coordinator: EmbeddedCoordinator
) -> AsyncIterator[RedisStore]:
    """A store that knows both."""
    made = await opened(coordinator, primary, replica)
    yield made
    await made.close()


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdProcess]:
    """An etcd."""
    server = EtcdProcess(tmp_path / "etcd")
    server.start()
    yield server
    server.kill()


async def opened(coordinator: EmbeddedCoordinator, *servers: RedisProcess) -> RedisStore:
    """Opens a store that knows these."""
    return await RedisStore.open([server.url for server in servers], coordinator, clock=SystemClock())


@asynccontextmanager
async def connected(server: ServerProcess) -> AsyncIterator[Api]:
    """Calls a running server, over a connection that nobody shares."""
    async with grpc.aio.insecure_channel(server.address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        yield Api(SocketTransport(channel))
