"""Calls of tools are no part of checkpoints, in every world: what a tool has done is not undone by going back."""

from __future__ import annotations

from tests.support.contexts import ContextAgent
from tests.support.sessions import SessionAgent, caller, refusal, said, session_name, space, texts
from tests.support.toolcalls import finish, get, listed, start
from tests.support.worlds import World

from noosphere.server.context.provider_rules import check_anthropic, check_openai
from noosphere.v1 import session_service_pb2 as pb

ARGUMENTS = '{"flight": "SK4"}'


async def opened(world: World) -> tuple[SessionAgent, str, str]:
    """Opens a session with a goal and a question; returns its checkpoint from before the answer."""
    a = await caller(world)
    s = (await a.open(session_name(a))).id
    await a.agent.put(space(s), "goals/main", "fly")
    await a.say(s, "Book SK4, please.")
    return a, s, (await a.checkpoint(s)).id


async def ask(a: SessionAgent, s: str) -> str:
    """The model asks for the call, and it begins; returns its ticket."""
    use = pb.ToolUse(call_id="c1", name="book", arguments=ARGUMENTS)
    await a.append(s, pb.Message(role=pb.ROLE_ASSISTANT, tool_calls=[use]))
    return (await start(a, s, "c1", name="book", arguments=ARGUMENTS)).ticket


async def test_who_repeats_a_step_after_going_back_finds_its_call_done(world: World) -> None:
    """So nothing is booked twice."""
    a, s, before = await opened(world)
    await finish(a, await ask(a, s), {"booked": "SK4"}, append_message=True)
    await a.restore(s, before)
    assert texts(await a.messages(s)) == ["Book SK4, please."]
    again = await start(a, s, "c1", name="book", arguments=ARGUMENTS)
    assert (again.status, again.content) == (pb.TOOL_CALL_STATUS_DONE, '{"booked": "SK4"}')
    with refusal("TOOL_RESULT_SUPERSEDED"):
        await finish(a, again.ticket, {"booked": "again"})


async def test_a_call_that_runs_while_somebody_goes_back_is_finished_once(world: World) -> None:
    a, s, before = await opened(world)
    ticket = await ask(a, s)
    await a.restore(s, before)
    assert [call.status for call in await listed(a, s)] == [pb.TOOL_CALL_STATUS_PENDING]
    done = (await finish(a, ticket, {"booked": "SK4"}, append_message=True)).tool_call
    assert (done.status, list(done.changes)) == (pb.TOOL_CALL_STATUS_DONE, []), "the goal is still the same version"
    await a.append(s, said("And now?"))
    context = await ContextAgent(a, s).assemble()
    check_openai(context.openai)
    check_anthropic(context.anthropic)
    assert '{"booked": "SK4"}' in str(context.openai), "what was done is told, though this branch has not asked for it"


async def test_a_goal_that_was_put_back_is_another_than_the_call_was_made_for(world: World) -> None:
    a, s, before = await opened(world)
    await a.agent.put(space(s), "goals/main", "fly tomorrow", blind=True)
    ticket = await ask(a, s)
    await a.restore(s, before)
    assert [change.key for change in (await get(a, ticket)).changes] == ["goals/main"]
    done = (await finish(a, ticket, {"booked": "SK4"})).tool_call
    assert [change.key for change in done.changes] == ["goals/main"]
