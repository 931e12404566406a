"""Agents that have opened at one replica call another at once: none is taken for one that has ended."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from tests.support.api import Agent, Api
from tests.support.coordination import Coordinated
from tests.support.etcd import needs_etcd
from tests.support.fleet import Fleet
from tests.support.redis import needs_redis
from tests.support.statuses import Refused
from tests.support.transport import SocketTransport

pytestmark = [needs_redis, needs_etcd, pytest.mark.campaign]

AGENTS = 60


async def read_on(agent: Agent) -> None:
    """Reads until that is refused: as long as the news of an agent's end is under way, it may."""
    async with asyncio.timeout(60):
        while True:
            await agent.get("shared/s", "k0")


async def test_an_agent_may_call_any_replica_as_soon_as_it_is_open(fleet: Fleet) -> None:
    channels = [grpc.aio.insecure_channel(address) for address in fleet.addresses]
    apis = [Api(SocketTransport(channel)) for channel in channels]

    async def live(number: int) -> None:
        opened = await apis[number % 3].agent(f"a{number}")
        for api in (apis[(number + 1) % 3], apis[(number + 2) % 3]):
            moved = Agent(api, opened.actor)
            await moved.put("shared/s", f"k{number}", 1, blind=True)
            await moved.get("shared/s", f"k{number}")
            assert await Coordinated(moved).acquire(f"x{number}") is not None or api is not apis[(number + 1) % 3]
        await apis[(number + 2) % 3].close_agent(opened.actor)
        # Its lock is free for whoever comes, wherever.
        assert await Coordinated(other).took(f"x{number}")

    try:
        other = await apis[0].agent("other")
        await asyncio.gather(*(live(number) for number in range(AGENTS)))
        gone = Agent(apis[1], (await apis[0].agent("gone")).actor)
        await apis[0].close_agent(gone.actor)
        with pytest.raises(Refused) as refused:
            await read_on(gone)
        assert refused.value.reason == "STALE_INCARNATION"
    finally:
        for channel in channels:
            await channel.close()
