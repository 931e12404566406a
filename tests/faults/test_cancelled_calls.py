"""10,000 randomly cancelled calls leave server and client whole, and replies matched."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Callable, Coroutine

import pytest
from tests.faults.conftest import connected
from tests.support.api import Agent
from tests.support.effort import effort
from tests.support.etcd import needs_etcd
from tests.support.fleet import Fleet
from tests.support.process import ServerProcess
from tests.support.redis import needs_redis

from noosphere.client import Client, Conflict, Increment, Put, TransactionFailed, connect

CALLS = int(os.environ.get("NOOSPHERE_TEST_CANCELLED_CALLS", effort(2_000, 10_000)))
IN_FLIGHT = 100
SPARED = 0.25
LATEST_S = 0.2
"""Calls that are not spared are cancelled at a moment up to here: before they are sent, on their way, while
they sync, or when they have long been answered."""


class Caller:
    """Makes calls whose replies can be told apart, and counts what is known of their outcome."""

    def __init__(self, client: Client, chance: random.Random) -> None:
        self._space = client.shared("s")
        self._chance = chance
        self.begun: Counter[str] = Counter()
        self.done: Counter[str] = Counter()

    async def one(self, number: int) -> None:
        """Makes one call; raises whatever is not expected."""
        kind, call = self._chance.choice(self._calls())
        self.begun[kind] += 1
        await call(number)
        self.done[kind] += 1

    def _calls(self) -> list[tuple[str, Callable[[int], Coroutine[object, object, None]]]]:
        return [
            ("count", self._count),
            ("own", self._own),
            ("transact", self._transact),
            ("update", self._update),
            ("claim", self._claim),
            ("watch", self._watch),
        ]

    async def _count(self, number: int) -> None:
        await self._space.key("counter").increment(1)

    async def _own(self, number: int) -> None:
        """Writes and reads a key of its own: whatever comes back must be its own."""
        key = self._space.key(f"own/{number}", int)
        written = await key.put(number)
        assert (written.key, written.value) == (f"own/{number}", number)
        read = await key.get()
        assert read is not None
        assert (read.key, read.value, read.version) == (f"own/{number}", number, written.version)

    async def _transact(self, number: int) -> None:
        try:
            await self._space.transact(
                operations=[Increment("both", 1), Put(f"both/{number % 50}", number, blind=True), Increment("sides", 1)]
            )
        except TransactionFailed as error:
            raise AssertionError("nothing in it can fail") from error

    async def _update(self, number: int) -> None:
        record = await self._space.key(f"shared/{number % 5}", int).read()
        try:
            await record.replace(number)
        except Conflict:
            return

    async def _claim(self, number: int) -> None:
        async with self._space.board("tasks/").claim(lease=60) as claim:
            if claim is not None:
                await asyncio.sleep(0)

    async def _watch(self, number: int) -> None:
        async with self._space.watch("shared/", snapshot=True) as batches:
            async for _ in batches:
                return


@pytest.fixture(params=["alone", pytest.param("replica", marks=[needs_redis, needs_etcd, pytest.mark.campaign])])
def called(request: pytest.FixtureRequest) -> ServerProcess:
    """Who is called: a server by itself, or one of several, whose calls share a connection to Redis and one to etcd."""
    if request.param == "alone":
        server: ServerProcess = request.getfixturevalue("server")
        return server
    fleet: Fleet = request.getfixturevalue("fleet")
    return fleet.servers[0]


@pytest.mark.thorough
@pytest.mark.timeout(300)
async def test_thousands_of_cancelled_calls_leave_everything_whole(called: ServerProcess) -> None:
    server = called
    chance = random.Random(CALLS)
    loop = asyncio.get_running_loop()
    async with connect(server.address, agent="caller", timeout=60) as client:
        for number in range(4):
            await client.shared("s").board("tasks/").add({"n": number}, f"{number}")
        caller = Caller(client, chance)
        outcomes: Counter[str] = Counter()
        room = asyncio.Semaphore(IN_FLIGHT)

        async def run(number: int) -> None:
            async with room:
                task = asyncio.create_task(caller.one(number))
                if chance.random() >= SPARED:
                    loop.call_later(chance.uniform(0, LATEST_S), task.cancel)
                await asyncio.wait([task])
                outcomes["cancelled" if task.cancelled() else "done"] += 1
                if not task.cancelled() and (error := task.exception()) is not None:
                    raise error

        async with asyncio.TaskGroup() as group:
            for number in range(CALLS):
                group.create_task(run(number))
        assert min(outcomes["cancelled"], outcomes["done"]) > CALLS // 100, outcomes
        await check_whole(client, caller)
    async with connected(server) as api:
        await check_server(await api.agent("inspector"))
    assert server.terminate() == 0
    assert "error" not in server.stderr.lower(), server.stderr


async def check_whole(client: Client, caller: Caller) -> None:
    """The client can do more than 1,024 further calls, so none was left unanswered for ever; sums are exact."""
    space = client.shared("s")
    counters = {record.key: record for record in await space.get_many(["counter", "both", "sides"])}
    values = {key: record.value if record.exists else 0 for key, record in counters.items()}
    assert caller.done["count"] <= values["counter"] <= caller.begun["count"]
    assert caller.done["transact"] <= values["both"] <= caller.begun["transact"]
    assert values["both"] == values["sides"], "half a transaction"
    for _ in range(30):
        await asyncio.gather(*(space.key("after").increment(1) for _ in range(50)))
    after = await space.get("after", int)
    assert after is not None
    assert after.value == 1500


async def check_server(agent: Agent) -> None:
    """Nothing is left behind of calls that nobody waits for any more."""
    stats = await agent.api.stats()
    while stats.watch_count:  # the end of a cancelled stream reaches the server when it does
        await asyncio.sleep(0.01)
        stats = await agent.api.stats()
    info = await agent.api.get_namespace("shared/s")
    assert info.request_count <= 1024
    task = await agent.claim("shared/s", "none/")
    assert task is None
