"""Restarts under load that fail no call: of each replica in turn, and of Redis, which begins an epoch each time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import grpc
import pytest
from tests.support.etcd import needs_etcd
from tests.support.fleet import Fleet
from tests.support.health import SERVING, until_health
from tests.support.redis import needs_redis
from tests.support.waiting import until

from noosphere.client import Client, Conflict, connect
from noosphere.v1 import admin_service_pb2
from noosphere.v1.admin_service_pb2_grpc import AdminServiceStub

pytestmark = [needs_redis, needs_etcd, pytest.mark.campaign]

WRITERS = 4
CALLS_BETWEEN = 10
"""Rounds of calls that each client makes at least between two restarts, and before and after them."""

EPOCHS = 3
SECONDS_MAX = 240.0


async def epochs(address: str) -> list[int]:
    """Returns the epochs that a server knows."""
    async with grpc.aio.insecure_channel(address) as channel:
        reply = await AdminServiceStub(channel).ListEpochs(admin_service_pb2.ListEpochsRequest())
        return [info.epoch for info in reply.epochs]


class Agent:
    """One client under load. Whatever it is refused ends the test."""

    def __init__(self, client: Client, name: str) -> None:
        self.client = client
        self.name = name
        self.calls = 0
        self.counted = 0
        self.claimed = 0

    async def work(self, stop: asyncio.Event) -> None:
        """Works until it is told to stop."""
        space = self.client.shared("rolling")
        board = space.board("tasks/")
        while not stop.is_set():
            await space.key("tally").increment(1)
            self.counted += 1
            await space.key("plan", list[str]).update(self._with_mine, attempts=1_000)
            await self.client.private.put("note", self.calls)
            note = await self.client.private.get("note")
            assert note is not None
            assert note.value == self.calls, "it reads what it has written, wherever that was"
            await board.add({"by": self.name}, key=f"{self.name}-{self.calls}")
            async with board.claim(lease=60) as claim:
                if claim is not None:
                    await claim.complete({"by": self.name})
                    self.claimed += 1
            self.calls += 1

    def _with_mine(self, held: list[str] | None, _: Conflict[list[str]] | None) -> list[str]:
        return [*(held or []), f"{self.name}{self.calls}"][-20:]


class Watcher:
    """Follows the tally, which each increment moves by one: a gap or a second telling is seen."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.values: list[int] = []
        self.kinds: set[str] = set()

    async def work(self, begun: asyncio.Event) -> None:
        """Watches until it is cancelled."""
        async with self._client.shared("rolling").watch() as watch:
            begun.set()
            async for batch in watch:
                self.kinds.add(batch.kind)
                self.values += [
                    event.record.value for event in batch.events if event.key == "tally" and event.record is not None
                ]


@asynccontextmanager
async def load(fleet: Fleet) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Has agents work and a watcher watch; gives what waits for more calls. In the end nothing may be missing."""
    stop, begun = asyncio.Event(), asyncio.Event()
    async with AsyncExitStack() as stack, asyncio.timeout(SECONDS_MAX), asyncio.TaskGroup() as group:
        agents = [
            Agent(await stack.enter_async_context(connect(fleet.address, agent=f"agent-{n}", timeout=60)), f"a{n}")
            for n in range(WRITERS)
        ]
        watcher = Watcher(await stack.enter_async_context(connect(fleet.address, agent="watcher", timeout=60)))
        watching = group.create_task(watcher.work(begun))
        await begun.wait()
        working = [group.create_task(agent.work(stop)) for agent in agents]

        async def more_calls() -> None:
            wanted = [agent.calls + CALLS_BETWEEN for agent in agents]
            await until(
                lambda: all(agent.calls >= calls for agent, calls in zip(agents, wanted, strict=True)), SECONDS_MAX
            )

        await more_calls()
        yield more_calls
        await more_calls()
        stop.set()
        await asyncio.gather(*working)
        space = agents[0].client.shared("rolling")
        tally = await space.get("tally")
        assert tally is not None
        assert tally.value == sum(agent.counted for agent in agents)
        last = tally.value
        await until(lambda: watcher.values[-1] == last)
        watching.cancel()
        assert watcher.values == list(range(1, last + 1)), "nothing was missed, and nothing was told twice"
        assert watcher.kinds <= {"changes", "bookmark"}, "no snapshot had to be taken"
        tasks = [record async for record in space.list("tasks/")]
        done = [record for record in tasks if record.claim is not None and record.claim.done]
        assert len(done) == sum(agent.claimed for agent in agents)


async def test_restarting_each_replica_in_turn_fails_no_call(fleet: Fleet) -> None:
    async with load(fleet) as more_calls:
        for server in fleet.servers:
            assert await asyncio.to_thread(server.terminate) == 0
            await more_calls()
            await asyncio.to_thread(server.restart)
            await more_calls()


async def test_restarting_redis_begins_one_epoch_each_time_and_fails_no_call(tmp_path: Path) -> None:
    with Fleet(tmp_path, redis={"appendfsync": "always"}) as fleet:
        async with load(fleet) as more_calls:
            for _ in range(EPOCHS):
                await asyncio.to_thread(fleet.primary.restart)
                await more_calls()
        pids = [server.pid for server in fleet.servers]
        for server in fleet.servers:
            assert server.process is not None
            assert server.process.poll() is None, f"{server.pid} of {pids} has ended"
            await until_health(server.address, SERVING)
            assert await epochs(server.address) == list(range(1, EPOCHS + 2)), "of three servers one has begun each"
