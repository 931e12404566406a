"""Limits of agents at a real server: refused before any work is done, told when to come back, alike in a Pipeline."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.support.api import Agent, Api
from tests.support.pipelined import pipelined
from tests.support.process import ServerProcess
from tests.support.statuses import Refused, refusal
from tests.support.transport import SocketTransport, Transport

from noosphere.consistency import Reason
from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1 import types_pb2 as types

SPACE = "shared/limits"
BURST = 20
IN_FLIGHT = 8
STREAMS = 3
KEY_BYTES = 40
VALUE_BYTES = 200
OPTIONS = (
    "--limits-agent-calls-per-second=1",
    f"--limits-agent-calls-burst={BURST}",
    f"--limits-agent-calls-in-flight-max={IN_FLIGHT}",
    f"--limits-agent-streams-max={STREAMS}",
    f"--limits-key-bytes-max={KEY_BYTES}",
    f"--limits-value-bytes-max={VALUE_BYTES}",
)


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server that allows each agent little; tests use agents of their own."""
    server = ServerProcess(tmp_path_factory.mktemp("limited") / "data", OPTIONS)
    server.start()
    yield server
    server.close()


@contextlib.asynccontextmanager
async def _calling(server: ServerProcess, *, through_a_pipeline: bool = False) -> AsyncIterator[Api]:
    async with grpc.aio.insecure_channel(server.address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        if not through_a_pipeline:
            yield Api(SocketTransport(channel))
            return
        async with pipelined(channel) as transport:
            as_any: Transport = transport
            yield Api(as_any)


async def _spend(agent: Agent, key: str = "k") -> Refused:
    """Puts until that is refused; returns the refusal."""
    for number in range(BURST + 5):
        try:
            await agent.put(SPACE, f"{key}{number}", number)
        except Refused as refused:
            return refused
    raise AssertionError("never refused")


@pytest.mark.parametrize("through_a_pipeline", [False, True])
async def test_an_agent_above_its_rate_is_told_when_to_come_back(
    limited: ServerProcess, through_a_pipeline: bool
) -> None:
    async with _calling(limited, through_a_pipeline=through_a_pipeline) as api:
        name = f"fast-{through_a_pipeline}"
        agent, other = await api.agent(name), await api.agent(f"other-{through_a_pipeline}")
        refused = await _spend(agent, name)
        assert refused.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert refused.reason == Reason.LIMIT_EXCEEDED
        assert refused.limit().field == "calls_per_second"
        assert refused.limit().limit == 1
        assert refused.retry_ms is not None
        assert 0 < refused.retry_ms <= 1_001
        assert repr(name) in refused.message
        # Nothing of a refused call was done, and others do not wait for it.
        listed = await other.listing(SPACE)
        written = [record.key for record in listed if record.key.startswith(name)]
        assert len(written) < BURST
        await other.put(SPACE, f"{name}-other", 1)


@pytest.mark.campaign
async def test_a_refusal_costs_nothing_and_waiting_as_told_mends_it(limited: ServerProcess) -> None:
    async with _calling(limited) as api:
        agent = await api.agent("patient")
        refused = await _spend(agent, "patient")
        for _ in range(50):
            with contextlib.suppress(Refused):
                await agent.put(SPACE, "patient", 1)
        for _ in range(3):
            # The wait that the server asks for, which is what this is about.
            await asyncio.sleep(((refused.retry_ms or 0) + 1) / 1000)
            try:
                await agent.put(SPACE, "patient-at-last", 1, blind=True)
                break
            except Refused as again:
                refused = again
        else:
            raise AssertionError("refused three times")


async def test_calls_that_wait_are_counted_while_they_wait(limited: ServerProcess) -> None:
    async with _calling(limited) as api:
        agent = await api.agent("waiting")
        waits = [asyncio.create_task(agent.claim(SPACE, "nothing/", wait_ms=60_000)) for _ in range(IN_FLIGHT)]
        try:
            with refusal(Reason.LIMIT_EXCEEDED) as refused:
                # Whichever comes last is one too many.
                await asyncio.gather(agent.claim(SPACE, "nothing/", wait_ms=60_000), *waits)
            assert refused.limit().field == "calls_in_flight_max"
            assert refused.retry_ms is not None
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)


async def test_watches_of_one_agent_are_counted(limited: ServerProcess) -> None:
    async with _calling(limited) as api, contextlib.AsyncExitStack() as stack:
        agent = await api.agent("watching")
        await agent.put(SPACE, "watched", 1)
        for _ in range(STREAMS):
            stream = api.watch(pb.WatchRequest(namespace=SPACE, call=agent.call(), snapshot=True))
            stack.push_async_callback(stream.aclose)
            await anext(aiter(stream))
        with refusal(Reason.LIMIT_EXCEEDED) as refused:
            await anext(aiter(api.watch(pb.WatchRequest(namespace=SPACE, call=agent.call(), snapshot=True))))
        assert refused.limit().field == "streams_max"
        assert refused.retry_ms is None


async def test_keys_and_values_are_no_larger_than_they_may_be(limited: ServerProcess) -> None:
    async with _calling(limited) as api:
        agent = await api.agent("large")
        await agent.ensure(SPACE, types.NamespacePolicy(item_bytes_max=1_000))
        await agent.put(SPACE, "k" * KEY_BYTES, "x" * (VALUE_BYTES - 2))
        with refusal(Reason.VALUE_TOO_LARGE) as refused:
            await agent.put(SPACE, "k" * (KEY_BYTES + 1), 1)
        assert (refused.limit().field, refused.limit().limit) == ("key", KEY_BYTES)
        with refusal(Reason.VALUE_TOO_LARGE) as refused:
            await agent.put(SPACE, "large", "x" * VALUE_BYTES)
        assert refused.limit().limit == VALUE_BYTES


async def test_operators_and_health_are_not_limited(limited: ServerProcess) -> None:
    async with _calling(limited) as api, grpc.aio.insecure_channel(limited.address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for _ in range(3 * BURST):
            await api.stats()
            assert (
                await health.Check(health_pb2.HealthCheckRequest())
            ).status == health_pb2.HealthCheckResponse.SERVING


def test_a_limit_that_cannot_be_is_refused_by_name(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data", ("--limits-agent-calls-burst=0",))
    with pytest.raises(AssertionError, match="limits-agent-calls-burst"):
        server.start()
    server.close()
