"""Reservations: advisory, beside the key, given up by themselves; they move nothing that anybody reads."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.api import Agent, put, span
from tests.support.causality import Mind, cancel, reserve
from tests.support.engine import LocalServer
from tests.support.statuses import refusal
from tests.support.watching import watching
from tests.support.worlds import World

from noosphere.consistency import Reason
from noosphere.v1 import memory_service_pb2 as pb

SPACE = "shared/s"


@pytest.fixture
async def agent(world: World) -> Agent:
    return await world.agent("a")


@pytest.fixture
async def other(world: World) -> Agent:
    return await world.agent("b")


async def test_one_holds_it_and_the_others_are_told_who(world: World, agent: Agent, other: Agent) -> None:
    space = world.space()
    held = await reserve(agent, space, "k")
    assert held.fence == held.head
    assert held.holder == agent.name
    told = await reserve(other, space, "k")
    assert (told.fence, told.holder, told.expire_time) == (0, agent.name, held.expire_time)
    assert (await reserve(other, space, "l")).fence, "another key is another reservation"
    await cancel(agent, space, "k", held.fence)
    mine = await reserve(other, space, "k")
    assert mine.fence > held.fence
    with refusal(Reason.CLAIM_LOST):
        await cancel(agent, space, "k", held.fence)


async def test_the_holder_extends_it_under_the_same_fence(world: World, agent: Agent) -> None:
    space = world.space()
    held = await reserve(agent, space, "k", lease_ms=1_000)
    longer = await reserve(agent, space, "k", lease_ms=60_000)
    assert longer.fence == held.fence
    assert longer.expire_time.ToMilliseconds() > held.expire_time.ToMilliseconds()


async def test_it_stops_nobody_and_moves_nothing(world: World, agent: Agent, other: Agent) -> None:
    space = world.space()
    made = await agent.put(space, "plan/k", 1)
    mind = Mind(other)
    await mind.get(space, "plan/k")
    await mind.page(space, "plan/")
    await mind.page(space)
    before = await agent.history(space)
    async with watching(agent, space) as watch:
        await watch.bookmark()
        held = await reserve(agent, space, "plan/k")
        await reserve(agent, space, "plan/new")
        await cancel(agent, space, "plan/k", held.fence)
        assert (await agent.get(space, "plan/k")).version == made.version
        assert [r.key for r in await agent.listing(space)] == ["plan/k"]
        assert await agent.history(space) == before
        assert await agent.claim(space, "none/") is None
        await mind.commit(space, put("plan/k", 2))
        assert [c.key for c in (await watch.batch()).changes] == ["plan/k"], "the first change that anybody is told of"


async def test_only_the_holder_gives_it_up(world: World, agent: Agent, other: Agent) -> None:
    space = world.space()
    earlier = await agent.put(space, "l", 1)
    held = await reserve(agent, space, "k")
    for who, fence in ((other, held.fence), (agent, earlier.revision), (agent, 0)):
        with refusal(Reason.CLAIM_LOST) as error:
            await cancel(who, space, "k", fence)
        assert error.conflict().key == "k"
    assert not (await reserve(other, space, "k")).fence
    await cancel(agent, space, "k", held.fence)


async def test_a_retry_is_answered_once_more(world: World, agent: Agent, other: Agent) -> None:
    space = world.space()
    held = await reserve(agent, space, "k", call=agent.call(sequence=1))
    again = await reserve(agent, space, "k", call=agent.call(sequence=1))
    assert (again.fence, again.holder, again.expire_time) == (held.fence, held.holder, held.expire_time)
    with refusal(Reason.REQUEST_ID_REUSED):
        await reserve(agent, space, "l", call=agent.call(sequence=1))
    await cancel(agent, space, "k", held.fence, call=agent.call(sequence=2))
    taken = await reserve(other, space, "k")
    await cancel(agent, space, "k", held.fence, call=agent.call(sequence=2))
    # The retry of what was granted before tells how it is now.
    late = await reserve(agent, space, "k", call=agent.call(sequence=1))
    assert (late.fence, late.holder) == (0, other.name)
    assert (await reserve(other, space, "k")).fence == taken.fence


async def test_it_is_asked_for_in_proper_form(world: World, agent: Agent) -> None:
    space = world.space()
    for lease_ms, wait_ms, key in (
        (999, 0, "k"),
        (3_600_001, 0, "k"),
        (1_000, -1, "k"),
        (1_000, 60_001, "k"),
        (1_000, 0, ""),
    ):
        with refusal(Reason.INVALID_FIELD):
            await reserve(agent, space, key, lease_ms=lease_ms, wait_ms=wait_ms)
    with refusal(Reason.INVALID_FIELD):
        await agent.api.reserve(pb.ReserveRequest(namespace=space, key="k", lease=span(1_000)))
    held = await reserve(agent, space, "k" * 512)
    await cancel(agent, space, "k" * 512, held.fence)


# -- time ------------------------------------------------------------------------------------------


@pytest.fixture
async def pair(local: LocalServer) -> tuple[Agent, Agent]:
    return await local.api.agent("a"), await local.api.agent("b")


async def test_it_lapses_at_its_end_whether_or_not_anybody_sweeps(
    local: LocalServer, pair: tuple[Agent, Agent]
) -> None:
    agent, other = pair
    held = await reserve(agent, SPACE, "k", lease_ms=5_000)
    await local.elapse(4_999)
    assert not (await reserve(other, SPACE, "k")).fence
    await local.elapse(1)
    taken = await reserve(other, SPACE, "k", lease_ms=5_000)
    assert taken.fence > held.fence
    with refusal(Reason.CLAIM_LOST):
        await cancel(agent, SPACE, "k", held.fence)
    await local.elapse(5_000)
    with refusal(Reason.CLAIM_LOST):
        await cancel(other, SPACE, "k", taken.fence)
    await local.sweep()
    stats = await local.engine.store.stats(await local.engine.memory.core.locate(SPACE))
    assert (stats.own_count, stats.record_count) == (0, 0), "nothing is left of it"


@pytest.mark.parametrize("ends", ["cancelled", "lapsed"])
async def test_whoever_waits_gets_it_when_it_ends(local: LocalServer, pair: tuple[Agent, Agent], ends: str) -> None:
    agent, other = pair
    held = await reserve(agent, SPACE, "k", lease_ms=3_000)
    waiting = asyncio.create_task(reserve(other, SPACE, "k", wait_ms=10_000))
    await local.elapse(2_999)
    assert not waiting.done()
    if ends == "cancelled":
        await cancel(agent, SPACE, "k", held.fence)
    else:
        await local.elapse(1)
    taken = await waiting
    assert taken.holder == other.name
    assert taken.fence > held.fence


async def test_whoever_waits_in_vain_is_told_who_holds_it(local: LocalServer, pair: tuple[Agent, Agent]) -> None:
    agent, other = pair
    await reserve(agent, SPACE, "k", lease_ms=60_000)
    waiting = asyncio.create_task(reserve(other, SPACE, "k", wait_ms=4_000))
    await local.elapse(3_999)
    assert not waiting.done()
    await local.elapse(1)
    told = await waiting
    assert (told.fence, told.holder) == (0, agent.name)


async def test_a_wait_ends_when_the_server_goes(local: LocalServer, pair: tuple[Agent, Agent]) -> None:
    agent, other = pair
    await reserve(agent, SPACE, "k")
    waiting = asyncio.create_task(reserve(other, SPACE, "k", wait_ms=10_000))
    await local.elapse(0)
    local.engine.memory.signals.drain()
    with refusal(Reason.DRAINING):
        await waiting


async def test_an_agents_next_self_takes_over_what_the_last_one_held(local: LocalServer) -> None:
    first = await local.api.agent("a")
    held = await reserve(first, SPACE, "k")
    second = await local.api.agent("a", takeover=True)
    taken = await reserve(second, SPACE, "k")
    assert taken.holder == second.name
    assert taken.fence > held.fence
    with refusal(Reason.STALE_INCARNATION):
        await reserve(first, SPACE, "k")
    with refusal(Reason.STALE_INCARNATION):
        await cancel(first, SPACE, "k", held.fence)
    assert (await reserve(second, SPACE, "k")).fence == taken.fence
    # A name that only begins alike is somebody else.
    alike = await local.api.agent("aa")
    assert not (await reserve(alike, SPACE, "k")).fence


async def test_it_survives_a_crash(local: LocalServer, pair: tuple[Agent, Agent]) -> None:
    agent, other = pair
    held = await reserve(agent, SPACE, "k")
    image = local.image()
    lost = await reserve(agent, SPACE, "lost")
    await local.crash(image)
    agent, other = Agent(local.api, agent.actor), Agent(local.api, other.actor)
    assert not (await reserve(other, SPACE, "k")).fence
    assert (await reserve(other, SPACE, "lost")).fence
    with refusal(Reason.ACKED_WRITES_LOST):
        await cancel(agent, SPACE, "lost", lost.fence)
    await cancel(agent, SPACE, "k", held.fence)


async def test_it_takes_no_room_from_records_and_has_its_own_limit(
    local: LocalServer, pair: tuple[Agent, Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("noosphere.server.memory.reservations.RESERVATIONS_MAX", 2)
    agent, _ = pair
    for key in ("a", "b"):
        await reserve(agent, SPACE, key)
    with refusal(Reason.LIMIT_EXCEEDED) as error:
        await reserve(agent, SPACE, "c")
    assert error.limit().limit == 2
    await reserve(agent, SPACE, "a")
    assert (await local.api.get_namespace(SPACE)).record_count == 0
