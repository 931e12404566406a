"""Dumps between backends: from the data folder to Redis, to Redis and etcd, and back, the same all the way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.dumps import contents, put_back, settings_of, take, take_offline
from tests.support.engine import local_server
from tests.support.etcd import EtcdProcess, needs_etcd
from tests.support.killed import Killed
from tests.support.process import ServerProcess
from tests.support.redis import RedisProcess, needs_redis
from tests.support.telling import Teller

from noosphere.client import connect
from noosphere.consistency import NamePattern, NamespacePolicy
from noosphere.server.config import Settings
from noosphere.server.drivers import StartupError
from noosphere.server.ports.grants import GrantKey, Verb
from noosphere.server.ports.runtime import SystemClock
from noosphere.server.restoring import RestoreError
from noosphere.testing import ManualClock

pytestmark = [needs_redis, needs_etcd]

SPACE = "shared/launch"
COUNT = 1_100
"""More than two pages of an image."""

NUMBER = 5_000_000
"""Far above what a new etcd counts."""

POLICY = NamespacePolicy(records_max=COUNT + 10)
GRANT = GrantKey(NamePattern("planner", True), NamePattern("shared/", False))


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisProcess]:
    server = RedisProcess(tmp_path / "redis")
    server.start()
    yield server
    server.kill()


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdProcess]:
    server = EtcdProcess(tmp_path / "etcd")
    server.start()
    yield server
    server.kill()


async def made(folder: Path, *, facts: bool) -> Path:
    """Returns a dump of an embedded server."""
    async with local_server(folder / "made", ManualClock(SystemClock().wall_ms())) as server:
        coordinator = server.engine.memory.core.coordinator
        await coordinator.resume(NUMBER, coordinator.policies())
        await coordinator.set_policy(NamePattern(SPACE, True), POLICY)
        await coordinator.set_grant(GRANT, frozenset({Verb.READ}))
        await coordinator.put_entry("limits", "agent=planner", b"{}")
        agent = await server.api.agent("planner")
        for at in range(COUNT):
            await agent.put(SPACE, f"k/{at}", f"value {at}")
        await agent.put(SPACE, "soon", "gone", ttl_ms=60_000)
        await agent.delete(SPACE, "k/7", blind=True)
        await agent.put("agents/planner", "note", "private")
        await agent.put("shared/dropped", "k", "1")
        await server.api.delete_namespace("shared/dropped")
        if facts:
            user = await Teller.begin(agent)
            await user.tells("Anna prefers metric units")
        return await take(folder / "made.dump", server.engine.dumper)


def on_redis(folder: Path, redis: RedisProcess) -> Settings:
    return settings_of(folder, redis_urls=redis.url)


def replicas(folder: Path, redis: RedisProcess, etcd: EtcdProcess) -> Settings:
    return settings_of(folder, redis_urls=redis.url, etcd_endpoints=etcd.endpoint)


async def test_a_dump_goes_to_redis_and_back_and_stays_the_same(tmp_path: Path, redis: RedisProcess) -> None:
    path = await made(tmp_path, facts=True)
    target = on_redis(tmp_path / "data", redis)
    summary = await put_back(path, target, SystemClock())
    assert (summary.namespaces, summary.facts) == (len([1 for line in contents(path) if line["is"] == "namespace"]), 1)
    again = await take_offline(tmp_path / "again.dump", target)
    assert contents(again) == contents(path)
    back = settings_of(tmp_path / "back")
    await put_back(again, back, SystemClock())
    assert contents(await take_offline(tmp_path / "back.dump", back)) == contents(path)
    with pytest.raises(RestoreError, match=r"not empty.*--replace"):
        await put_back(path, target, SystemClock())
    await put_back(path, target, SystemClock(), replace=True)
    assert contents(await take_offline(tmp_path / "third.dump", target)) == contents(path)


async def test_replicas_serve_what_was_restored_above_all_numbers_of_before(
    tmp_path: Path, redis: RedisProcess, etcd: EtcdProcess
) -> None:
    path = await made(tmp_path, facts=True)
    target = replicas(tmp_path / "none", redis, etcd)
    with pytest.raises(RestoreError, match=r"1 versions of facts.*--without-facts"):
        await put_back(path, target, SystemClock())
    await put_back(path, target, SystemClock(), without_facts=True)
    again = await take_offline(tmp_path / "again.dump", target)
    assert contents(again) == [line for line in contents(path) if line["is"] != "fact"]
    config = tmp_path / "server.toml"
    # The addresses of Redis are a secret, which no option takes.
    config.write_text(f'redis_urls = "{redis.url}"\netcd_endpoints = "{etcd.endpoint}"\n')
    server = ServerProcess(tmp_path / "unused", options=("--embedder", "none", "--config", str(config)))
    server.start()
    try:
        async with connect(server.address, agent="planner") as planner:
            assert int(planner.actor.rpartition("#")[2]) > NUMBER
            space = planner.namespace(SPACE)
            record = await space.get("k/8")
            assert record is not None
            assert record.value == "value 8"
            await planner.namespace("agents/planner").put("note", "newer")
            async with planner.lock("deploy") as lock:
                assert lock.fence.token > NUMBER
                await planner.fenced(lock.fence).namespace(SPACE).put("fenced", 1)
    finally:
        server.close()


async def test_a_restore_into_redis_that_was_cut_off_is_not_served(tmp_path: Path, redis: RedisProcess) -> None:
    path = await made(tmp_path, facts=False)
    target = on_redis(tmp_path / "data", redis)

    def cut(done: int, total: int) -> None:
        raise Killed

    with pytest.raises(Killed):
        await put_back(path, target, SystemClock(), told=cut)
    elsewhere = on_redis(tmp_path / "elsewhere", redis)
    for settings in (target, elsewhere):
        with pytest.raises(StartupError, match=r"cut off.*restore\s+--replace"):
            await take_offline(tmp_path / "again.dump", settings)
    await put_back(path, target, SystemClock(), replace=True)
    assert contents(await take_offline(tmp_path / "again.dump", target)) == contents(path)
