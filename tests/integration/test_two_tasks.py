"""The first test of the project: a context belongs to the record that was read, never to whoever reads."""

from __future__ import annotations

import asyncio

from tests.support.api import data
from tests.support.statuses import refusal
from tests.support.worlds import World

from noosphere.consistency import Reason


async def test_two_tasks_of_one_client_cannot_use_what_the_other_read(world: World) -> None:
    """Task 1 reads and thinks; task 2 of the same agent reads anew and writes. Task 1's write must then fail."""
    agent, space = await world.agent(), world.space()
    await agent.put(space, "plan", "first")
    thinking, written = asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        read = await agent.get(space, "plan")
        thinking.set()
        await written.wait()
        # The other task has read and written the newest value by now; nothing of that is ours.
        for precondition in ({"context": read.context}, {"expected": read.version}):
            with refusal(Reason.CONFLICT, Reason.VERSION_MISMATCH):
                await agent.put(space, "plan", data(read)[:-1] + b' and slow"', **precondition)

    async def fast() -> None:
        await thinking.wait()
        read = await agent.get(space, "plan")
        await agent.put(space, "plan", data(read)[:-1] + b' and fast"', context=read.context)
        await agent.get(space, "plan")
        written.set()

    await asyncio.gather(slow(), fast())
    assert data(await agent.get(space, "plan")) == b'"first and fast"'
