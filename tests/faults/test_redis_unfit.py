"""A Redis that is not used: one that evicts, a replica, and the working store of other servers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.contract.build import put, write
from tests.faults.conftest import opened
from tests.support.redis import RedisProcess, needs_redis

from noosphere.server.ports.runtime import SystemClock
from noosphere.server.ports.store import NamespaceRef
from noosphere.server.storage.embedded import EmbeddedCoordinator
from noosphere.server.storage.redis import RedisStore, UnfitRedis

pytestmark = needs_redis

A = NamespaceRef("shared/a")


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
async def test_a_redis_that_evicts_is_not_used(
    primary: RedisProcess, coordinator: EmbeddedCoordinator, policy: str
) -> None:
    primary.ask("CONFIG", "SET", "maxmemory-policy", policy)
    with pytest.raises(UnfitRedis, match=f"maxmemory-policy is {policy}.*noeviction"):
        await opened(coordinator, primary)
    assert len(await coordinator.epochs()) == 1


async def test_a_replica_alone_is_not_used(
    primary: RedisProcess, replica: RedisProcess, coordinator: EmbeddedCoordinator
) -> None:
    with pytest.raises(UnfitRedis, match="is a replica"):
        await opened(coordinator, replica)


async def test_a_coordinator_that_knows_less_than_redis_is_not_used(
    store: RedisStore, primary: RedisProcess, tmp_path: Path
) -> None:
    folder = tmp_path / "another"
    folder.mkdir()
    other = await EmbeddedCoordinator.open(folder, clock=SystemClock())
    try:
        with pytest.raises(UnfitRedis, match="do not belong together"):
            await opened(other, primary)
    finally:
        await other.close()


async def test_a_redis_of_other_servers_is_left_alone_whatever_epochs_are_known(
    store: RedisStore, primary: RedisProcess, tmp_path: Path
) -> None:
    revision = await write(store, put("a"), namespace=A)
    folder = tmp_path / "another"
    folder.mkdir()
    other = await EmbeddedCoordinator.open(folder, clock=SystemClock())
    try:
        await other.begin_epoch("another fleet", "has had many", 20_000)
        with pytest.raises(UnfitRedis, match="is the working store of other servers"):
            await opened(other, primary)
        assert len(await other.epochs()) == 1
    finally:
        await other.close()
    assert await write(store, put("a"), namespace=A) == revision + 1, "whose it is goes on in its epoch"


async def test_of_fleets_that_come_to_a_new_redis_at_once_one_has_it(primary: RedisProcess, tmp_path: Path) -> None:
    others: list[EmbeddedCoordinator] = []
    stores: list[RedisStore | BaseException] = []
    try:
        for number in range(4):
            folder = tmp_path / f"fleet-{number}"
            folder.mkdir()
            others.append(await EmbeddedCoordinator.open(folder, clock=SystemClock()))
        stores += await asyncio.gather(*(opened(other, primary) for other in others), return_exceptions=True)
        served = [store for store in stores if isinstance(store, RedisStore)]
        assert len(served) == 1
        await write(served[0], put("a"), namespace=A)
        refused = [store for store in stores if isinstance(store, UnfitRedis)]
        assert len(refused) == 3
        assert all("do not belong together" in str(problem) for problem in refused)
    finally:
        await asyncio.gather(*(store.close() for store in stores if isinstance(store, RedisStore)))
        await asyncio.gather(*(other.close() for other in others))
