"""A real server that is asked for more than it can do: it refuses early, and answers health and operators meanwhile."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.support.api import Agent, Api
from tests.support.process import ServerProcess
from tests.support.statuses import Refused
from tests.support.transport import SocketTransport

import noosphere.client
from noosphere.v1.admin_service_pb2 import GetStatsRequest
from noosphere.v1.admin_service_pb2_grpc import AdminServiceStub

pytestmark = pytest.mark.campaign

IN_FLIGHT = 8
"""Fewer than a server begins before it has ended the first of those that came at once."""

FLOOD = 2_000
CONNECTIONS = 4
CLIENTS, CALLERS, WRITES = 4, 16, 200
OWN = [("grpc.use_local_subchannel_pool", 1)]
MIB = 1024 * 1024
SPACE = "shared/overload"


@pytest.fixture
def crowded(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server that has its hands full with few calls."""
    server = ServerProcess(tmp_path / "data", (f"--limits-server-calls-in-flight-max={IN_FLIGHT}",), sheds=True)
    server.start()
    yield server
    server.close()


async def _put(agent: Agent, number: int, ends: Counter[str]) -> None:
    try:
        await agent.put(SPACE, f"k{number}", number, blind=True)
    except Refused as refused:
        ends[refused.reason if refused.retry_ms else "without RetryInfo"] += 1
    else:
        ends["OK"] += 1


async def test_a_flood_that_heeds_nothing_is_refused_and_operators_are_answered(crowded: ServerProcess) -> None:
    before = crowded.resident_bytes()
    ends: Counter[str] = Counter()
    channels = [grpc.aio.insecure_channel(crowded.address, options=OWN) for _ in range(CONNECTIONS)]
    agents = [await Api(SocketTransport(channel)).agent(f"flood-{i}") for i, channel in enumerate(channels)]
    crowded.pause()
    flood = asyncio.gather(*(_put(agents[number % CONNECTIONS], number, ends) for number in range(FLOOD)))
    # On their way all at once, however quick the server is.
    await asyncio.sleep(1)
    crowded.resume()
    answered = 0
    async with grpc.aio.insecure_channel(crowded.address, options=OWN) as channel:
        health, admin = health_pb2_grpc.HealthStub(channel), AdminServiceStub(channel)
        while not flood.done() or not answered:
            answer = await health.Check(health_pb2.HealthCheckRequest(), timeout=60)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
            await admin.GetStats(GetStatsRequest(), timeout=60)
            answered += 1
        await flood
    assert set(ends) == {"OK", "OVERLOADED"}, ends
    assert ends.total() == FLOOD
    assert crowded.resident_bytes() - before < 64 * MIB
    # What was acknowledged is there, and nothing else.
    made = await agents[0].listing(SPACE)
    assert len(made) == ends["OK"]
    await agents[0].put(SPACE, "after", 1)
    for channel in channels:
        await channel.close()


async def test_clients_of_ours_get_everything_done(crowded: ServerProcess) -> None:
    async def work(name: str) -> None:
        async with noosphere.client.connect(crowded.address, agent=name, timeout=120) as client:
            space, numbers = client.shared("overload"), iter(range(WRITES))

            async def caller() -> None:
                for number in numbers:
                    await space.key(f"{name}/{number}").put(number)

            await asyncio.gather(*(caller() for _ in range(CALLERS)))

    await asyncio.gather(*(work(f"c{number}") for number in range(CLIENTS)))
    async with grpc.aio.insecure_channel(crowded.address) as channel:
        reader = await Api(SocketTransport(channel)).agent("reader")
        assert len(await reader.listing(SPACE)) == CLIENTS * WRITES
