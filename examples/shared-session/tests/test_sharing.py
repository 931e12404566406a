"""What the two are to each other: nothing is lost, nothing is written on stale grounds, and both are told."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

import pytest
from shared_session import PLAN, Plan, begin, carry_on, revise

from noosphere.client import AckedWritesLost, Client, InvalidArgument, read_handoff
from noosphere.testing import Server

GOAL = "Convince the investors."
SESSION = "report"


class ScriptedModel:
    """A language model that says what it is told to, and remembers what it was shown."""

    def __init__(self, *texts: str, meanwhile: Mapping[int, Callable[[], Awaitable[object]]] | None = None) -> None:
        self.shown: list[str] = []
        self._texts = list(texts)
        self._meanwhile = meanwhile or {}

    async def __call__(self, messages: Sequence[Mapping[str, Any]]) -> str:
        self.shown.append(json.dumps(messages, ensure_ascii=False))
        if happens := self._meanwhile.get(len(self.shown)):
            await happens()
        return self._texts.pop(0)


@pytest.fixture
async def planner(noosphere_server: Server) -> AsyncIterator[Client]:
    async with noosphere_server.client("planner") as client:
        yield client


@pytest.fixture
async def writer(noosphere_server: Server) -> AsyncIterator[Client]:
    async with noosphere_server.client("writer") as client:
        yield client


async def hand_over(planner: Client, titles: str = "Costs\nRisks") -> str:
    return await begin(planner, ScriptedModel(titles), GOAL, to="writer", session_id=SESSION)


async def plan_of(client: Client) -> dict[str, str]:
    record = await client.namespace(f"sessions/{SESSION}").get(PLAN, Plan)
    assert record is not None
    return {step.title: step.text for step in record.value.steps}


async def said_by(client: Client, author: str) -> list[str]:
    async with client.session(SESSION, existing="required") as session:
        return [message.text async for message in session.messages() if message.author == author]


async def test_one_plans_and_the_other_writes(planner: Client, writer: Client) -> None:
    envelope = await hand_over(planner)
    handed = read_handoff(envelope)
    assert handed.session_id == SESSION
    assert handed.control["next_node"] == "write"
    model = ScriptedModel("It costs ten.", "It may fail.")
    assert await carry_on(writer, model, envelope) == "Costs\nIt costs ten.\n\nRisks\nIt may fail."
    # The writer's model knows what the planner's was asked for and has answered, and its own first section.
    assert all(words in model.shown[0] for words in (GOAL, "Costs", "Risks"))
    assert "It costs ten." in model.shown[1]
    async with writer.session(SESSION, existing="required") as session:
        info, control = await session.info(), await session.control.get()
    assert (info.owner, info.turn, info.open_turns) == ("planner", 2, ())
    assert (control.next_node, control.author) == ("read", "writer")


async def test_what_was_written_for_a_plan_of_yesterday_is_refused_and_the_writer_told(
    planner: Client, writer: Client
) -> None:
    envelope = await hand_over(planner)

    async def plans_anew() -> None:
        await revise(planner, ScriptedModel("Returns\nRisks"), "Say what it brings.", session_id=SESSION)

    model = ScriptedModel("It costs ten.", "It brings twenty.", "It may fail.", meanwhile={1: plans_anew})
    told: list[str] = []
    await carry_on(writer, model, envelope, told.append)
    assert await plan_of(writer) == {"Returns": "It brings twenty.", "Risks": "It may fail."}
    assert await said_by(writer, "writer") == ["It brings twenty.", "It may fail."]
    [words] = told
    assert "Your decision was not written." in words
    assert f"{PLAN}: changed, by planner#" in words
    assert "Returns" not in model.shown[0]
    assert "Returns" in model.shown[1]
    assert "Your decision was not written." in model.shown[1]
    assert "Your decision was not written." not in model.shown[2]


async def test_who_plans_anew_keeps_what_is_written_meanwhile(planner: Client, writer: Client) -> None:
    envelope = await hand_over(planner)

    async def writes() -> None:
        await carry_on(writer, ScriptedModel("It costs ten.", "It may fail."), envelope)

    model = ScriptedModel("Costs\nReturns", "Costs\nReturns\nRisks", meanwhile={1: writes})
    await revise(planner, model, "Say what it brings.", session_id=SESSION)
    # It was about to drop a section that it did not know to be written; it saw that, and thought better of it.
    assert "It may fail." in model.shown[1]
    assert await plan_of(planner) == {"Costs": "It costs ten.", "Returns": "", "Risks": "It may fail."}


async def test_another_goal_makes_a_section_stale_too(planner: Client, writer: Client) -> None:
    envelope = await hand_over(planner, "Costs")

    async def wants_something_else() -> None:
        async with planner.session(SESSION) as session:
            await session.goal().update(lambda *_: {"text": "Warn the investors."})

    model = ScriptedModel("Only ten.", "As much as ten.", meanwhile={1: wants_something_else})
    assert await carry_on(writer, model, envelope) == "Costs\nAs much as ten."
    assert "Warn the investors." in model.shown[1]


async def test_what_the_planner_says_while_the_writer_thinks_disturbs_nobody(planner: Client, writer: Client) -> None:
    envelope = await hand_over(planner, "Costs")

    async def chats() -> None:
        async with planner.session(SESSION) as session, session.turn():
            await session.append({"role": "assistant", "content": "Take your time."})
            await session.update(title="The report")

    model = ScriptedModel("It costs ten.", meanwhile={1: chats})
    await carry_on(writer, model, envelope)
    assert len(model.shown) == 1
    assert await said_by(writer, "planner") == [GOAL, "Costs", "Take your time."]


@pytest.mark.parametrize(
    ("agent", "method"),
    [
        *(("planner", method) for method in ("OpenSession", "Commit", "SetControl", "Handoff", "EndTurn")),
        *(("writer", method) for method in ("BeginTurn", "Commit", "SetControl", "EndTurn")),
    ],
)
async def test_a_lost_reply_does_nothing_twice(
    noosphere_server: Server, planner: Client, writer: Client, agent: str, method: str
) -> None:
    noosphere_server.faults.drop_reply(method=method, agent=agent)
    model = ScriptedModel("It costs ten.", "It may fail.")
    await carry_on(writer, model, await hand_over(planner))
    assert await said_by(writer, "planner") == [GOAL, "Costs\nRisks"]
    assert await said_by(writer, "writer") == ["It costs ten.", "It may fail."]
    async with writer.session(SESSION) as session:
        assert len([grant async for grant in session.items.list("_session/handoffs/")]) == 1


async def test_nothing_is_begun_on_a_plan_that_a_failover_has_lost(
    noosphere_server: Server, planner: Client, writer: Client
) -> None:
    envelope = await hand_over(planner)
    # The plan is among the last that was written.
    await noosphere_server.faults.fail_over(lose=6)
    model = ScriptedModel()
    with pytest.raises(AckedWritesLost):
        await carry_on(writer, model, envelope)
    assert model.shown == []


async def test_what_is_no_envelope_is_refused(writer: Client) -> None:
    with pytest.raises(InvalidArgument):
        await carry_on(writer, ScriptedModel(), '{"session": "report"}')
