"""Reads on Redis of more than an answer holds are refused before anything is moved."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.contract.build import put, write
from tests.support.redis import RedisProcess, needs_redis

from noosphere.consistency import Reason, Refusal
from noosphere.server.ports.runtime import SystemClock
from noosphere.server.ports.store import NamespaceRef
from noosphere.server.storage.embedded import EmbeddedCoordinator
from noosphere.server.storage.redis import RedisStore

pytestmark = needs_redis

SPACE = NamespaceRef("shared/a")
KEYS = tuple(f"k{number}" for number in range(8))
RECORD_BYTES = 512 * 1024


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[RedisStore]:
    redis = RedisProcess(tmp_path / "redis")
    redis.start()
    coordinator = await EmbeddedCoordinator.open(tmp_path, clock=SystemClock())
    try:
        made = await RedisStore.open([redis.url], coordinator, clock=SystemClock())
        for key in KEYS:
            await write(made, put(key, b"x" * RECORD_BYTES), namespace=SPACE)
        yield made
        await made.close()
    finally:
        await coordinator.close()
        redis.kill()


async def test_what_fits_to_the_byte_is_read(store: RedisStore) -> None:
    found = await store.read(SPACE, KEYS, bytes_max=len(KEYS) * RECORD_BYTES)
    assert [len(entry.data) for entry in found.entries if entry is not None] == [RECORD_BYTES] * len(KEYS)


async def test_one_byte_more_is_refused_with_the_size(store: RedisStore) -> None:
    with pytest.raises(Refusal, match="keys: too many bytes for one answer, ask for fewer keys") as raised:
        await store.read(SPACE, KEYS, bytes_max=len(KEYS) * RECORD_BYTES - 1)
    assert raised.value.reason is Reason.LIMIT_EXCEEDED
    # Without a limit, as when rules decide, everything is read.
    assert None not in (await store.read(SPACE, KEYS)).entries
