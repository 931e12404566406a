"""Read sets of collections without records: the store forgets their stamps, but nobody's decision suffers from it."""

from __future__ import annotations

import pytest
from tests.support.api import Agent, put
from tests.support.causality import Mind
from tests.support.engine import LocalServer
from tests.support.statuses import refusal

from noosphere.consistency import Reason
from noosphere.consistency.limits import TOMBSTONE_RETENTION_MS_MIN
from noosphere.v1 import memory_service_pb2 as pb

SPACE = "shared/plan"


@pytest.fixture
async def peer(local: LocalServer) -> Agent:
    return await local.api.agent("peer")


@pytest.fixture
async def mind(local: LocalServer) -> Mind:
    return Mind(await local.api.agent("thinker"))


async def end_a_run(peer: Agent, number: int) -> None:
    """Leaves a collection of which nothing but a tombstone is left."""
    await peer.put(SPACE, f"runs/{number}/step", 1)
    await peer.delete(SPACE, f"runs/{number}/step", blind=True)


async def reap_and_forget(local: LocalServer) -> None:
    """Lets the store forget all about collections that have had no record for an hour."""
    await local.elapse(TOMBSTONE_RETENTION_MS_MIN)
    await local.sweep()
    await local.fold()


async def stamp_of(peer: Agent, collection: str) -> int:
    response = await peer.api.list_records(pb.ListRequest(namespace=SPACE, collection=collection, call=peer.call()))
    return response.stamp.changed


async def test_what_is_forgotten_of_other_collections_makes_no_decision_stale(
    local: LocalServer, mind: Mind, peer: Agent
) -> None:
    await end_a_run(peer, 1)
    await local.elapse(TOMBSTONE_RETENTION_MS_MIN // 2)
    await peer.put(SPACE, "plan", 1)
    before = await stamp_of(peer, "goals/")
    await mind.page(SPACE, "goals/")
    await local.elapse(TOMBSTONE_RETENTION_MS_MIN // 2)
    await local.sweep()
    await local.fold()
    assert await stamp_of(peer, "goals/") > before, "not what this test is about"
    await mind.commit(SPACE, put("decision/1", 1), guards=["goals/"])
    assert await mind.refresh() == []
    await mind.commit(SPACE, put("decision/2", 1), guards=["goals/"])
    # Advancing over an own write in it keeps an eye on what others do there.
    await mind.commit(SPACE, put("goals/mine", 1), guards=["goals/"])
    await mind.commit(SPACE, put("decision/3", 1), guards=["goals/"])
    await peer.put(SPACE, "goals/theirs", 1)
    with refusal(Reason.STALE_READ_SET) as error:
        await mind.commit(SPACE, put("decision/4", 1), guards=["goals/"])
    assert [change.key for change in error.stale().stale[0].changes] == ["goals/theirs"]


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
async def test_what_came_and_went_unseen_is_a_change_also_when_it_is_forgotten(
    local: LocalServer, mind: Mind, peer: Agent, restarted: bool
) -> None:
    await mind.page(SPACE, "goals/")
    await mind.page(SPACE, "other/")
    await peer.put(SPACE, "goals/1", 1)
    await peer.delete(SPACE, "goals/1", blind=True)
    await reap_and_forget(local)
    if restarted:
        await local.restart()
        mind.agent.api = local.api
    with refusal(Reason.STALE_READ_SET):
        await mind.commit(SPACE, put("decision", 1), guards=["goals/"])


async def test_what_was_seen_and_went_is_a_change_also_when_it_is_forgotten(
    local: LocalServer, mind: Mind, peer: Agent
) -> None:
    await peer.put(SPACE, "goals/1", 1)
    await mind.page(SPACE, "goals/")
    await peer.delete(SPACE, "goals/1", blind=True)
    await reap_and_forget(local)
    assert await stamp_of(peer, "goals/") == await stamp_of(peer, "other/"), "not forgotten"
    with refusal(Reason.STALE_READ_SET):
        await mind.commit(SPACE, put("decision", 1), guards=["goals/"])


async def test_a_collection_of_an_earlier_generation_has_changed(local: LocalServer, mind: Mind, peer: Agent) -> None:
    await peer.put(SPACE, "goals/1", 1)
    await peer.put(SPACE, "plan", 1)
    await mind.page(SPACE, "goals/")
    await local.api.delete_namespace(SPACE)
    await peer.ensure(SPACE)
    assert await stamp_of(peer, "goals/") == 0, "a stamp of the new generation"
    with refusal(Reason.STALE_READ_SET):
        await mind.commit(SPACE, put("decision", 1), guards=["goals/"])
