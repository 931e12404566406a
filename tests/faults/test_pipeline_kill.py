"""``kill -9`` under 64 coalesced callers and a watch: no gap, no duplicate, and each caller its own answer."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter

import pytest
from tests.faults.conftest import connected
from tests.support.process import ServerProcess

from noosphere.client import Client, Namespace, RetryPolicy, WatchBatch, connect

CALLERS = 64
ROUNDS = int(os.environ.get("NOOSPHERE_TEST_KILLS", "5"))
CALLS_A_ROUND = 600
SPACE = "shared/s"
PATIENT = RetryPolicy(attempts_max=10_000, delay_max=0.2)


class Callers:
    """Callers that never give a call up, so what was acknowledged is exactly what was done."""

    def __init__(self, space: Namespace) -> None:
        self._space = space
        self.stopping = False
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
            counted = await self._space.key("tally").increment(1)
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


@pytest.mark.campaign
async def test_kills_under_64_coalesced_callers_and_a_watch(server: ServerProcess) -> None:
    chance = random.Random(64)
    async with (
        connect(server.address, agent="callers", timeout=120, retry=PATIENT) as client,
        connect(server.address, agent="watcher", timeout=120, retry=PATIENT) as watcher,
    ):
        seen: list[WatchBatch[object]] = []
        async with watcher.namespace(SPACE).watch(after=0) as batches:
            watching = asyncio.create_task(_collect(batches, seen))
            callers = Callers(client.namespace(SPACE))
            working = [asyncio.create_task(callers.run(number)) for number in range(CALLERS)]
            for _ in range(ROUNDS):
                await callers.more(chance.randrange(CALLS_A_ROUND // 2, CALLS_A_ROUND))
                server.kill()
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
    assert callers.replayed > 0, "no reply was lost, so nothing was tried"
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
