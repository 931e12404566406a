"""The drivers that the contract suites run against."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.contract.coordlab import CoordinatorLab, EmbeddedCoordinatorLab, EtcdLab
from tests.contract.factlab import EmbeddedFactLab, EmbeddedQueueLab, FactQueueLab, FactStoreLab, WeaviateFactLab
from tests.contract.lab import EmbeddedLab, StoreLab
from tests.contract.redislab import (
    RedisClusterLab,
    RedisClusterQueueLab,
    RedisLab,
    RedisPairLab,
    RedisQueueLab,
    follow,
)
from tests.contract.simulatedlab import SimulatedEtcdServer, SimulatedQueueLab, SimulatedRedisLab, simulated
from tests.support.etcd import EtcdProcess, needs_etcd
from tests.support.redis import RedisProcess, needs_redis
from tests.support.redis_cluster import RedisCluster, started_cluster
from tests.support.weaviate import WeaviateProcess, needs_weaviate

REDIS = [pytest.param(name, marks=needs_redis) for name in ("redis", "redis_pair", "redis_cluster")]


SIMULATED_REDIS = [
    pytest.param(name, marks=pytest.mark.campaign) for name in ("simulated_redis", "simulated_redis_pair")
]


@pytest.fixture(params=["embedded", *SIMULATED_REDIS, *REDIS])
def lab(request: pytest.FixtureRequest) -> StoreLab:
    """A fresh store and coordinator of each driver: the fixture named by the parameter makes them."""
    made: StoreLab = request.getfixturevalue(request.param)
    return made


@pytest.fixture
async def embedded(tmp_path: Path) -> AsyncIterator[EmbeddedLab]:
    """A fresh embedded store."""
    made = EmbeddedLab(tmp_path)
    await made.open()
    yield made
    await made.close()


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    """One Redis for all tests of a worker: to start one takes longer than most of them."""
    server = RedisProcess(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
async def redis(tmp_path: Path, redis_server: RedisProcess) -> AsyncIterator[RedisLab]:
    """An emptied Redis."""
    redis_server.ask("FLUSHALL")
    made = RedisLab(tmp_path, redis_server)
    await made.open()
    yield made
    await made.close()


@pytest.fixture(scope="session")
def redis_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RedisProcess]]:
    """Two of them for all tests of a worker."""
    folder = tmp_path_factory.mktemp("redis-pair")
    servers = [RedisProcess(folder / name) for name in ("one", "two")]
    for server in servers:
        server.start()
    yield servers
    for server in servers:
        server.kill()


@pytest.fixture
async def redis_pair(tmp_path: Path, redis_servers: list[RedisProcess]) -> AsyncIterator[RedisPairLab]:
    """An emptied primary with a replica."""
    primary, replica = redis_servers
    follow(replica, primary)
    primary.ask("FLUSHALL")
    made = RedisPairLab(tmp_path, primary, replica)
    await made.open()
    yield made
    await made.close()


@pytest.fixture(scope="session")
def redis_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    """One cluster for all tests of a worker."""
    with started_cluster(tmp_path_factory.mktemp("redis-cluster")) as cluster:
        yield cluster


@pytest.fixture
async def redis_cluster(tmp_path: Path, redis_nodes: RedisCluster) -> AsyncIterator[RedisClusterLab]:
    """An emptied cluster."""
    redis_nodes.empty()
    made = RedisClusterLab(tmp_path, redis_nodes)
    await made.open()
    yield made
    await made.close()


@pytest.fixture
async def simulated_redis(tmp_path: Path) -> AsyncIterator[SimulatedRedisLab]:
    """A simulated Redis."""
    async with simulated(SimulatedRedisLab, tmp_path, 1) as made:
        yield made


@pytest.fixture
async def simulated_redis_pair(tmp_path: Path) -> AsyncIterator[SimulatedRedisLab]:
    """A simulated primary with a simulated replica."""
    async with simulated(SimulatedRedisLab, tmp_path, 2) as made:
        yield made


@pytest.fixture(
    params=[
        "embedded_coordinator",
        pytest.param("simulated_etcd", marks=pytest.mark.campaign),
        pytest.param("etcd", marks=needs_etcd),
    ]
)
def coordinator_lab(request: pytest.FixtureRequest) -> CoordinatorLab:
    """A fresh coordinator of each driver."""
    made: CoordinatorLab = request.getfixturevalue(request.param)
    return made


@pytest.fixture
async def embedded_coordinator(tmp_path: Path) -> AsyncIterator[EmbeddedCoordinatorLab]:
    """A fresh embedded coordinator."""
    made = EmbeddedCoordinatorLab(tmp_path)
    await made.open()
    yield made
    await made.close()


@pytest.fixture
async def simulated_etcd(tmp_path: Path) -> AsyncIterator[EtcdLab]:
    """A simulated etcd."""
    server = SimulatedEtcdServer()
    await server.serve()
    made = EtcdLab(server, f"test/{tmp_path.name}/")
    await made.open()
    yield made
    await made.close()
    await server.end()


@pytest.fixture(scope="session")
def etcd_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdProcess]:
    """One etcd for all tests of a worker."""
    server = EtcdProcess(tmp_path_factory.mktemp("etcd"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
async def etcd(etcd_server: EtcdProcess, tmp_path: Path) -> AsyncIterator[EtcdLab]:
    """A root of its own on etcd."""
    made = EtcdLab(etcd_server, f"test/{tmp_path.name}/")
    await made.open()
    yield made
    await made.close()


@pytest.fixture(params=["embedded_facts", pytest.param("weaviate_facts", marks=needs_weaviate)])
def fact_lab(request: pytest.FixtureRequest) -> FactStoreLab:
    """A fresh fact store of each driver."""
    made: FactStoreLab = request.getfixturevalue(request.param)
    return made


@pytest.fixture
async def embedded_facts(tmp_path: Path) -> AsyncIterator[EmbeddedFactLab]:
    """A fresh embedded fact store."""
    made = EmbeddedFactLab(tmp_path)
    await made.open()
    yield made
    await made.close()


@pytest.fixture(scope="session")
def weaviate_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WeaviateProcess]:
    """One Weaviate for all tests of a worker: it takes seconds to start."""
    server = WeaviateProcess(tmp_path_factory.mktemp("weaviate"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
async def weaviate_facts(weaviate_server: WeaviateProcess) -> AsyncIterator[WeaviateFactLab]:
    """A fresh fact store on Weaviate."""
    made = WeaviateFactLab(weaviate_server)
    await made.open()
    yield made
    await made.close()
    made.drop()


@pytest.fixture(
    params=[
        "embedded_queue",
        pytest.param("simulated_queue", marks=pytest.mark.campaign),
        pytest.param("redis_queue", marks=needs_redis),
        pytest.param("redis_cluster_queue", marks=needs_redis),
    ]
)
def queue_lab(request: pytest.FixtureRequest) -> FactQueueLab:
    """A fresh fact queue of each driver."""
    made: FactQueueLab = request.getfixturevalue(request.param)
    return made


@pytest.fixture
async def embedded_queue(tmp_path: Path) -> AsyncIterator[EmbeddedQueueLab]:
    """A fresh embedded fact queue."""
    made = EmbeddedQueueLab(tmp_path)
    await made.open()
    yield made
    await made.close()


@pytest.fixture
async def simulated_queue(tmp_path: Path) -> AsyncIterator[SimulatedQueueLab]:
    """A fact queue on a simulated Redis."""
    async with simulated(SimulatedQueueLab, tmp_path, 1) as made:
        yield made


@pytest.fixture
async def redis_queue(tmp_path: Path, redis_server: RedisProcess) -> AsyncIterator[RedisQueueLab]:
    """A fact queue on an emptied Redis."""
    redis_server.ask("FLUSHALL")
    made = RedisQueueLab(tmp_path, redis_server)
    await made.open()
    yield made
    await made.close()


@pytest.fixture
async def redis_cluster_queue(tmp_path: Path, redis_nodes: RedisCluster) -> AsyncIterator[RedisClusterQueueLab]:
    """A fact queue on an emptied cluster."""
    redis_nodes.empty()
    made = RedisClusterQueueLab(tmp_path, redis_nodes)
    await made.open()
    yield made
    await made.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leaves all but two of the random histories of each kind out on a cluster, which takes 2 s to get over a crash."""
    seen: Counter[object] = Counter()
    kept: list[pytest.Item] = []
    for item in items:
        given = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        if "redis_cluster" in given.values() and "seed" in given:
            kind = (item.path, item.originalname)  # type: ignore[attr-defined] # It is a Function.
            seen[kind] += 1
            if seen[kind] > 2:
                continue
        kept.append(item)
    items[:] = kept
