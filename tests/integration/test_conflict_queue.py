"""The conflict queue over time: values that end, crashes, and what they leave waiting."""

from __future__ import annotations

import pytest
from tests.support.api import SEEN_NOTHING, Agent, contents
from tests.support.causality import SIBLINGS, collide, conflicts, queue, resolve
from tests.support.engine import LocalServer
from tests.support.meddling import MeddlingStore, once
from tests.support.statuses import refusal

from noosphere.consistency import Reason
from noosphere.consistency.limits import ITEM_BYTES_MAX
from noosphere.server.memory.reads import PAGE_BYTES_MAX
from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1 import types_pb2

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


async def test_a_conflict_after_one_that_ended_unswept_has_not_waited_since_then(
    local: LocalServer, pair: tuple[Agent, Agent]
) -> None:
    """Whether the sweeper came between the two says nothing about which key waits the longest."""
    agent, _ = pair
    for key in ("swept", "unswept"):
        await agent.put(SPACE, key, 1, context=SEEN_NOTHING, ttl_ms=1_000 if key == "swept" else 2_000)
        await agent.put(SPACE, key, 2, context=SEEN_NOTHING)
    await collide(SPACE, "other", *pair)
    await local.elapse(1_000)
    await local.sweep()
    await local.elapse(1_000)
    again = [await agent.put(SPACE, key, 3, context=SEEN_NOTHING) for key in ("unswept", "swept")]
    found = await conflicts(agent, SPACE)
    assert [c.record.key for c in found] == ["other", "unswept", "swept"]
    assert [c.since for c in found[1:]] == [applied.revision for applied in again]
    ref = await local.engine.memory.core.locate(SPACE)
    assert (await local.engine.store.stats(ref)).own_count == 3, "the entry of the conflict that is over is gone"


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


async def test_a_conflict_that_begins_anew_while_the_queue_is_read_is_shown_once(
    local: LocalServer, pair: tuple[Agent, Agent]
) -> None:
    agent = pair[0]
    first = await collide(SPACE, "moved", *pair)
    await collide(SPACE, "kept", *pair)

    async def begins_anew() -> None:
        await resolve(agent, SPACE, first, "done")
        await collide(SPACE, "moved", *pair)

    core = local.engine.memory.core
    core.store = MeddlingStore(core.store, once(begins_anew), "read")
    assert await queue(agent, SPACE) == ["kept"], "its new place lies behind what was looked at"
    assert await queue(agent, SPACE) == ["kept", "moved"]


async def test_a_page_of_large_values_ends_before_it_is_full(local: LocalServer) -> None:
    agent = await local.api.agent("a")
    policy = types_pb2.NamespacePolicy(
        conflict_policy=types_pb2.CONFLICT_POLICY_SIBLINGS, item_bytes_max=ITEM_BYTES_MAX
    )
    await agent.ensure(SPACE, policy)
    text = "x" * (ITEM_BYTES_MAX - 10)
    keys = [f"k{number:02}" for number in range(20)]
    for key in keys:
        await agent.put(SPACE, key, text, context=SEEN_NOTHING)
        await agent.put(SPACE, key, text, context=SEEN_NOTHING)
    request = pb.ListConflictsRequest(namespace=SPACE, page_size=1000, call=agent.call())
    found: list[str] = []
    pages = 0
    while True:
        page = await local.api.list_conflicts(request)
        assert page.ByteSize() < 2 * PAGE_BYTES_MAX
        found += [conflict.record.key for conflict in page.conflicts]
        pages += 1
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    assert found == keys
    assert pages > 1
