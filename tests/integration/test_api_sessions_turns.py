"""Turns and control states in every world."""

from __future__ import annotations

import asyncio

from tests.support.api import JSON
from tests.support.sessions import SessionAgent, caller, refusal, said, session_name, space
from tests.support.worlds import World

from noosphere.v1 import memory_service_pb2 as memory_pb
from noosphere.v1 import session_service_pb2 as pb
from noosphere.v1 import types_pb2 as types


async def pair(world: World) -> tuple[SessionAgent, SessionAgent, str]:
    """Opens a session that two agents share."""
    a, b = await caller(world), await caller(world, "b")
    return a, b, (await a.open(session_name(a))).id


def state(node: str, data: bytes = b'{"k": [1, 2]}') -> pb.ControlState:
    """Returns a control state."""
    value = types.Value(data=data, encoding=JSON)
    return pb.ControlState(next_node=node, pending_interrupt="approval", retries=2, data=value)


async def test_turns_count_up_and_several_may_be_open(world: World) -> None:
    a, b, s = await pair(world)
    assert [await a.begin_turn(s), await b.begin_turn(s), await a.begin_turn(s)] == [1, 2, 3]
    session = await a.get(s)
    assert session.turn == 3
    assert [(t.turn, t.author) for t in session.open_turns] == [
        (1, a.agent.actor.agent_id),
        (2, b.agent.actor.agent_id),
        (3, a.agent.actor.agent_id),
    ]
    assert (await a.end_turn(s)).turn == 3
    assert (await a.end_turn(s)).turn == 1
    with refusal("TURN_NOT_OPEN", a.agent.actor.agent_id):
        await a.end_turn(s)
    assert (await a.end_turn(s, turn=2)).turn == 2
    with refusal("TURN_NOT_OPEN", "turn 2", "has ended"):
        await b.end_turn(s, turn=2)
    with refusal("TURN_NOT_OPEN", "turn 9", "has not begun"):
        await b.end_turn(s, turn=9)
    assert (await a.begin_turn(s), len((await a.get(s)).open_turns)) == (4, 1)


async def test_turns_that_begin_at_once_get_numbers_of_their_own(world: World) -> None:
    a, b, s = await pair(world)
    turns = await asyncio.gather(*(agent.begin_turn(s) for agent in (a, b) * 8))
    assert sorted(turns) == list(range(1, 17))
    assert (await a.get(s)).turn == 16


async def test_a_retry_of_begin_and_end_counts_once(world: World) -> None:
    a, _, s = await pair(world)
    begun = [await a.begin_turn(s, call=a.agent.call(sequence=1)) for _ in range(2)]
    ended = [(await a.end_turn(s, call=a.agent.call(sequence=2))).turn for _ in range(2)]
    assert (begun, ended) == ([1, 1], [1, 1])
    assert (await a.get(s)).turn == 1


async def test_open_turns_are_limited(world: World) -> None:
    a, _, s = await pair(world)
    for _ in range(64):
        await a.begin_turn(s)
    with refusal("LIMIT_EXCEEDED", "turns", "64"):
        await a.begin_turn(s)


async def test_a_message_belongs_to_its_authors_newest_turn_unless_it_names_one(world: World) -> None:
    a, b, s = await pair(world)
    assert (await a.say(s, "outside any")).turn == 0
    first, second = await a.begin_turn(s), await a.begin_turn(s)
    assert (await b.say(s, "no turn of mine")).turn == 0
    assert (await a.say(s, "newest")).turn == second
    assert (await b.say(s, "named", turn=first)).turn == first
    await a.end_turn(s, turn=first)
    with refusal("TURN_NOT_OPEN", f"turn {first}"):
        await a.say(s, "late", turn=first)
    assert [m.turn for m in await a.messages(s)] == [0, 0, second, first]
    assert [m.turn for m in await a.messages(s, turn=first)] == [first]
    assert [m.turn for m in await a.messages(s, turn=second, page_size=1, reverse=True)] == [second]


async def test_metadata_written_aside_leaves_turns_and_decisions_alone(world: World) -> None:
    a, b, s = await pair(world)
    await a.agent.put(space(s), "goals/one", "ship it")
    turn = await a.begin_turn(s)
    request = memory_pb.ListRequest(namespace=space(s), collection="goals/", call=a.agent.call())
    request.call.record_read_set = True
    token = (await a.agent.api.list_records(request)).call.read_set_token
    control = pb.GetControlRequest(session_id=s, call=a.agent.call())
    control.call.record_read_set = True
    control.call.read_set_token = token
    token = (await a.call("GetControl", control, pb.GetControlResponse)).call.read_set_token
    await b.update(s, title="renamed", set_labels={"seen": "yes"})
    await b.say(s, "chatter")
    decision = memory_pb.CommitRequest(namespace=space(s), call=a.agent.call())
    decision.operations.append(memory_pb.Operation(append=memory_pb.AppendOperation(message=said("decided"))))
    decision.call.read_set_token = token
    assert (await a.agent.api.commit(decision)).applied.revision
    await a.append(s, said("still my turn", turn=turn))
    assert (await a.end_turn(s)).turn == turn


async def test_the_control_state_is_replaced_under_its_version(world: World) -> None:
    a, b, s = await pair(world)
    empty = await a.control(s)
    assert (empty.version, empty.HasField("control"), empty.author) == (0, False, "")
    first = (await a.set_control(s, control=state("plan"), expected_version=0)).version
    found = await b.control(s)
    assert (found.version, found.author, found.control) == (first, a.agent.actor.agent_id, state("plan"))
    with refusal("VERSION_MISMATCH", f"version {first}, not 0"):
        await b.set_control(s, control=state("other"), expected_version=0)
    second = (await b.set_control(s, control=state("act"), expected_version=first)).version
    third = (await a.set_control(s, control=pb.ControlState(next_node="rest"))).version
    assert first < second < third
    found = await b.control(s)
    assert (found.control.next_node, found.control.data.data, found.author) == ("rest", b"null", a.agent.actor.agent_id)


async def test_of_two_that_replace_one_control_state_one_is_refused(world: World) -> None:
    a, b, s = await pair(world)
    version = (await a.set_control(s, control=state("plan"))).version
    attempts = (agent.set_control(s, control=state("go"), expected_version=version) for agent in (a, b) * 3)
    done = await asyncio.gather(*attempts, return_exceptions=True)
    assert sorted(getattr(found, "reason", "") for found in done) == [""] + ["VERSION_MISMATCH"] * 5


async def test_a_control_state_has_its_limits(world: World) -> None:
    a, _, s = await pair(world)
    with refusal("INVALID_FIELD", "control.data.data"):
        await a.set_control(s, control=state("x", b"{"))
    with refusal("VALUE_TOO_LARGE", "control.data has 65538 bytes, the limit is 65536"):
        await a.set_control(s, control=state("x", b'"' + b"x" * 65_536 + b'"'))
    with refusal("VALUE_TOO_LARGE", "control.next_node has 257 bytes, the limit is 256"):
        await a.set_control(s, control=state("x" * 257))
    assert (await a.control(s)).version == 0
