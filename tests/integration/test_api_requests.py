"""Request ids: a retry of an applied call is answered, not executed; over restarts too."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable

import pytest
from tests.support.api import Agent, counter, data, delete, merge, put
from tests.support.engine import LocalServer
from tests.support.meddling import meddle, once
from tests.support.statuses import refusal
from tests.support.worlds import World

from noosphere.consistency import Reason
from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1 import types_pb2 as types


@pytest.fixture
async def agent(world: World) -> Agent:
    return await world.agent()


@pytest.fixture(params=["sequence", "uuid"])
def call(request: pytest.FixtureRequest, agent: Agent) -> types.CallContext:
    return agent.call(sequence=1) if request.param == "sequence" else agent.call(uuid=str(uuid.uuid4()))


async def test_a_retried_put_is_answered_with_its_first_success(
    world: World, agent: Agent, call: types.CallContext
) -> None:
    space, other = world.space(), await world.agent("b")
    made = await agent.put(space, "k", 1, expected=0, call=call)
    moved = await other.put(space, "k", 2, context=made.context)
    again = await agent.put(space, "k", 1, expected=0, call=call)
    assert (made.replayed, again.replayed) == (False, True)
    again.replayed = False
    assert again == made
    assert (await agent.get(space, "k")).version == moved.version


async def test_a_retry_finds_itself_whatever_has_changed_since(
    world: World, agent: Agent, call: types.CallContext
) -> None:
    """A replay wins over every check but permission and the namespace's life."""
    space, other = world.space(), await world.agent("b")
    made = await agent.put(space, "k", 1, call=call)
    await other.delete(space, "k", blind=True, call=other.call(fences={"lock": 9}))
    await agent.ensure(space, types.NamespacePolicy(item_bytes_max=1, records_max=1))
    assert (await agent.put(space, "k", 1, call=call)).revision == made.revision
    await world.api.delete_namespace(space)
    with refusal(Reason.NAMESPACE_DELETED):
        await agent.put(space, "k", 1, call=call)


@pytest.mark.parametrize("verb", ["delete", "merge", "transact"])
async def test_every_kind_of_write_is_executed_once(
    world: World, agent: Agent, call: types.CallContext, verb: str
) -> None:
    space = world.space()
    await agent.put(space, "k", 1)
    writes: dict[str, Callable[[], Awaitable[types.Applied | pb.TransactApplied]]] = {
        "delete": lambda: agent.delete(space, "k", blind=True, call=call),
        "merge": lambda: agent.add(space, "n", 5, call=call),
        "transact": lambda: agent.transact(
            space, put("a", 1, expected=0), delete("k", blind=True), merge(counter("n", 5)), call=call
        ),
    }
    first = await writes[verb]()
    again = await writes[verb]()
    assert (first.replayed, again.replayed) == (False, True)
    assert first.revision == again.revision == (await world.api.get_namespace(space)).head
    if isinstance(first, pb.TransactApplied) and isinstance(again, pb.TransactApplied):
        assert [(r.version, r.context, r.merged) for r in first.results] == [
            (r.version, r.context, r.merged) for r in again.results
        ]
        assert data(await agent.get(space, "n")) == b"5"


async def test_the_remembered_answer_of_a_large_transaction_is_safe(
    world: World, agent: Agent, call: types.CallContext
) -> None:
    space, other = world.space(), await world.agent("b")
    await agent.ensure(space, types.NamespacePolicy(conflict_policy=types.CONFLICT_POLICY_SIBLINGS))
    base = await agent.put(space, "k00", 0)
    theirs = await other.put(space, "k00", 1, context=base.context)
    operations = [put(f"k{n:02}", 2, context=base.context) for n in range(64)]
    first = await agent.transact(space, *operations, call=call)
    again = await agent.transact(space, *operations, call=call)
    assert again.replayed
    assert len(again.results) == 64
    assert not again.results[0].HasField("version"), "the writer has still not read the sibling"
    for whole, kept in zip(first.results, again.results, strict=True):
        # What is kept may cover less than the first answer did, but never more.
        assert kept.context.prefix <= whole.context.prefix
        assert set(kept.context.extras) <= {*whole.context.extras, first.revision}
    applied = await agent.put(space, "k00", 3, context=again.results[0].context)
    assert not applied.HasField("version")
    assert theirs.revision in {value.dot for value in (await agent.get(space, "k00")).values}


async def test_a_failure_is_not_remembered(world: World, agent: Agent, call: types.CallContext) -> None:
    space = world.space()
    made = await agent.put(space, "k", 1)
    with refusal(Reason.VERSION_MISMATCH):
        await agent.put(space, "k", 2, expected=0, call=call)
    await agent.delete(space, "k", expected=made.version)
    assert not (await agent.put(space, "k", 2, expected=0, call=call)).replayed


async def test_another_request_under_the_same_id_is_refused(
    world: World, agent: Agent, call: types.CallContext
) -> None:
    space = world.space()
    await agent.put(space, "k", 1, call=call)
    others: list[Callable[[], Awaitable[object]]] = [
        lambda: agent.put(space, "k", 2, call=call),
        lambda: agent.put(space, "l", 1, call=call),
        lambda: agent.put(space, "k", 1, ttl_ms=1000, call=call),
        lambda: agent.put(space, "k", 1, attributes={"a": 1}, call=call),
        lambda: agent.put(space, "k", 1, blind=True, call=call),
        lambda: agent.delete(space, "k", call=call),
        lambda: agent.add(space, "k", call=call),
        lambda: agent.transact(space, put("k", 1), call=call),
        lambda: agent.claim(space, call=call),
    ]
    for other in others:
        with refusal(Reason.REQUEST_ID_REUSED):
            await other()


async def test_copies_of_a_call_at_the_same_time_execute_once(
    world: World, agent: Agent, call: types.CallContext
) -> None:
    space = world.space()
    replies = await asyncio.gather(*(agent.add(space, "n", 1, call=call) for _ in range(10)))
    assert len({reply.revision for reply in replies}) == 1
    assert sum(not reply.replayed for reply in replies) == 1
    assert data(await agent.get(space, "n")) == b"1"


async def test_an_id_belongs_to_its_namespace_and_its_caller(world: World, agent: Agent) -> None:
    one, two, other = world.space(), world.space(), await world.agent("b")
    for space in (one, two):
        for writer in (agent, other):
            applied = await writer.put(space, writer.name, 1, call=writer.call(sequence=1))
            assert not applied.replayed


async def test_a_late_copy_of_an_answered_call_does_not_execute(world: World, agent: Agent) -> None:
    space = world.space()
    await agent.add(space, "n", call=agent.call(sequence=1))
    await agent.add(space, "n", call=agent.call(sequence=2, answered=1))
    with refusal(Reason.REQUEST_ID_REUSED):
        await agent.add(space, "n", call=agent.call(sequence=1))
    assert data(await agent.get(space, "n")) == b"2"


async def test_a_client_may_leave_only_so_many_calls_unanswered(local: LocalServer) -> None:
    agent = await local.api.agent("a")
    space, limit = "shared/s", 1024
    await asyncio.gather(*(agent.add(space, "n", call=agent.call(sequence=n)) for n in range(1, limit + 1)))
    with refusal(Reason.LIMIT_EXCEEDED) as error:
        await agent.add(space, "n", call=agent.call(sequence=limit + 1))
    assert error.limit().limit == limit
    assert (await local.api.get_namespace(space)).request_count == limit
    await agent.add(space, "n", call=agent.call(sequence=limit + 1, answered=limit))
    assert (await local.api.get_namespace(space)).request_count == 1
    assert data(await agent.get(space, "n")) == b"%d" % (limit + 1)


async def test_a_uuid_is_remembered_for_two_minutes(local: LocalServer) -> None:
    agent = await local.api.agent("a")
    call = agent.call(uuid=str(uuid.uuid4()))
    await agent.add("shared/s", "n", call=call)
    await local.elapse(119_999)
    assert (await agent.add("shared/s", "n", call=call)).replayed
    await local.elapse(1)
    assert not (await agent.add("shared/s", "n", call=call)).replayed


@pytest.mark.parametrize("how", ["crash", "restart"])
async def test_a_retry_over_a_restart_finds_itself(local: LocalServer, how: str) -> None:
    agent = await local.api.agent("a")
    calls = [agent.call(sequence=1), agent.call(uuid=str(uuid.uuid4()))]
    first = [await agent.add("shared/s", "n", 1, call=call) for call in calls]
    await (local.crash() if how == "crash" else local.restart())
    survivor = Agent(local.api, agent.actor)
    again = [await survivor.add("shared/s", "n", 1, call=call) for call in calls]
    assert [(reply.revision, reply.replayed) for reply in again] == [(reply.revision, True) for reply in first]
    assert data(await survivor.get("shared/s", "n")) == b"2"


async def test_a_retry_of_a_call_that_was_lost_executes_anew(local: LocalServer) -> None:
    agent = await local.api.agent("a")
    await agent.add("shared/s", "n", 1, call=agent.call(sequence=1))
    image = local.image()
    call = agent.call(sequence=2)
    lost = await agent.add("shared/s", "n", 1, call=call)
    await local.crash(image)
    survivor = Agent(local.api, agent.actor)
    again = await survivor.add("shared/s", "n", 1, call=call)
    assert not again.replayed
    assert again.revision > lost.revision
    assert data(await survivor.get("shared/s", "n")) == b"2"


async def test_the_calls_of_an_ended_incarnation_are_forgotten(local: LocalServer) -> None:
    agent = await local.api.agent("a")
    await agent.add("shared/s", "n", call=agent.call(sequence=1))
    assert (await local.api.get_namespace("shared/s")).request_count == 1
    successor = await local.api.agent("a", takeover=True)
    assert (await local.api.get_namespace("shared/s")).request_count == 0
    assert not (await successor.add("shared/s", "n", call=successor.call(sequence=1))).replayed


async def test_a_restart_does_not_bring_the_memory_of_an_ended_incarnation_back(local: LocalServer) -> None:
    agent = await local.api.agent("a")
    call = agent.call(sequence=1)
    await agent.add("shared/s", "n", call=call)
    await local.restart()
    await local.api.agent("a", takeover=True)
    await local.crash()
    ended = Agent(local.api, agent.actor)
    for delta in (1, 2):
        with refusal(Reason.STALE_INCARNATION):
            await ended.add("shared/s", "n", delta, call=call)


async def test_an_id_needs_an_actor_for_its_sequence(world: World, agent: Agent) -> None:
    anonymous = types.CallContext()
    anonymous.request_id.sequence.sequence = 1
    with refusal(Reason.INVALID_FIELD):
        await agent.put(world.space(), "k", 1, call=anonymous)
    for sequence, answered in ((0, 0), (1, 1), (1, 2)):
        wrong = agent.call()
        wrong.request_id.sequence.sequence, wrong.request_id.sequence.answered_through = sequence, answered
        with refusal(Reason.INVALID_FIELD):
            await agent.put(world.space(), "k", 1, call=wrong)


@pytest.mark.parametrize("how", ["live", "crash"])
@pytest.mark.parametrize("verb", ["put", "merge", "transact"])
async def test_the_retry_of_an_erased_call_is_refused_and_not_executed(local: LocalServer, verb: str, how: str) -> None:
    """Its answer is gone, so it cannot be given; that it was applied is known, so nobody applies it again."""
    space, agent = "shared/erased", await local.api.agent("a")
    call = agent.call(uuid=str(uuid.uuid4()))

    async def act(agent: Agent) -> object:
        if verb == "put":
            return await agent.put(space, "k", 1, blind=True, call=call)
        if verb == "merge":
            return await agent.merge(space, counter("k", 1), call=call)
        return await agent.transact(space, put("k", 1, blind=True), call=call)

    await act(agent)
    version = (await agent.get(space, "k")).version
    core = local.engine.memory.core
    await core.store.erase(await core.locate(space))
    if how == "crash":
        await local.crash()
        agent = await local.api.agent("a")
    with refusal(Reason.REQUEST_ID_REUSED):
        await act(agent)
    assert (await agent.get(space, "k")).version == version


@pytest.mark.parametrize("erased", [False, True])
async def test_a_faster_call_under_the_same_id_is_not_taken_for_ones_own(local: LocalServer, erased: bool) -> None:
    """Between the look at what is remembered and the commit another call may come, and an erasure after it."""
    space, agent = "shared/raced", await local.api.agent("a")
    call = agent.call(uuid=str(uuid.uuid4()))
    core = local.engine.memory.core
    store = core.store

    async def faster() -> None:
        await agent.put(space, "k", "first", blind=True, call=call)
        if erased:
            await store.erase(await core.locate(space))

    meddle(local, once(faster))
    with refusal(Reason.REQUEST_ID_REUSED):
        await agent.put(space, "k", "first" if erased else "second", blind=True, call=call)
    assert data(await agent.get(space, "k")) == b'"first"'
