"""SIGTERM: running calls finish, watches end with a place to resume from, and nothing is lost."""

from __future__ import annotations

import asyncio
import contextlib

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.faults.conftest import connected
from tests.support.api import Agent, contents
from tests.support.process import ServerProcess
from tests.support.statuses import Refused, refusal
from tests.support.watching import Watcher, watching

from noosphere.client import Client, connect
from noosphere.consistency import Reason

SPACE = "shared/s"
MAY_BE_TRIED_AGAIN = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}
"""CANCELLED is gRPC's own answer to calls that have reached a stopping server and were not begun."""


async def test_watches_end_with_a_hint_and_resume_without_gap_or_duplicate(server: ServerProcess) -> None:
    async with connected(server) as api:
        agent = await api.agent("a")
        first = await agent.put(SPACE, "k", 0)
        async with (
            watching(agent, SPACE, after=first.revision) as watch,
            watching(agent, SPACE, "elsewhere/") as idle,
        ):
            await idle.bookmark()
            told = [(await agent.put(SPACE, "k", n, blind=True)).revision for n in range(1, 4)]
            assert [batch.revision for batch in await watch.batches(3)] == told
            ending = [asyncio.create_task(_end(watcher)) for watcher in (watch, idle)]
            await asyncio.sleep(0)
            code = await asyncio.to_thread(server.terminate)
            assert code == 0
            assert await asyncio.gather(*ending) == [True, True], "the last message was no draining bookmark"
            resume, idle_resume = watch.resume, idle.resume
    server.restart()
    async with connected(server) as api:
        agent = Agent(api, agent.actor)
        assert [epoch.epoch for epoch in await api.epochs()] == [1], "an orderly end begins no epoch"
        newer = await agent.put(SPACE, "k", 9, blind=True)
        elsewhere = await agent.put(SPACE, "elsewhere/k", 1)
        async with watching(agent, SPACE, resume=resume) as watch:
            assert [batch.revision for batch in await watch.batches(2)] == [newer.revision, elsewhere.revision]
        async with watching(agent, SPACE, "elsewhere/", resume=idle_resume) as idle:
            assert (await idle.batch()).revision == elsewhere.revision


async def _end(watcher: Watcher) -> bool:
    """Reads a watch to its end; returns whether it was announced."""
    announced = False
    with refusal(Reason.DRAINING):
        while True:
            message = await watcher.message()
            announced = message.WhichOneof("event") == "bookmark" and message.bookmark.draining
    return announced


async def test_what_was_acknowledged_while_it_went_down_is_there_afterwards(server: ServerProcess) -> None:
    """Calls that were running finish; the others end as what a client tries again, with the same id."""
    acknowledged: dict[str, bytes] = {}

    async def write(agent: Agent, number: int) -> None:
        for step in range(10_000):
            key, value = f"k{number}", b"%d" % step
            try:
                await agent.put(SPACE, key, value, blind=True)
            except Refused as refused:
                if refused.code not in MAY_BE_TRIED_AGAIN:
                    raise
                return
            acknowledged[key] = value

    async with connected(server) as api:
        agents = [await api.agent(f"w{n}") for n in range(8)]
        async with watching(agents[0], SPACE) as watch:
            await watch.bookmark()
            writing = asyncio.gather(*(write(agent, n) for n, agent in enumerate(agents)))
            await watch.batches(50)
            assert await asyncio.to_thread(server.terminate) == 0
            await writing
    server.restart()
    async with connected(server) as api:
        found = contents(await (await api.agent("reader")).listing(SPACE))
        for key, value in acknowledged.items():
            # The one call after the last acknowledged one may have been executed, too.
            assert int(found[key]) - int(value) in (0, 1), key
    assert "Traceback" not in server.stderr


async def test_clients_do_not_notice_an_orderly_restart(server: ServerProcess) -> None:
    """Whatever the shutdown does to a call, its client repeats it, and it is executed once."""
    clients, calls = 8, 0
    restarted = asyncio.Event()

    async def count(client: Client) -> None:
        nonlocal calls
        # Some calls before, some during, some after the restart.
        while not restarted.is_set():
            await client.shared("s").key("n").increment(1)
            calls += 1

    async with contextlib.AsyncExitStack() as stack:
        connections = [
            await stack.enter_async_context(connect(server.address, agent=f"c{n}", timeout=60)) for n in range(clients)
        ]
        async with connected(server) as api, watching(await api.agent("w"), SPACE) as watch:
            await watch.bookmark()
            counting = asyncio.gather(*map(count, connections))
            await watch.batches(50)
        assert await asyncio.to_thread(server.terminate) == 0
        await asyncio.to_thread(server.restart)
        async with connected(server) as api, watching(await api.agent("w"), SPACE) as watch:
            await watch.batches(50)
            restarted.set()
        await counting
        total = await connections[0].shared("s").get("n", int)
        assert total is not None
        assert total.value == calls


async def test_health_says_not_serving_before_the_end(server: ServerProcess) -> None:
    async with grpc.aio.insecure_channel(server.address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for service in ("", "noosphere.v1.MemoryService", "noosphere.v1.AdminService"):
            reply = await health.Check(health_pb2.HealthCheckRequest(service=service))
            assert reply.status == health_pb2.HealthCheckResponse.SERVING
        following = aiter(health.Watch(health_pb2.HealthCheckRequest(service="")))
        assert (await anext(following)).status == health_pb2.HealthCheckResponse.SERVING
        ending = asyncio.create_task(asyncio.to_thread(server.terminate))
        assert (await anext(following)).status == health_pb2.HealthCheckResponse.NOT_SERVING
        with pytest.raises(StopAsyncIteration):
            # Whoever watches health must not hold the server up.
            await anext(following)
        assert await ending == 0
