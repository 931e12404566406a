"""What agents rely on though each call goes to another replica: own writes, what one was told, never backwards."""

from __future__ import annotations

import asyncio
import contextlib
import random
import uuid
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import grpc
import pytest
from tests.support.api import Agent, Api, put_op
from tests.support.engine import local_server
from tests.support.etcd import needs_etcd
from tests.support.fleet import Fleet
from tests.support.redis import needs_redis
from tests.support.transport import SocketTransport

from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1 import types_pb2 as types

KEY = "k"
STEPS = 60
CAUSAL = types.READ_CONSISTENCY_CAUSAL
STALE = types.READ_CONSISTENCY_STALE
LINEARIZABLE = types.READ_CONSISTENCY_LINEARIZABLE


class Person:
    """An agent each of whose calls goes to any replica, and that keeps the causal token of what it has seen."""

    def __init__(self, apis: Sequence[Api], actor: types.Actor, space: str, rng: random.Random) -> None:
        self._agents = [Agent(api, actor) for api in apis]
        self._space = space
        self._rng = rng
        self.token = b""

    def _anywhere(self) -> tuple[Agent, types.CallContext]:
        agent = self._rng.choice(self._agents)
        call = agent.call()
        call.causal_tokens.extend([self.token] if self.token else [])
        call.return_causal_token = True
        return agent, call

    async def write(self, value: int) -> int:
        """Writes; returns the revision."""
        agent, call = self._anywhere()
        request = pb.PutRequest(namespace=self._space, put=put_op(KEY, value, blind=True), call=call)
        response = await agent.api.put(request)
        self.token = response.call.causal_token
        return response.applied.revision

    async def read(self, consistency: types.ReadConsistency.ValueType) -> int:
        """Reads; returns the version that it was shown."""
        agent, call = self._anywhere()
        request = pb.GetRequest(namespace=self._space, key=KEY, consistency=consistency, call=call)
        response = await agent.api.get(request)
        self.token = response.call.causal_token
        return response.record.version


@pytest.fixture(params=["in process", pytest.param("over a fleet", marks=[needs_redis, needs_etcd])])
async def apis(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Sequence[Api]]:
    """Calls each of three replicas."""
    if request.param == "in process":
        async with local_server(tmp_path, replicas=3) as server:
            yield server.apis
        return
    fleet: Fleet = request.getfixturevalue("replicas_on_engines")
    async with contextlib.AsyncExitStack() as stack:
        channels = [await stack.enter_async_context(grpc.aio.insecure_channel(a)) for a in fleet.addresses]
        yield [Api(SocketTransport(channel)) for channel in channels]


async def people(apis: Sequence[Api], *names: str) -> list[Person]:
    """Opens agents, each at any replica, in a namespace of their own."""
    run, rng = uuid.uuid4().hex[:12], random.Random(1)
    made = [await rng.choice(apis).open_agent(f"{name}-{run}") for name in names]
    return [Person(apis, actor, f"shared/{run}", rng) for actor in made]


@pytest.mark.parametrize("consistency", [CAUSAL, LINEARIZABLE, STALE], ids=["causal", "linearizable", "stale"])
async def test_whoever_writes_reads_it_anywhere(
    apis: Sequence[Api], consistency: types.ReadConsistency.ValueType
) -> None:
    (person,) = await people(apis, "a")
    for step in range(STEPS):
        written = await person.write(step)
        # With its token not even a read that may be stale shows less.
        assert await person.read(consistency) == written


async def test_whoever_was_told_reads_it_anywhere(apis: Sequence[Api]) -> None:
    teller, told, third = await people(apis, "a", "b", "c")
    for step in range(STEPS):
        written = await teller.write(step)
        told.token = teller.token
        assert await told.read(CAUSAL) == written
        # And whoever was told by the one who was told.
        answer = await told.write(-step)
        third.token = told.token
        assert await third.read(CAUSAL) == answer
        teller.token = third.token


@pytest.mark.parametrize("consistency", [CAUSAL, LINEARIZABLE, STALE], ids=["causal", "linearizable", "stale"])
async def test_reads_that_go_anywhere_never_go_back(
    apis: Sequence[Api], consistency: types.ReadConsistency.ValueType
) -> None:
    writer, *readers = await people(apis, "a", "b", "c", "d")
    written = [await writer.write(0)]

    async def write() -> None:
        for step in range(STEPS):
            written.append(await writer.write(step))

    async def read(reader: Person) -> list[int]:
        seen: list[int] = []
        while not seen or seen[-1] < written[-1] or len(written) <= STEPS:
            acknowledged = written[-1]
            seen.append(await reader.read(consistency))
            if consistency == LINEARIZABLE:
                assert seen[-1] >= acknowledged, "less than was acknowledged before it was asked"
            await asyncio.sleep(0)
        return seen

    writing = asyncio.create_task(write())
    shown = await asyncio.gather(*map(read, readers))
    await writing
    for seen in shown:
        assert seen == sorted(seen)
        assert set(seen) <= set(written), "nothing that nobody wrote"
