"""The two worlds of the behaviour suite."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import pytest
from tests.support.engine import LocalServer, local_server
from tests.support.process import ServerProcess
from tests.support.worlds import LocalWorld, SocketWorld, World


@pytest.fixture(scope="session")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One real server for all tests that leave it running; they use names of their own."""
    server = ServerProcess(tmp_path_factory.mktemp("binary") / "data")
    server.start()
    yield server
    server.close()


@pytest.fixture
async def local(tmp_path: Path) -> AsyncIterator[LocalServer]:
    """A server in this process whose clock and crashes the test controls."""
    async with local_server(tmp_path) as server:
        yield server


@pytest.fixture(params=["in process", "over a socket"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    """A server to talk to, once in process and once as the real binary."""
    if request.param == "in process":
        async with local_server(tmp_path) as local:
            yield LocalWorld(local)
        return
    server: ServerProcess = request.getfixturevalue("binary")
    async with grpc.aio.insecure_channel(server.address) as channel:
        yield SocketWorld(server, channel)
