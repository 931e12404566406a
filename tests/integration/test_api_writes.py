"""Put and Delete: the table of preconditions, the three policies, and what an acknowledgement allows."""

from __future__ import annotations

import pytest
from tests.support.api import SEEN_NOTHING, Agent, data, put_op, span
from tests.support.statuses import refusal
from tests.support.worlds import World

from noosphere.consistency import Reason
from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1 import types_pb2 as types

SIBLINGS = types.NamespacePolicy(conflict_policy=types.CONFLICT_POLICY_SIBLINGS)
LAST_WRITER_WINS = types.NamespacePolicy(conflict_policy=types.CONFLICT_POLICY_LAST_WRITER_WINS)


@pytest.fixture
async def agent(world: World) -> Agent:
    return await world.agent()


@pytest.fixture
async def other(world: World) -> Agent:
    return await world.agent("b")


# -- expected version ------------------------------------------------------------------------------


async def test_expected_version_is_the_optimistic_lock(world: World, agent: Agent, other: Agent) -> None:
    space = world.space()
    first = await agent.put(space, "k", 1, expected=0)
    second = await other.put(space, "k", 2, expected=first.version)
    with refusal(Reason.VERSION_MISMATCH) as error:
        await agent.put(space, "k", 3, expected=first.version)
    detail = error.conflict()
    assert (detail.namespace, detail.key, detail.version) == (space, "k", second.version)
    assert error.head == second.revision
    with refusal(Reason.VERSION_MISMATCH):
        await agent.put(space, "k", 3, expected=0)
    assert data(await agent.get(space, "k")) == b"2"


async def test_expected_version_zero_means_no_live_value(world: World, agent: Agent) -> None:
    space = world.space()
    await agent.put(space, "deleted", 1)
    await agent.delete(space, "deleted", blind=True)
    await agent.put(space, "expires", 1, ttl_ms=30)
    await world.elapse(30)
    for key in ("never there", "deleted", "expires"):
        await agent.put(space, key, 2, expected=0)
        with refusal(Reason.VERSION_MISMATCH):
            await agent.put(space, key, 3, expected=0)


async def test_delete_checks_the_expected_version_before_it_finds_nothing_to_do(world: World, agent: Agent) -> None:
    space = world.space()
    made = await agent.put(space, "k", 1)
    await agent.delete(space, "k", expected=made.version)
    with refusal(Reason.VERSION_MISMATCH):
        await agent.delete(space, "k", expected=made.version)
    nothing = await agent.delete(space, "k", expected=0)
    assert (nothing.revision, nothing.version) == (0, 0)


async def test_version_and_context_must_both_hold(world: World, agent: Agent, other: Agent) -> None:
    space = world.space()
    await agent.ensure(space, SIBLINGS)
    made = await agent.put(space, "k", 1)
    newer = await other.put(space, "k", 2, context=made.context)
    with refusal(Reason.CONFLICT) as error:
        # The version is right, so somebody read it; the context says that it was not this writer.
        await agent.put(space, "k", 3, expected=newer.version, context=made.context)
    assert [dot.dot for dot in error.conflict().unseen] == [newer.revision]
    with refusal(Reason.VERSION_MISMATCH):
        await agent.put(space, "k", 3, expected=made.version, context=newer.context)
    await agent.put(space, "k", 3, expected=newer.version, context=newer.context)


# -- neither version nor context -------------------------------------------------------------------


async def test_nobody_overwrites_by_accident_what_they_never_read(world: World, agent: Agent, other: Agent) -> None:
    space = world.space()
    made = await agent.put(space, "k", 1)
    with refusal(Reason.PRECONDITION_REQUIRED) as error:
        await other.put(space, "k", 2)
    assert [(dot.dot, dot.actor, dot.deleted) for dot in error.conflict().unseen] == [
        (made.revision, agent.name, False)
    ]
    with refusal(Reason.PRECONDITION_REQUIRED):
        await other.delete(space, "k")
    await agent.delete(space, "k", context=made.context)
    await other.put(space, "k", 3)


async def test_a_blind_write_says_what_it_overwrote(world: World, agent: Agent, other: Agent) -> None:
    space = world.space()
    made = await agent.put(space, "k", 1)
    applied = await other.put(space, "k", 2, blind=True)
    assert [(dot.dot, dot.actor) for dot in applied.overwritten] == [(made.revision, agent.name)]
    gone = await agent.delete(space, "k", blind=True)
    assert [(dot.dot, dot.actor) for dot in gone.overwritten] == [(applied.revision, other.name)]
    assert not (await agent.put(space, "k", 3, blind=True)).overwritten


async def test_blind_excludes_any_other_condition(world: World, agent: Agent) -> None:
    space = world.space()
    with refusal(Reason.INVALID_FIELD):
        await agent.put(space, "k", 1, blind=True, expected=0)
    with refusal(Reason.INVALID_FIELD):
        await agent.delete(space, "k", blind=True, context=SEEN_NOTHING)


# -- REJECT ----------------------------------------------------------------------------------------


async def test_reject_refuses_what_did_not_see_the_newest(world: World, agent: Agent, other: Agent) -> None:
    space = world.space()
    made = await agent.put(space, "k", 1)
    second = await other.put(space, "k", 2, context=made.context)
    third = await other.put(space, "k", 3, context=second.context)
    with refusal(Reason.CONFLICT) as error:
        await agent.put(space, "k", 4, context=made.context)
    detail = error.conflict()
    assert [(dot.dot, dot.actor, dot.deleted) for dot in detail.unseen] == [(third.revision, other.name, False)]
    assert detail.version == third.version
    with refusal(Reason.CONFLICT):
        await agent.delete(space, "k", context=made.context)
    read = await agent.get(space, "k")
    await agent.delete(space, "k", context=read.context)


async def test_reject_refuses_to_undo_a_delete_that_nobody_saw(world: World, agent: Agent, other: Agent) -> None:
    space = world.space()
    made = await agent.put(space, "k", 1)
    gone = await other.delete(space, "k", context=made.context)
    with refusal(Reason.CONFLICT) as error:
        await agent.put(space, "k", 2, context=made.context)
    assert [(dot.dot, dot.deleted) for dot in error.conflict().unseen] == [(gone.revision, True)]
    assert error.conflict().version == 0
    nothing = await agent.delete(space, "k", context=made.context)
    assert nothing.revision == 0


async def test_a_context_that_covers_nothing_is_no_licence(world: World, agent: Agent, other: Agent) -> None:
    space = world.space()
    await agent.put(space, "k", 1, context=SEEN_NOTHING)
    with refusal(Reason.CONFLICT):
        await other.put(space, "k", 2, context=SEEN_NOTHING)


# -- SIBLINGS --------------------------------------------------------------------------------------


async def test_siblings_keeps_what_the_writer_had_not_seen(world: World, agent: Agent, other: Agent) -> None:
    space = world.space()
    await agent.ensure(space, SIBLINGS)
    base = await agent.put(space, "k", "base")
    mine = await agent.put(space, "k", "mine", context=base.context)
    theirs = await other.put(space, "k", "theirs", context=base.context)
    assert not theirs.HasField("version"), "a version would let the writer replace what it never read"
    record = await agent.get(space, "k")
    assert [(v.dot, v.actor, v.value.data) for v in record.values] == [
        (mine.revision, agent.name, b'"mine"'),
        (theirs.revision, other.name, b'"theirs"'),
    ]
    assert record.version == theirs.revision
    resolved = await agent.put(space, "k", "both", context=record.context)
    assert resolved.version == resolved.revision
    assert data(await agent.get(space, "k")) == b'"both"'


async def test_an_unseen_delete_is_reported_and_the_value_lives(world: World, agent: Agent, other: Agent) -> None:
    space = world.space()
    await agent.ensure(space, SIBLINGS)
    base = await agent.put(space, "k", "base")
    await other.delete(space, "k", context=base.context)
    applied = await agent.put(space, "k", "mine", context=base.context)
    assert applied.concurrent_delete
    assert data(await agent.get(space, "k")) == b'"mine"'


async def test_delete_removes_only_what_it_observed(world: World, agent: Agent, other: Agent) -> None:
    space = world.space()
    await agent.ensure(space, SIBLINGS)
    base = await agent.put(space, "k", "base")
    await other.put(space, "k", "theirs", context=base.context)
    applied = await agent.delete(space, "k", context=base.context)
    assert applied.revision
    assert data(await agent.get(space, "k")) == b'"theirs"'


async def test_expected_version_replaces_all_siblings(world: World, agent: Agent, other: Agent) -> None:
    space = world.space()
    await agent.ensure(space, SIBLINGS)
    base = await agent.put(space, "k", "base")
    for writer in (agent, other):
        await writer.put(space, "k", "more", context=base.context)
    record = await agent.get(space, "k")
    assert len(record.values) == 2
    applied = await agent.put(space, "k", "one", expected=record.version)
    assert applied.version == applied.revision
    assert data(await agent.get(space, "k")) == b'"one"'


async def test_more_than_sixteen_siblings_are_refused_and_none_is_dropped(world: World, agent: Agent) -> None:
    space = world.space()
    await agent.ensure(space, SIBLINGS)
    for n in range(16):
        await agent.put(space, "k", n, context=SEEN_NOTHING)
    with refusal(Reason.SIBLING_LIMIT) as error:
        await agent.put(space, "k", 16, context=SEEN_NOTHING)
    assert len(error.conflict().unseen) == 16
    record = await agent.get(space, "k")
    assert [v.value.data for v in record.values] == [b"%d" % n for n in range(16)]


async def test_the_policy_of_the_longest_prefix_applies(world: World, agent: Agent) -> None:
    space = world.space()
    policy = types.NamespacePolicy(
        conflict_policy=types.CONFLICT_POLICY_SIBLINGS,
        prefix_policies=[
            types.PrefixPolicy(prefix="a/", conflict_policy=types.CONFLICT_POLICY_LAST_WRITER_WINS),
            types.PrefixPolicy(prefix="a/b/", conflict_policy=types.CONFLICT_POLICY_REJECT),
        ],
    )
    await agent.ensure(space, policy)
    for key, kept in (("k", 2), ("a/k", 1)):
        await agent.put(space, key, 1, context=SEEN_NOTHING)
        await agent.put(space, key, 2, context=SEEN_NOTHING)
        assert len((await agent.get(space, key)).values) == kept
    await agent.put(space, "a/b/k", 1, context=SEEN_NOTHING)
    with refusal(Reason.CONFLICT):
        await agent.put(space, "a/b/k", 2, context=SEEN_NOTHING)


# -- LAST_WRITER_WINS and private namespaces -------------------------------------------------------


async def test_last_writer_wins_and_says_what_it_overwrote(world: World, agent: Agent, other: Agent) -> None:
    space = world.space()
    await agent.ensure(space, LAST_WRITER_WINS)
    made = await agent.put(space, "k", 1, context=SEEN_NOTHING)
    won = await other.put(space, "k", 2, context=SEEN_NOTHING)
    assert [dot.dot for dot in won.overwritten] == [made.revision]
    assert won.version == won.revision
    (_, batch) = await agent.history(space)
    assert [dot.dot for dot in batch.changes[0].overwritten] == [made.revision]
    with refusal(Reason.PRECONDITION_REQUIRED):
        await agent.put(space, "k", 3)


async def test_in_ones_own_namespace_the_last_write_wins(world: World, agent: Agent) -> None:
    space = f"agents/{agent.actor.agent_id}"
    await agent.put(space, "draft", 1)
    await agent.put(space, "draft", 2)
    assert data(await agent.get(space, "draft")) == b"2"
    await agent.delete(space, "draft")
    assert not (await agent.get(space, "draft")).values


async def test_another_agents_namespace_is_closed(world: World, agent: Agent, other: Agent) -> None:
    space = f"agents/{agent.actor.agent_id}"
    await agent.put(space, "draft", 1)
    with refusal(Reason.PERMISSION_DENIED):
        await other.get(space, "draft")
    with refusal(Reason.PERMISSION_DENIED):
        await other.put(space, "draft", 2, blind=True)
    with refusal(Reason.PERMISSION_DENIED):
        await world.api.get(pb.GetRequest(namespace=space, key="draft"))
    operator = await world.api.agent(f"cli/{agent.actor.agent_id}")
    assert data(await operator.get(space, "draft")) == b"1"


# -- return_current --------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [types.CONFLICT_POLICY_REJECT, types.CONFLICT_POLICY_SIBLINGS])
async def test_return_current_answers_a_refusal_with_the_record_as_it_is(
    world: World, agent: Agent, other: Agent, policy: types.ConflictPolicy.ValueType
) -> None:
    space = world.space()
    await agent.ensure(space, types.NamespacePolicy(conflict_policy=policy))
    made = await agent.put(space, "k", 1)
    newer = await other.put(space, "k", 2, context=made.context)
    request = pb.PutRequest(
        namespace=space, put=put_op("k", 3, expected=made.version), return_current=True, call=agent.call()
    )
    response = await world.api.put(request)
    assert response.WhichOneof("outcome") == "not_applied"
    refused = response.not_applied
    assert refused.reason == Reason.VERSION_MISMATCH
    assert refused.message
    assert (refused.current.version, data(refused.current)) == (newer.version, b"2")
    assert refused.as_of == response.head == newer.revision
    # The record that came with the refusal is a read like any other.
    await agent.put(space, "k", 3, context=refused.current.context)


async def test_return_current_lists_what_was_not_seen(world: World, agent: Agent, other: Agent) -> None:
    space = world.space()
    made = await agent.put(space, "k", 1)
    gone = await other.delete(space, "k", context=made.context)
    request = pb.PutRequest(
        namespace=space, put=put_op("k", 3, context=made.context), return_current=True, call=agent.call()
    )
    refused = (await world.api.put(request)).not_applied
    assert refused.reason == Reason.CONFLICT
    assert [(dot.dot, dot.deleted, dot.actor) for dot in refused.unseen] == [(gone.revision, True, other.name)]
    assert not refused.current.values
    deletion = pb.DeleteRequest(
        namespace=space,
        delete=pb.DeleteOperation(key="k", precondition=types.Precondition(expected_version=made.version)),
        return_current=True,
        call=agent.call(),
    )
    assert (await world.api.delete(deletion)).not_applied.reason == Reason.VERSION_MISMATCH


async def test_return_current_still_raises_what_does_not_depend_on_the_record(world: World, agent: Agent) -> None:
    request = pb.PutRequest(namespace="nowhere", put=put_op("k", 3), return_current=True, call=agent.call())
    with refusal(Reason.INVALID_FIELD):
        await world.api.put(request)


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
