"""Merge: operations that never conflict, whatever the policy."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.support.api import SEEN_NOTHING, Agent, counter, data, put
from tests.support.statuses import refusal
from tests.support.worlds import World

from noosphere.consistency import Reason
from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1 import types_pb2 as types


@pytest.fixture
async def agent(world: World) -> Agent:
    return await world.agent()


def set_update(
    add: tuple[str, ...] = (), remove: tuple[str, ...] = (), context: types.CausalContext | None = None
) -> pb.MergeOperation:
    return pb.MergeOperation(key="k", set_update=pb.SetUpdate(add=add, remove=remove, context=context))


async def read(agent: Agent, space: str, key: str = "k") -> Any:
    return json.loads(data(await agent.get(space, key)))


OPERATIONS = [
    pytest.param(pb.MergeOperation(key="k", counter_add=pb.CounterAdd(delta=2)), 2, 4, "COUNTER", id="counter"),
    pytest.param(set_update(add=("1", '"x"')), [1, "x"], [1, "x"], "SET", id="set"),
    pytest.param(pb.MergeOperation(key="k", max="5"), 5, 5, "MAX", id="max"),
    pytest.param(pb.MergeOperation(key="k", min="-5"), -5, -5, "MIN", id="min"),
    pytest.param(
        pb.MergeOperation(key="k", map_update=pb.MapUpdate(set={"a": "1"}, remove=["b"])),
        {"a": 1},
        {"a": 1},
        "MAP",
        id="map",
    ),
    pytest.param(
        pb.MergeOperation(key="k", log_append=pb.LogAppend(entries=["1", "2"])), [1, 2], [1, 2, 1, 2], "LOG", id="log"
    ),
]


@pytest.mark.parametrize(("operation", "once", "twice", "kind"), OPERATIONS)
async def test_an_operation_creates_the_record_and_applies_again(
    world: World, agent: Agent, operation: pb.MergeOperation, once: Any, twice: Any, kind: str
) -> None:
    space = world.space()
    applied = await agent.merge(space, operation)
    assert json.loads(applied.merged.data) == once
    assert applied.version == applied.revision
    again = await agent.merge(space, operation)
    assert json.loads(again.merged.data) == twice
    record = await agent.get(space, "k")
    assert json.loads(data(record)) == twice
    assert record.merge_type == types.MergeType.Value(f"MERGE_TYPE_{kind}")
    assert record.version == again.revision
    assert [c.kind for b in await agent.history(space) for c in b.changes] == [pb.CHANGE_KIND_MERGE] * 2


async def test_every_concurrent_addition_counts(world: World, agent: Agent) -> None:
    space, others = world.space(), [await world.agent(f"w{n}") for n in range(4)]
    await asyncio.gather(*(writer.add(space, "k", 1) for writer in (agent, *others) for _ in range(20)))
    assert await read(agent, space) == 100


async def test_a_counter_stays_within_its_limits(world: World, agent: Agent) -> None:
    space = world.space()
    await agent.add(space, "k", (1 << 63) - 1)
    with refusal(Reason.VALUE_TOO_LARGE):
        await agent.add(space, "k", 1)
    await agent.add(space, "k", -1)
    assert await read(agent, space) == (1 << 63) - 2


async def test_removal_drops_only_the_adds_that_were_seen(world: World, agent: Agent) -> None:
    space, other = world.space(), await world.agent("b")
    await agent.merge(space, set_update(add=("1", "2")))
    seen = await agent.get(space, "k")
    await other.merge(space, set_update(add=("1",)))
    await agent.merge(space, set_update(remove=("1", "2"), context=seen.context))
    assert await read(agent, space) == [1]
    await agent.merge(space, set_update(remove=("1",)))
    assert await read(agent, space) == []


async def test_a_log_keeps_the_newest_that_fit_and_counts_the_rest(world: World, agent: Agent) -> None:
    space = world.space()
    for n in range(5):
        applied = await agent.merge(
            space, pb.MergeOperation(key="k", log_append=pb.LogAppend(entries=[str(n)], entries_max=3))
        )
    assert await read(agent, space) == [2, 3, 4]
    assert applied.trimmed == 2
    long = json.dumps("x" * 400)
    for _ in range(3):
        applied = await agent.merge(space, pb.MergeOperation(key="l", log_append=pb.LogAppend(entries=[long])))
    assert len(await read(agent, space, "l")) == 2
    assert applied.trimmed == 1
    assert not applied.HasField("merged"), "only small values come with the reply"


async def test_a_type_stays_until_the_key_is_deleted(world: World, agent: Agent) -> None:
    space = world.space()
    await agent.add(space, "k")
    with refusal(Reason.MERGE_TYPE_MISMATCH):
        await agent.merge(space, set_update(add=("1",)))
    await agent.delete(space, "k", blind=True)
    await agent.merge(space, set_update(add=("1",)))
    assert await read(agent, space) == [1]
    await agent.put(space, "plain", 1)
    with refusal(Reason.MERGE_TYPE_MISMATCH):
        await agent.add(space, "plain")
    await agent.merge(space, pb.MergeOperation(key="m", max="1"))
    with refusal(Reason.MERGE_TYPE_MISMATCH):
        await agent.merge(space, pb.MergeOperation(key="m", max='"text"'))


async def test_a_plain_put_on_a_typed_record_needs_its_version_and_its_shape(world: World, agent: Agent) -> None:
    space = world.space()
    applied = await agent.add(space, "k", 5)
    for options in ({"blind": True}, {"context": applied.context}):
        with refusal(Reason.PRECONDITION_REQUIRED):
            await agent.put(space, "k", 1, **options)
    with refusal(Reason.MERGE_TYPE_MISMATCH):
        await agent.put(space, "k", "text", expected=applied.version)
    with refusal(Reason.MERGE_TYPE_MISMATCH):
        await agent.put(space, "k", b"1", expected=applied.version, encoding=types.ENCODING_BYTES)
    await agent.put(space, "k", 10, expected=applied.version)
    await agent.add(space, "k", 1)
    assert await read(agent, space) == 11


async def test_no_policy_makes_an_operation_conflict(world: World, agent: Agent) -> None:
    for policy in (types.CONFLICT_POLICY_REJECT, types.CONFLICT_POLICY_SIBLINGS):
        space, other = world.space(), await world.agent("b")
        await agent.ensure(space, types.NamespacePolicy(conflict_policy=policy))
        await agent.add(space, "k")
        await other.add(space, "k")
        assert len((await agent.get(space, "k")).values) == 1


async def test_an_operation_keeps_the_records_end_of_life_and_attributes(world: World, agent: Agent) -> None:
    space = world.space()
    made = await agent.add(space, "k", 1)
    await agent.put(space, "k", 2, expected=made.version, ttl_ms=60_000, attributes={"kind": "tally"})
    before = await agent.get(space, "k")
    await agent.add(space, "k", 1)
    after = await agent.get(space, "k")
    assert after.values[0].expire_time == before.values[0].expire_time
    assert after.attributes == before.attributes


@pytest.mark.parametrize(
    "operation",
    [
        pb.MergeOperation(key="k"),
        pb.MergeOperation(key="k", max="true"),
        pb.MergeOperation(key="k", min="[1]"),
        pb.MergeOperation(key="k", max="NaN"),
        pb.MergeOperation(key="k", map_update=pb.MapUpdate(set={"a": "{"})),
        pb.MergeOperation(key="k", log_append=pb.LogAppend(entries=["nope"])),
        set_update(add=("",)),
    ],
)
async def test_operands_are_checked(world: World, agent: Agent, operation: pb.MergeOperation) -> None:
    space = world.space()
    with refusal(Reason.INVALID_FIELD):
        await agent.merge(space, operation)
    assert not (await agent.get(space, "k")).values


async def test_a_result_that_does_not_fit_is_refused(world: World, agent: Agent) -> None:
    space = world.space()
    with refusal(Reason.VALUE_TOO_LARGE):
        await agent.merge(space, pb.MergeOperation(key="k", map_update=pb.MapUpdate(set={"a": json.dumps("x" * 1030)})))
    with refusal(Reason.VALUE_TOO_LARGE):
        await agent.merge(space, pb.MergeOperation(key="k", log_append=pb.LogAppend(entries=[json.dumps("x" * 1030)])))
    with refusal(Reason.VALUE_TOO_LARGE):
        await agent.merge(space, set_update(remove=("1",), context=types.CausalContext(extras=range(17))))


async def test_operations_take_part_in_transactions(world: World, agent: Agent) -> None:
    space = world.space()
    applied = await agent.transact(space, put("note", 1), pb.Operation(merge=counter("tally", 3)))
    assert applied.results[1].merged.data == b"3"
    assert (await agent.get(space, "tally")).version == applied.revision == (await agent.get(space, "note")).version
    with refusal(Reason.MERGE_TYPE_MISMATCH) as error:
        await agent.transact(space, put("note", 2, blind=True), pb.Operation(merge=set_update_of("tally")))
    assert [(f.index, f.is_operation, f.key) for f in error.transaction().failures] == [(1, True, "tally")]
    assert await read(agent, space, "note") == 1


async def test_a_context_of_nothing_removes_nothing(world: World, agent: Agent) -> None:
    space = world.space()
    await agent.merge(space, set_update(add=("1",)))
    await agent.merge(space, set_update(remove=("1",), context=SEEN_NOTHING))
    assert await read(agent, space) == [1]


def set_update_of(key: str) -> pb.MergeOperation:
    return pb.MergeOperation(key=key, set_update=pb.SetUpdate(add=["1"]))
