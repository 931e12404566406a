"""Put and Delete: the table of preconditions, the three policies, and what an acknowledgement allows."""

from __future__ import annotations

import pytest
from tests.support.api import SEEN_NOTHING, Agent, data, put_op
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
