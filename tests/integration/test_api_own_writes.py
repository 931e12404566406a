"""One's own writes advance a read set, and never hide what somebody else did; retries leave it as it was."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from tests.support.api import SEEN_NOTHING, Agent, counter, data, delete, merge, put, put_op, span
from tests.support.causality import SIBLINGS, Mind, names_of, resolve
from tests.support.statuses import refusal
from tests.support.worlds import World

from noosphere.consistency import Reason
from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1 import types_pb2 as types


@pytest.fixture
async def agent(world: World) -> Agent:
    return await world.agent("thinker")


@pytest.fixture
async def peer(world: World) -> Agent:
    return await world.agent("peer")


@pytest.fixture
def mind(agent: Agent) -> Mind:
    return Mind(agent)


async def _put(mind: Mind, space: str) -> types.CallReply:
    request = pb.PutRequest(namespace=space, put=put_op("plan/own", 1, blind=True), call=mind.call())
    return (await mind.agent.api.put(request)).call


async def _replace(mind: Mind, space: str) -> types.CallReply:
    request = pb.PutRequest(namespace=space, put=put_op("plan/1", 9, blind=True), call=mind.call())
    return (await mind.agent.api.put(request)).call


async def _delete(mind: Mind, space: str) -> types.CallReply:
    operation = pb.DeleteOperation(key="plan/1", precondition=types.Precondition(blind=True))
    request = pb.DeleteRequest(namespace=space, delete=operation, call=mind.call())
    return (await mind.agent.api.delete(request)).call


async def _merge(mind: Mind, space: str) -> types.CallReply:
    request = pb.MergeRequest(namespace=space, merge=counter("plan/count"), call=mind.call())
    return (await mind.agent.api.merge(request)).call


async def _large_merge(mind: Mind, space: str) -> types.CallReply:
    for shown in (True, False):
        append = pb.MergeOperation(key="plan/log", log_append=pb.LogAppend(entries=['"%s"' % ("x" * 200)]))
        response = await mind.agent.api.merge(pb.MergeRequest(namespace=space, merge=append, call=mind.call()))
        assert response.applied.HasField("version") is shown, "whoever adds to what is large is not shown the result"
        mind.take(response.call)
    return mind.told


async def _transact(mind: Mind, space: str) -> types.CallReply:
    operations = [put("plan/1", 9, blind=True), delete("plan/2", blind=True), merge(counter("plan/count"))]
    request = pb.TransactRequest(namespace=space, operations=operations, call=mind.call())
    return (await mind.agent.api.transact(request)).call


async def _work(mind: Mind, space: str) -> types.CallReply:
    claim = pb.ClaimNextRequest(namespace=space, collection="plan/", lease=span(30_000), call=mind.call())
    claimed = await mind.agent.api.claim_next(claim)
    mind.take(claimed.call)
    task = claimed.record
    assert task.key == "plan/1"
    renew = pb.RenewRequest(namespace=space, key=task.key, fence=task.claim.fence, lease=span(30_000), call=mind.call())
    mind.take((await mind.agent.api.renew(renew)).call)
    release = pb.ReleaseRequest(namespace=space, key=task.key, fence=task.claim.fence, call=mind.call())
    mind.take((await mind.agent.api.release(release)).call)
    claim.call.CopyFrom(mind.call())
    claimed = await mind.agent.api.claim_next(claim)
    mind.take(claimed.call)
    complete = pb.CompleteRequest(namespace=space, key=task.key, fence=claimed.record.claim.fence, call=mind.call())
    return (await mind.agent.api.complete(complete)).call


async def _commit(mind: Mind, space: str) -> types.CallReply:
    await mind.commit(space, put("plan/1", 9), put("plan/new/one", 1), delete("plan/2"))
    return mind.told


OWN = [_put, _replace, _delete, _merge, _large_merge, _transact, _work, _commit]
OwnWrite = Callable[[Mind, str], Awaitable[types.CallReply]]


@pytest.mark.parametrize("write", OWN, ids=lambda write: write.__name__.strip("_"))
async def test_ones_own_writes_never_make_ones_decision_stale(
    world: World, mind: Mind, peer: Agent, write: OwnWrite
) -> None:
    space = world.space()
    for key in ("plan/1", "plan/2"):
        await peer.put(space, key, 1)
        await mind.get(space, key)
    await mind.get(space, "plan/own")
    await mind.page(space, "plan/")
    await mind.page(space)
    mind.take(await write(mind, space))
    await mind.commit(space, put("decision", 1))
    # And somebody else's are still noticed after it.
    await peer.put(space, "plan/2", 7, blind=True)
    with refusal(Reason.STALE_READ_SET) as error:
        await mind.commit(space, put("decision", 2))
    assert {c.actor for entry in error.stale().stale for c in entry.changes} == {peer.name}


@pytest.mark.parametrize("write", OWN, ids=lambda write: write.__name__.strip("_"))
async def test_a_write_that_carries_a_stale_read_set_is_refused(
    world: World, mind: Mind, peer: Agent, write: OwnWrite
) -> None:
    space = world.space()
    for key in ("plan/1", "plan/2"):
        await peer.put(space, key, 1)
    await mind.get(space, "goal")
    await peer.put(space, "goal", 1)
    before = await peer.history(space)
    with refusal(Reason.STALE_READ_SET):
        await write(mind, space)
    assert await peer.history(space) == before, "nothing was written"


async def test_ones_own_sibling_is_no_surprise(world: World, mind: Mind, peer: Agent) -> None:
    space = world.space()
    await peer.ensure(space, SIBLINGS)
    first = await peer.put(space, "plan/1", 1)
    await mind.get(space, "plan/1")
    await mind.page(space, "plan/")
    request = pb.PutRequest(namespace=space, put=put_op("plan/1", 2, context=SEEN_NOTHING), call=mind.call())
    response = await mind.agent.api.put(request)
    assert not response.applied.HasField("version")
    mind.take(response.call)
    assert [v.dot for v in (await peer.get(space, "plan/1")).values] == [first.revision, response.applied.revision]
    await mind.commit(space, put("decision", 1))
    # A resolution carries the token too, and what replaces the record replaces both values, which were seen.
    resolved = await resolve(mind.agent, space, await peer.get(space, "plan/1"), "both", call=mind.call())
    mind.take(resolved.call)
    await mind.commit(space, put("plan/1", 4))
    assert data(await peer.get(space, "plan/1")) == b"4"


async def test_advancing_never_hides_what_somebody_else_did(world: World, mind: Mind, peer: Agent) -> None:
    """Neither where it is not guarded nor where the caller wrote the same key without looking."""
    space = world.space()
    await peer.put(space, "notes/1", 1)
    await peer.put(space, "state", 1)
    await mind.page(space, "notes/")
    await mind.get(space, "state")
    await peer.put(space, "notes/2", 1)
    await peer.put(space, "state", 2, blind=True)
    call = mind.call(guards=["unread"])
    request = pb.TransactRequest(
        namespace=space, operations=[put("notes/3", 1), put("state", 3, blind=True)], call=call
    )
    mind.take((await mind.agent.api.transact(request)).call)
    with refusal(Reason.STALE_READ_SET) as error:
        await mind.commit(space, put("decision", 1))
    assert {entry.name for entry in error.stale().stale} == {"notes/", "state"}
    assert mind.seen.namespaces[space].keys["state"].version < error.head


async def test_two_thinkers_of_one_plan(world: World, agent: Agent, peer: Agent) -> None:
    """Whoever is faster wins; the other learns of it, and of nothing else."""
    space = world.space()
    await agent.put(space, "plan/1", 1)
    minds = [Mind(agent), Mind(peer)]
    for mind in minds:
        await mind.page(space, "plan/")
    first = await minds[0].commit(space, put("plan/2", 1))
    await minds[0].commit(space, put("plan/3", 1))
    with refusal(Reason.STALE_READ_SET) as error:
        await minds[1].commit(space, put("plan/4", 1))
    changes = names_of(error.stale().stale)["plan/"]
    assert [(key, actor) for key, actor, _ in changes] == [("plan/3", agent.name), ("plan/2", agent.name)]
    assert changes[1][2] == first.revision


# -- retries ---------------------------------------------------------------------------------------


async def test_a_retry_of_an_applied_commit_replays_it(world: World, mind: Mind, peer: Agent) -> None:
    space = world.space()
    await mind.get(space, "k")
    await mind.page(space, "plan/")
    first, token = mind.also(), mind.token
    applied = await first.commit(space, put("k", 1), put("plan/1", 1), sequence=1)
    await peer.put(space, "plan/2", 1)
    again = await mind.commit(space, put("k", 1), put("plan/1", 1), sequence=1)
    assert (again.revision, again.replayed) == (applied.revision, True)
    assert [r.version for r in again.results] == [r.version for r in applied.results]
    # The token does not belong to what the call means, so one that was advanced meanwhile does not matter either.
    third = Mind(mind.agent, first.token)
    assert (await third.commit(space, put("k", 1), put("plan/1", 1), sequence=1)).replayed
    with refusal(Reason.REQUEST_ID_REUSED):
        await Mind(mind.agent, token).commit(space, put("k", 2), put("plan/1", 1), sequence=1)


async def test_a_refused_commit_is_judged_anew(world: World, mind: Mind, peer: Agent) -> None:
    space = world.space()
    await mind.get(space, "k")
    await peer.put(space, "k", 1)
    with refusal(Reason.STALE_READ_SET):
        await mind.commit(space, put("x", 1), sequence=1)
    await mind.refresh()
    assert not (await mind.commit(space, put("x", 1), sequence=1)).replayed
