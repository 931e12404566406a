"""Checkpoints and restores in every world: what they hold, what comes back, what stays readable."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.support.api import counter, put, put_op
from tests.support.engine import LocalServer
from tests.support.sessions import SessionAgent, caller, refusal, said, session_name, space, texts
from tests.support.toolcalls import finish, start
from tests.support.worlds import LocalWorld, World

from noosphere.v1 import memory_service_pb2 as memory
from noosphere.v1 import session_service_pb2 as pb
from noosphere.v1 import types_pb2 as types


async def opened(world: World, **settings: object) -> tuple[SessionAgent, str]:
    """Opens a session."""
    a = await caller(world)
    return a, (await a.open(session_name(a), settings=pb.SessionSettings(**settings))).id  # type: ignore[arg-type]


def ids(checkpoints: Sequence[pb.Checkpoint]) -> list[str]:
    """Returns the id of each checkpoint."""
    return [checkpoint.id for checkpoint in checkpoints]


async def test_a_checkpoint_says_where_the_session_stood(world: World) -> None:
    a, s = await opened(world)
    last = await a.say(s, "hello")
    await a.agent.put(space(s), "goals/one", "fly")
    turn = await a.begin_turn(s)
    made = await a.checkpoint(s, name="before take-off")
    assert (made.name, made.cause, made.author) == ("before take-off", "request", a.agent.actor.agent_id)
    assert (made.branch, made.turn, made.items, made.last_message) == (0, turn, 1, last.key)
    assert made.HasField("create_time")
    assert 0 < made.bytes < 1_000
    assert await a.checkpoints(s) == [made]


async def test_a_restore_gives_items_control_and_transcript_back(world: World) -> None:
    a, s = await opened(world)
    await a.agent.put(space(s), "kept", "same", attributes={"kind": "note", "importance": 0.5})
    await a.agent.put(space(s), "changed", "old", attributes={"pinned": True})
    await a.agent.put(space(s), "deleted", "was here")
    await a.agent.add(space(s), "count", 3)
    await a.set_control(s, control=pb.ControlState(next_node="plan", retries=1))
    await a.say(s, "one")
    point = await a.checkpoint(s)
    kept = await a.agent.get(space(s), "kept")
    before = await a.items(s)

    await a.agent.put(space(s), "changed", "new", blind=True)
    await a.agent.put(space(s), "changed", "newer", blind=True)
    await a.agent.delete(space(s), "deleted", blind=True)
    await a.agent.add(space(s), "count", 39)
    await a.agent.put(space(s), "made", "later")
    await a.set_control(s, control=pb.ControlState(next_node="act"))
    await a.say(s, "two")
    after = await a.items(s)

    reply = await a.restore(s, point.id)
    assert (reply.abandoned_branch, reply.session.branch) == (0, 1)
    assert (reply.restored, reply.removed) == (3, 1)
    assert await a.items(s) == before
    assert (await a.agent.get(space(s), "kept")) == kept, "what had not changed is left alone"
    changed = await a.agent.get(space(s), "changed")
    assert changed.attributes["pinned"].bool_value
    assert (await a.control(s)).control.next_node == "plan"
    assert texts(await a.messages(s)) == ["one"]
    assert (await a.get(s)).last_message == point.last_message

    # A counter that came back still counts.
    await a.agent.add(space(s), "count", 1)
    assert (await a.items(s))["count"] == b"4"

    # Nothing of what was left is lost: its messages are on their branch, its items in a checkpoint.
    assert texts(await a.messages(s, branch=0)) == ["one", "two"]
    left = next(c for c in await a.checkpoints(s) if c.cause == "restore")
    await a.restore(s, left.id)
    assert await a.items(s) == after
    assert texts(await a.messages(s)) == ["one", "two"]
    assert (await a.control(s)).control.next_node == "act"


async def test_branches_grow_apart_and_stay_readable(world: World) -> None:
    a, s = await opened(world)
    await a.say(s, "trunk")
    point = await a.checkpoint(s)
    await a.say(s, "left")
    await a.restore(s, point.id)
    await a.append(s, said("right 1"), said("right 2"))
    right = await a.checkpoint(s)
    await a.restore(s, point.id)
    await a.say(s, "third")
    await a.restore(s, right.id)
    await a.say(s, "right 3")
    assert texts(await a.messages(s)) == ["trunk", "right 1", "right 2", "right 3"]
    assert texts(await a.messages(s, reverse=True, page_size=1)) == ["right 3", "right 2", "right 1", "trunk"]
    for branch, expected in enumerate((["trunk", "left"], ["trunk", "right 1", "right 2"], ["trunk", "third"])):
        assert texts(await a.messages(s, branch=branch)) == expected
    with refusal("TRANSCRIPT_MOVED"):
        await a.append(s, said("late"), expected_last="nobody")
    last = (await a.messages(s))[-1]
    await a.append(s, said("next"), expected_last=last.id)


async def test_an_id_is_known_on_the_branch_that_has_it(world: World) -> None:
    a, s = await opened(world)
    kept = await a.say(s, "kept", id="m0")
    point = await a.checkpoint(s)
    first = await a.say(s, "first", id="m1")
    await a.restore(s, point.id)
    # Whoever goes on from the checkpoint says again what it has said before.
    assert await a.say(s, "other words", id="m0") == kept
    second = await a.say(s, "second", id="m1")
    assert second != first
    assert await a.say(s, "other words", id="m1") == second
    operations = memory.Operation(append=memory.AppendOperation(message=said("third", id="m1")))
    await a.agent.transact(space(s), put("k", 1), operations)
    assert texts(await a.messages(s)) == ["kept", "second"]
    assert texts(await a.messages(s, branch=0)) == ["kept", "first"]
    # Back on the first line of events it is the first message's again, and can be taken back wherever it is.
    left = next(c for c in await a.checkpoints(s) if c.cause == "restore")
    await a.restore(s, left.id)
    assert await a.say(s, "other words", id="m1") == first
    await a.restore(s, point.id)
    assert (await a.retract(s, "m1")).key == second.key
    assert texts(await a.messages(s, branch=0)) == ["kept", "first"]
    assert texts(await a.messages(s, branch=1)) == ["kept", ""]
    assert texts(await a.messages(s)) == ["kept"]


async def test_an_empty_session_can_be_gone_back_to(world: World) -> None:
    a, s = await opened(world)
    empty = await a.checkpoint(s)
    await a.agent.put(space(s), "k", "v")
    await a.say(s, "hello")
    await a.restore(s, empty.id)
    assert await a.items(s) == {}
    assert await a.messages(s) == []
    first = (await a.append(s, said("again"), expected_last="")).messages[0]
    assert (await a.get(s)).last_message == first.key


async def test_values_side_by_side_come_back_side_by_side(world: World) -> None:
    a, s = await opened(world)
    policy = types.NamespacePolicy(conflict_policy=types.CONFLICT_POLICY_SIBLINGS)
    await a.agent.ensure(space(s), policy)
    await a.agent.put(space(s), "k", "one")
    nothing = types.CausalContext()
    await a.agent.put(space(s), "k", "two", context=nothing)
    point = await a.checkpoint(s)
    both = [value.value.data for value in (await a.agent.get(space(s), "k")).values]
    assert sorted(both) == [b'"one"', b'"two"']
    await a.agent.put(space(s), "k", "three", blind=True)
    await a.restore(s, point.id)
    again = [value.value.data for value in (await a.agent.get(space(s), "k")).values]
    assert sorted(again) == sorted(both)


async def test_of_values_side_by_side_one_may_end_and_the_others_come_back(local: LocalServer) -> None:
    a, s = await opened(LocalWorld(local))
    await a.agent.ensure(space(s), types.NamespacePolicy(conflict_policy=types.CONFLICT_POLICY_SIBLINGS))
    await a.agent.put(space(s), "k", "short", ttl_ms=1_000)
    await a.agent.put(space(s), "k", "long", context=types.CausalContext())
    point = await a.checkpoint(s)
    await local.elapse(1_001)
    await local.sweep()
    await a.agent.put(space(s), "k", "new", blind=True)
    await a.restore(s, point.id)
    assert await a.items(s) == {"k": b'"long"'}


async def test_what_has_ended_meanwhile_does_not_come_back(world: World) -> None:
    a, s = await opened(world)
    await a.agent.put(space(s), "short", "lived", ttl_ms=1_000)
    await a.agent.put(space(s), "overwritten", "short", ttl_ms=1_000)
    await a.agent.put(space(s), "long", "lived")
    point = await a.checkpoint(s)
    await a.agent.put(space(s), "overwritten", "long", blind=True)
    await world.elapse(1_001)
    await a.restore(s, point.id)
    assert await a.items(s) == {"long": b'"lived"'}


async def test_a_turn_that_changed_something_ends_with_a_checkpoint(world: World) -> None:
    a, s = await opened(world)
    await a.begin_turn(s)
    nothing = await a.end_turn(s)
    assert nothing.checkpoint_id == ""
    turn = await a.begin_turn(s)
    await a.say(s, "hello")
    call = a.agent.call(sequence=7)
    ended = await a.end_turn(s, turn, call=call)
    (made,) = await a.checkpoints(s)
    assert (ended.checkpoint_id, made.cause, made.turn) == (made.id, "turn_end", turn)
    again = await a.end_turn(s, turn, call=call)
    assert (again.checkpoint_id, len(await a.checkpoints(s))) == (made.id, 1)
    await a.begin_turn(s)
    assert (await a.end_turn(s)).checkpoint_id == ""
    for change in (
        a.agent.put(space(s), "k", "v"),
        a.agent.delete(space(s), "k", blind=True),
        a.set_control(s, control=pb.ControlState(next_node="x")),
        a.restore(s, made.id),
    ):
        await a.begin_turn(s)
        await change
        assert (await a.end_turn(s)).checkpoint_id


async def test_a_manual_session_makes_none_by_itself(world: World) -> None:
    a, s = await opened(world, checkpoint_policy=pb.CHECKPOINT_POLICY_MANUAL)
    await a.begin_turn(s)
    await a.agent.put(space(s), "k", "v")
    assert (await a.end_turn(s)).checkpoint_id == ""
    assert await a.checkpoints(s) == []


async def test_calls_with_side_effects_lie_between_checkpoints_if_the_policy_says_so(world: World) -> None:
    a, s = await opened(world, checkpoint_policy=pb.CHECKPOINT_POLICY_SIDE_EFFECTS)
    await a.agent.put(space(s), "k", "before")
    harmless = await start(a, s, "c0")
    await finish(a, harmless.ticket)
    assert await a.checkpoints(s) == []
    call = await start(a, s, "c1", side_effects=True)
    again = await start(a, s, "c1", side_effects=True)
    assert again == call
    (before,) = await a.checkpoints(s)
    assert before.cause == "before_call"
    await finish(a, call.ticket, {"moved": True}, append_message=True)
    assert [c.cause for c in await a.checkpoints(s)] == ["after_call", "before_call"]
    await a.restore(s, before.id)
    assert await a.messages(s) == []
    manual = (await a.open()).id
    await a.agent.put(space(manual), "k", "v")
    await finish(a, (await start(a, manual, side_effects=True)).ticket)
    assert await a.checkpoints(manual) == [], "by default only the ends of turns"


async def test_a_retry_makes_no_second_checkpoint_and_no_second_restore(world: World) -> None:
    a, s = await opened(world)
    await a.agent.put(space(s), "k", "old")
    request = pb.CreateCheckpointRequest(session_id=s, name="x", call=a.agent.call(sequence=1))
    first = await a.call("CreateCheckpoint", request, pb.CreateCheckpointResponse)
    again = await a.call("CreateCheckpoint", request, pb.CreateCheckpointResponse)
    assert again.checkpoint == first.checkpoint
    await a.agent.put(space(s), "k", "new", blind=True)
    call = a.agent.call(sequence=2)
    done = await a.restore(s, first.checkpoint.id, call=call)
    retried = await a.restore(s, first.checkpoint.id, call=call)
    assert (retried.abandoned_branch, retried.restored, retried.session.branch) == (0, done.restored, 1)
    assert len(await a.checkpoints(s)) == 2


async def test_many_checkpoints_are_listed_by_pages_and_each_is_exact(world: World) -> None:
    a, s = await opened(world)
    seen: list[tuple[str, dict[str, bytes]]] = []
    for number in range(40):
        await a.agent.put(space(s), f"k{number % 7}", number, blind=True)
        if number % 5 == 3:
            await a.agent.delete(space(s), f"k{number % 3}", blind=True)
        seen.append(((await a.checkpoint(s)).id, await a.items(s)))
    assert ids(await a.checkpoints(s, page_size=7)) == [checkpoint for checkpoint, _ in reversed(seen)]
    for checkpoint, expected in (seen[0], seen[17], seen[31], seen[15], seen[39]):
        await a.restore(s, checkpoint)
        assert await a.items(s) == expected


async def test_the_oldest_checkpoints_go_when_there_are_too_many(world: World) -> None:
    a, s = await opened(world, checkpoints_max=3)
    made = []
    for number in range(40):
        await a.agent.put(space(s), "k", number, blind=True)
        await a.agent.put(space(s), f"once/{number}", number)
        made.append(((await a.checkpoint(s)).id, await a.items(s)))
    assert ids(await a.checkpoints(s)) == [checkpoint for checkpoint, _ in made[:-4:-1]]
    with refusal("ENTRY_NOT_FOUND", "checkpoint_id", made[0][0]):
        await a.restore(s, made[0][0])
    await a.restore(s, made[-3][0])
    assert await a.items(s) == made[-3][1]


@pytest.mark.parametrize("wrong", ["x", "0123456789abcdef-0000", ""])
async def test_a_checkpoint_that_does_not_exist_is_named(world: World, wrong: str) -> None:
    a, s = await opened(world)
    with refusal("ENTRY_NOT_FOUND", "checkpoint_id", repr(wrong), s):
        await a.restore(s, wrong)
    with refusal("VALUE_TOO_LARGE", "name", "129", "128"):
        await a.checkpoint(s, name="x" * 129)
    with refusal("SESSION_NOT_FOUND"):
        await a.checkpoint(s + "-other")


@pytest.mark.parametrize("others", [False, True], ids=["all changed", "all replaced by others"])
async def test_a_session_as_full_as_one_may_be_can_be_restored(local: LocalServer, others: bool) -> None:
    a, s = await opened(LocalWorld(local))
    names = [f"k{number:03}" for number in range(256)]
    for name in names:
        await a.agent.put(space(s), name, "then")
    point = await a.checkpoint(s)
    before = await a.items(s)
    if others:
        for name in names:
            await a.agent.delete(space(s), name, blind=True)
        names = [f"l{number:03}" for number in range(256)]
    for name in names:
        await a.agent.put(space(s), name, "now", blind=True)
    left = await a.items(s)
    reply = await a.restore(s, point.id)
    assert (reply.restored, reply.removed) == (256, 256 if others else 0)
    assert await a.items(s) == before
    await a.restore(s, (await a.checkpoints(s))[0].id)
    assert await a.items(s) == left


async def test_what_fits_no_commit_is_refused_as_a_whole(world: World) -> None:
    a, s = await opened(world)
    await a.agent.ensure(space(s), types.NamespacePolicy(item_bytes_max=64 * 1024))
    for number in range(18):
        await a.agent.put(space(s), f"k{number:02}", "x" * 60_000)
    point = await a.checkpoint(s)
    for number in range(18):
        await a.agent.put(space(s), f"k{number:02}", "small", blind=True)
    before = await a.items(s)
    with refusal("VALUE_TOO_LARGE", "the checkpoint", "1048576", "bytes"):
        await a.restore(s, point.id)
    assert await a.items(s) == before
    assert (await a.get(s)).branch == 0
    assert ids(await a.checkpoints(s)) == [point.id]


async def test_a_transaction_and_a_merge_keep_what_they_overwrite(world: World) -> None:
    a, s = await opened(world)
    await a.agent.put(space(s), "put", "old")
    await a.agent.put(space(s), "delete", "old")
    await a.agent.add(space(s), "merge", 1)
    point = await a.checkpoint(s)
    before = await a.items(s)
    await a.agent.transact(
        space(s),
        memory.Operation(put=put_op("put", "new", blind=True)),
        memory.Operation(delete=memory.DeleteOperation(key="delete", precondition=types.Precondition(blind=True))),
        memory.Operation(merge=counter("merge", 1)),
    )
    await a.restore(s, point.id)
    assert await a.items(s) == before
