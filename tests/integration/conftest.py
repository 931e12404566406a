"""The worlds of the behaviour suite."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import pytest
from tests.support import threaded
from tests.support.engine import LocalServer, local_server
from tests.support.pipelined import pipelined
from tests.support.process import ServerProcess
from tests.support.threaded import Connect, sync_transport
from tests.support.transport import SocketTransport
from tests.support.worlds import LocalWorld, SocketWorld, World

import noosphere.client


@pytest.fixture(scope="session")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One real server for all tests that leave it running; they use names of their own."""
    server = ServerProcess(tmp_path_factory.mktemp("binary") / "data")
    server.start()
    yield server
    server.close()


@pytest.fixture(scope="module")
def emptier(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A real server for the tests of one module: what looks through all sessions does not meet those of other tests."""
    server = ServerProcess(tmp_path_factory.mktemp("emptier") / "data")
    server.start()
    yield server
    server.close()


@pytest.fixture
async def local(tmp_path: Path) -> AsyncIterator[LocalServer]:
    """A server in this process whose clock and crashes the test controls."""
    async with local_server(tmp_path) as server:
        yield server


@pytest.fixture(params=["async client", "sync client"])
def connect(request: pytest.FixtureRequest) -> Connect:
    """Connects a client: the async one, or the sync one that is called from threads."""
    return noosphere.client.connect if request.param == "async client" else threaded.connect


@pytest.fixture(params=["in process", "two replicas", "over a socket", "through a pipeline", "through a sync client"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    """A server to talk to: in process, there as two replicas, as the real binary, and that through one stream or from
    threads."""
    if request.param in {"in process", "two replicas"}:
        async with local_server(tmp_path, replicas=2 if request.param == "two replicas" else 1) as local:
            yield LocalWorld(local)
        return
    server: ServerProcess = request.getfixturevalue("binary")
    if request.param == "through a sync client":
        async with sync_transport(server.address) as threads:
            yield SocketWorld(server, threads)
        return
    async with grpc.aio.insecure_channel(server.address) as channel:
        if request.param == "over a socket":
            yield SocketWorld(server, SocketTransport(channel))
            return
        async with pipelined(channel) as transport:
            yield SocketWorld(server, transport)
