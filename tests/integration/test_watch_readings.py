"""What watches cost the store: each commit is read once for all who watch the namespace."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from tests.support.engine import LocalServer
from tests.support.statuses import refusal
from tests.support.watching import watching

from noosphere.consistency import Reason
from noosphere.server.ports.store import Changes, Compacted, NamespaceRef, WorkingStore

SPACE = "shared/s"
WATCHERS, COMMITS = 50, 100


class Counting:
    """The real store, which counts readings of logs."""

    def __init__(self, store: WorkingStore) -> None:
        self._store = store
        self.readings = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def changes(self, namespace: NamespaceRef, after: int, limit: int) -> Changes | Compacted:
        self.readings += 1
        return await self._store.changes(namespace, after, limit)


def counting(local: LocalServer) -> Counting:
    """Counts the readings of a server's services from now on."""
    core = local.engine.memory.core
    made = Counting(core.store)
    core.store = made
    return made


async def test_fifty_watchers_read_each_commit_once(local: LocalServer) -> None:
    store = counting(local)
    agent = await local.api.agent("a")
    start = await agent.put(SPACE, "k", 0)
    async with contextlib.AsyncExitStack() as stack:
        watchers = [
            await stack.enter_async_context(watching(agent, SPACE, ("", "a/")[n % 2], after=start.revision))
            for n in range(WATCHERS)
        ]
        waiting = [asyncio.create_task(watcher.batches(COMMITS)) for watcher in watchers]
        await local.elapse(0)
        before = store.readings
        assert before <= WATCHERS
        for n in range(COMMITS):
            await agent.put(SPACE, "a/k", n, blind=True)
            # Everybody hears of it before the next one.
            await local.elapse(0)
        seen = await asyncio.gather(*waiting)
    assert all([batch.revision for batch in batches] == [batch.revision for batch in seen[0]] for batches in seen)
    assert COMMITS <= store.readings - before <= COMMITS + 1


async def test_watchers_that_are_told_nothing_share_what_it_takes_to_say_so(local: LocalServer) -> None:
    store = counting(local)
    agent = await local.api.agent("a")
    async with contextlib.AsyncExitStack() as stack:
        watchers = [await stack.enter_async_context(watching(agent, SPACE, after=0)) for _ in range(WATCHERS)]
        for _ in range(3):
            waiting = [asyncio.create_task(watcher.bookmark()) for watcher in watchers]
            await local.elapse(0)
            before = store.readings
            await local.elapse(5_000)
            await asyncio.gather(*waiting)
            assert store.readings - before == 1


async def test_one_that_lags_behind_a_deletion_is_told_of_it_and_nothing_else(local: LocalServer) -> None:
    agent = await local.api.agent("a")
    async with watching(agent, SPACE, after=0) as slow, watching(agent, SPACE, after=0) as quick:
        for n in range(200):
            await agent.put(SPACE, "k", n, blind=True)
            await quick.batch()
        await slow.batch()
        await local.api.delete_namespace(SPACE)
        told = 1
        with refusal(Reason.NAMESPACE_DELETED):
            while True:
                await slow.batch()
                told += 1
        # What it had taken already, and no more.
        assert told <= 64
