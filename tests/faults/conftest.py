"""Real server processes for the fault tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from tests.support.api import Api
from tests.support.process import ServerProcess
from tests.support.transport import SocketTransport


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server of the test's own, started."""
    process = ServerProcess(tmp_path / "data")
    try:
        process.start()
        yield process
    finally:
        process.close()


@asynccontextmanager
async def connected(server: ServerProcess) -> AsyncIterator[Api]:
    """Calls a running server, over a connection that nobody shares."""
    async with grpc.aio.insecure_channel(server.address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        yield Api(SocketTransport(channel))
