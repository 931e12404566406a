"""Calls of tools in every world: started once, finished exactly once, listed in the order of their starts."""

from __future__ import annotations

import asyncio
import random

import pytest
from tests.support.api import span
from tests.support.sessions import SessionAgent, caller, refusal, session_name, space, text_of
from tests.support.statuses import Refused
from tests.support.toolcalls import begin, finish, get, listed, raw, start
from tests.support.worlds import World

from noosphere.v1 import session_service_pb2 as pb

PARALLEL = 30


async def opened(world: World, **settings: object) -> tuple[SessionAgent, str]:
    """Opens a session."""
    a = await caller(world)
    return a, (await a.open(session_name(a), settings=pb.SessionSettings(**settings))).id  # type: ignore[arg-type]


async def test_a_started_call_is_pending_and_says_what_it_is_based_on(world: World) -> None:
    a, s = await opened(world)
    goal = await a.agent.put(space(s), "goals/main", "fly")
    await a.agent.put(space(s), "goals/old", "walk", attributes={"status": "done"})
    await a.agent.put(space(s), "goals/older", "swim", attributes={"status": "closed"})
    other = await a.agent.put(space(s), "goals/other", "land", attributes={"status": "open"})
    turn = await a.begin_turn(s)
    response = await begin(a, s, "c1", arguments='{"q":"prices"}', deadline=span(60_000), side_effects=True)
    made = response.tool_call
    assert response.started
    assert (made.call_id, made.name, made.arguments) == ("c1", "search", '{"q":"prices"}')
    assert made.status == pb.TOOL_CALL_STATUS_PENDING
    assert (made.author, made.turn, made.attempt) == (a.agent.actor.agent_id, turn, 1)
    assert made.late_policy == pb.LATE_POLICY_APPLY_FLAGGED
    assert made.side_effects
    open_goals = [("goals/main", goal.version), ("goals/other", other.version)]
    assert [(basis.key, basis.version) for basis in made.based_on] == open_goals, "these, if none is named"
    assert made.deadline.ToMilliseconds() == made.start_time.ToMilliseconds() + 60_000
    assert not made.HasField("finish_time")
    assert made.compaction == pb.COMPACTION_UNSPECIFIED
    assert await listed(a, s) == [made]
    assert list((await a.control(s)).pending_calls) == ["c1"]
    assert await raw(a, made.ticket) == []


async def test_named_keys_take_the_place_of_the_goals(world: World) -> None:
    a, s = await opened(world)
    await a.agent.put(space(s), "goals/main", "fly")
    plan = await a.agent.put(space(s), "plan", "first this")
    made = await start(a, s, based_on=["plan", "nothing/here"])
    assert list(made.based_on) == [pb.Basis(key="plan", version=plan.version), pb.Basis(key="nothing/here")]


async def test_a_finished_call_holds_its_result(world: World) -> None:
    a, s = await opened(world)
    made = await start(a, s, "c1")
    done = await finish(a, made.ticket, {"price": 12})
    call = done.tool_call
    assert call.status == pb.TOOL_CALL_STATUS_DONE
    assert (call.content, call.compaction, call.raw_bytes) == ('{"price": 12}', pb.COMPACTION_NONE, 13)
    assert call.tokens > 0
    assert call.finish_time.ToMilliseconds() >= call.start_time.ToMilliseconds()
    assert (call.key, call.ticket, call.call_id) == (made.key, made.ticket, "c1")
    assert not done.HasField("message")
    assert not done.replayed
    assert not call.changes
    assert (await get(a, made.ticket)).tool_call == call
    assert list((await a.control(s)).pending_calls) == []
    assert await raw(a, made.ticket) == [b'{"price": 12}']
    assert await a.messages(s) == []


async def test_another_process_finishes_with_nothing_but_the_ticket(world: World) -> None:
    a, s = await opened(world)
    b = await caller(world, "b")
    ticket = (await start(a, s, "c1")).ticket
    done = await finish(b, ticket, append_message=True)
    assert done.tool_call.author == a.agent.actor.agent_id
    assert done.message.author == b.agent.actor.agent_id


async def test_a_failure_says_why(world: World) -> None:
    a, s = await opened(world)
    ticket = (await start(a, s, "c1")).ticket
    done = await finish(a, ticket, failure="HTTP 503", append_message=True)
    assert done.tool_call.status == pb.TOOL_CALL_STATUS_FAILED
    assert done.tool_call.content == "HTTP 503"
    assert text_of(done.message) == "HTTP 503"
    with refusal("TOOL_RESULT_SUPERSEDED", "'c1' is failed already"):
        await finish(a, ticket)


async def test_the_result_becomes_a_message_in_the_same_commit(world: World) -> None:
    a, s = await opened(world)
    turn = await a.begin_turn(s)
    ticket = (await start(a, s, "c1", name="weather")).ticket
    b = await caller(world, "b")
    done = await finish(b, ticket, {"sun": True}, append_message=True)
    message = done.message
    assert (message.role, message.tool_call_id, message.name) == (pb.ROLE_TOOL, "c1", "weather")
    assert text_of(message) == '{"sun": true}'
    assert (message.turn, message.tokens) == (turn, done.tool_call.tokens), "in the turn of the call, not of the writer"
    assert await a.messages(s) == [message]
    record = await a.agent.get(space(s), done.tool_call.key)
    assert int(message.key.rpartition("/")[2].split("-")[0], 16) == record.version


async def test_a_result_of_a_turn_that_has_ended_belongs_to_the_present_one(world: World) -> None:
    a, s = await opened(world)
    await a.begin_turn(s)
    ticket = (await start(a, s)).ticket
    await a.end_turn(s)
    turn = await a.begin_turn(s)
    assert (await finish(a, ticket, append_message=True)).message.turn == turn


async def test_a_second_result_is_refused_and_changes_nothing(world: World) -> None:
    a, s = await opened(world)
    ticket = (await start(a, s, "c1")).ticket
    first = await finish(a, ticket, "one", append_message=True)
    with refusal("TOOL_RESULT_SUPERSEDED", "'c1' is done already"):
        await finish(a, ticket, "two", append_message=True)
    with refusal("TOOL_RESULT_SUPERSEDED"):
        await finish(a, ticket, failure="too late")
    assert (await get(a, ticket)).tool_call == first.tool_call
    assert len(await a.messages(s)) == 1


async def test_the_same_request_finds_its_first_execution(world: World) -> None:
    a, s = await opened(world)
    call = a.agent.call(sequence=1)
    ticket = (await start(a, s, "c1", call=call)).ticket
    assert (await begin(a, s, "c1", call=call)).started, "a replay tells what the first execution told"
    finishing = a.agent.call(sequence=2)
    first = await finish(a, ticket, {"n": 1}, append_message=True, call=finishing)
    again = await finish(a, ticket, {"n": 1}, append_message=True, call=finishing)
    assert (first.replayed, again.replayed) == (False, True)
    assert (again.tool_call, again.message) == (first.tool_call, first.message)
    with refusal("REQUEST_ID_REUSED"):
        await finish(a, ticket, {"n": 2}, append_message=True, call=finishing)


async def test_ids_that_the_server_issues_are_the_same_for_a_retry(world: World) -> None:
    a, s = await opened(world)
    call = a.agent.call(sequence=7)
    first = await start(a, s, call=call)
    assert first.call_id
    assert await start(a, s, call=call) == first
    assert (await start(a, s)).call_id != first.call_id
    assert len(await listed(a, s)) == 2


async def test_a_known_id_returns_the_earlier_call(world: World) -> None:
    a, s = await opened(world)
    first = await start(a, s, "c1", arguments='{"a":1}')
    again = await begin(a, s, "c1", arguments='{"a":1}', late_policy=pb.LATE_POLICY_PARK, based_on=["x"])
    assert not again.started
    assert again.tool_call == first
    done = (await finish(a, first.ticket)).tool_call
    for retry in (False, True):
        finished = await begin(a, s, "c1", arguments='{"a":1}', retry=retry)
        assert (finished.started, finished.tool_call) == (False, done), "what has finished is not started again"


async def test_an_id_can_be_used_again_for_another_call(world: World) -> None:
    """Providers of models do so; and an old result must never pass for that of another call."""
    a, s = await opened(world)
    first = await start(a, s, "c1", arguments='{"a":1}')
    for other in ({"name": "search", "arguments": '{"a":2}'}, {"name": "other", "arguments": '{"a":1}'}):
        for retry in (False, True):
            with refusal("INVALID_FIELD", "call_id", "'c1'", "pending", "'search'"):
                await begin(a, s, "c1", retry=retry, **other)
    one = (await finish(a, first.ticket, "one", append_message=True)).tool_call
    call = a.agent.call(sequence=1)
    second = await begin(a, s, "c1", arguments='{"a":2}', call=call)
    assert second.started
    assert second.tool_call.key > first.key
    assert await begin(a, s, "c1", arguments='{"a":2}', call=call) == second
    assert list((await a.control(s)).pending_calls) == ["c1"]
    again = await begin(a, s, "c1", arguments='{"a":2}')
    assert (again.started, again.tool_call) == (False, second.tool_call)
    two = (await finish(a, second.tool_call.ticket, "two", append_message=True)).tool_call
    assert await listed(a, s) == [one, two]
    assert (await get(a, first.ticket)).tool_call == one
    assert [text_of(message) for message in await a.messages(s)] == ["one", "two"]


async def test_results_of_earlier_attempts_are_late(world: World) -> None:
    a, s = await opened(world)
    b = await caller(world, "b")
    await a.agent.put(space(s), "goals/main", "fly")
    first = await start(a, s, "c1", arguments="{}", side_effects=True)
    goal = await a.agent.put(space(s), "goals/main", "walk", blind=True)
    second = (await begin(b, s, "c1", arguments="{}", retry=True, late_policy=pb.LATE_POLICY_PARK)).tool_call
    assert (second.attempt, second.key, second.author) == (2, first.key, b.agent.actor.agent_id)
    assert (second.name, second.arguments, second.side_effects) == ("search", "{}", True), "it is the same call"
    assert (second.based_on[0].version, second.late_policy) == (goal.version, pb.LATE_POLICY_PARK)
    assert second.ticket != first.ticket
    with refusal("TOOL_RESULT_SUPERSEDED", "'c1'", "attempt 2", "attempt 1"):
        await finish(a, first.ticket)
    with refusal("TOOL_RESULT_SUPERSEDED"):
        await finish(a, second.ticket, attempt=1)
    with refusal("INVALID_FIELD", "attempt: 3 was never started"):
        await finish(a, second.ticket, attempt=3)
    assert list((await a.control(s)).pending_calls) == ["c1"]
    done = await finish(b, second.ticket)
    assert done.tool_call.status == pb.TOOL_CALL_STATUS_DONE
    assert (await get(a, first.ticket)).tool_call == done.tool_call, "an old ticket still finds the call"


async def test_two_processes_that_finish_at_once_finish_once(world: World) -> None:
    a, s = await opened(world)
    peers = [await caller(world, f"p{number}") for number in range(4)]
    for _ in range(5):
        ticket = (await start(a, s)).ticket
        results = await asyncio.gather(
            *(finish(peer, ticket, number, append_message=True) for number, peer in enumerate(peers)),
            return_exceptions=True,
        )
        done = [result for result in results if isinstance(result, pb.FinishToolCallResponse)]
        refused = [result.reason for result in results if isinstance(result, Refused)]
        assert (len(done), refused) == (1, ["TOOL_RESULT_SUPERSEDED"] * 3)
        assert (await get(a, ticket)).tool_call == done[0].tool_call
    assert len(await a.messages(s)) == 5


async def test_thirty_parallel_results_keep_the_order_of_the_calls(world: World) -> None:
    a, s = await opened(world)
    calls = [await start(a, s, f"call-{number * 7 % PARALLEL}") for number in range(PARALLEL)]
    ids = [call.call_id for call in calls]
    assert list((await a.control(s)).pending_calls) == ids
    shuffled = random.Random(5).sample(calls, PARALLEL)
    await asyncio.gather(*(finish(a, call.ticket, call.call_id, append_message=True) for call in shuffled))
    found = await listed(a, s, page_size=7)
    assert [call.call_id for call in found] == ids
    assert [call.content for call in found] == ids
    assert [call.key for call in found] == sorted(call.key for call in found)
    assert [call.call_id for call in await listed(a, s, page_size=7, reverse=True)] == ids[::-1]
    assert sorted(message.tool_call_id for message in await a.messages(s)) == sorted(ids)


async def test_calls_that_start_at_once_all_start(world: World) -> None:
    a, s = await opened(world)
    made = await asyncio.gather(*(start(a, s, f"call-{number}") for number in range(PARALLEL)))
    assert [call.call_id for call in await listed(a, s)] == [
        call.call_id for call in sorted(made, key=lambda call: call.key)
    ]


async def test_one_id_that_starts_at_once_in_many_places_is_one_call(world: World) -> None:
    a, s = await opened(world)
    peers = [await caller(world, f"p{number}") for number in range(4)]
    found = await asyncio.gather(*(begin(peer, s, "same") for peer in peers))
    assert sorted(response.started for response in found) == [False, False, False, True]
    assert len({response.tool_call.key for response in found}) == 1
    assert len(await listed(a, s)) == 1


async def test_a_list_filters_by_status(world: World) -> None:
    a, s = await opened(world)
    calls = [await start(a, s, f"c{number}") for number in range(5)]
    await finish(a, calls[1].ticket)
    await finish(a, calls[3].ticket, failure="no")

    async def ids(status: pb.ToolCallStatus.ValueType, **fields: bool) -> list[str]:
        return [call.call_id for call in await listed(a, s, page_size=1, status=status, **fields)]

    assert await ids(pb.TOOL_CALL_STATUS_PENDING) == ["c0", "c2", "c4"]
    assert await ids(pb.TOOL_CALL_STATUS_PENDING, reverse=True) == ["c4", "c2", "c0"]
    assert await ids(pb.TOOL_CALL_STATUS_DONE) == ["c1"]
    assert await ids(pb.TOOL_CALL_STATUS_FAILED) == ["c3"]
    assert await ids(pb.TOOL_CALL_STATUS_PARKED) == []


async def test_a_closed_session_starts_and_finishes_nothing(world: World) -> None:
    a, s = await opened(world)
    pending, other = await start(a, s, "c1"), await start(a, s, "c2")
    await finish(a, other.ticket)
    with refusal("CALLS_PENDING", "c1"):
        await a.close(s, pending_calls=pb.PENDING_CALLS_REFUSE)
    assert (await a.close(s)).failed_calls == 1
    found = {call.call_id: call for call in await listed(a, s)}
    assert found["c1"].status == pb.TOOL_CALL_STATUS_FAILED
    assert "closed" in found["c1"].content
    assert found["c2"].status == pb.TOOL_CALL_STATUS_DONE
    for attempt in (start(a, s), finish(a, pending.ticket)):
        with refusal("SESSION_CLOSED", s):
            await attempt


async def test_many_pending_calls_fail_in_several_commits(world: World) -> None:
    a, s = await opened(world)
    await asyncio.gather(*(start(a, s, f"c{number}", arguments="x" * 16_000) for number in range(150)))
    assert (await a.close(s)).failed_calls == 150
    assert {call.status for call in await listed(a, s, page_size=1000)} == {pb.TOOL_CALL_STATUS_FAILED}
    assert list((await a.control(s)).pending_calls) == []


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"name": ""}, ("name: must not be empty",)),
        ({"name": "x" * 129}, ("name", "129", "128")),
        ({"call_id": "c\n1"}, ("call_id", "U+000A")),
        ({"call_id": "x" * 129}, ("call_id", "129", "128")),
        ({"arguments": "x" * 16_385}, ("arguments", "16385", "16384")),
        ({"based_on": [f"k{number}" for number in range(33)]}, ("based_on", "33", "32")),
        ({"based_on": ["k", ""]}, ("based_on[1]",)),
        ({"based_on": ["k", "k"]}, ("based_on[1]", "'k'", "twice")),
        ({"late_policy": 9}, ("late_policy", "9")),
        ({"deadline": span(0)}, ("deadline", "0 ms")),
        ({"deadline": span(-1)}, ("deadline", "-1 ms")),
        ({"retry": True}, ("retry", "call_id")),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
async def test_a_malformed_start_is_refused_by_field_and_limit(
    world: World, fields: dict[str, object], words: tuple[str, ...]
) -> None:
    a, s = await opened(world)
    named = {"session_id": s, "name": "search", **fields}
    with pytest.raises(Refused) as refused:
        await a.call("StartToolCall", pb.StartToolCallRequest(**named), pb.StartToolCallResponse)  # type: ignore[arg-type]
    assert refused.value.reason in {"INVALID_FIELD", "VALUE_TOO_LARGE"}
    for word in words:
        assert word in refused.value.message
    assert await listed(a, s) == []


async def test_a_ticket_that_is_none_is_refused(world: World) -> None:
    a, s = await opened(world)
    ticket = (await start(a, s, "c1")).ticket
    other = (await a.open(session_name(a, "other"))).id
    for bad in ("", "x", ticket[:-1], ticket + "0", ticket.replace(s, other), ticket.replace(":1:", ":2:"), "x" * 5000):
        with refusal("INVALID_FIELD", "ticket: is damaged or not a ticket"):
            await finish(a, bad)
    with refusal("INVALID_FIELD", "outcome"):
        await a.call("FinishToolCall", pb.FinishToolCallRequest(ticket=ticket), pb.FinishToolCallResponse)
    with refusal("INVALID_FIELD", "failure: must not be empty"):
        await finish(a, ticket, failure="")
    assert (await get(a, ticket)).tool_call.status == pb.TOOL_CALL_STATUS_PENDING


async def test_a_ticket_of_a_purged_session_finds_nothing(world: World) -> None:
    a, s = await opened(world)
    ticket = (await start(a, s, "c1")).ticket
    await a.close(s)
    await a.purge(s)
    for attempt in (get(a, ticket), finish(a, ticket), raw(a, ticket)):
        with refusal("SESSION_NOT_FOUND", s):
            await attempt
    # The name opened anew is another session.
    await a.open(s)
    await start(a, s, "c1")
    for attempt in (get(a, ticket), finish(a, ticket), raw(a, ticket)):
        with refusal("ENTRY_NOT_FOUND", s):
            await attempt


async def test_nobody_else_writes_calls(world: World) -> None:
    a, s = await opened(world)
    made = await start(a, s, "c1")
    with refusal("INVALID_FIELD", made.key):
        await a.agent.put(space(s), made.key, "x", blind=True)
    with refusal("SESSION_NOT_FOUND"):
        await start(a, "never-opened")
    with refusal("INVALID_FIELD", "call.actor"):
        request = pb.StartToolCallRequest(session_id=s, name="t")
        request.call.SetInParent()
        await a.call("StartToolCall", request, pb.StartToolCallResponse)
