"""ClaimNext, Renew, Release and Complete: records as a task board."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.support.api import JSON, Agent, data, put, span
from tests.support.engine import local_server
from tests.support.statuses import refusal
from tests.support.worlds import World

from noosphere.consistency import Reason
from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1 import types_pb2 as types


@pytest.fixture
async def agent(world: World) -> Agent:
    return await world.agent()


@pytest.fixture
async def other(world: World) -> Agent:
    return await world.agent("b")


async def claimed(agent: Agent, space: str, collection: str = "", lease_ms: int = 30_000) -> types.Record:
    task = await agent.claim(space, collection, lease_ms=lease_ms)
    assert task is not None
    return task


async def test_tasks_are_handed_out_once_in_key_order(world: World, agent: Agent, other: Agent) -> None:
    space = world.space()
    await agent.transact(space, put("todo/2", 2), put("todo/1", 1), put("other", 0))
    first = await claimed(agent, space, "todo/")
    assert (first.key, data(first)) == ("todo/1", b"1")
    assert (first.claim.holder, first.claim.fence, first.claim.attempts) == (agent.name, first.version, 1)
    assert first.claim.expire_time.ToMilliseconds() > (await world.api.info()).store_time.ToMilliseconds()
    assert (await claimed(other, space, "todo/")).key == "todo/2"
    assert await agent.claim(space, "todo/") is None
    assert await agent.claim(space, "empty/") is None


async def test_a_claim_moves_the_version_but_no_dot(world: World, agent: Agent, other: Agent) -> None:
    space = world.space()
    made = await agent.put(space, "t", 1)
    before = (await world.api.list_records(pb.ListRequest(namespace=space))).stamp
    task = await claimed(agent, space)
    after = (await world.api.list_records(pb.ListRequest(namespace=space))).stamp
    assert task.version > made.revision
    assert [value.dot for value in task.values] == [made.revision]
    assert (after.members, after.changed) == (before.members, task.version)
    # Whoever had read the task's value still covers it.
    await other.put(space, "t", 2, context=made.context)


async def test_a_filter_picks_among_tasks(world: World, agent: Agent) -> None:
    space = world.space()
    await agent.put(space, "t/1", 1, attributes={"kind": "crawl", "n": 1})
    await agent.put(space, "t/2", 2, attributes={"kind": "sum", "n": 2})
    task = await agent.claim(space, "t/", where={"kind": "sum", "n": 2.0})
    assert task is not None
    assert task.key == "t/2"
    assert await agent.claim(space, "t/", where={"kind": "sum"}) is None


async def test_complete_stores_the_result_and_no_one_gets_the_task_again(
    world: World, agent: Agent, other: Agent
) -> None:
    space = world.space()
    await agent.put(space, "t", 1)
    task = await claimed(agent, space)
    done = (await agent.complete(space, task, b'{"ok":true}')).record
    assert (done.claim.done, done.claim.completed_by, done.claim.holder) == (True, agent.name, "")
    assert done.claim.result == types.Value(data=b'{"ok":true}', encoding=JSON)
    assert data(done) == b"1"
    assert (await agent.get(space, "t")).claim == done.claim
    assert await other.claim(space) is None
    for attempt in (agent.complete(space, task), agent.renew(space, task), agent.release(space, task)):
        with refusal(Reason.CLAIM_LOST) as error:
            await attempt
        assert error.conflict().version == done.version


async def test_a_released_task_is_free_at_once(world: World, agent: Agent, other: Agent) -> None:
    space = world.space()
    await agent.put(space, "t", 1)
    task = await claimed(agent, space)
    released = await agent.release(space, task)
    assert released.claim.holder == ""
    again = await claimed(other, space)
    assert (again.claim.holder, again.claim.attempts) == (other.name, 2)
    with refusal(Reason.CLAIM_LOST):
        await agent.complete(space, task)


async def test_only_the_holder_with_its_fence_may_act(world: World, agent: Agent, other: Agent) -> None:
    space = world.space()
    await agent.put(space, "t", 1)
    task = await claimed(agent, space)
    free = types.Record(key="t", claim=types.Claim(fence=task.claim.fence - 1))
    for who, what in ((other, task), (agent, free)):
        for attempt in (who.renew(space, what), who.release(space, what), who.complete(space, what)):
            with refusal(Reason.CLAIM_LOST):
                await attempt
    never = types.Record(key="never", claim=types.Claim(fence=task.claim.fence))
    with refusal(Reason.CLAIM_LOST):
        await agent.complete(space, never)
    assert (await agent.get(space, "t")).version == task.version


async def test_a_lapsed_claim_goes_to_the_next_and_the_late_holder_loses(
    world: World, agent: Agent, other: Agent
) -> None:
    space = world.space()
    await agent.put(space, "t", 1)
    task = await claimed(agent, space, lease_ms=1_000)
    assert await other.claim(space) is None
    await world.elapse(1_000)
    with refusal(Reason.CLAIM_LOST):
        # Even before anybody else has it: by then the holder had no right to act.
        await agent.complete(space, task)
    again = await claimed(other, space)
    assert again.claim.attempts == 2
    with refusal(Reason.CLAIM_LOST):
        await agent.complete(space, task)
    await other.complete(space, again)
    assert (await agent.get(space, "t")).claim.completed_by == other.name


async def test_renewing_keeps_the_fence_and_moves_the_end(world: World, agent: Agent, other: Agent) -> None:
    space = world.space()
    await agent.put(space, "t", 1)
    task = await claimed(agent, space, lease_ms=1_000)
    renewed = await agent.renew(space, task, lease_ms=60_000)
    assert renewed.claim.fence == task.claim.fence
    assert renewed.claim.expire_time.ToMilliseconds() > task.claim.expire_time.ToMilliseconds()
    await world.elapse(1_000)
    assert await other.claim(space) is None
    await agent.complete(space, task)


async def test_a_waiting_claim_is_woken_by_a_new_task(world: World, agent: Agent, other: Agent) -> None:
    space = world.space()
    waiting = asyncio.create_task(agent.claim(space, "t/", wait_ms=60_000))
    await other.put(space, "noise", 1)
    await other.put(space, "t/1", 1)
    task = await asyncio.wait_for(waiting, 30)
    assert task is not None
    assert task.key == "t/1"


async def test_a_waiting_claim_is_woken_when_another_lapses(world: World, agent: Agent, other: Agent) -> None:
    space = world.space()
    await agent.put(space, "t", 1)
    held = await claimed(agent, space, lease_ms=1_000)
    waiting = asyncio.create_task(other.claim(space, wait_ms=60_000))
    await asyncio.sleep(0)
    await world.elapse(1_000)
    task = await asyncio.wait_for(waiting, 30)
    assert task is not None
    assert (task.claim.holder, task.claim.attempts) == (other.name, 2)
    assert task.claim.fence > held.claim.fence


async def test_a_waiting_claim_gives_up_at_its_time(world: World, agent: Agent) -> None:
    space = world.space()
    waiting = asyncio.create_task(agent.claim(space, wait_ms=100))
    await asyncio.sleep(0)
    await world.elapse(100)
    assert await asyncio.wait_for(waiting, 30) is None


async def test_many_claimers_share_a_board_without_a_double(world: World, agent: Agent) -> None:
    space, workers = world.space(), [await world.agent(f"w{n}") for n in range(6)]
    tasks = 30
    await agent.transact(space, *(put(f"t/{n:02}", n) for n in range(tasks)))

    async def work(worker: Agent) -> list[str]:
        done = []
        while (task := await worker.claim(space, "t/")) is not None:
            await worker.complete(space, task)
            done.append(task.key)
        return done

    done = [key for keys in await asyncio.gather(*map(work, workers)) for key in keys]
    assert sorted(done) == [f"t/{n:02}" for n in range(tasks)]


async def test_siblings_are_no_task_until_somebody_resolves_them(world: World, agent: Agent, other: Agent) -> None:
    space = world.space()
    await agent.ensure(space, types.NamespacePolicy(conflict_policy=types.CONFLICT_POLICY_SIBLINGS))
    base = await agent.put(space, "t", 1)
    for writer in (agent, other):
        await writer.put(space, "t", 2, context=base.context)
    assert await agent.claim(space) is None
    record = await agent.get(space, "t")
    await agent.put(space, "t", 3, context=record.context)
    assert (await claimed(agent, space)).key == "t"


async def test_deleting_or_expiring_a_task_ends_its_claim(world: World, agent: Agent, other: Agent) -> None:
    space = world.space()
    await agent.put(space, "t", 1)
    task = await claimed(agent, space)
    await other.delete(space, "t", blind=True)
    with refusal(Reason.CLAIM_LOST):
        await agent.complete(space, task)
    await agent.put(space, "t", 2)
    fresh = await claimed(agent, space)
    assert fresh.claim.attempts == 1
    await agent.complete(space, fresh)
    await agent.put(space, "u", 1, ttl_ms=50)
    short = await claimed(agent, space)
    await world.elapse(50)
    with refusal(Reason.CLAIM_LOST):
        await agent.complete(space, short)


async def test_watchers_see_what_happens_to_a_task(world: World, agent: Agent) -> None:
    space = world.space()
    await agent.put(space, "t", 1)
    task = await claimed(agent, space)
    await agent.renew(space, task)
    await agent.release(space, task)
    await agent.complete(space, await claimed(agent, space))
    kinds = [change.kind for batch in await agent.history(space, "t") for change in batch.changes]
    assert kinds == [
        pb.CHANGE_KIND_PUT,
        pb.CHANGE_KIND_CLAIM,
        pb.CHANGE_KIND_RENEW,
        pb.CHANGE_KIND_RELEASE,
        pb.CHANGE_KIND_CLAIM,
        pb.CHANGE_KIND_COMPLETE,
    ]


@pytest.mark.parametrize(("lease_ms", "wait_ms"), [(999, 0), (3_600_001, 0), (1_000, -1), (1_000, 60_001), (-5, 0)])
async def test_leases_and_waits_have_bounds(world: World, agent: Agent, lease_ms: int, wait_ms: int) -> None:
    space = world.space()
    with refusal(Reason.INVALID_FIELD):
        await agent.claim(space, lease_ms=lease_ms, wait_ms=wait_ms)


async def test_claims_need_a_collection_an_actor_and_a_result_that_fits(world: World, agent: Agent) -> None:
    space = world.space()
    with refusal(Reason.INVALID_FIELD):
        await agent.claim(space, "no-slash")
    with refusal(Reason.INVALID_FIELD):
        await agent.claim(space, call=types.CallContext())
    await agent.put(space, "t", 1)
    task = await claimed(agent, space)
    with refusal(Reason.INVALID_FIELD):
        await agent.renew(space, task, lease_ms=1)
    with refusal(Reason.VALUE_TOO_LARGE):
        await agent.complete(space, task, b'"' + b"x" * 1024 + b'"')
    with refusal(Reason.INVALID_FIELD):
        await agent.complete(space, task, b"no json")
    with refusal(Reason.FUTURE_REVISION):
        await agent.complete(space, types.Record(key="t", claim=types.Claim(fence=task.claim.fence + 1)))
    await agent.complete(space, task)


async def test_a_replayed_claim_hands_out_the_same_task(world: World, agent: Agent) -> None:
    space = world.space()
    # Of a key longer than what is remembered of a call, too.
    for number, key in enumerate(("t/short", "t/" + "é" * 250), start=1):
        await agent.put(space, key, 1)
        call = agent.call(sequence=number)
        first = await agent.claim(space, "t/", call=call)
        again = await agent.claim(space, "t/", call=call)
        assert first is not None
        assert again is not None
        assert (again.key, again.claim) == (first.key, first.claim)
        assert again.key == key
        await agent.complete(space, first)


async def test_a_retried_complete_is_a_success(world: World, agent: Agent) -> None:
    space = world.space()
    await agent.put(space, "t", 1)
    task = await claimed(agent, space)
    call = agent.call(sequence=1)
    first = await agent.complete(space, task, b"1", call=call)
    again = await agent.complete(space, task, b"1", call=call)
    assert (first.replayed, again.replayed) == (False, True)
    assert again.record == first.record
    with refusal(Reason.REQUEST_ID_REUSED):
        await agent.complete(space, task, b"2", call=call)


async def test_a_retried_renewal_and_release_say_that_they_are_replays(world: World, agent: Agent) -> None:
    space = world.space()
    await agent.put(space, "t", 1)
    task = await claimed(agent, space)
    renew = pb.RenewRequest(
        namespace=space, key="t", fence=task.claim.fence, lease=span(60_000), call=agent.call(sequence=1)
    )
    first, again = [await world.api.renew(renew) for _ in range(2)]
    assert (first.replayed, again.replayed) == (False, True)
    assert again.record == first.record
    release = pb.ReleaseRequest(namespace=space, key="t", fence=task.claim.fence, call=agent.call(sequence=2))
    gone, still_gone = [await world.api.release(release) for _ in range(2)]
    assert (gone.replayed, still_gone.replayed) == (False, True)
    assert still_gone.head == gone.head


async def test_an_agent_that_waits_for_a_task_stays_alive(tmp_path: Path) -> None:
    async with local_server(tmp_path) as server:
        agent = await server.api.agent("a")
        waiting = asyncio.create_task(agent.claim("shared/s", wait_ms=60_000))
        for _ in range(5):
            await server.elapse(10_000)
        with refusal(Reason.AGENT_ACTIVE):
            await server.api.agent("a")
        other = await server.api.agent("b")
        await other.put("shared/s", "t", 1)
        assert await waiting is not None
