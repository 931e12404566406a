"""Each replica killed under coalesced callers and watches: they go on at others, without a gap or a duplicate."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator

import pytest
from tests.faults.conftest import connected
from tests.faults.test_pipeline_kill import Callers
from tests.support.etcd import needs_etcd
from tests.support.fleet import Fleet
from tests.support.process import ServerProcess
from tests.support.proxy import Proxy, proxied
from tests.support.redis import needs_redis

from noosphere.client import Client, RetryPolicy, Watch, WatchBatch, connect

pytestmark = [needs_redis, needs_etcd, pytest.mark.timeout(600)]

SPACE = "shared/s"
CALLERS_EACH = 8
CALLS_A_ROUND = 50
SECONDS_MAX = 120.0
"""A bound against hanging, far above what anything here takes."""


class Pair:
    """A client with coalesced callers and one that watches, both of which use a given replica as long as it lives.

    Attributes:
        callers: that use the client.
        client: of the callers; all that it hears passes a proxy.
        watcher: the other client, which hears everything.
        seen: what the watch has brought.
    """

    def __init__(self, callers: Callers, watch: Watch[object], client: Client, watcher: Client) -> None:
        self.callers = callers
        self.client = client
        self.watcher = watcher
        self.seen: list[WatchBatch[object]] = []
        self._watch = watch

    async def look(self) -> None:
        async for batch in self._watch:
            assert batch.kind in {"changes", "bookmark"}, batch
            if batch.kind == "changes":
                self.seen.append(batch)


@contextlib.asynccontextmanager
async def pair(fleet: Fleet, proxies: list[Proxy], number: int, timeout: float) -> AsyncIterator[Pair]:
    through = [proxy.address for proxy in proxies]
    patient = RetryPolicy(attempts_max=10_000, delay_max=0.2)
    async with (
        connect(_from(through, number), agent=f"caller-{number}", timeout=timeout, retry=patient) as client,
        connect(_from(fleet.addresses, number), agent=f"watcher-{number}", timeout=timeout, retry=patient) as watcher,
        watcher.namespace(SPACE).watch(after=0) as watch,
    ):
        yield Pair(Callers(client.namespace(SPACE), f"tally/{number}"), watch, client, watcher)


def _from(addresses: list[str], number: int) -> str:
    return ",".join((*addresses[number:], *addresses[:number]))


@pytest.fixture(autouse=True)
def in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients use the first of their addresses first, so that each replica has some."""
    monkeypatch.setattr(random, "sample", lambda population, k: list(population)[:k])


async def disturbed(fleet: Fleet, fault: str, timeout: float) -> None:
    """Does something to each replica in turn, under load; then checks what all have seen and counted."""
    async with contextlib.AsyncExitStack() as stack:
        proxies = [stack.enter_context(proxied(address)) for address in fleet.addresses]
        pairs = [await stack.enter_async_context(pair(fleet, proxies, n, timeout)) for n in range(3)]
        watching = [asyncio.create_task(one.look()) for one in pairs]
        working = {
            number: asyncio.create_task(one.callers.run(number))
            for n, one in enumerate(pairs)
            for number in range(n * CALLERS_EACH, (n + 1) * CALLERS_EACH)
        }
        for server, proxy, its in zip(fleet.servers, proxies, pairs, strict=True):
            await asyncio.gather(*(one.callers.more(CALLS_A_ROUND) for one in pairs))
            # Chance alone loses a reply now and then, and on a fast machine none.
            await its.callers.hold_a_reply(proxy, its.watcher.namespace(SPACE))
            await asyncio.to_thread(BEGIN[fault], server)
            if fault == "kill":
                proxy.cut()
            # Nobody depends on the one that is away.
            await asyncio.gather(*(one.callers.more(CALLS_A_ROUND) for one in pairs))
            proxy.end()
            await asyncio.to_thread(END[fault], server)
        await asyncio.gather(*(one.callers.more(CALLS_A_ROUND) for one in pairs))
        for one in pairs:
            one.callers.stopping = True
        turns = dict(zip(working, await asyncio.gather(*working.values()), strict=True))

        space = pairs[0].client.namespace(SPACE)
        tallies = await space.get_many([one.callers.tally for one in pairs], int)
        assert [tally.value for tally in tallies] == [one.callers.counted for one in pairs]
        assert sum(one.callers.counted for one in pairs) == sum(turns.values())
        records = await space.get_many([f"own/{number:02}" for number in turns])
        assert [record.value for record in records] == [[number, last] for number, last in turns.items()]
        assert min(turns.values()) > 0, "somebody was never answered"

        async with connected(fleet.servers[0]) as api:
            log = [batch.revision for batch in await (await api.agent("reader")).history(SPACE, page_size=1000)]
        assert len(log) >= 2 * sum(turns.values())
        for one in pairs:
            async with asyncio.timeout(SECONDS_MAX):
                while len(one.seen) < len(log):
                    assert not any(task.done() for task in watching)
                    await asyncio.sleep(0.05)
            assert [batch.revision for batch in one.seen] == log, "a gap or a duplicate"
        for task in watching:
            task.cancel()
        await asyncio.wait(watching)
        assert all(one.callers.replayed for one in pairs), "a reply that was held has arrived"


BEGIN = {"kill": ServerProcess.kill, "pause": ServerProcess.pause}
END = {"kill": ServerProcess.restart, "pause": ServerProcess.resume}


async def test_killed_replicas_leave_no_gap_and_no_duplicate(fleet: Fleet) -> None:
    await disturbed(fleet, "kill", SECONDS_MAX)


async def test_replicas_that_stand_still_are_left_and_what_they_had_begun_is_done_once(fleet: Fleet) -> None:
    # An attempt gets half of what is left.
    await disturbed(fleet, "pause", 8)
