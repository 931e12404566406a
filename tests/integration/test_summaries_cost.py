"""What a model's summaries cost, measured on recorded runs of real tool agents: far less than is set aside for them."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.contexts import ContextAgent
from tests.support.endpoint import Asked, Endpoint, completion, open_endpoint, send
from tests.support.engine import LocalServer
from tests.support.sessions import SessionAgent, said
from tests.support.traces import recorded_traces

from noosphere.server.models.vocabularies import Vocabulary
from noosphere.v1 import context_service_pb2 as pb
from noosphere.v1 import session_service_pb2 as session_pb

SHARE_MAX = 0.15
"""Of all tokens that a session's models read and write, contexts and summaries together."""

BUDGET = 6_000
VOCABULARY = Vocabulary("o200k_base")


class WordyModel:
    """Summarises in as many words as it may, and keeps the books."""

    def __init__(self) -> None:
        self.tokens = 0
        self.calls = 0

    async def answer(self, writer: asyncio.StreamWriter, asked: Asked) -> None:
        instructions, data = (message["content"] for message in asked.body["messages"])
        (words,) = re.findall(r"under (\d+) words", instructions)
        answer = {"goals": [], "decisions": [], "open_questions": [], "entities": [], "narrative": "word " * int(words)}
        text = json.dumps(answer)
        self.calls += 1
        self.tokens += sum(VOCABULARY.count(part) for part in (instructions, data, text))
        send(writer, completion(text))


@pytest.fixture
def model() -> WordyModel:
    return WordyModel()


@pytest.fixture
async def endpoint(model: WordyModel) -> AsyncIterator[Endpoint]:
    async with open_endpoint(model.answer) as opened:
        yield opened


@pytest.fixture
async def server(tmp_path: Path, endpoint: Endpoint) -> AsyncIterator[LocalServer]:
    made = LocalServer(
        tmp_path,
        summariser="openai",
        summariser_url=endpoint.url,
        summariser_model="tiny",
        summariser_hourly_calls_max=10_000,
        summariser_hourly_tokens_max=10**8,
    )
    await made.start()
    yield made
    await made.stop()


async def play(server: LocalServer, agent: SessionAgent, session_id: str, run: list[dict[str, Any]]) -> int:
    """Plays a run, with a context before each answer; returns the tokens of contexts and answers."""
    await agent.open(session_id)
    contexts = ContextAgent(agent, session_id)
    system, *rest = run
    tokens = turn = 0
    for message in rest:
        content = message["content"] or ""
        match message["role"]:
            case "user":
                if turn:
                    await agent.end_turn(session_id, turn)
                    await server.engine.sessions.summary_worker.idle()
                turn = await agent.begin_turn(session_id)
                await agent.say(session_id, content)
            case "tool":
                result = said(content, session_pb.ROLE_TOOL, tool_call_id=message["tool_call_id"])
                await agent.append(session_id, result)
            case _:
                context = await contexts.assemble(system=system["content"], budget=pb.ContextBudget(tokens=BUDGET))
                answer = said(content, session_pb.ROLE_ASSISTANT)
                for call in message.get("tool_calls") or ():
                    function = call["function"]
                    answer.tool_calls.add(call_id=call["id"], name=function["name"], arguments=function["arguments"])
                await agent.append(session_id, answer)
                tokens += context.manifest.tokens_used + VOCABULARY.count(content)
    return tokens


@pytest.mark.campaign
async def test_summaries_take_less_than_is_set_aside_for_them(server: LocalServer, model: WordyModel) -> None:
    agent = SessionAgent(await server.api.agent("a"))
    runs = [run for path in sorted(recorded_traces().glob("*.json")) for run in json.loads(path.read_text())]
    spent = 0
    for number, run in enumerate(runs):
        spent += await play(server, agent, f"run-{number}", run["traj"])
    await server.engine.sessions.summary_worker.idle()
    assert model.calls > len(runs)
    share = model.tokens / (model.tokens + spent)
    assert 0.01 < share <= SHARE_MAX, f"{share:.1%} of {model.tokens + spent} tokens"
