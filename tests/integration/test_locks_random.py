"""Random fortunes of lock holders in the kit: stopped, slow, cut off. Nobody writes under a token after a later one."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random

import pytest

from noosphere.client import Client, Lock, NoosphereError, StaleFence
from noosphere.testing import Server, server

AGENTS = 4
STEPS = 60
LEASE = 3.0


class Holder:
    """An agent that takes the lock again and again and writes under it, fenced or not.

    Attributes:
        client: the agent's client.
        lock: what it holds, as far as it knows.
        written: tokens whose write was acknowledged.
        refused: how often a write was refused because of a later holder.
    """

    def __init__(self, client: Client, fenced: bool) -> None:
        self.client = client
        self.lock: Lock | None = None
        self.written: list[int] = []
        self.refused = 0
        self._fenced = fenced

    async def run(self) -> None:
        """Works until it is cancelled."""
        while True:
            with contextlib.suppress(NoosphereError):
                await self._hold()
            self.lock = None
            await self.client._transport.sleep(0.5)

    async def _hold(self) -> None:
        async with self.client.lock("x", lease=LEASE) as lock:
            self.lock = lock
            for _ in range(4):
                await self._write(lock)
                await self.client._transport.sleep(1.0)

    async def _write(self, lock: Lock) -> None:
        writer = self.client.fenced(lock.fence) if self._fenced else self.client
        try:
            await writer.shared("s").put("state", lock.token, blind=True)
        except StaleFence:
            self.refused += 1
            raise
        self.written.append(lock.token)


async def play(srv: Server, seed: int, *, fenced: bool) -> tuple[list[Holder], list[int]]:
    """Plays one random story; returns who took part, and the tokens in the order in which they were written."""
    chance = random.Random(seed)
    async with contextlib.AsyncExitStack() as stack:
        holders = [
            Holder(await stack.enter_async_context(srv.client(f"a{i}", timeout=20)), fenced) for i in range(AGENTS)
        ]
        tasks = [asyncio.create_task(holder.run()) for holder in holders]
        await srv.settle()
        stopped: contextlib.ExitStack | None = None
        asleep = ""
        for _ in range(STEPS):
            await srv.advance(chance.choice((0.3, 1.0, 2.5)))
            awake = [h for h in holders if h.client.agent != asleep and h.lock is not None and h.lock.is_held]
            assert len(awake) <= 1, "of those who look at the clock one holds the lock"
            match chance.randrange(3):
                case 0 if stopped is None:
                    asleep, stopped = chance.choice(holders).client.agent, contextlib.ExitStack()
                    stopped.enter_context(srv.faults.suspended(asleep))
                case 1 if stopped is not None:
                    stopped.close()
                    asleep, stopped = "", None
                case _:
                    pass
        if stopped is not None:
            stopped.close()
        await srv.advance(1)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        async with srv.client("reader") as reader:
            events = [event async for entry in reader.shared("s").history() for event in entry.events]
        return holders, [event.record.value for event in events if event.record is not None]


@pytest.mark.parametrize("seed", range(6))
async def test_nobody_writes_under_a_token_after_a_later_one(seed: int) -> None:
    async with server() as srv:
        holders, written = await play(srv, seed, fenced=True)
    assert not any(later < earlier for earlier, later in itertools.pairwise(written))
    assert sorted(written) == sorted(token for holder in holders for token in holder.written)
    assert len(set(written)) >= 5, "the lock changed hands"
