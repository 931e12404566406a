"""Replicas: servers without a data folder that share Redis and etcd."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest
from tests.support.etcd import EtcdProcess, needs_etcd
from tests.support.fleet import Fleet
from tests.support.process import ServerProcess
from tests.support.redis import RedisProcess, free_port, needs_redis

from noosphere.client import Conflict, connect

pytestmark = [needs_redis, needs_etcd]

INCREMENTS = 40


def added(mine: str, held: list[str] | None, _: Conflict[list[str]] | None) -> list[str]:
    """Returns the plan with one step more."""
    return [*(held or []), mine]


async def test_agents_on_different_replicas_update_one_key_without_loss(fleet: Fleet) -> None:
    async def work(address: str, name: str) -> None:
        async with connect(address, agent=name, timeout=60) as client:
            plan = client.shared("s").key("plan", list[str])
            for number in range(INCREMENTS):
                await plan.update(partial(added, f"{name}{number}"), attempts=1_000)
                await client.shared("s").key("tally").increment(1)

    await asyncio.gather(*(work(address, name) for address, name in zip(fleet.addresses, "abc", strict=True)))
    wanted = [f"{name}{number}" for name in "abc" for number in range(INCREMENTS)]
    for address in fleet.addresses:
        async with connect(address, agent="reader", takeover=True) as reader:
            values = {record.key: record.value async for record in reader.shared("s").list()}
            assert sorted(values["plan"]) == sorted(wanted), "each is there once"
            assert values["tally"] == 3 * INCREMENTS
    assert not list(fleet._folder.glob("no-data-*")), "a replica makes no data folder"


async def test_a_watch_at_one_replica_tells_what_is_written_at_another(fleet: Fleet) -> None:
    async with (
        connect(fleet.addresses[0], agent="a") as a,
        connect(fleet.addresses[1], agent="b") as b,
        asyncio.timeout(60),
        a.shared("s").watch() as watch,
    ):
        await b.shared("s").put("plan", 1)
        async for batch in watch:
            if batch.kind == "changes":
                assert [event.key for event in batch.events] == ["plan"]
                break


async def test_an_incarnation_and_its_private_state_go_on_at_another_replica(fleet: Fleet) -> None:
    async with connect(fleet.addresses[0], agent="a") as a:
        await a.private.put("note", "mine")
        fleet.servers[0].kill()
        async with connect(fleet.addresses[1], agent="a", takeover=True) as again:
            note = await again.private.get("note")
            assert note is not None
            assert note.value == "mine"


def start_error(tmp_path: Path, config: str) -> str:
    """Returns what a server says that does not start."""
    file = tmp_path / "noosphere.toml"
    file.write_text(config)
    process = ServerProcess(tmp_path / "data", ("--config", str(file), "--embedder", "none"))
    with pytest.raises(AssertionError):
        process.start()
    assert not process.data.exists()
    return process.stderr.strip()


@pytest.fixture
def redis(tmp_path: Path) -> RedisProcess:
    """A Redis that nobody has started."""
    return RedisProcess(tmp_path / "redis")


def test_without_etcd_it_does_not_start(tmp_path: Path, redis: RedisProcess) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    said = start_error(tmp_path, f'redis_urls = "{redis.url}"\netcd_endpoints = "{nobody}"\n')
    assert f"etcd at {nobody} cannot be used" in said
    assert len(said.splitlines()) == 1


def test_without_redis_it_does_not_start(tmp_path: Path, redis: RedisProcess) -> None:
    etcd = EtcdProcess(tmp_path / "etcd")
    try:
        etcd.start()
        config = f'redis_urls = "{redis.url}"\netcd_endpoints = "{etcd.endpoint}"\n'
        assert "the working store on Redis cannot be opened" in start_error(tmp_path, config)
        etcd.put("noosphere/format", b"from the future")
        assert "etcd holds format from the future" in start_error(tmp_path, config)
    finally:
        etcd.kill()
