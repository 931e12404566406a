"""SIBLINGS end to end: what is kept, the queue in which it waits, how it is resolved, and what stays out of sight."""

from __future__ import annotations

import pytest
from tests.support.api import SEEN_NOTHING, Agent, contents, data, delete, put
from tests.support.causality import SIBLINGS, collide, conflicts, queue, reserve, resolve
from tests.support.statuses import refusal
from tests.support.watching import watching
from tests.support.worlds import World

from noosphere.consistency import Reason
from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1 import types_pb2 as types


@pytest.fixture
async def agent(world: World) -> Agent:
    return await world.agent("a")


@pytest.fixture
async def other(world: World) -> Agent:
    return await world.agent("b")


@pytest.fixture
async def space(world: World, agent: Agent) -> str:
    name = world.space()
    await agent.ensure(name, SIBLINGS)
    return name


# -- siblings ---------------------------------------------------------------------------------------


async def test_a_conflict_waits_until_somebody_resolves_it(space: str, agent: Agent, other: Agent) -> None:
    assert await queue(agent, space) == []
    record = await collide(space, "k", agent, other)
    (waiting,) = await conflicts(other, space)
    assert waiting.record == record
    assert [v.value.data for v in waiting.record.values] == [b"1", b"2"]
    assert waiting.since == record.values[1].dot, "it began with the second value"
    assert waiting.since_time == record.values[1].write_time
    resolved = await resolve(other, space, waiting.record, "both")
    assert resolved.head == resolved.applied.revision
    now = await agent.get(space, "k")
    assert (data(now), now.version, now.values[0].actor) == (b'"both"', resolved.applied.version, other.name)
    assert await queue(agent, space) == []
    await other.put(space, "k", 3, context=resolved.applied.context)
    assert data(await agent.get(space, "k")) == b"3"


async def test_a_third_value_does_not_queue_it_anew(space: str, agent: Agent, other: Agent) -> None:
    first = await collide(space, "k", agent, other)
    third = await agent.put(space, "k", 3, context=SEEN_NOTHING)
    (waiting,) = await conflicts(agent, space)
    assert waiting.since == first.values[1].dot
    assert [v.dot for v in waiting.record.values][-1] == third.revision


async def test_it_keeps_its_place_while_its_values_change(space: str, agent: Agent, other: Agent) -> None:
    first = await collide(space, "early", agent, other)
    await collide(space, "late", agent, other)
    # Replaces the first value and leaves the second, which it has not seen.
    replaced = types.CausalContext(prefix=first.values[0].dot)
    await agent.put(space, "early", 4, context=replaced)
    found = await conflicts(agent, space)
    assert (found[0].record.key, found[0].since) == ("early", first.values[1].dot)
    assert [v.value.data for v in found[0].record.values] == [b"2", b"4"]
    assert await queue(agent, space) == ["early", "late"]


async def test_whoever_saw_all_values_ends_the_conflict_by_an_ordinary_write(
    space: str, agent: Agent, other: Agent
) -> None:
    for how in ("put", "delete", "transact", "blind", "merge"):
        record = await collide(space, f"k/{how}", agent, other)
        assert await queue(agent, space) == [record.key]
        match how:
            case "put":
                await other.put(space, record.key, 9, context=record.context)
            case "delete":
                await other.delete(space, record.key, context=record.context)
            case "transact":
                await other.transact(space, put(record.key, 9, expected=record.version), put("k/more", 1, blind=True))
            case "blind":
                await other.put(space, record.key, 9, blind=True)
            case _:
                await other.delete(space, record.key, context=record.context)
                await other.add(space, record.key)
        assert await queue(agent, space) == []


async def test_an_observed_delete_leaves_what_was_not_seen(space: str, agent: Agent, other: Agent) -> None:
    record = await collide(space, "k", agent, other, agent)
    await other.delete(space, "k", context=types.CausalContext(prefix=record.values[0].dot))
    (waiting,) = await conflicts(agent, space)
    assert [v.value.data for v in waiting.record.values] == [b"2", b"3"]
    await other.delete(space, "k", context=types.CausalContext(prefix=record.values[1].dot))
    assert await queue(agent, space) == []
    assert data(await agent.get(space, "k")) == b"3"


async def test_an_unseen_delete_is_reported_and_the_value_lives(space: str, agent: Agent, other: Agent) -> None:
    made = await agent.put(space, "k", 1)
    await other.delete(space, "k", context=made.context)
    undone = await agent.put(space, "k", 2, context=made.context)
    assert undone.concurrent_delete
    assert undone.version == undone.revision
    assert data(await other.get(space, "k")) == b"2"
    assert await queue(agent, space) == []


async def test_nothing_is_dropped_at_the_limit(space: str, agent: Agent, other: Agent) -> None:
    record = await collide(space, "k", *[agent, other] * 8)
    assert len(record.values) == 16
    with refusal(Reason.SIBLING_LIMIT):
        await agent.put(space, "k", 17, context=SEEN_NOTHING)
    with refusal(Reason.SIBLING_LIMIT):
        await agent.transact(space, put("k", 17, context=SEEN_NOTHING))
    assert await agent.get(space, "k") == record
    # Having seen one makes room for one.
    await agent.put(space, "k", 17, context=types.CausalContext(prefix=record.values[0].dot))
    assert len((await agent.get(space, "k")).values) == 16
    assert await queue(agent, space) == ["k"]


async def test_several_conflicts_of_one_commit_wait_in_its_order(space: str, agent: Agent, other: Agent) -> None:
    keys = [f"k{number:02}" for number in range(20)]
    await agent.transact(space, *(put(key, 1) for key in keys))
    applied = await other.transact(space, *(put(key, 2, context=SEEN_NOTHING) for key in reversed(keys)))
    found = await conflicts(agent, space)
    assert [c.record.key for c in found] == keys[::-1]
    assert {c.since for c in found} == {applied.revision}
    # One commit ends some and begins others.
    records = await agent.listing(space)
    await agent.put(space, "new", 1)
    operations = [delete(r.key, context=r.context) for r in records[:10]]
    await agent.transact(
        space, *operations, put("new", 2, context=SEEN_NOTHING), put(keys[10], 3, context=SEEN_NOTHING)
    )
    assert await queue(agent, space) == [*keys[:9:-1], "new"]


# -- the queue --------------------------------------------------------------------------------------


async def test_the_longest_waiting_comes_first_and_pages_go_on_from_there(
    space: str, agent: Agent, other: Agent
) -> None:
    keys = ["z", "plan/b", "a", "plan/a", "plan/deep/c"]
    for key in keys:
        await collide(space, key, agent, other)
    assert await queue(agent, space) == keys
    for size in (1, 2, 4, 5):
        assert await queue(agent, space, page_size=size) == keys
    assert await queue(agent, space, "plan/", page_size=1) == ["plan/b", "plan/a", "plan/deep/c"]
    assert await queue(agent, space, "plan/deep/") == ["plan/deep/c"]
    assert await queue(agent, space, "none/") == []
    since = [c.since for c in await conflicts(agent, space)]
    assert since == sorted(since)


async def test_a_queue_that_changes_between_two_pages_shows_each_conflict_once(
    space: str, agent: Agent, other: Agent
) -> None:
    records = [await collide(space, f"k{number}", agent, other) for number in range(4)]
    request = pb.ListConflictsRequest(namespace=space, page_size=2, call=agent.call())
    first = await agent.api.list_conflicts(request)
    assert [c.record.key for c in first.conflicts] == ["k0", "k1"]
    await resolve(agent, space, records[1], "done")
    await resolve(agent, space, records[2], "done")
    again = await agent.get(space, "k0")
    await resolve(agent, space, again, "done")
    await collide(space, "k0", agent, other)
    request.page_token = first.next_page_token
    second = await agent.api.list_conflicts(request)
    assert [c.record.key for c in second.conflicts] == ["k3", "k0"], "what began anew waits at the end"
    assert not second.next_page_token
    assert second.head == (await agent.get(space, "k0")).version


async def test_the_queue_is_asked_for_in_proper_form(world: World, space: str, agent: Agent, other: Agent) -> None:
    for wrong in (
        pb.ListConflictsRequest(namespace=space, page_size=-1),
        pb.ListConflictsRequest(namespace=space, page_size=1001),
        pb.ListConflictsRequest(namespace=space, collection="plan"),
    ):
        with refusal(Reason.INVALID_FIELD):
            await agent.api.list_conflicts(wrong)
    with refusal(Reason.INVALID_PAGE_TOKEN):
        await agent.api.list_conflicts(pb.ListConflictsRequest(namespace=space, page_token="ab"))
    for number in range(2):
        await collide(space, f"k{number}", agent, other)
    first = await agent.api.list_conflicts(pb.ListConflictsRequest(namespace=space, page_size=1))
    with refusal(Reason.INVALID_PAGE_TOKEN):
        await agent.api.list_conflicts(
            pb.ListConflictsRequest(namespace=space, collection="k/", page_token=first.next_page_token)
        )
    await agent.api.delete_namespace(space)
    with refusal(Reason.NAMESPACE_DELETED):
        await agent.api.list_conflicts(pb.ListConflictsRequest(namespace=space))
    await agent.ensure(space, SIBLINGS)
    assert await queue(agent, space) == []
    assert await queue(agent, world.space("never")) == []


# -- resolving --------------------------------------------------------------------------------------


async def test_one_of_the_values_can_be_kept(space: str, agent: Agent, other: Agent) -> None:
    record = await collide(space, "k", agent, other, agent)
    kept = record.values[1]
    resolved = await resolve(agent, space, record, keep=kept.dot)
    (value,) = (await agent.get(space, "k")).values
    assert (value.value, value.dot, value.actor) == (kept.value, resolved.applied.revision, agent.name)
    assert await queue(agent, space) == []


async def test_a_kept_value_keeps_its_form_its_end_and_the_records_attributes(
    space: str, agent: Agent, other: Agent
) -> None:
    await other.put(space, "k", 1, context=SEEN_NOTHING)
    await agent.put(
        space, "k", b"\x00raw", context=SEEN_NOTHING, encoding=types.ENCODING_BYTES, ttl_ms=60_000, attributes={"n": 1}
    )
    record = await agent.get(space, "k")
    await resolve(other, space, record, keep=record.values[1].dot)
    now = await agent.get(space, "k")
    assert now.values[0].value == record.values[1].value
    assert now.values[0].expire_time == record.values[1].expire_time
    assert now.attributes == record.attributes


async def test_a_conflict_can_end_in_a_delete(space: str, agent: Agent, other: Agent) -> None:
    record = await collide(space, "k", agent, other)
    resolved = await resolve(agent, space, record)
    assert (resolved.applied.version, (await agent.get(space, "k")).version) == (0, 0)
    assert await queue(agent, space) == []


async def test_a_value_that_the_resolver_has_not_seen_stays(space: str, agent: Agent, other: Agent) -> None:
    record = await collide(space, "k", agent, other)
    late = await other.put(space, "k", 3, context=SEEN_NOTHING)
    for attempt in ({"value": "x"}, {"keep": record.values[0].dot}, {}):
        with refusal(Reason.CONFLICT) as error:
            await resolve(agent, space, record, **attempt)
        assert [dot.dot for dot in error.conflict().unseen] == [late.revision]
    assert len((await agent.get(space, "k")).values) == 3
    assert await queue(agent, space) == ["k"]


async def test_what_is_no_conflict_cannot_be_resolved(space: str, agent: Agent, other: Agent) -> None:
    absent = await agent.get(space, "k")
    with refusal(Reason.NO_CONFLICT):
        await resolve(agent, space, absent, "x")
    await agent.put(space, "k", 1)
    with refusal(Reason.NO_CONFLICT) as error:
        await resolve(agent, space, await agent.get(space, "k"), "x")
    assert "1 live values" in error.message
    record = await collide(space, "k", agent, other)
    await resolve(agent, space, record, "first")
    with refusal(Reason.NO_CONFLICT):
        await resolve(other, space, record, "second")
    assert data(await agent.get(space, "k")) == b'"first"'


async def test_a_resolution_is_checked_like_any_write(space: str, agent: Agent, other: Agent) -> None:
    record = await collide(space, "k", agent, other)
    with refusal(Reason.INVALID_FIELD) as error:
        await resolve(agent, space, record, keep=record.values[1].dot + 1)
    assert "resolution.keep_dot" in error.message
    with refusal(Reason.VALUE_TOO_LARGE):
        await resolve(agent, space, record, "x" * 2_000)
    request = pb.ResolveConflictRequest(namespace=space, key="k", context=record.context, call=agent.call())
    with refusal(Reason.INVALID_FIELD) as error:
        await agent.api.resolve_conflict(request)
    assert "resolution" in error.message
    request.delete = True
    request.ClearField("context")
    with refusal(Reason.INVALID_FIELD) as error:
        await agent.api.resolve_conflict(request)
    assert "context" in error.message
    request.context.prefix = record.version + 1
    with refusal(Reason.FUTURE_REVISION):
        await agent.api.resolve_conflict(request)
    request.context.prefix = record.version
    request.ClearField("call")
    with refusal(Reason.INVALID_FIELD):
        await agent.api.resolve_conflict(request)
    request.key = "\0conflicts/"
    request.call.CopyFrom(agent.call())
    with refusal(Reason.INVALID_FIELD):
        await agent.api.resolve_conflict(request)
    assert await agent.get(space, "k") == record


async def test_a_retry_of_a_resolution_is_answered_once_more(space: str, agent: Agent, other: Agent) -> None:
    record = await collide(space, "k", agent, other)
    call = agent.call(sequence=1)
    first = await resolve(agent, space, record, "done", call=call)
    await collide(space, "k", other, agent)
    again = await resolve(agent, space, record, "done", call=call)
    assert (again.applied.revision, again.applied.version) == (first.applied.revision, first.applied.version)
    assert (first.applied.replayed, again.applied.replayed) == (False, True)
    assert len((await agent.get(space, "k")).values) == 3
    with refusal(Reason.REQUEST_ID_REUSED):
        await resolve(agent, space, record, "else", call=call)


async def test_a_task_with_several_values_is_nobodys_until_it_is_resolved(
    space: str, agent: Agent, other: Agent
) -> None:
    record = await collide(space, "t/1", agent, other)
    assert await agent.claim(space, "t/") is None
    await resolve(agent, space, record, "task")
    task = await agent.claim(space, "t/")
    assert task is not None
    # Whoever holds it may go on while others disagree about it.
    await other.put(space, "t/1", 5, context=SEEN_NOTHING)
    assert await queue(agent, space) == ["t/1"]
    await agent.renew(space, task)
    assert await queue(agent, space) == ["t/1"]
    await agent.complete(space, task)
    assert await queue(agent, space) == ["t/1"]


# -- out of sight -----------------------------------------------------------------------------------


async def test_nobody_sees_the_records_that_the_services_keep(space: str, agent: Agent, other: Agent) -> None:
    await collide(space, "k", agent, other)
    await reserve(agent, space, "k")
    assert [r.key for r in await agent.listing(space)] == ["k"]
    assert [r.key for r in await agent.listing(space, reverse=True)] == ["k"]
    assert [r.key for r in await agent.listing(space, page_size=1)] == ["k"]
    assert contents(await agent.listing(space, where={"n": types.Scalar(int_value=1)})) == {}
    assert await agent.listing(space, claimed_only=True) == []
    assert {c.key for batch in await agent.history(space) for c in batch.changes} == {"k"}
    async with watching(agent, space, snapshot=True) as watch:
        pages = await watch.snapshot()
        assert [r.key for page in pages for r in page.records] == ["k"]
        await resolve(agent, space, await agent.get(space, "k"), "done")
        assert [c.key for c in (await watch.batch()).changes] == ["k"]
    assert await agent.claim(space) is not None, "the only task there is"
    assert await agent.claim(space) is None
    info = await agent.api.get_namespace(space)
    assert info.record_count == 1
    assert (await agent.api.delete_namespace(space)).record_count == 1


@pytest.mark.parametrize("key", ["\0conflicts/0", "\0reservations/k", "\0"], ids=repr)
async def test_nobody_reaches_them_by_any_name(space: str, agent: Agent, other: Agent, key: str) -> None:
    await collide(space, "k", agent, other)
    for call in (
        lambda: agent.get(space, key),
        lambda: agent.put(space, key, 1, blind=True),
        lambda: agent.delete(space, key, blind=True),
        lambda: agent.add(space, key),
        lambda: agent.transact(space, put("x", 1), compares={key: 0}),
        lambda: agent.api.batch_get(pb.BatchGetRequest(namespace=space, keys=["k", key])),
        lambda: agent.history(space, key),
        lambda: agent.listing(space, key + "/"),
        lambda: agent.claim(space, key + "/"),
        lambda: conflicts(agent, space, key + "/"),
        lambda: reserve(agent, space, key),
    ):
        with refusal(Reason.INVALID_FIELD):
            await call()
    assert await queue(agent, space) == ["k"]


async def test_the_queue_takes_no_room_from_its_users(world: World, agent: Agent, other: Agent) -> None:
    space = world.space()
    await agent.ensure(space, types.NamespacePolicy(conflict_policy=types.CONFLICT_POLICY_SIBLINGS, records_max=3))
    for key in ("a", "b", "c"):
        await collide(space, key, agent, other)
    with refusal(Reason.LIMIT_EXCEEDED) as error:
        await agent.put(space, "d", 1)
    assert (error.limit().actual, error.limit().limit) == (4, 3)
