"""OpenAgent, KeepAgent and CloseAgent: incarnations, their leases, and what an ended one may no longer do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from tests.support.api import Agent, data
from tests.support.engine import LocalServer
from tests.support.statuses import refusal
from tests.support.watching import watching
from tests.support.worlds import LocalWorld, World

from noosphere.consistency import Reason
from noosphere.v1 import types_pb2 as types


async def test_incarnations_only_ever_rise(world: World) -> None:
    first = await world.agent("a")
    second = await world.api.agent(first.actor.agent_id, takeover=True)
    third = await world.agent("b")
    assert first.actor.incarnation < second.actor.incarnation < third.actor.incarnation


async def test_an_active_agent_is_not_opened_twice_by_accident(world: World) -> None:
    agent = await world.agent("a")
    with refusal(Reason.AGENT_ACTIVE):
        await world.api.agent(agent.actor.agent_id)
    await world.api.close_agent(agent.actor)
    again = await world.api.agent(agent.actor.agent_id)
    assert again.actor.incarnation > agent.actor.incarnation


async def test_the_lease_is_told_and_kept(world: World) -> None:
    agent = await world.agent("a")
    lease = (await world.api.keep_agent(agent.actor)).lease
    assert lease.ToMilliseconds() == (await world.api.info()).agent_lease.ToMilliseconds() == 15_000


@pytest.mark.parametrize("how", ["closed", "taken over"])
async def test_an_ended_incarnation_can_do_nothing(world: World, how: str) -> None:
    agent, space = await world.agent("a"), world.space()
    private = f"agents/{agent.actor.agent_id}"
    await agent.put(space, "k", 1)
    await agent.put(private, "k", 1)
    task = await agent.claim(space)
    assert task is not None
    if how == "closed":
        await world.api.close_agent(agent.actor)
    else:
        await world.api.agent(agent.actor.agent_id, takeover=True)
    attempts = [
        agent.get(space, "k"),
        agent.listing(space),
        agent.history(space),
        agent.put(space, "k", 2, blind=True),
        agent.put(private, "k", 2),
        agent.delete(private, "k"),
        agent.add(space, "n"),
        agent.claim(space),
        agent.renew(space, task),
        agent.release(space, task),
        agent.complete(space, task),
        agent.ensure(space),
        world.api.keep_agent(agent.actor),
        world.api.close_agent(agent.actor),
    ]
    for attempt in attempts:
        with refusal(Reason.STALE_INCARNATION):
            await attempt
    async with watching(agent, space) as watch:
        with refusal(Reason.STALE_INCARNATION):
            await watch.ended()


async def test_a_number_that_was_never_issued_is_no_incarnation(world: World) -> None:
    agent, space = await world.agent("a"), world.space()
    forged = Agent(
        world.api, types.Actor(agent_id=agent.actor.agent_id, incarnation=agent.actor.incarnation + 1_000_000)
    )
    with refusal(Reason.STALE_INCARNATION):
        await forged.put(space, "k", 1)
    # The forged number must not have become the highest seen.
    await agent.put(f"agents/{agent.actor.agent_id}", "k", 1)
    for actor in (types.Actor(agent_id="x"), types.Actor(agent_id="x", incarnation=1 << 63)):
        with refusal(Reason.INVALID_FIELD):
            await world.api.keep_agent(actor)


@pytest.mark.parametrize("agent_id", ["", "a#1", "/a", "a//b", "a\x00", "a/"])
async def test_agent_ids_are_checked(world: World, agent_id: str) -> None:
    with refusal(Reason.INVALID_FIELD):
        await world.api.open_agent(agent_id)


async def test_agent_ids_have_a_limit(world: World) -> None:
    with refusal(Reason.VALUE_TOO_LARGE) as error:
        await world.api.open_agent("é" * 65)
    assert (error.limit().actual, error.limit().limit) == (130, 128)


async def test_the_next_incarnation_takes_the_private_namespace_over(world: World) -> None:
    agent = await world.agent("a")
    private = f"agents/{agent.actor.agent_id}"
    await agent.put(private, "draft", 1)
    successor = await world.api.agent(agent.actor.agent_id, takeover=True)
    assert data(await successor.get(private, "draft")) == b"1"
    await successor.put(private, "draft", 2)
    with refusal(Reason.STALE_INCARNATION):
        await agent.put(private, "draft", 3)
    assert data(await successor.get(private, "draft")) == b"2"


async def test_a_lapsed_lease_lets_another_open_but_ends_nothing_by_itself(local: LocalServer) -> None:
    agent = await local.api.agent("a")
    await local.elapse(14_999)
    with refusal(Reason.AGENT_ACTIVE):
        await local.api.agent("a")
    await local.elapse(1)
    # Nobody else has come, so whoever wakes up late is still who it was, and alive again.
    await agent.put("shared/s", "k", 1)
    with refusal(Reason.AGENT_ACTIVE):
        await local.api.agent("a")
    await local.elapse(15_000)
    successor = await local.api.agent("a")
    with refusal(Reason.STALE_INCARNATION):
        await agent.put("shared/s", "k", 2, blind=True)
    await successor.put("shared/s", "k", 2, blind=True)


async def test_any_call_renews_the_lease(local: LocalServer) -> None:
    agent = await local.api.agent("a")
    await agent.put("shared/s", "k", 1)
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: agent.get("shared/s", "k"),
        lambda: agent.listing("shared/s"),
        lambda: agent.history("shared/s"),
        lambda: agent.put("shared/s", "k", 2, blind=True),
        lambda: agent.claim("shared/s", "none/"),
        lambda: agent.ensure("shared/s"),
        lambda: local.api.keep_agent(agent.actor),
    ]
    for call in calls:
        await local.elapse(14_000)
        await call()
    await local.elapse(14_999)
    with refusal(Reason.AGENT_ACTIVE):
        await local.api.agent("a")


async def test_living_agents_are_counted(local: LocalServer) -> None:
    await local.api.agent("a")
    other = await local.api.agent("b")
    assert (await local.api.stats()).agent_count == 2
    await local.api.close_agent(other.actor)
    assert (await local.api.stats()).agent_count == 1
    await local.elapse(15_000)
    assert (await local.api.stats()).agent_count == 0


async def test_a_restart_ends_leases_while_numbers_go_on(local: LocalServer) -> None:
    world = LocalWorld(local)
    agent = await world.api.agent("a")
    await local.crash()
    # The same incarnation may go on: a retry over a crash must find itself.
    survivor = Agent(local.api, agent.actor)
    await survivor.put("shared/s", "k", 1)
    await local.crash()
    successor = await local.api.agent("a")
    assert successor.actor.incarnation > agent.actor.incarnation
    with refusal(Reason.STALE_INCARNATION):
        await Agent(local.api, agent.actor).put("shared/s", "k", 2, blind=True)
