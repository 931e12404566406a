"""Transact: everything at one revision, or nothing."""

from __future__ import annotations

import pytest
from tests.support.api import SEEN_NOTHING, Agent, contents, counter, delete, merge, put
from tests.support.statuses import refusal
from tests.support.worlds import World

from noosphere.consistency import Reason
from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1 import types_pb2 as types


@pytest.fixture
async def agent(world: World) -> Agent:
    return await world.agent()


async def test_everything_lands_at_one_revision(world: World, agent: Agent) -> None:
    space = world.space()
    old = await agent.put(space, "old", 1)
    applied = await agent.transact(
        space,
        put("a", 1),
        put("b", 2, expected=0),
        delete("old", context=old.context),
        merge(counter("n", 2)),
        compares={"a": 0, "elsewhere": 0},
    )
    assert [result.revision for result in applied.results] == [applied.revision] * 4
    assert [result.version for result in applied.results] == [applied.revision, applied.revision, 0, applied.revision]
    assert contents(await agent.listing(space)) == {"a": b"1", "b": b"2", "n": b"2"}
    assert len({record.version for record in await agent.listing(space)}) == 1
    # Each result is an acknowledgement like that of a single write.
    await agent.put(space, "old", 2, context=applied.results[2].context)


async def test_a_compare_guards_a_key_that_is_not_written(world: World, agent: Agent) -> None:
    space, other = world.space(), await world.agent("b")
    goal = await agent.put(space, "goal", 1)
    await agent.transact(space, put("plan", 1), compares={"goal": goal.version})
    moved = await other.put(space, "goal", 2, context=goal.context)
    with refusal(Reason.VERSION_MISMATCH) as error:
        await agent.transact(space, put("plan", 2, blind=True), compares={"goal": goal.version})
    (failure,) = error.transaction().failures
    assert (failure.index, failure.is_operation, failure.key) == (0, False, "goal")
    assert (failure.reason, failure.version) == (Reason.VERSION_MISMATCH, moved.version)
    assert contents(await agent.listing(space)) == {"goal": b"2", "plan": b"1"}


async def test_every_failed_part_is_named_and_the_first_gives_the_reason(world: World, agent: Agent) -> None:
    space = world.space()
    made = await agent.put(space, "k", 1)
    await agent.put(space, "l", 1)
    with refusal(Reason.PRECONDITION_REQUIRED) as error:
        await agent.transact(
            space,
            put("new", 1),
            put("k", 2),
            delete("l", context=SEEN_NOTHING),
            put("m", 1, expected=made.version),
            compares={"k": made.version},
        )
    assert [(f.index, f.is_operation, f.key, f.reason) for f in error.transaction().failures] == [
        (1, True, "k", Reason.PRECONDITION_REQUIRED),
        (2, True, "l", Reason.CONFLICT),
        (3, True, "m", Reason.VERSION_MISMATCH),
    ]
    assert error.transaction().head == error.head == (await agent.get(space, "l")).version
    assert contents(await agent.listing(space)) == {"k": b"1", "l": b"1"}


async def test_return_current_brings_the_record_of_each_failed_part(world: World, agent: Agent) -> None:
    space = world.space()
    made = await agent.put(space, "k", 1)
    request = pb.TransactRequest(
        namespace=space,
        operations=[put("new", 1), put("k", 2)],
        compares=[pb.Compare(key="absent", expected_version=made.version)],
        return_current=True,
        call=agent.call(),
    )
    response = await world.api.transact(request)
    failures = response.not_applied.failures
    assert [(f.index, f.is_operation, f.detail.reason) for f in failures] == [
        (0, False, Reason.VERSION_MISMATCH),
        (1, True, Reason.PRECONDITION_REQUIRED),
    ]
    assert [f.detail.current.version for f in failures] == [0, made.version]
    assert response.head == made.revision


async def test_a_transaction_that_changes_nothing_takes_no_revision(world: World, agent: Agent) -> None:
    space = world.space()
    made = await agent.put(space, "k", 1)
    applied = await agent.transact(space, delete("absent"), delete("too", expected=0), compares={"k": made.version})
    assert applied.revision == 0
    assert [(r.revision, r.version, r.context.prefix) for r in applied.results] == [(0, 0, made.revision)] * 2
    assert (await world.api.get_namespace(space)).head == made.revision


async def test_a_delete_of_nothing_beside_a_write_is_acknowledged_like_a_read(world: World, agent: Agent) -> None:
    space = world.space()
    applied = await agent.transact(space, put("k", 1), delete("absent"))
    assert (applied.results[1].version, applied.results[1].context.prefix) == (0, applied.revision)
    await agent.put(space, "absent", 1, context=applied.results[1].context)


@pytest.mark.parametrize(
    ("operations", "compares", "reason"),
    [
        ([], {"k": 0}, Reason.INVALID_FIELD),
        ([put("k", 1), delete("k")], {}, Reason.INVALID_FIELD),
        ([pb.Operation()], {}, Reason.INVALID_FIELD),
        ([put("", 1)], {}, Reason.INVALID_FIELD),
        ([put("k", 1)], {"/": 0}, Reason.INVALID_FIELD),
        ([put("k", 1), put("big", "x" * 1024)], {}, Reason.VALUE_TOO_LARGE),
        ([put(f"k{n}", 1) for n in range(64)], {"k": 0}, Reason.VALUE_TOO_LARGE),
        ([put("k", 1)], {"k": 1 << 60}, Reason.FUTURE_REVISION),
    ],
)
async def test_a_malformed_transaction_writes_nothing(
    world: World, agent: Agent, operations: list[pb.Operation], compares: dict[str, int], reason: Reason
) -> None:
    space = world.space()
    with refusal(reason):
        await agent.transact(space, *operations, compares=compares)
    assert not await agent.listing(space)


async def test_a_transaction_has_a_size_limit(world: World, agent: Agent) -> None:
    space = world.space()
    await agent.ensure(space, types.NamespacePolicy(item_bytes_max=65_536))
    operations = [put(f"k{n}", "x" * 60_000) for n in range(5)]
    with refusal(Reason.VALUE_TOO_LARGE) as error:
        await agent.transact(space, *operations)
    assert error.limit().limit == 256 * 1024
    await agent.transact(space, *operations[:4])
    assert len(await agent.listing(space)) == 4


async def test_a_full_transaction_fits(world: World, agent: Agent) -> None:
    space = world.space()
    applied = await agent.transact(space, *(put(f"k{n}", 1) for n in range(64)))
    assert len(applied.results) == len(await agent.listing(space)) == 64
