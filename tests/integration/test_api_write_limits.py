"""Writes: how long values live, what form they must have and how large they may be, and under which fences."""

from __future__ import annotations

import pytest
from tests.support.api import Agent, data, put_op, span
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


# -- time to live ----------------------------------------------------------------------------------


async def test_a_value_ends_at_its_time(world: World, agent: Agent) -> None:
    space = world.space()
    applied = await agent.put(space, "k", 1, ttl_ms=80)
    (value,) = (await agent.get(space, "k")).values
    assert value.expire_time.ToMilliseconds() == value.write_time.ToMilliseconds() + 80
    await world.elapse(80)
    record = await agent.get(space, "k")
    assert (record.version, len(record.values)) == (0, 0)
    with refusal(Reason.VERSION_MISMATCH):
        await agent.put(space, "k", 2, expected=applied.version)
    # Whoever had read the value still covers its end: nobody else has written since.
    await agent.put(space, "k", 2, context=applied.context)


async def test_a_put_over_an_expired_value_tells_both_in_one_revision(world: World, agent: Agent) -> None:
    space = world.space()
    await agent.put(space, "k", 1, ttl_ms=30)
    await world.elapse(30)
    applied = await agent.put(space, "k", 2)
    changes = [(b.revision, c) for b in await agent.history(space) for c in b.changes]
    kinds = [change.kind for _, change in changes]
    assert kinds == [pb.CHANGE_KIND_PUT, pb.CHANGE_KIND_EXPIRE, pb.CHANGE_KIND_PUT]
    assert not changes[1][1].HasField("record")
    assert changes[2][0] == applied.revision


@pytest.mark.parametrize("ttl_ms", [0, -1, 101 * 365 * 24 * 3600 * 1000])
async def test_a_time_to_live_must_make_sense(world: World, agent: Agent, ttl_ms: int) -> None:
    with refusal(Reason.INVALID_FIELD):
        await agent.put(world.space(), "k", 1, ttl_ms=ttl_ms)


async def test_an_end_in_the_past_is_refused(world: World, agent: Agent) -> None:
    space, now = world.space(), (await world.api.info()).store_time
    put = put_op("k", 1)
    put.expire_time.CopyFrom(now)
    with refusal(Reason.INVALID_FIELD):
        await world.api.put(pb.PutRequest(namespace=space, put=put, call=agent.call()))
    put.expire_time.FromMilliseconds(now.ToMilliseconds() + 60_000)
    await world.api.put(pb.PutRequest(namespace=space, put=put, call=agent.call()))
    (value,) = (await agent.get(space, "k")).values
    assert value.expire_time == put.expire_time


# -- form and limits -------------------------------------------------------------------------------


async def test_an_item_has_a_limit_that_the_namespace_sets(world: World, agent: Agent) -> None:
    space = world.space()
    await agent.put(space, "fits", b'"' + b"x" * 1022 + b'"')
    with refusal(Reason.VALUE_TOO_LARGE) as error:
        await agent.put(space, "k", b'"' + b"x" * 1023 + b'"')
    assert (error.limit().actual, error.limit().limit) == (1025, 1024)
    await agent.ensure(space, types.NamespacePolicy(item_bytes_max=65_536))
    await agent.put(space, "k", b"x" * 65_536, encoding=types.ENCODING_BYTES)
    with refusal(Reason.VALUE_TOO_LARGE):
        await agent.put(space, "l", b"x" * 65_537, encoding=types.ENCODING_BYTES)


@pytest.mark.parametrize(
    "value", [b"", b"{", b"nope", b"NaN", b"1e999", b'"\xff"', b'"\\ud800"', b"[1,]", b"1 2", b"\xef\xbb\xbf1"]
)
async def test_json_is_checked(world: World, agent: Agent, value: bytes) -> None:
    with refusal(Reason.INVALID_FIELD):
        await agent.put(world.space(), "k", value)


async def test_json_nests_only_so_deep_that_everybody_can_read_it(world: World, agent: Agent) -> None:
    space = world.space()
    await agent.put(space, "k", b"[" * 128 + b"]" * 128)
    with refusal(Reason.VALUE_TOO_LARGE):
        await agent.put(space, "l", b"[" * 129 + b"]" * 129)


async def test_malformed_writes_are_refused_by_field(world: World, agent: Agent) -> None:
    space = world.space()
    good = put_op("k", 1)
    wrong = {
        "namespace": pb.PutRequest(namespace="plan", put=good, call=agent.call()),
        "call.actor": pb.PutRequest(namespace=space, put=good),
        "key": pb.PutRequest(namespace=space, put=put_op("", 1), call=agent.call()),
        "put.value.encoding": pb.PutRequest(namespace=space, put=pb.PutOperation(key="k"), call=agent.call()),
        "call.request_id.uuid": pb.PutRequest(namespace=space, put=good, call=agent.call(uuid="no uuid")),
        "call.request_id.sequence": pb.PutRequest(namespace=space, put=good, call=agent.call(sequence=2, answered=2)),
        "put.attributes": pb.PutRequest(
            namespace=space, put=put_op("k", 1, attributes={"x": float("nan")}), call=agent.call()
        ),
    }
    for field, request in wrong.items():
        with refusal(Reason.INVALID_FIELD) as error:
            await world.api.put(request)
        assert field in error.message, f"{error.message!r} should name {field}"


@pytest.mark.parametrize("key", ["/a", "a/", "a//b", "a\x00b", "\x7f"])
async def test_a_key_is_text_without_control_characters_and_empty_segments(
    world: World, agent: Agent, key: str
) -> None:
    with refusal(Reason.INVALID_FIELD):
        await agent.put(world.space(), key, 1)


async def test_sizes_are_limited_and_say_how(world: World, agent: Agent) -> None:
    space = world.space()
    wrong = [
        (put_op("k" * 513, 1), 513, 512),
        (put_op("/".join("123456789x"), 1), 9, 8),
        (put_op("k", 1, attributes={f"a{n}": 1 for n in range(17)}), 17, 16),
        (put_op("k", 1, attributes={"n" * 65: 1}), 65, 64),
        (put_op("k", 1, attributes={"n": "x" * 257}), 257, 256),
        (put_op("k", 1, context=types.CausalContext(extras=range(17))), 17, 16),
    ]
    for put, actual, limit in wrong:
        with refusal(Reason.VALUE_TOO_LARGE) as error:
            await world.api.put(pb.PutRequest(namespace=space, put=put, call=agent.call()))
        assert (error.limit().actual, error.limit().limit) == (actual, limit)
    with refusal(Reason.VALUE_TOO_LARGE):
        await agent.put(space, "k", 1, call=agent.call(fences={f"lock-{n}": 1 for n in range(9)}))


async def test_a_namespace_holds_only_so_many_records(world: World, agent: Agent) -> None:
    space = world.space()
    await agent.ensure(space, types.NamespacePolicy(records_max=2))
    await agent.put(space, "a", 1)
    await agent.put(space, "b", 1)
    with refusal(Reason.LIMIT_EXCEEDED) as error:
        await agent.put(space, "c", 1)
    assert (error.limit().actual, error.limit().limit) == (3, 2)
    await agent.put(space, "b", 2, blind=True)


async def test_a_revision_that_was_never_issued_is_refused(world: World, agent: Agent) -> None:
    space = world.space()
    made = await agent.put(space, "k", 1)
    future = made.revision + 1
    with refusal(Reason.FUTURE_REVISION) as error:
        await agent.put(space, "k", 2, expected=future)
    assert error.log_range().requested == future
    with refusal(Reason.FUTURE_REVISION):
        await agent.put(space, "k", 2, context=types.CausalContext(prefix=future))
    with refusal(Reason.FUTURE_REVISION):
        await agent.delete(space, "k", context=types.CausalContext(prefix=made.revision, extras=[future]))


async def test_a_fence_lets_nobody_in_behind_a_later_holder(world: World, agent: Agent, other: Agent) -> None:
    space = world.space()
    await agent.put(space, "k", 1, call=agent.call(fences={"lock": 7}))
    await other.put(space, "k", 2, blind=True, call=other.call(fences={"lock": 8, "more": 1}))
    with refusal(Reason.STALE_FENCE):
        await agent.put(space, "k", 3, blind=True, call=agent.call(fences={"lock": 7}))
    with refusal(Reason.STALE_FENCE):
        await agent.delete(space, "k", blind=True, call=agent.call(fences={"more": 1, "lock": 7}))
    await other.put(space, "k", 4, blind=True, call=other.call(fences={"lock": 8}))
    await agent.put(world.space(), "k", 1, call=agent.call(fences={"lock": 1}))
    assert data(await agent.get(space, "k")) == b"4"


async def test_a_claimable_record_keeps_its_claim_through_a_put(world: World, agent: Agent, other: Agent) -> None:
    space = world.space()
    await agent.put(space, "t", 1)
    task = await agent.claim(space)
    assert task is not None
    await other.put(space, "t", 2, expected=task.version)
    assert (await agent.complete(space, task)).record.claim.done
    renewable = await agent.put(space, "u", 1)
    claimed = await agent.claim(space)
    assert claimed is not None
    assert claimed.key == "u"
    await other.delete(space, "u", blind=True)
    with refusal(Reason.CLAIM_LOST):
        await agent.renew(space, claimed, lease_ms=span(1000).ToMilliseconds())
    assert renewable.revision < claimed.version
