"""Many callers of one server that wait for one reservation: each gets it in turn, and few reads are made for it."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

from tests.integration.test_round_trips import SPACE, Asked
from tests.support.api import Agent, span
from tests.support.engine import local_server

from noosphere.v1 import memory_service_pb2 as pb

CALLERS = 20


async def _reserve(agent: Agent, wait_ms: int) -> pb.ReserveResponse:
    request = pb.ReserveRequest(namespace=SPACE, key="k", lease=span(30_000), wait=span(wait_ms), call=agent.call())
    return await agent.api.reserve(request)


async def _cancel(agent: Agent, fence: int) -> None:
    await agent.api.cancel_reservation(
        pb.CancelReservationRequest(namespace=SPACE, key="k", fence=fence, call=agent.call())
    )


async def test_each_gets_it_in_the_order_in_which_they_came_and_looks_a_few_times(tmp_path: Path) -> None:
    async with local_server(tmp_path) as server:
        agents = [Agent(server.api, await server.api.open_agent(f"a{number}")) for number in range(CALLERS)]
        first = await _reserve(agents[0], 0)
        asked, order = Asked(server), []

        async def take(agent: Agent) -> None:
            found = await _reserve(agent, 60_000)
            assert found.fence
            order.append(agent)
            # Something else moves, which is no reason for all of them to look.
            await agent.put(SPACE, "other", len(order), blind=True)
            await _cancel(agent, found.fence)

        waiting = [asyncio.create_task(take(agent)) for agent in agents[1:]]
        await server.elapse(0)
        await _cancel(agents[0], first.fence)
        await asyncio.gather(*waiting)
        assert order == agents[1:]
        assert Counter(asked.calls)["read"] < 12 * CALLERS


async def test_who_gives_up_in_the_middle_holds_up_nobody(tmp_path: Path) -> None:
    async with local_server(tmp_path) as server:
        agents = [Agent(server.api, await server.api.open_agent(f"a{number}")) for number in range(4)]
        first = await _reserve(agents[0], 0)
        impatient = [asyncio.create_task(_reserve(agent, 60_000)) for agent in agents[1:3]]
        await server.elapse(0)
        last = asyncio.create_task(_reserve(agents[3], 60_000))
        await server.elapse(0)
        for task in impatient:
            task.cancel()
        await asyncio.wait(impatient)
        await _cancel(agents[0], first.fence)
        assert (await last).fence
