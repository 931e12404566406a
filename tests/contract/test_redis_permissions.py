"""A user of Redis who may do what the page about Redis says, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

from tests.contract.build import get, head, put, write
from tests.contract.factlab import job
from tests.support.redis import RedisProcess, needs_redis
from tests.support.workers import ROOT

from noosphere.server.ports.runtime import SystemClock
from noosphere.server.ports.store import Dropped, NamespaceRef
from noosphere.server.storage.embedded import EmbeddedCoordinator
from noosphere.server.storage.redis import RedisFactQueue, RedisStore

pytestmark = needs_redis

SPACE = NamespaceRef("shared/a")


def granted() -> list[str]:
    """Returns the rules as they are printed."""
    (rules,) = re.findall(r"^~noosphere:\S+ .*$", (ROOT / "docs" / "redis.md").read_text(), re.MULTILINE)
    return str(rules).split()


async def use(queue: RedisFactQueue) -> None:
    """Calls everything that a queue of facts can do."""
    try:
        await queue.put([job("a"), job("b"), job("c", group="g")])
        done, failed, extended = await queue.take("worker", 3, 60_000)
        assert await queue.extend([extended.lease], 60_000) == (True,)
        assert await queue.done([done.lease]) == (True,)
        assert await queue.fail(failed.lease, "why", retry_after_ms=None)
        assert [dead.job.id for dead in await queue.dead("", 5)] == ["b"]
        assert await queue.revive(["b"]) == 1
        await queue.find(["b"])
        await queue.members("g", "", 5)
        await queue.stats()
        await queue.remove(ids=["b"])
        await queue.remove(group="g")
    finally:
        await queue.close()


async def test_the_permissions_that_the_page_names_are_enough(redis_server: RedisProcess, tmp_path: Path) -> None:
    redis_server.ask("FLUSHALL")
    redis_server.ask("ACL", "LOG", "RESET")
    redis_server.ask("ACL", "SETUSER", "noosphere", "on", ">secret", *granted())
    clock = SystemClock()
    coordinator = await EmbeddedCoordinator.open(tmp_path, clock=clock)
    url = f"redis://noosphere:secret@127.0.0.1:{redis_server.port}"
    try:
        store = await RedisStore.open([url], coordinator, clock=clock)
        try:
            feed = store.heads()
            await store.follow(SPACE)
            revision = await write(store, put("a"), namespace=SPACE)
            assert (await anext(feed)).head == revision
            assert await get(store, "a", SPACE) is not None
            assert len((await store.scan(SPACE, "", limit=3)).entries) == 1
            await store.changes(SPACE, 0, 10)
            await store.due(SPACE, 1, 1)
            await store.stats(SPACE)
            assert [found.ref for found in await store.namespaces("", "", 5)] == [SPACE]
            async for _ in store.export(SPACE):
                pass
            await store.compact(SPACE, revision)
            await store.erase(SPACE)
            assert isinstance(await store.drop(SPACE, await head(store, SPACE)), Dropped)
            store.unfollow(SPACE)
            await use(RedisFactQueue.beside(store))
        finally:
            await store.close()
    finally:
        await coordinator.close()
        redis_server.ask("ACL", "DELUSER", "noosphere")
    assert redis_server.ask("ACL", "LOG") == [], "something was refused, and done without"
