"""The conflict queue over time: values that end, crashes, and what they leave waiting."""

from __future__ import annotations

import pytest
from tests.support.api import SEEN_NOTHING, Agent, contents
from tests.support.causality import SIBLINGS, collide, conflicts, queue, resolve
from tests.support.engine import LocalServer
from tests.support.statuses import refusal

from noosphere.consistency import Reason

SPACE = "shared/s"


@pytest.fixture
async def pair(local: LocalServer) -> tuple[Agent, Agent]:
    agents = await local.api.agent("a"), await local.api.agent("b")
    await agents[0].ensure(SPACE, SIBLINGS)
    return agents


@pytest.mark.parametrize("by", ["sweeper", "list"])
async def test_a_conflict_whose_values_end_leaves_the_queue(
    local: LocalServer, pair: tuple[Agent, Agent], by: str
) -> None:
    agent, _ = pair
    await agent.put(SPACE, "k", 1, context=SEEN_NOTHING)
    await agent.put(SPACE, "k", 2, context=SEEN_NOTHING, ttl_ms=1_000)
    await agent.put(SPACE, "both", 1, context=SEEN_NOTHING, ttl_ms=1_000)
    await agent.put(SPACE, "both", 2, context=SEEN_NOTHING, ttl_ms=1_000)
    await local.elapse(999)
    assert await queue(agent, SPACE) == ["k", "both"]
    await local.elapse(1)
    assert await queue(agent, SPACE) == [], "whether or not anybody has swept"
    store = local.engine.store
    ref = await local.engine.memory.core.locate(SPACE)
    assert (await store.stats(ref)).own_count == 2
    if by == "sweeper":
        await local.sweep()
    else:
        assert contents(await agent.listing(SPACE)) == {"k": b"1"}
        await local.sweep()
    assert (await store.stats(ref)).own_count == 0
    with refusal(Reason.NO_CONFLICT):
        await resolve(agent, SPACE, await agent.get(SPACE, "k"), "x")
    # It begins anew, later, as a conflict of its own.
    await collide(SPACE, "other", *pair)
    again = await agent.put(SPACE, "k", 3, context=SEEN_NOTHING)
    found = await conflicts(agent, SPACE)
    assert [c.record.key for c in found] == ["other", "k"]
    assert found[1].since == again.revision


async def test_the_queue_survives_a_crash_as_the_siblings_do(local: LocalServer, pair: tuple[Agent, Agent]) -> None:
    for key in ("kept", "resolved"):
        await collide(SPACE, key, *pair)
    await resolve(pair[0], SPACE, await pair[0].get(SPACE, "resolved"), "done")
    before = await conflicts(pair[0], SPACE)
    image = local.image()
    await collide(SPACE, "lost", *pair)
    await resolve(pair[0], SPACE, before[0].record, "lost as well")
    await local.crash(image)
    agent = Agent(local.api, pair[0].actor)
    assert await conflicts(agent, SPACE) == before
    await local.restart()
    agent = await local.api.agent("c")
    assert await conflicts(agent, SPACE) == before
    await resolve(agent, SPACE, before[0].record, "done")
    await local.crash()
    agent = Agent(local.api, agent.actor)
    assert await conflicts(agent, SPACE) == []
    assert (await agent.get(SPACE, "kept")).version


async def test_a_lost_sibling_is_not_resolved_by_who_saw_it(local: LocalServer, pair: tuple[Agent, Agent]) -> None:
    await pair[0].put(SPACE, "k", 1)
    image = local.image()
    record = await collide(SPACE, "k", *pair)
    await local.crash(image)
    agent = Agent(local.api, pair[0].actor)
    with refusal(Reason.ACKED_WRITES_LOST):
        await resolve(agent, SPACE, record, "x")
    assert await conflicts(agent, SPACE) == []
