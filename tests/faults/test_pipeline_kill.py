"""``kill -9`` under 64 coalesced callers and a watch: no gap, no duplicate, and each caller its own answer."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections import Counter

import pytest
from tests.faults.conftest import connected
from tests.support.process import ServerProcess
from tests.support.proxy import Fault, Proxy, proxied

from noosphere.client import Client, Namespace, RetryPolicy, WatchBatch, connect

CALLERS = 64
ROUNDS = int(os.environ.get("NOOSPHERE_TEST_KILLS", "5"))
CALLS_A_ROUND = 600
SPACE = "shared/s"
LOOKS = 20
LOOKS_MAX = 6000
HOLDS_MAX = 100
PATIENT = RetryPolicy(attempts_max=10_000, delay_max=0.2)


class Callers:
    """Callers that never give a call up, so what was acknowledged is exactly what was done.

    Args:
        space: where they write.
        tally: the key of the counter that they share.

    Attributes:
        told: how many increments of the counter have been answered.
        counted: how many rounds they have ended.
        replayed: how many of those answers were of an attempt that had been executed before.
        stopping: set by a test to end them.
    """

    def __init__(self, space: Namespace, tally: str = "tally") -> None:
        self._space = space
        self.tally = tally
        self.stopping = False
        self.told = 0
        self.counted = 0
        self.replayed = 0
        self._progress = asyncio.Condition()

    async def run(self, number: int) -> int:
        """Works until told to stop; returns how often it has written its own key."""
        own = self._space.key(f"own/{number:02}", list[int])
        turns = 0
        record = await own.put([number, turns], blind=True)
        while not self.stopping:
            turns += 1
            record = await record.replace([number, turns])
            assert (record.key, record.value) == (own.name, [number, turns])
            counted = await self._space.key(self.tally).increment(1)
            self.told += 1
            self.replayed += counted.replayed
            read = await own.get()
            assert read is not None
            assert (read.value, read.version) == ([number, turns], record.version)
            self.counted += 1
            async with self._progress:
                self._progress.notify_all()
        return turns

    async def more(self, calls: int) -> None:
        """Waits until so many more have been made."""
        goal = self.counted + calls
        async with self._progress:
            await self._progress.wait_for(lambda: self.counted >= goal)

    async def hold_a_reply(self, proxy: Proxy, direct: Namespace) -> None:
        """Has replies held, among them that of an increment which was executed.

        Args:
            proxy: what the callers go through.
            direct: the namespace, asked past it.
        """
        for attempt in range(HOLDS_MAX):
            proxy.begin(Fault.HOLD_REPLIES)
            if await self._unanswered(direct):
                return
            # Those who go in step may all wait for replies of another kind.
            proxy.end()
            await self.more(1 + attempt)
        raise AssertionError("nobody waits for the reply to an increment")

    async def _unanswered(self, direct: Namespace) -> bool:
        """Tells, once nothing moves any more, whether the answer to an increment is missing."""
        looks, before = 0, (-1, -1)
        for _ in range(LOOKS_MAX):
            executed = await direct.get(self.tally, int)
            await asyncio.sleep(0.01)
            # A reply that had passed before may still lie unread in this process, and a call not be executed yet.
            now = (0 if executed is None else executed.value, self.told)
            looks, before = (looks + 1 if now == before else 0), now
            if looks == LOOKS:
                return now[0] > now[1]
        raise AssertionError("callers go on though replies are held")


@pytest.mark.campaign
@pytest.mark.timeout(600)
async def test_kills_under_64_coalesced_callers_and_a_watch(server: ServerProcess) -> None:
    chance = random.Random(64)
    async with contextlib.AsyncExitStack() as stack:
        # Chance alone loses a reply now and then, and on a fast machine none.
        proxy = stack.enter_context(proxied(server.address))
        client = await stack.enter_async_context(connect(proxy.address, agent="callers", timeout=120, retry=PATIENT))
        watcher = await stack.enter_async_context(connect(server.address, agent="watcher", timeout=120, retry=PATIENT))
        batches = await stack.enter_async_context(watcher.namespace(SPACE).watch(after=0))
        seen: list[WatchBatch[object]] = []
        watching = asyncio.create_task(_collect(batches, seen))
        callers = Callers(client.namespace(SPACE))
        working = [asyncio.create_task(callers.run(number)) for number in range(CALLERS)]
        for _ in range(ROUNDS):
            await callers.more(chance.randrange(CALLS_A_ROUND // 2, CALLS_A_ROUND))
            await callers.hold_a_reply(proxy, watcher.namespace(SPACE))
            server.kill()
            proxy.cut()
            proxy.end()
            server.restart()
        await callers.more(CALLS_A_ROUND)
        callers.stopping = True
        turns = await asyncio.gather(*working)
        await _check(client, callers, turns)
        async with connected(server) as api:
            log = await (await api.agent("reader")).history(SPACE, page_size=1000)
        revisions = [batch.revision for batch in log]
        while [batch.revision for batch in seen] != revisions[: len(seen)] or len(seen) < len(revisions):
            assert [batch.revision for batch in seen] == revisions[: len(seen)], "a gap or a duplicate"
            await asyncio.wait([watching], timeout=0.05)
            assert not watching.done()
        watching.cancel()
        await asyncio.wait([watching])
    assert callers.replayed > 0, "replies that were held have arrived"
    assert len(seen) >= callers.counted * 2


async def _collect(batches: object, seen: list[WatchBatch[object]]) -> None:
    async for batch in batches:  # type: ignore[attr-defined] # a Watch of whatever
        assert batch.kind in {"changes", "bookmark"}, batch
        if batch.kind == "changes":
            seen.append(batch)


async def _check(client: Client, callers: Callers, turns: list[int]) -> None:
    space = client.namespace(SPACE)
    tally = await space.get("tally", int)
    assert tally is not None
    assert tally.value == callers.counted == sum(turns)
    records = await space.get_many([f"own/{number:02}" for number in range(CALLERS)])
    assert [record.value for record in records] == [[number, last] for number, last in enumerate(turns)]
    assert min(Counter(turns)) > 0, "somebody was never answered"
