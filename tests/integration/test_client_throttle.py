"""Clients at twice what they are allowed: every write is made, and only a few are refused on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import grpc
import pytest
from tests.support.api import Api
from tests.support.process import ServerProcess
from tests.support.threaded import Connect
from tests.support.transport import ADMIN, SocketTransport

import noosphere.client
from noosphere.v1 import admin_usage_pb2 as usage_pb

RATE = 150
BURST = 20
AGENTS = 4
WRITES = 200
CALLERS = 16
SPACE = "shared/throttled"


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server that allows each agent far less than a client can do."""
    options = (f"--limits-agent-calls-per-second={RATE}", f"--limits-agent-calls-burst={BURST}")
    server = ServerProcess(tmp_path_factory.mktemp("slow") / "data", options)
    server.start()
    yield server
    server.close()


async def _write_all(connect: Connect, server: ServerProcess, name: str) -> None:
    async with connect(server.address, agent=name, timeout=60) as client:
        space = client.shared("throttled")
        numbers = iter(range(WRITES))

        async def caller() -> None:
            for number in numbers:
                await space.key(f"{name}/{number}").put(number)

        await asyncio.gather(*(caller() for _ in range(CALLERS)))


async def test_every_write_is_made_and_few_are_refused_on_the_way(connect: Connect, slow: ServerProcess) -> None:
    kind = "sync" if connect is not noosphere.client.connect else "async"
    names = [f"{kind}-{number}" for number in range(AGENTS)]
    await asyncio.gather(*(_write_all(connect, slow, name) for name in names))
    async with grpc.aio.insecure_channel(slow.address) as channel:
        api = Api(SocketTransport(channel))
        reader = await api.agent(f"{kind}-reader")
        made = {record.key for name in names for record in await reader.listing(SPACE, f"{name}/")}
        assert len(made) == AGENTS * WRITES
        request = usage_pb.GetUsageRequest(by=usage_pb.USAGE_BY_AGENT, top=1_000)
        usage = await api.transport.unary(ADMIN, "GetUsage", request, usage_pb.GetUsageResponse)
    of_agents = {entry.name: entry for entry in usage.entries}
    for name in names:
        refused = sum(of_agents[name].refusals.values())
        # All that were under way at once when the bucket was empty, and a few later.
        assert 0 < refused < WRITES / 4, of_agents[name]
