"""Read sets of several namespaces, their comparison with the present, and which reads extend them."""

from __future__ import annotations

import pytest
from tests.support.api import Agent, put, span
from tests.support.causality import Mind, causal, guard, names_of
from tests.support.statuses import refusal
from tests.support.worlds import World

from noosphere.consistency import Reason, StampMode
from noosphere.v1 import memory_service_pb2 as pb


@pytest.fixture
async def agent(world: World) -> Agent:
    return await world.agent("thinker")


@pytest.fixture
async def peer(world: World) -> Agent:
    return await world.agent("peer")


@pytest.fixture
def mind(agent: Agent) -> Mind:
    return Mind(agent)


# -- other namespaces ------------------------------------------------------------------------------


async def test_what_lies_elsewhere_can_only_be_checked(world: World, mind: Mind, peer: Agent) -> None:
    space, elsewhere = world.space(), world.space("goals")
    await peer.put(elsewhere, "main", 1)
    await mind.get(elsewhere, "main")
    with refusal(Reason.UNCHECKABLE_GUARD) as error:
        await mind.commit(space, put("plan", 1))
    assert elsewhere in error.message
    await mind.commit(space, put("plan", 1), allow_checked=True)
    await mind.commit(space, put("plan", 2, blind=True), guards=[guard("", space)])
    await peer.put(elsewhere, "main", 2, blind=True)
    with refusal(Reason.STALE_READ_SET) as error:
        await mind.commit(space, put("plan", 3, blind=True), allow_checked=True)
    (entry,) = error.stale().stale
    assert (entry.namespace, entry.name) == (elsewhere, "main")
    assert error.metadata["namespace"] == space
    await mind.commit(space, put("plan", 3, blind=True), warn=True)
    assert [(e.namespace, e.name) for e in mind.told.stale] == [(elsewhere, "main")]


async def test_nobody_learns_of_a_foreign_namespace_by_a_token(world: World, agent: Agent, peer: Agent) -> None:
    private = f"agents/{peer.actor.agent_id}"
    owner, thief = Mind(peer), Mind(agent)
    await peer.put(private, "secret", 1)
    await owner.get(private, "secret")
    await owner.page(private)
    thief.token = owner.token
    space = world.space()
    for call in (
        lambda: thief.commit(space, put("k", 1), allow_checked=True),
        lambda: thief.commit(space, put("k", 1), warn=True),
        lambda: thief.refresh(),
        lambda: thief.commit(private, put("k", 1)),
    ):
        with refusal(Reason.PERMISSION_DENIED):
            await call()
    # Naming what it may see is still possible, and the rest stays a token that tells nothing.
    await thief.commit(space, put("k", 1), guards=[guard("", space)])


async def test_an_agents_own_namespace_is_guarded_like_any(world: World, agent: Agent, peer: Agent) -> None:
    private = f"agents/{agent.actor.agent_id}"
    mind = Mind(agent)
    await agent.put(private, "state", 1)
    await mind.get(private, "state")
    await mind.commit(private, put("state", 2))
    await agent.put(private, "state", 3)
    with refusal(Reason.STALE_READ_SET):
        await mind.commit(private, put("state", 4))


# -- refreshing ------------------------------------------------------------------------------------


async def test_a_refresh_tells_the_difference_and_returns_the_present(world: World, mind: Mind, peer: Agent) -> None:
    space, elsewhere = world.space(), world.space("goals")
    await peer.put(space, "plan/1", 1)
    await peer.put(elsewhere, "main", 1)
    await mind.page(space, "plan/")
    await mind.get(space, "state")
    await mind.get(elsewhere, "main")
    assert await mind.refresh() == []
    added = await peer.put(space, "plan/2", 1)
    made = await peer.put(space, "state", 1)
    moved = await peer.put(elsewhere, "main", 2, blind=True)
    stale = await mind.refresh()
    assert {(entry.namespace, entry.name, entry.now) for entry in stale} == {
        (space, "plan/", added.revision),
        (space, "state", made.revision),
        (elsewhere, "main", moved.revision),
    }
    assert names_of(stale)["plan/"] == [("plan/2", peer.name, added.revision)]
    assert mind.seen.namespaces[space].collections["plan/", StampMode.CHANGED].stamp == added.revision
    assert await mind.refresh() == []
    await mind.commit(space, put("state", 2), allow_checked=True)


async def test_a_refresh_is_limited_to_what_its_guards_cover(world: World, mind: Mind, peer: Agent) -> None:
    space = world.space()
    for key in ("a", "b"):
        await peer.put(space, key, 1)
        await mind.get(space, key)
    before = mind.seen.namespaces[space]
    for key in ("a", "b"):
        await peer.put(space, key, 2, blind=True)
    assert [entry.name for entry in await mind.refresh("a")] == ["a"]
    after = mind.seen.namespaces[space]
    assert after.keys["b"] == before.keys["b"]
    assert after.revision == before.revision, "what was not looked at is no newer than it was"
    await mind.also().commit(space, put("decision", 1), guards=["a"])
    with refusal(Reason.STALE_READ_SET) as error:
        await mind.commit(space, put("decision", 1))
    assert [entry.name for entry in error.stale().stale] == ["b"]


async def test_a_refresh_needs_a_read_set_and_may_return_a_causal_token(world: World, mind: Mind, peer: Agent) -> None:
    with refusal(Reason.INVALID_FIELD) as error:
        await mind.refresh()
    assert "call.read_set_token" in error.message
    space = world.space()
    made = await peer.put(space, "k", 1)
    await mind.get(space, "k")
    call = mind.call()
    call.return_causal_token = True
    response = await mind.agent.api.refresh_read_set(pb.RefreshReadSetRequest(call=call))
    assert causal(response.call).revisions == {space: made.revision}


# -- what reads return -----------------------------------------------------------------------------


async def test_reads_extend_a_read_set_only_when_asked(world: World, mind: Mind, agent: Agent) -> None:
    space = world.space()
    await agent.put(space, "a", 1)
    await mind.get(space, "a")
    call = mind.call()
    response = await agent.api.get(pb.GetRequest(namespace=space, key="b", call=call))
    assert response.call.read_set_token == mind.token
    response = await agent.api.get(pb.GetRequest(namespace=space, key="b", call=agent.call()))
    assert not response.HasField("call")
    await mind.batch_get(space, "b", "c", "a")
    assert set(mind.seen.namespaces[space].keys) == {"a", "b", "c"}


async def test_a_claim_of_nothing_returns_the_read_set_as_it_was(world: World, mind: Mind) -> None:
    space = world.space()
    await mind.get(space, "k")
    request = pb.ClaimNextRequest(namespace=space, collection="t/", lease=span(9_000), call=mind.call())
    response = await mind.agent.api.claim_next(request)
    assert not response.HasField("record")
    assert response.call.read_set_token == mind.token
