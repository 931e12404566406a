"""Late results in every world: what counts as a change of a call's basis, and what the four policies make of it."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.api import span
from tests.support.engine import LocalServer
from tests.support.sessions import SessionAgent, caller, refusal, said, session_name, space, text_of
from tests.support.toolcalls import finish, get, listed, raw, review, start
from tests.support.worlds import LocalWorld, World

from noosphere.v1 import session_service_pb2 as pb
from noosphere.v1 import types_pb2 as types

APPLY, FLAG, PARK, REJECT = (
    pb.LATE_POLICY_APPLY,
    pb.LATE_POLICY_APPLY_FLAGGED,
    pb.LATE_POLICY_PARK,
    pb.LATE_POLICY_REJECT,
)
OUTCOMES = {
    "apply": (APPLY, pb.TOOL_CALL_STATUS_DONE),
    "flag": (FLAG, pb.TOOL_CALL_STATUS_DONE),
    "park": (PARK, pb.TOOL_CALL_STATUS_PARKED),
    "reject": (REJECT, pb.TOOL_CALL_STATUS_REJECTED),
}
POLICIES = pytest.mark.parametrize(("policy", "status"), OUTCOMES.values(), ids=OUTCOMES)


async def opened(world: World) -> tuple[SessionAgent, SessionAgent, str]:
    """Opens a session with a goal, for two agents."""
    a, b = await caller(world), await caller(world, "b")
    s = (await a.open(session_name(a))).id
    await a.agent.put(space(s), "goals/main", "fly")
    return a, b, s


@POLICIES
async def test_a_result_whose_goal_has_not_changed_is_applied(
    world: World, policy: pb.LatePolicy.ValueType, status: pb.ToolCallStatus.ValueType
) -> None:
    a, _, s = await opened(world)
    ticket = (await start(a, s, late_policy=policy, deadline=span(60_000))).ticket
    call = (await finish(a, ticket, append_message=True)).tool_call
    assert (call.status, list(call.changes), call.overdue) == (pb.TOOL_CALL_STATUS_DONE, [], False)


@POLICIES
async def test_a_goal_that_was_edited_meanwhile_is_noticed(
    world: World, policy: pb.LatePolicy.ValueType, status: pb.ToolCallStatus.ValueType
) -> None:
    a, b, s = await opened(world)
    made = await start(a, s, "c1", late_policy=policy)
    edited = await b.agent.put(space(s), "goals/main", "walk", blind=True)
    done = await finish(a, made.ticket, {"fare": 7}, append_message=True)
    call = done.tool_call
    change = pb.BasisChange(key="goals/main", seen=made.based_on[0].version, now=edited.version, actor=b.agent.name)
    assert call.status == status
    assert list(call.changes) == ([] if policy == APPLY else [change])
    assert call.content == '{"fare": 7}', "whatever becomes of it, the result is kept"
    assert await raw(a, made.ticket) == [b'{"fare": 7}']
    assert (await a.control(s)).pending_calls == []
    appended = status == pb.TOOL_CALL_STATUS_DONE
    assert done.HasField("message") == appended
    assert len(await a.messages(s)) == appended
    with refusal("TOOL_RESULT_SUPERSEDED"):
        await finish(a, made.ticket)


async def test_chatting_is_no_change(world: World) -> None:
    a, b, s = await opened(world)
    turn = await a.begin_turn(s)
    ticket = (await start(a, s, late_policy=REJECT)).ticket
    await a.append(s, said("I look it up", pb.ROLE_ASSISTANT), said("wait", turn=turn))
    await b.begin_turn(s)
    await b.say(s, "what are you doing?")
    await b.end_turn(s)
    await a.set_control(s, control=pb.ControlState(next_node="wait"))
    await b.update(s, title="flights")
    await a.agent.put(space(s), "notes/other", "x")
    await b.agent.put(space(s), "goals/another", "swim")
    await start(b, s)
    call = (await finish(a, ticket)).tool_call
    assert (call.status, list(call.changes)) == (pb.TOOL_CALL_STATUS_DONE, [])


async def test_only_the_keys_that_were_named_matter(world: World) -> None:
    a, b, s = await opened(world)
    ticket = (await start(a, s, based_on=["plan"], late_policy=REJECT)).ticket
    await b.agent.put(space(s), "goals/main", "walk", blind=True)
    assert (await finish(a, ticket)).tool_call.status == pb.TOOL_CALL_STATUS_DONE
    ticket = (await start(a, s, based_on=["plan"], late_policy=REJECT)).ticket
    plan = await b.agent.put(space(s), "plan", "now there is one")
    call = (await finish(a, ticket)).tool_call
    assert call.status == pb.TOOL_CALL_STATUS_REJECTED
    assert list(call.changes) == [pb.BasisChange(key="plan", seen=0, now=plan.version, actor=b.agent.name)]


async def test_an_agents_own_edit_counts(world: World) -> None:
    a, _, s = await opened(world)
    ticket = (await start(a, s)).ticket
    await a.agent.put(space(s), "goals/main", "walk", blind=True)
    assert [change.actor for change in (await finish(a, ticket)).tool_call.changes] == [a.agent.name]


async def test_a_key_that_is_gone_says_who_deleted_it(world: World) -> None:
    a, b, s = await opened(world)
    made = await start(a, s)
    await b.agent.delete(space(s), "goals/main", blind=True)
    (change,) = (await finish(a, made.ticket)).tool_call.changes
    assert (change.key, change.seen, change.now) == ("goals/main", made.based_on[0].version, 0)
    assert change.actor == b.agent.name


async def test_a_claim_of_a_key_says_who_holds_it(world: World) -> None:
    a, b, s = await opened(world)
    await a.agent.put(space(s), "work/1", "to do")
    ticket = (await start(a, s, based_on=["work/1"])).ticket
    claimed = await b.agent.claim(space(s), "work/")
    assert claimed is not None
    (change,) = (await finish(a, ticket)).tool_call.changes
    assert (change.key, change.actor) == ("work/1", b.agent.name)


async def test_a_value_that_ended_was_changed_by_nobody(world: World) -> None:
    a, _, s = await opened(world)
    await a.agent.put(space(s), "fare", 7, ttl_ms=1_000)
    ticket = (await start(a, s, based_on=["fare"])).ticket
    await world.elapse(1_001)
    (change,) = (await finish(a, ticket)).tool_call.changes
    assert (change.key, change.now, change.actor) == ("fare", 0, "")


@POLICIES
async def test_after_the_deadline_a_result_is_late_whatever_its_basis(
    world: World, policy: pb.LatePolicy.ValueType, status: pb.ToolCallStatus.ValueType
) -> None:
    a, _, s = await opened(world)
    made = await start(a, s, late_policy=policy, deadline=span(1_000))
    await world.elapse(1_001)
    call = (await finish(a, made.ticket)).tool_call
    assert call.status == status
    assert call.overdue == (policy != APPLY)
    assert list(call.changes) == []


async def test_a_deadline_ends_to_the_millisecond(local: LocalServer) -> None:
    world = LocalWorld(local)
    a, _, s = await opened(world)
    early, late = [(await start(a, s, deadline=span(1_000))).ticket for _ in range(2)]
    await world.elapse(999)
    assert not (await finish(a, early)).tool_call.overdue
    await world.elapse(1)
    assert (await finish(a, late)).tool_call.overdue


async def test_a_retry_has_a_basis_and_a_deadline_of_its_own(world: World) -> None:
    a, b, s = await opened(world)
    await start(a, s, "c1", deadline=span(1_000))
    await b.agent.put(space(s), "goals/main", "walk", blind=True)
    await world.elapse(1_001)
    again = await start(a, s, "c1", retry=True)
    call = (await finish(a, again.ticket)).tool_call
    assert (list(call.changes), call.overdue) == ([], False)


async def test_a_failure_stays_a_failure_however_late(world: World) -> None:
    a, b, s = await opened(world)
    ticket = (await start(a, s, late_policy=PARK)).ticket
    await b.agent.put(space(s), "goals/main", "walk", blind=True)
    call = (await finish(a, ticket, failure="no")).tool_call
    assert (call.status, len(call.changes)) == (pb.TOOL_CALL_STATUS_FAILED, 1)


async def test_a_parked_result_waits_for_its_review(world: World) -> None:
    a, b, s = await opened(world)
    tickets = [(await start(a, s, f"c{number}", late_policy=PARK)).ticket for number in range(3)]
    await b.agent.put(space(s), "goals/main", "walk", blind=True)
    for ticket in tickets:
        await finish(a, ticket, {"fare": 7}, append_message=ticket != tickets[2])
    parked = await listed(a, s, status=pb.TOOL_CALL_STATUS_PARKED)
    assert [call.call_id for call in parked] == ["c0", "c1", "c2"]
    assert [change.key for change in (await get(a, tickets[0])).changes] == ["goals/main"]

    applied = await review(b, tickets[0], apply=True)
    assert (applied.status, applied.content) == (pb.TOOL_CALL_STATUS_DONE, '{"fare": 7}')
    assert len(applied.changes) == 1, "it still says what had changed"
    (message,) = await a.messages(s)
    assert (message.tool_call_id, text_of(message), message.author) == ("c0", '{"fare": 7}', b.agent.actor.agent_id)

    assert (await review(b, tickets[1], apply=False)).status == pb.TOOL_CALL_STATUS_REJECTED
    assert (await review(b, tickets[2], apply=True)).status == pb.TOOL_CALL_STATUS_DONE
    assert len(await a.messages(s)) == 1, "only where the finisher asked for it"
    for ticket in tickets:
        with refusal("NOT_PARKED"):
            await review(a, ticket, apply=True)


async def test_a_review_is_executed_once(world: World) -> None:
    a, b, s = await opened(world)
    ticket = (await start(a, s, late_policy=PARK)).ticket
    with refusal("NOT_PARKED", "pending"):
        await review(a, ticket, apply=True)
    await b.agent.put(space(s), "goals/main", "walk", blind=True)
    await finish(a, ticket, append_message=True)
    call = b.agent.call(sequence=1)
    first = await review(b, ticket, apply=True, call=call)
    assert await review(b, ticket, apply=True, call=call) == first
    assert len(await a.messages(s)) == 1


async def test_a_pending_call_can_be_asked_what_has_changed_so_far(world: World) -> None:
    a, b, s = await opened(world)
    ticket = (await start(a, s)).ticket
    assert list((await get(a, ticket)).changes) == []
    await b.agent.put(space(s), "goals/main", "walk", blind=True)
    assert [change.actor for change in (await get(a, ticket)).changes] == [b.agent.name]
    await finish(a, ticket)
    assert list((await get(a, ticket)).changes) == [], "afterwards the call itself says it"


async def test_a_change_at_the_very_moment_is_either_seen_or_came_later(world: World) -> None:
    """Whatever the order, a result is unflagged only if its commit came before the change."""
    a, b, s = await opened(world)
    for number in range(10):
        ticket = (await start(a, s)).ticket
        edit = b.agent.put(space(s), "goals/main", f"goal {number}", blind=True)
        done, edited = await asyncio.gather(finish(a, ticket), edit)
        record = await a.agent.get(space(s), done.tool_call.key)
        assert bool(done.tool_call.changes) == (record.version > edited.version)


async def test_ones_own_result_makes_nothing_stale_that_one_has_seen(world: World) -> None:
    a, _, s = await opened(world)
    ticket = (await start(a, s, "c1")).ticket
    read = types.CallContext(actor=a.agent.actor, record_read_set=True)
    token = (await get(a, ticket, call=read)).call.read_set_token
    done = await finish(a, ticket, call=types.CallContext(actor=a.agent.actor, read_set_token=token))
    assert done.call.read_set_token
    assert done.call.read_set_token != token, "one's own result does not make what one has seen stale"
    again = types.CallContext(actor=a.agent.actor, read_set_token=token)
    other = (await start(a, s, "c2")).ticket
    with refusal("STALE_READ_SET"):
        await finish(a, other, call=again)
    await finish(a, other, call=types.CallContext(actor=a.agent.actor, read_set_token=done.call.read_set_token))


async def test_more_open_goals_than_may_be_named_are_all_watched(world: World) -> None:
    a, b, s = await opened(world)
    await asyncio.gather(*(a.agent.put(space(s), f"goals/{number:03}", number) for number in range(60)))
    made = await start(a, s)
    assert len(made.based_on) == 61
    await b.agent.put(space(s), "goals/059", "changed", blind=True)
    done = await finish(a, made.ticket)
    assert [change.key for change in done.tool_call.changes] == ["goals/059"]
