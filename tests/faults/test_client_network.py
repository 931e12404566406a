"""Clients over networks that duplicate, swallow, stand still and break: each call is executed once, and answered."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.process import ServerProcess
from tests.support.proxy import Fault, Proxy, proxied

from noosphere.client import Client, RetryPolicy, connect

pytestmark = pytest.mark.campaign

CALLERS = 8
CALLS = 40
PATIENT = RetryPolicy(attempts_max=10_000, delay_max=0.2)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path / "data", ("--durability", "os", "--embedder", "none"))
    try:
        process.start()
        yield process
    finally:
        process.close()


@pytest.fixture
def proxy(server: ServerProcess) -> Iterator[Proxy]:
    with proxied(server.address) as made:
        yield made


class Counting:
    """Callers of one client that count together.

    Attributes:
        counted: how many calls were answered.
    """

    def __init__(self, client: Client) -> None:
        self._space = client.shared("s")
        self.counted = 0

    async def run(self, number: int) -> None:
        record = await self._space.key(f"own/{number}").put(0, blind=True)
        for count in range(1, CALLS + 1):
            await self._space.key("tally").increment(1)
            record = await record.replace(count)
            self.counted += 1

    async def check(self) -> None:
        tally = await self._space.get("tally", int)
        assert tally is not None
        assert tally.value == tally.change_count == CALLERS * CALLS
        for number in range(CALLERS):
            own = await self._space.get(f"own/{number}", int)
            assert own is not None
            assert (own.value, own.change_count) == (CALLS, CALLS + 1)

    async def reach(self, count: int) -> None:
        while self.counted < count:  # noqa: ASYNC110 # Nobody tells of it; the test has a time limit.
            await asyncio.sleep(0.002)


@pytest.mark.parametrize("coalesce", [True, False], ids=["pipeline", "unary"])
async def test_what_arrives_twice_is_executed_once(server: ServerProcess, proxy: Proxy, coalesce: bool) -> None:
    with proxy.during(Fault.DUPLICATE):
        async with connect(proxy.address, agent="a", timeout=60, retry=PATIENT, coalesce=coalesce) as client:
            counting = Counting(client)
            await asyncio.gather(*map(counting.run, range(CALLERS)))
            await counting.check()


@pytest.mark.parametrize("fault", [Fault.HALF_OPEN, Fault.FREEZE, Fault.CUT, Fault.DROP_REPLIES, Fault.DELAY])
async def test_a_client_goes_on_when_its_network_does(server: ServerProcess, proxy: Proxy, fault: Fault) -> None:
    async with connect(proxy.address, agent="a", timeout=60, retry=PATIENT) as client:
        counting = Counting(client)
        working = asyncio.gather(*map(counting.run, range(CALLERS)))
        await counting.reach(CALLERS * CALLS // 4)
        with proxy.during(fault, seconds=0.02):
            await proxy.happened()
        await counting.reach(CALLERS * CALLS // 2)
        with proxy.during(fault, seconds=0.02):
            await proxy.happened()
        await working
        await counting.check()


async def test_a_server_that_cannot_be_heard_is_left_for_another_within_the_deadline(
    server: ServerProcess, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both addresses lead to the same server, the first one through a network that swallows everything."""
    monkeypatch.setattr(random, "sample", lambda population, k: list(population)[:k])
    with proxy.during(Fault.HALF_OPEN):
        for number in range(4):
            async with connect(f"{proxy.address},{server.address}", agent=f"a{number}", timeout=20) as client:
                await client.shared("s").key("tally").increment(1)
    async with connect(server.address) as client:
        tally = await client.shared("s").get("tally", int)
        assert tally is not None
        assert tally.value == 4
