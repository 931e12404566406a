"""The real server on a real Redis: what a failover loses is named to its owner, who writes it again, once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.process import ServerProcess
from tests.support.redis import RedisProcess, needs_redis
from tests.support.redis_pair import cut_off, fail_over

from noosphere.client import AckedWritesLost, Increment, connect

pytestmark = needs_redis


@pytest.fixture
def server(tmp_path: Path, primary: RedisProcess, replica: RedisProcess) -> Iterator[ServerProcess]:
    """A server that knows both."""
    config = tmp_path / "noosphere.toml"
    config.write_text(f'redis_urls = "{primary.url}, {replica.url}"\n')
    process = ServerProcess(tmp_path / "data", ("--config", str(config), "--embedder", "none"))
    try:
        process.start()
        yield process
    finally:
        process.close()


async def test_lost_writes_are_named_to_their_owner_who_writes_them_again(
    server: ServerProcess, primary: RedisProcess, replica: RedisProcess
) -> None:
    async with (
        connect(server.address, agent="a", timeout=60) as a,
        connect(server.address, agent="b", timeout=60) as b,
    ):
        space, others = a.shared("s"), b.shared("s")
        plan = await space.put("plan", 0)
        await others.key("tally").increment(1)
        await space.put("kept", "kept")
        cut_off(primary, replica)
        for number in range(1, 21):
            plan = await plan.replace(number)
            await others.key("tally").increment(1)
        fail_over(primary, replica)
        losses = []
        for mine in (space, others):
            with pytest.raises(AckedWritesLost) as caught:
                await mine.get("plan", consistency="causal")
            losses.append(caught.value)
        assert [write.value for write in losses[0].own_writes if write.key == "plan"] == list(range(1, 21))
        assert {write.key for write in losses[1].own_writes} == {"tally"}
        assert len(losses[1].own_writes) == 20
        for client, loss in ((a, losses[0]), (b, losses[1])):
            assert not [result for result in await client.resubmit(loss) if result.error is not None]
        assert {record.key: record.value async for record in space.list()} == {"plan": 20, "tally": 21, "kept": "kept"}


async def test_a_watch_tells_of_the_epoch_and_goes_on(
    server: ServerProcess, primary: RedisProcess, replica: RedisProcess
) -> None:
    async with connect(server.address, agent="a", timeout=60) as client:
        space = client.shared("s")
        await space.put("a", 1)
        kinds: list[str] = []
        async with asyncio.timeout(60), space.watch(snapshot=True) as watch:
            async for batch in watch:
                kinds.append(batch.kind)
                if batch.kind == "snapshot":
                    cut_off(primary, replica)
                    await space.put("b", "lost")
                elif batch.kind == "changes" and batch.events[0].key == "b":
                    fail_over(primary, replica)
                elif batch.kind == "reset":
                    assert [event.key for event in batch.events] == ["a"]
                    await space.put("c", "after")
                elif batch.kind == "changes":
                    assert [event.key for event in batch.events] == ["c"]
                    break
        assert kinds.index("snapshot") < kinds.index("epoch") < kinds.index("reset")


async def test_state_outlives_the_server(server: ServerProcess) -> None:
    async with connect(server.address, agent="a", timeout=60) as client:
        await client.shared("s").put("a", "kept")
        await client.shared("s").transact(operations=[Increment("n", 5)])
        server.kill()
        server.restart()
        assert {record.key: record.value async for record in client.shared("s").list()} == {"a": "kept", "n": 5}


def test_a_redis_that_cannot_be_used_keeps_the_server_from_starting(tmp_path: Path, primary: RedisProcess) -> None:
    primary.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    config = tmp_path / "noosphere.toml"
    config.write_text(f'redis_urls = "redis://:canary@127.0.0.1:{primary.port}"\n')
    process = ServerProcess(tmp_path / "data", ("--config", str(config)))
    with pytest.raises(AssertionError, match="cannot be opened"):
        process.start()
    assert "canary" not in process.stderr
