"""Recorded runs of real tool agents played through sessions: every step's context, and the decision made with it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.contexts import Assembled, ContextAgent, against
from tests.support.engine import LocalServer, local_server
from tests.support.sessions import SessionAgent, said, space
from tests.support.statuses import refusal
from tests.support.traces import recorded_traces

from noosphere.consistency import Reason
from noosphere.server.context.provider_rules import check_anthropic, check_openai
from noosphere.server.models.vocabularies import Vocabulary
from noosphere.v1 import context_service_pb2 as pb
from noosphere.v1 import memory_service_pb2 as memory_pb
from noosphere.v1 import session_service_pb2 as session_pb

BUDGET = 12_000


def _runs() -> list[dict[str, Any]]:
    return [run for path in sorted(recorded_traces().glob("*.json")) for run in json.loads(path.read_text())]


class Player:
    """Plays recorded runs as one agent whose model answers as recorded."""

    def __init__(self, server: LocalServer, agent: SessionAgent, peer: SessionAgent) -> None:
        self.server = server
        self.agent = agent
        self.peer = peer
        self.stale = 0
        self.steps = 0
        self.shared: list[float] = []

    async def play(self, session_id: str, run: list[dict[str, Any]], *, chatter: bool = False) -> None:
        """Plays a run, with a peer that says something before every answer if ``chatter``."""
        await self.agent.open(session_id)
        contexts = ContextAgent(self.agent, session_id)
        await self.agent.agent.put(space(session_id), "goals/main", b'{"goal": "help the customer"}', blind=True)
        system, *rest = run
        before: Assembled | None = None
        turn = 0
        for message in rest:
            if message["role"] == "user":
                if turn:
                    await self.agent.end_turn(session_id, turn)
                    # Models take their time; summaries by rules are there before the next answer.
                    await self.server.engine.sessions.summary_worker.idle()
                turn = await self.agent.begin_turn(session_id)
                await self.agent.say(session_id, message["content"])
                before = None
            elif message["role"] == "tool":
                answer = said(message["content"], session_pb.ROLE_TOOL, tool_call_id=message["tool_call_id"])
                answer.name = message.get("name", "")
                await self.agent.append(session_id, answer)
            else:
                if chatter:
                    await self.peer.append(session_id, said("how is it going?", session_pb.ROLE_ASSISTANT))
                before = await self._step(contexts, system["content"], message, before)

    async def _step(
        self, contexts: ContextAgent, system: str, message: dict[str, Any], before: Assembled | None
    ) -> Assembled:
        context = await contexts.assemble(system=system, budget=pb.ContextBudget(tokens=BUDGET))
        check_openai(context.openai)
        check_anthropic(context.anthropic)
        assert context.manifest.tokens_used <= BUDGET
        if before is not None and _window(before) <= _window(context):
            self.shared.append(_shared_prefix(before, context))
        answer = said(message["content"] or "", session_pb.ROLE_ASSISTANT)
        for call in message.get("tool_calls") or ():
            function = call["function"]
            answer.tool_calls.add(call_id=call["id"], name=function["name"], arguments=function["arguments"])
        request = memory_pb.CommitRequest(
            namespace=space(contexts.session_id),
            operations=[memory_pb.Operation(append=memory_pb.AppendOperation(message=answer))],
            call=against(self.agent, context.token),
        )
        await self.agent.agent.api.commit(request)
        self.steps += 1
        return context


def _window(context: Assembled) -> set[str]:
    return {name for name, (fate, _) in context.fates().items() if fate != "dropped" and name.startswith("message:")}


def _shared_prefix(before: Assembled, after: Assembled) -> float:
    """The part of the earlier prompt's tokens with which the later one begins."""
    one, two = json.dumps(before.openai)[:-1], json.dumps(after.openai)[:-1]
    same = next((at for at, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))
    count = Vocabulary("o200k_base").count
    return count(one[:same]) / count(one)


@pytest.fixture
async def player(tmp_path: Path) -> AsyncIterator[Player]:
    async with local_server(tmp_path) as server:
        yield Player(server, SessionAgent(await server.api.agent("a")), SessionAgent(await server.api.agent("b")))


@pytest.mark.parametrize(
    "chatter", [pytest.param(False, marks=pytest.mark.campaign), True], ids=["alone", "with a peer"]
)
async def test_recorded_runs_are_played_without_a_stale_decision(player: Player, chatter: bool) -> None:
    """Each step's context suits both providers, keeps its budget, and begins with the prompt before it."""
    runs = _runs()
    for number, run in enumerate(runs):
        await player.play(f"run-{number}", run["traj"], chatter=chatter)
    assert player.steps > 300
    assert len(player.shared) > 100
    assert min(player.shared) >= 0.9


async def test_a_goal_that_changes_while_the_model_thinks_is_noticed_at_every_step(player: Player) -> None:
    run = _runs()[1]["traj"]
    await player.play("s", run)
    contexts = ContextAgent(player.agent, "s")
    for number in range(5):
        context = await contexts.assemble("And now?")
        await player.peer.agent.put(space("s"), "goals/main", b'{"goal": "%d"}' % number, blind=True)
        request = memory_pb.CommitRequest(
            namespace=space("s"),
            operations=[
                memory_pb.Operation(append=memory_pb.AppendOperation(message=said("so", session_pb.ROLE_ASSISTANT)))
            ],
            call=against(player.agent, context.token),
        )
        with refusal(Reason.STALE_READ_SET):
            await player.agent.agent.api.commit(request)
