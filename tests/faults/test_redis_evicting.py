"""Somebody has Redis throw records away while servers run: nothing is served until that is mended."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.contract.build import put, write
from tests.support.redis import RedisProcess, needs_redis
from tests.support.waiting import until

from noosphere.consistency import Reason, Refusal
from noosphere.server.ports.runtime import SystemClock
from noosphere.server.ports.store import NamespaceRef
from noosphere.server.storage.embedded import EmbeddedCoordinator
from noosphere.server.storage.redis import RedisStore, fitness

pytestmark = needs_redis

SPACE = NamespaceRef("shared/a")


@pytest.fixture
async def coordinator(tmp_path: Path) -> AsyncIterator[EmbeddedCoordinator]:
    made = await EmbeddedCoordinator.open(tmp_path, clock=SystemClock())
    yield made
    await made.close()


async def test_a_policy_that_is_changed_while_it_runs_is_noticed_and_its_change_back_too(
    tmp_path: Path, coordinator: EmbeddedCoordinator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(fitness, "LOOK_SECONDS", 0.05)
    redis = RedisProcess(tmp_path / "redis")
    redis.start()
    store = await RedisStore.open([redis.url], coordinator, clock=SystemClock())
    try:
        await write(store, put("a"), namespace=SPACE)
        with caplog.at_level(logging.WARNING, "noosphere.storage.redis"):
            redis.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
            await until(lambda: any("has become allkeys-lru" in line for line in caplog.messages))
            with pytest.raises(Refusal, match=r"maxmemory-policy allkeys-lru.*until it is noeviction again") as raised:
                await write(store, put("b"), namespace=SPACE)
            assert raised.value.reason is Reason.ENGINE_UNAVAILABLE
            with pytest.raises(Refusal):
                await store.read(SPACE, ("a",))
            redis.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
            await until(lambda: any("is noeviction again; work goes on" in line for line in caplog.messages))
        await write(store, put("b"), namespace=SPACE)
        assert None not in (await store.read(SPACE, ("a", "b"))).entries
        # Each change was told of once, however often it was looked at.
        assert sum("maxmemory-policy" in line for line in caplog.messages) == 2
    finally:
        await store.close()
        redis.kill()
