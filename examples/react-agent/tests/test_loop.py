"""The same loop with a scripted model: no endpoint, no running server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from react_agent import Agent, StepsExceeded, Tool, file_tools

from noosphere.client import Client, Message, Session, StaleRead
from noosphere.testing import Server

Reply = Mapping[str, Any]
QUESTION = "What does it cost?"


def says(text: str) -> Reply:
    return {"role": "assistant", "content": text}


def asks(*calls: tuple[str, str, Any]) -> Reply:
    """The model asks for tools: ids, names and arguments."""
    functions = [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for call_id, name, arguments in calls
    ]
    return {"role": "assistant", "content": None, "tool_calls": functions}


class ScriptedModel:
    """A language model that says what it is told to, and remembers what it was shown."""

    def __init__(self, *replies: Reply, before: Mapping[int, Callable[[], Awaitable[object]]] | None = None) -> None:
        self.shown: list[list[Mapping[str, Any]]] = []
        self._replies = list(replies)
        self._before = before or {}

    async def __call__(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> Reply:
        self.shown.append(list(messages))
        if happens := self._before.get(len(self.shown)):
            await happens()
        return self._replies.pop(0)

    def text(self, thought: int) -> str:
        return json.dumps(self.shown[thought - 1], ensure_ascii=False)


class Item(BaseModel):
    name: str


async def price(item: Item) -> Any:
    if item.name == "moon":
        raise LookupError("the moon is not for sale")
    return {"name": item.name, "price": len(item.name)}


PRICE = Tool("price", "Returns what something costs.", Item, price)


@pytest.fixture
async def session(noosphere_client: Client) -> AsyncIterator[Session]:
    async with noosphere_client.session("purchase") as opened:
        await opened.goal().put({"text": "buy something cheap"})
        yield opened


async def transcript(session: Session) -> list[tuple[str, str]]:
    return [(message.role, message.text) async for message in session.messages()]


async def test_it_thinks_uses_tools_and_answers(session: Session) -> None:
    model = ScriptedModel(
        asks(("c1", "price", {"name": "lamp"}), ("c2", "price", {"name": "chair"})),
        says("A lamp costs 4, a chair 5."),
    )
    assert await Agent(model, [PRICE]).answer(session, QUESTION) == "A lamp costs 4, a chair 5."
    told = await transcript(session)
    assert [role for role, _ in told] == ["user", "assistant", "tool", "tool", "assistant"]
    assert {json.loads(text)["price"] for role, text in told if role == "tool"} == {4, 5}
    # The second thought was shown the calls and both results, and nothing after them.
    assert [message["tool_call_id"] for message in model.shown[1][-2:]] == ["c1", "c2"]
    assert "buy something cheap" in model.text(1)
    assert [call.status async for call in session.tool_calls()] == ["done", "done"]
    assert (await session.info()).open_turns == ()


async def test_the_next_question_finds_what_was_said_before(session: Session) -> None:
    agent = Agent(model := ScriptedModel(says("4"), says("As I said.")))
    await agent.answer(session, QUESTION)
    await agent.answer(session, "Sure?")
    assert model.shown[1][-1] == {"role": "user", "content": "Sure?"}
    assert says("4") in model.shown[1]


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("price", {"name": "moon"}, "the moon is not for sale"),
        ("price", {"nome": "lamp"}, "name"),
        ("prices", {}, "there is no tool 'prices'"),
    ],
    ids=["a tool that fails", "wrong arguments", "an unknown tool"],
)
async def test_what_goes_wrong_is_told_to_the_model(session: Session, name: str, arguments: Any, told: str) -> None:
    model = ScriptedModel(asks(("c1", name, arguments)), says("Sorry."))
    assert await Agent(model, [PRICE]).answer(session, QUESTION) == "Sorry."
    assert model.shown[1][-1]["role"] == "tool"
    assert told in model.shown[1][-1]["content"]


async def test_a_thought_whose_grounds_have_changed_is_thought_anew(noosphere_server: Server, session: Session) -> None:
    async with noosphere_server.client("boss") as boss, boss.session(session.id) as theirs:

        async def changes_the_goal() -> None:
            await theirs.goal().update(lambda *_: {"text": "buy something fine"})

        model = ScriptedModel(says("The cheap one."), says("The fine one."), before={1: changes_the_goal})
        assert await Agent(model).answer(session, QUESTION) == "The fine one."
    assert ("assistant", "The cheap one.") not in await transcript(session)
    assert "buy something fine" in model.text(2)
    assert "Your decision was not written." in model.text(2)
    assert "boss#" in model.text(2)


async def test_a_result_that_came_after_its_goal_has_changed_is_pointed_out(
    noosphere_server: Server, session: Session
) -> None:
    async with noosphere_server.client("boss") as boss, boss.session(session.id) as theirs:

        async def slow_price(item: Item) -> Any:
            await theirs.goal().update(lambda *_: {"text": "rent it"})
            return await price(item)

        model = ScriptedModel(asks(("c1", "price", {"name": "lamp"})), says("Renting it costs 1."))
        await Agent(model, [Tool("price", "", Item, slow_price)]).answer(session, QUESTION)
    [call] = [call async for call in session.tool_calls()]
    assert call.status == "done"
    assert [change.key for change in call.changes] == ["goals/main"]
    assert "c1" in model.text(2)
    assert "goals/main (by boss#" in model.text(2)


async def test_it_does_not_think_for_ever_on_shifting_grounds(noosphere_server: Server, session: Session) -> None:
    async with noosphere_server.client("boss") as boss, boss.session(session.id) as theirs:
        prices = theirs.items.key("prices/lamp")

        async def changes_a_price() -> None:
            await prices.put(len(model.shown), blind=True)

        model = ScriptedModel(says("1"), says("2"), before={1: changes_a_price, 2: changes_a_price})
        with pytest.raises(StaleRead):
            await Agent(model, guard=("prices/",), attempts_max=2).answer(session, QUESTION)
    assert await transcript(session) == [("user", QUESTION)]


async def test_a_run_that_was_stopped_is_taken_up_where_it_stood(noosphere_server: Server, session: Session) -> None:
    bought: list[str] = []
    reached = asyncio.Event()

    async def buy(item: Item) -> str:
        if item.name == "lamp" and not reached.is_set():
            reached.set()
            await asyncio.Event().wait()
        bought.append(item.name)
        return f"bought a {item.name}"

    shop = Tool("buy", "Buys something.", Item, buy, side_effects=True)
    first = ScriptedModel(asks(("c1", "buy", {"name": "chair"}), ("c2", "buy", {"name": "lamp"})))
    running = asyncio.create_task(Agent(first, [shop]).answer(session, "Furnish it.", question_id="q1"))
    await reached.wait()
    await noosphere_server.settle()
    assert [call.status async for call in session.tool_calls()] == ["done", "pending"]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    second = ScriptedModel(says("Done."))
    agent = Agent(second, [shop])
    assert await agent.answer(session, "Furnish it.", question_id="q1") == "Done."
    assert bought == ["chair", "lamp"]
    assert [role for role, _ in await transcript(session)] == ["user", "assistant", "tool", "tool", "assistant"]
    # Asked once more, it has nothing to think about.
    assert await agent.answer(session, "Furnish it.", question_id="q1") == "Done."


@pytest.mark.parametrize("method", ["AppendMessages", "Commit", "StartToolCall", "FinishToolCall", "EndTurn"])
async def test_a_lost_reply_makes_it_do_nothing_twice(noosphere_server: Server, session: Session, method: str) -> None:
    noosphere_server.faults.drop_reply(method=method, agent="agent")
    model = ScriptedModel(asks(("c1", "price", {"name": "lamp"})), says("4"))
    assert await Agent(model, [PRICE]).answer(session, QUESTION) == "4"
    assert [role for role, _ in await transcript(session)] == ["user", "assistant", "tool", "assistant"]


async def test_it_gives_up_on_a_model_that_never_answers(session: Session) -> None:
    model = ScriptedModel(*(asks((f"c{n}", "price", {"name": "x" * n})) for n in range(1, 4)))
    with pytest.raises(StepsExceeded, match="3 thoughts"):
        await Agent(model, [PRICE], steps_max=3).answer(session, QUESTION)
    assert (await session.info()).open_turns == ()


async def test_a_large_file_is_made_smaller_and_kept_whole(session: Session, tmp_path: Path) -> None:
    (tmp_path / "prices.txt").write_text(text := "\n".join(f"item {n} costs {n} euro" for n in range(5_000)))
    model = ScriptedModel(asks(("c1", "read_file", {"path": "prices.txt"})), says("Much."))
    await Agent(model, file_tools(tmp_path)).answer(session, QUESTION)
    [call] = [call async for call in session.tool_calls()]
    assert call.tokens <= 500
    assert await call.raw() == text.encode()


async def test_it_reads_nothing_outside_its_folder(session: Session, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    (folder := tmp_path / "folder").mkdir()
    (folder / "open.txt").write_text("open")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    paths = ["../secret.txt", str(tmp_path / "secret.txt"), "link.txt"]
    model = ScriptedModel(
        asks(
            *((f"c{n}", "read_file", {"path": path}) for n, path in enumerate(paths)),
            ("l", "list_files", {}),
            ("m", "list_files", {"pattern": "../*"}),
        ),
        says("Nothing there."),
    )
    await Agent(model, file_tools(folder)).answer(session, "What is the secret?")
    results = {call.call_id: (call.status, call.content) async for call in session.tool_calls()}
    assert [results[f"c{n}"][0] for n in range(3)] == ["failed"] * 3
    assert json.loads(results["l"][1]) == ["open.txt"]
    assert "secret" not in results["m"][1]


async def test_messages_of_others_are_no_answer_of_its_own(noosphere_server: Server, session: Session) -> None:
    async with noosphere_server.client("peer") as peer, peer.session(session.id) as theirs:
        await session.append(Message("user", QUESTION, id="q1"))
        await theirs.append(says("I would not buy it."))
        model = ScriptedModel(says("4"))
        assert await Agent(model).answer(session, QUESTION, question_id="q1") == "4"
