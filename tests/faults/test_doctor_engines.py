"""`noosphere doctor` on Redis and etcd: each fault that is planted in them is named, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.doctor import Elsewhere, findings, names
from tests.support.etcd import EtcdProcess, needs_etcd
from tests.support.ports import free_port
from tests.support.redis import RedisProcess, needs_redis

from noosphere.server.storage.etcd import wire_pb2 as wire

pytestmark = [needs_redis, needs_etcd]


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisProcess]:
    server = RedisProcess(tmp_path / "redis", appendfsync="always")
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdProcess]:
    server = EtcdProcess(tmp_path_factory.mktemp("etcd"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def listen() -> str:
    return f"127.0.0.1:{free_port()}"


def config_of(folder: Path, *urls: str) -> Path:
    config = folder / "server.toml"
    config.write_text(f'redis_urls = "{",".join(urls)}"\n')
    config.chmod(0o600)
    return config


async def test_nothing_is_wrong_with_engines_that_are_well(
    tmp_path: Path, redis: RedisProcess, etcd: EtcdProcess, listen: str
) -> None:
    config = config_of(tmp_path, redis.url)
    assert await findings(config, listen=listen, data=tmp_path / "data") == []
    assert await findings(config, listen=listen, etcd_endpoints=etcd.endpoint) == []


async def test_a_redis_that_is_not_there(tmp_path: Path, etcd: EtcdProcess, listen: str) -> None:
    config = config_of(tmp_path, f"redis://127.0.0.1:{free_port()}")
    assert await names(config, listen=listen, etcd_endpoints=etcd.endpoint) == ["redis_unreachable"]


async def test_a_wrong_password(tmp_path: Path, redis: RedisProcess, etcd: EtcdProcess, listen: str) -> None:
    redis.ask("CONFIG", "SET", "requirepass", "right")
    for url in (redis.url, f"redis://:wr-canary@127.0.0.1:{redis.port}", f"redis://no:body@127.0.0.1:{redis.port}"):
        (found,) = await findings(config_of(tmp_path, url), listen=listen, etcd_endpoints=etcd.endpoint)
        assert found.name == "redis_password"
        assert "canary" not in repr(found)
    config = config_of(tmp_path, f"redis://:right@127.0.0.1:{redis.port}")
    assert await names(config, listen=listen, etcd_endpoints=etcd.endpoint) == []


async def test_a_redis_that_evicts(tmp_path: Path, redis: RedisProcess, etcd: EtcdProcess, listen: str) -> None:
    redis.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    config = config_of(tmp_path, redis.url)
    assert await names(config, listen=listen, etcd_endpoints=etcd.endpoint) == ["redis_evicts"]


async def test_a_redis_without_memory(tmp_path: Path, redis: RedisProcess, etcd: EtcdProcess, listen: str) -> None:
    redis.ask("CONFIG", "SET", "maxmemory", int(redis.info("memory")["used_memory"]) + 1_000)
    config = config_of(tmp_path, redis.url)
    assert await names(config, listen=listen, etcd_endpoints=etcd.endpoint) == ["redis_memory"]


async def test_a_redis_that_refuses_writes_without_replicas(
    tmp_path: Path, redis: RedisProcess, etcd: EtcdProcess, listen: str
) -> None:
    redis.ask("CONFIG", "SET", "min-replicas-to-write", 1)
    config = config_of(tmp_path, redis.url)
    assert await names(config, listen=listen, etcd_endpoints=etcd.endpoint) == ["redis_refuses_writes"]


async def test_a_redis_that_answers_before_the_disk(
    tmp_path: Path, redis: RedisProcess, etcd: EtcdProcess, listen: str
) -> None:
    redis.ask("CONFIG", "SET", "appendfsync", "everysec")
    config = config_of(tmp_path, redis.url)
    (found,) = await findings(config, listen=listen, etcd_endpoints=etcd.endpoint)
    assert (found.name, found.severity) == ("redis_durability", "warning")
    assert await names(config, listen=listen, etcd_endpoints=etcd.endpoint, durability="os") == []


async def test_a_replica_that_has_lost_its_primary(
    tmp_path: Path, redis: RedisProcess, etcd: EtcdProcess, listen: str
) -> None:
    redis.ask("REPLICAOF", "127.0.0.1", free_port())
    found = await names(config_of(tmp_path, redis.url), listen=listen, etcd_endpoints=etcd.endpoint)
    assert found == ["redis_replica_apart"]
    other = f"redis://localhost:{redis.port}"
    found = await names(config_of(tmp_path, redis.url, other), listen=listen, etcd_endpoints=etcd.endpoint)
    assert found == ["redis_replica_apart", "redis_replica_apart", "redis_no_primary"]


async def test_a_restore_that_was_cut_off(tmp_path: Path, redis: RedisProcess, etcd: EtcdProcess, listen: str) -> None:
    redis.ask("HSET", "noosphere:{catalogue}:meta", "restoring", 1)
    config = config_of(tmp_path, redis.url)
    assert await names(config, listen=listen, etcd_endpoints=etcd.endpoint) == ["restore_cut_off"]


@pytest.mark.parametrize("ahead_ms", [3_600_000, -3_600_000])
async def test_clocks_that_disagree(
    tmp_path: Path, redis: RedisProcess, etcd: EtcdProcess, listen: str, ahead_ms: int
) -> None:
    config = config_of(tmp_path, redis.url)
    found = await findings(config, Elsewhere(ahead_ms=ahead_ms), listen=listen, etcd_endpoints=etcd.endpoint)
    assert [one.name for one in found] == ["clock_skew"]
    assert ("behind" if ahead_ms > 0 else "ahead of") in found[0].evidence


async def test_an_etcd_that_is_not_there(tmp_path: Path, redis: RedisProcess, etcd: EtcdProcess, listen: str) -> None:
    config = config_of(tmp_path, redis.url)
    gone = f"127.0.0.1:{free_port()}"
    (found,) = await findings(config, listen=listen, etcd_endpoints=f"{etcd.endpoint},{gone}")
    assert (found.name, gone in found.evidence) == ("etcd_unreachable", True)


async def test_an_etcd_that_has_no_room(tmp_path: Path, redis: RedisProcess, etcd: EtcdProcess, listen: str) -> None:
    config = config_of(tmp_path, redis.url)
    raised = wire.AlarmRequest(action=1, alarm=wire.NOSPACE)
    etcd.alarm(raised)
    try:
        (found,) = await findings(config, listen=listen, etcd_endpoints=etcd.endpoint)
        assert (found.name, "NOSPACE" in found.evidence) == ("etcd_alarm", True)
    finally:
        raised.action = 2
        etcd.alarm(raised)
    assert await names(config, listen=listen, etcd_endpoints=etcd.endpoint) == []


async def test_an_etcd_of_a_newer_format(tmp_path: Path, redis: RedisProcess, etcd: EtcdProcess, listen: str) -> None:
    etcd.put("newer/format", b"9")
    config = config_of(tmp_path, redis.url)
    assert await names(config, listen=listen, etcd_endpoints=etcd.endpoint, etcd_root="newer/") == ["newer_format"]
