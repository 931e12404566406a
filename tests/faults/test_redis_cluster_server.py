"""The real server on a real Redis Cluster: what one node loses is named to its owner; on the others nothing happens."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.process import ServerProcess
from tests.support.redis import needs_redis
from tests.support.redis_cluster import RedisCluster, started_cluster

from noosphere.client import AckedWritesLost, connect
from noosphere.server.ports.store import NamespaceRef
from noosphere.server.storage.redis.packing import stem_of

pytestmark = needs_redis


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RedisCluster]:
    """Three primaries, each with a replica."""
    with started_cluster(tmp_path / "redis", 3, 3) as made:
        yield made


@pytest.fixture
def server(tmp_path: Path, cluster: RedisCluster) -> Iterator[ServerProcess]:
    """A server that was told of one node."""
    config = tmp_path / "noosphere.toml"
    config.write_text(f'redis_urls = "{cluster.urls[0]}"\n')
    process = ServerProcess(tmp_path / "data", ("--config", str(config), "--embedder", "none"))
    try:
        process.start()
        yield process
    finally:
        process.close()


def name_on(cluster: RedisCluster, number: int) -> str:
    """Returns the name of a shared namespace on a node."""
    for at in range(1_000):
        if cluster.of(stem_of(NamespaceRef(f"shared/n{at}"))) is cluster.primaries[number]:
            return f"n{at}"
    raise AssertionError("no name is on that node")


async def test_a_node_that_fails_over_costs_its_own_writes_and_no_others(
    server: ServerProcess, cluster: RedisCluster
) -> None:
    async with connect(server.address, agent="a", timeout=60) as client:
        hit, spared = (client.shared(name_on(cluster, number)) for number in (1, 2))
        for space in (hit, spared):
            await space.put("plan", 0)
        cluster.cut_off(1)
        async with asyncio.timeout(120), spared.watch() as watch:
            for space in (hit, spared):
                record = await space.get("plan")
                assert record is not None
                for number in range(1, 11):
                    record = await record.replace(number)
            cluster.fail_over(1)
            with pytest.raises(AckedWritesLost) as caught:
                await hit.get("plan", consistency="causal")
            assert [write.value for write in caught.value.own_writes] == list(range(1, 11))
            assert not [result for result in await client.resubmit(caught.value) if result.error is not None]
            found = [await space.get("plan", consistency="causal") for space in (hit, spared)]
            assert [record and record.value for record in found] == [10, 10]
            await spared.put("last", "after")
            seen: list[str] = []
            async for batch in watch:
                assert batch.kind in ("changes", "bookmark"), "nothing begins anew"
                seen += [event.key for event in batch.events]
                if "last" in seen:
                    break
        assert seen == ["plan"] * 10 + ["last"]
