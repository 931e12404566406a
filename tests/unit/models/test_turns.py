"""Turns at something that serves one at a time."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from noosphere.server.models.turns import Turns


class Till:
    """Serves one at a time, when the test says so."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.served: list[str] = []
        self.next = asyncio.Semaphore(0)
        self.busy = False

    async def visit(self, name: str, size: int) -> None:
        async with self.turns.turn(size):
            assert not self.busy, "two were served at once"
            self.busy = True
            try:
                await self.next.acquire()
                self.served.append(name)
            finally:
                self.busy = False

    def come(self, name: str, size: int) -> asyncio.Task[None]:
        return asyncio.ensure_future(self.visit(name, size))


async def settle() -> None:
    for _ in range(8):
        await asyncio.sleep(0)


async def test_the_small_go_first_and_of_equals_who_came_first() -> None:
    till = Till()
    for name, size in (("served", 9), ("big", 50), ("small", 1), ("small too", 1), ("middle", 5)):
        till.come(name, size)
        await settle()
    assert len(till.turns) == 5
    for _ in range(5):
        till.next.release()
        await settle()
    assert till.served == ["served", "small", "small too", "middle", "big"]
    assert len(till.turns) == 0


async def test_who_gives_up_is_skipped_waiting_or_served_or_in_the_moment_of_his_turn() -> None:
    till = Till()
    served, waiting, next_one, last = (till.come(name, 1) for name in ("served", "waiting", "next", "last"))
    await settle()
    waiting.cancel()
    await settle()
    served.cancel()
    # Its turn has come, but it has not heard of it yet.
    await asyncio.sleep(0)
    next_one.cancel()
    till.next.release()
    await settle()
    assert till.served == ["last"]
    assert last.done()
    assert len(till.turns) == 0


@given(st.lists(st.tuples(st.sampled_from(["come", "serve", "leave"]), st.integers(0, 9)), max_size=40))
async def test_whoever_comes_and_stays_is_served_once_and_nobody_beside_another(steps: list[tuple[str, int]]) -> None:
    till = Till()
    tasks: list[asyncio.Task[None]] = []
    for at, (step, number) in enumerate(steps):
        if step == "come":
            tasks.append(till.come(str(at), number))
        elif step == "serve":
            till.next.release()
        elif tasks:
            tasks[number % len(tasks)].cancel()
        if number % 2:
            await settle()
    for _ in tasks:
        till.next.release()
    done = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10)
    assert all(found is None or isinstance(found, asyncio.CancelledError) for found in done)
    assert len(till.served) == sum(found is None for found in done)
    assert len(till.turns) == 0
