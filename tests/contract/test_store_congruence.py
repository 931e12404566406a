"""The same random calls on the embedded store and on a real Redis, or a cluster of it: the same replies."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
from tests.contract.lab import EmbeddedLab, StoreLab
from tests.contract.model import Model
from tests.contract.redislab import START_MS, RedisLab
from tests.contract.test_store_model import COLLECTIONS, KEYS, STEPS, Direct
from tests.contract.twin import TwinLab
from tests.support.redis import needs_redis

from noosphere.server.ports.store import NamespaceRef
from noosphere.testing import ManualClock

RUNS = int(os.environ.get("NOOSPHERE_CONGRUENCE_RUNS", "6"))

pytestmark = needs_redis


class Congruent(Direct):
    """Calls as against the model, and more that the model has no answer to."""

    twin: TwinLab

    async def group(self) -> None:
        # Before and not between commits: of what is on its way, one driver may show more than the other.
        for ref in self.refs:
            await super().load(ref)
        await super().group()

    async def load(self, ref: NamespaceRef) -> None:
        pass

    async def compare(self, model: Model | None = None) -> None:
        await super().compare(model)
        chance, store = self.chance, self.twin.store
        for ref in self.refs:
            for _ in range(3):
                edges = (None, *KEYS, "b", "c/", "\U0010ffff")
                await store.scan(
                    ref,
                    chance.choice(COLLECTIONS),
                    after=chance.choice(edges),
                    before=chance.choice(edges),
                    limit=chance.randrange(1, 6),
                    reverse=chance.random() < 0.5,
                )
            space = self.model.space(ref)
            if not space.deleted:
                await store.changes(ref, max(0, space.head - chance.randrange(12)), chance.randrange(1, 5))
            await store.due(ref, store.now_ms() + chance.randrange(10_000), chance.randrange(1, 4))
            await store.stats(ref)
        await store.namespaces(chance.choice(("", "shared/", "agents/")), chance.choice(("", "agents/two")), 3)


@pytest.fixture(params=["redis", "redis_cluster"])
def on_redis(request: pytest.FixtureRequest) -> RedisLab:
    """A fresh Redis, or a cluster."""
    made: RedisLab = request.getfixturevalue(request.param)
    return made


@pytest.fixture
async def twin(tmp_path: Path, on_redis: RedisLab) -> AsyncIterator[TwinLab]:
    """Both drivers, fresh."""
    folder = tmp_path / "embedded"
    folder.mkdir()
    embedded = EmbeddedLab(folder)
    embedded.clock = ManualClock(START_MS)
    await embedded.open()
    yield TwinLab(embedded, on_redis)
    await embedded.close()


@pytest.mark.parametrize("seed", range(RUNS))
async def test_both_drivers_reply_the_same_to_the_same_calls(twin: TwinLab, seed: int) -> None:
    run = Congruent(cast("StoreLab", twin), 20_000 + seed)
    run.twin = twin
    await run.run()
    assert twin.compared > 20 * STEPS
