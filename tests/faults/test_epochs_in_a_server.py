"""Epochs that begin while a server runs: it goes on, with services that know nothing of what may have been undone."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import grpc
import pytest
from pydantic import SecretStr
from tests.support.health import NOT_SERVING, SERVING, health, until_health
from tests.support.redis import RedisProcess, needs_redis
from tests.support.waiting import until

from noosphere.client import Client, RetryPolicy, Unavailable, connect
from noosphere.server.app import serve
from noosphere.server.config import Settings
from noosphere.server.memory.core import Core
from noosphere.server.rpc.server import RpcServer
from noosphere.server.storage.redis import RedisStore
from noosphere.v1 import admin_service_pb2
from noosphere.v1.admin_service_pb2_grpc import AdminServiceStub

pytestmark = needs_redis

EPOCHS = 20
SECONDS_MAX = 60
MEMORY = "noosphere.v1.MemoryService"


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisProcess]:
    """A Redis that keeps what it has acknowledged."""
    redis = RedisProcess(tmp_path / "redis", appendfsync="always")
    redis.start()
    yield redis
    redis.kill()


@contextlib.asynccontextmanager
async def serving(folder: Path, redis: RedisProcess) -> AsyncIterator[str]:
    """Runs a server in this process; gives its address."""
    found: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    settings = Settings(
        data=folder,
        listen="127.0.0.1:0",
        redis_urls=SecretStr(redis.url),
        embedder="none",
        durability="os",
        drain_seconds=0.1,
    )
    server = asyncio.create_task(serve(settings, ready=found.set_result, stop=stop))
    try:
        yield await found
    finally:
        stop.set()
        assert await server == 0


def once(address: str) -> AbstractAsyncContextManager[Client]:
    """Connects as an agent that tries each call once."""
    return connect(address, agent="a", timeout=SECONDS_MAX, retry=RetryPolicy(attempts_max=1), coalesce=False)


async def epochs(address: str) -> list[int]:
    """Returns the epochs that a server knows."""
    async with grpc.aio.insecure_channel(address) as channel:
        reply = await AdminServiceStub(channel).ListEpochs(admin_service_pb2.ListEpochsRequest(page_size=1_000))
        return [info.epoch for info in reply.epochs]


def leavings() -> dict[str, int]:
    """Counts what a generation of services must take with it."""
    gc.collect()
    kinds = (Core, RedisStore, RpcServer)
    counts = {kind.__name__: sum(isinstance(one, kind) for one in gc.get_objects()) for kind in kinds}
    return counts | {"tasks": len(asyncio.all_tasks()), "files": len(os.listdir("/proc/self/fd"))}


async def test_epoch_after_epoch_the_server_goes_on_and_nothing_is_left_of_the_services_before(
    tmp_path: Path, redis: RedisProcess
) -> None:
    async with serving(tmp_path / "data", redis) as address, connect(address, agent="a", timeout=SECONDS_MAX) as a:
        tally = a.shared("s").key("tally")
        await tally.increment(1)
        before: dict[str, int] = {}
        for number in range(EPOCHS):
            await asyncio.to_thread(redis.restart)
            await tally.increment(1)
            if number == 1:
                before = leavings()

        def nothing_is_left() -> bool:
            after = leavings()
            # Calls under way and connections have their tasks and files, too; one for each epoch would be more.
            grown = [name for name, count in after.items() if count > before[name] + EPOCHS // 2]
            return not grown and after["Core"] == 1 and after["RedisStore"] == 1

        await until(nothing_is_left)
        found = await a.shared("s").get("tally")
        assert found is not None
        assert found.value == EPOCHS + 1


async def test_who_waits_when_an_epoch_begins_waits_on_in_the_next_one(tmp_path: Path, redis: RedisProcess) -> None:
    async def claim(client: Client) -> str:
        async with client.shared("s").board("todo/").claim(lease=60, wait=50) as task:
            return task.key if task is not None else "nothing"

    async with (
        serving(tmp_path / "data", redis) as address,
        connect(address, agent="a", timeout=SECONDS_MAX) as a,
        connect(address, agent="b", timeout=SECONDS_MAX) as b,
    ):
        await a.shared("s").put("begun", 1)
        waiting = asyncio.create_task(claim(a))
        await asyncio.sleep(0.2)
        await asyncio.to_thread(redis.restart)
        # It waits on, at the services of the new epoch, as it would after a restart of the server.
        await b.shared("s").board("todo/").add({"n": 1}, key="one")
        assert await asyncio.wait_for(waiting, SECONDS_MAX) == "todo/one"


async def test_without_redis_the_server_is_not_ready_but_alive(tmp_path: Path, redis: RedisProcess) -> None:
    async with serving(tmp_path / "data", redis) as address, once(address) as a:
        space = a.shared("s")
        await space.put("kept", 1)

        await until_health(address, SERVING, MEMORY)
        redis.kill()
        await until_health(address, NOT_SERVING, MEMORY)
        with pytest.raises(Unavailable) as caught:
            await space.get("kept")
        assert caught.value.reason == "ENGINE_UNAVAILABLE"
        assert await health(address, "liveness") == SERVING
        redis.start()
        await until_health(address, SERVING, MEMORY)
        kept = await space.get("kept")
        assert kept is not None
        assert kept.value == 1


async def test_a_redis_that_is_slow_to_answer_makes_the_server_unready_without_a_new_epoch(
    tmp_path: Path, redis: RedisProcess
) -> None:
    async with serving(tmp_path / "data", redis) as address, connect(address, agent="a", timeout=SECONDS_MAX) as a:
        await a.shared("s").put("kept", 1)
        before = await epochs(address)
        redis.pause()
        await until_health(address, NOT_SERVING)
        redis.resume()
        await until_health(address, SERVING)
        assert await epochs(address) == before
