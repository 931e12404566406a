"""What the agent does when it is alone, when others are faster, and when things go wrong."""

from __future__ import annotations

import asyncio

import pytest
from outliner import Goal, Outline, Section, decide_next, work

from noosphere.client import Client
from noosphere.testing import Server

REPORT = "shared/report"


class ScriptedModel:
    """A language model that says what it is told to, and remembers what it was asked."""

    def __init__(self, *answers: str) -> None:
        self.prompts: list[str] = []
        self._answers = list(answers)

    async def __call__(self, prompt: str) -> str:
        self.prompts.append(prompt)
        return self._answers.pop(0) if self._answers else "text"


async def add_sections(client: Client, *titles: str) -> None:
    board = client.namespace(REPORT).board("sections/", Section)
    for title in titles:
        await board.add(Section(title=title), title)


async def outline(client: Client) -> dict[str, str]:
    record = await client.namespace(REPORT).get("outline", Outline)
    return record.value.texts if record is not None else {}


async def finish(srv: Server, working: asyncio.Task[list[str]]) -> list[str]:
    """Lets time pass until an agent is done: one that finds no more work waits in vain for a while."""
    while not working.done():
        await srv.advance(5)
    return await working


async def test_it_writes_what_is_to_be_written(noosphere_server: Server, noosphere_client: Client) -> None:
    await add_sections(noosphere_client, "costs", "risks")
    working = asyncio.create_task(work("writer-1", ScriptedModel("money", "danger")))
    assert await finish(noosphere_server, working) == ["costs", "risks"]
    assert await outline(noosphere_client) == {"costs": "money", "risks": "danger"}


async def test_it_keeps_what_another_agent_has_written_meanwhile(
    noosphere_server: Server, noosphere_client: Client
) -> None:
    await add_sections(noosphere_client, "costs")
    theirs = Outline(texts={"risks": "theirs"})
    noosphere_server.faults.conflict_next(REPORT, "outline", theirs, agent="writer-2")
    working = asyncio.create_task(work("writer-1", ScriptedModel("mine")))
    await finish(noosphere_server, working)
    assert await outline(noosphere_client) == {"risks": "theirs", "costs": "mine"}


async def test_it_lets_its_model_join_what_two_have_written(noosphere_server: Server, noosphere_client: Client) -> None:
    await add_sections(noosphere_client, "costs")
    theirs = Outline(texts={"costs": "theirs"})
    noosphere_server.faults.conflict_next(REPORT, "outline", theirs, agent="writer-2")
    model = ScriptedModel("mine", "both")
    await finish(noosphere_server, asyncio.create_task(work("writer-1", model)))
    assert await outline(noosphere_client) == {"costs": "both"}
    assert "theirs" in model.prompts[1]
    assert "writer-2#" in model.prompts[1]


async def test_a_lost_reply_makes_it_do_nothing_twice(noosphere_server: Server, noosphere_client: Client) -> None:
    await add_sections(noosphere_client, "costs")
    for method in ("ClaimNext", "Put", "Complete"):
        noosphere_server.faults.drop_reply(method=method, agent="writer-1")
    model = ScriptedModel("money")
    assert await finish(noosphere_server, asyncio.create_task(work("writer-1", model))) == ["costs"]
    assert len(model.prompts) == 1


async def test_ten_minutes_of_thought_cost_it_no_claim(noosphere_server: Server, noosphere_client: Client) -> None:
    await add_sections(noosphere_client, "costs")

    async def slow(prompt: str) -> str:
        await noosphere_server.advance(600)
        return "well considered"

    assert await finish(noosphere_server, asyncio.create_task(work("writer-1", slow))) == ["costs"]


async def test_what_a_stopped_agent_had_claimed_is_written_by_another(
    noosphere_server: Server, noosphere_client: Client
) -> None:
    await add_sections(noosphere_client, "costs")
    thinking, go_on = asyncio.Event(), asyncio.Event()

    async def stuck(prompt: str) -> str:
        thinking.set()
        await go_on.wait()
        return "too late"

    stopped = asyncio.create_task(work("writer-1", stuck))
    await thinking.wait()
    with noosphere_server.faults.suspended("writer-1"):
        other = asyncio.create_task(work("writer-2", ScriptedModel("in time"), wait=60))
        await noosphere_server.advance(100)
        assert await other == ["costs"]
    assert await finish(noosphere_server, stopped) == []
    assert await outline(noosphere_client) == {"costs": "in time"}


async def test_it_decides_again_when_the_goal_has_changed(noosphere_server: Server, noosphere_client: Client) -> None:
    goal = noosphere_client.namespace(REPORT).key("goal", Goal)
    await goal.put(Goal(audience="engineers"))

    class Interrupted(ScriptedModel):
        async def __call__(self, prompt: str) -> str:
            if not self.prompts:
                await goal.update(lambda *_: Goal(audience="investors"))
            return await super().__call__(prompt)

    model = Interrupted("architecture", "returns")
    assert await decide_next("planner", model) == "returns"
    assert model.prompts[0].startswith("For engineers")
    assert model.prompts[1].startswith("For investors")
    assert "Your decision was not written." in model.prompts[1]


@pytest.mark.parametrize("lose", [0, 1])
async def test_it_survives_a_failover_of_the_server(
    noosphere_server: Server, noosphere_client: Client, lose: int
) -> None:
    await add_sections(noosphere_client, "costs", "risks")
    await noosphere_client.namespace(REPORT).put("unrelated", 1)
    await noosphere_server.faults.fail_over(lose=lose)
    working = asyncio.create_task(work("writer-1", ScriptedModel()))
    assert await finish(noosphere_server, working) == ["costs", "risks"]
