"""``kill -9`` while procedures are learned: each is proposed once, wherever the process was when it ended."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest
from tests.faults.conftest import connected
from tests.support.api import Agent
from tests.support.process import ServerProcess
from tests.support.sessions import SessionAgent, proposed
from tests.support.statuses import Refused
from tests.support.toolcalls import finish, start

from noosphere.v1 import session_service_pb2 as pb

ROUNDS = 3
TURNS_A_ROUND = 8
TOOLS = ("search", "open", "list", "read")


@pytest.mark.campaign
async def test_no_procedure_is_proposed_twice(server: ServerProcess) -> None:
    rng = random.Random(7)
    opened: list[str] = []
    for _ in range(ROUNDS):
        before = len(opened)
        async with connected(server) as api:
            a = SessionAgent(Agent(api, await api.open_agent("worker")))
            working = asyncio.create_task(_work(a, rng, opened))
            while len(opened) < before + TURNS_A_ROUND:
                await asyncio.sleep(0)
                assert not working.done(), working.result()
            server.kill()
            with pytest.raises(Refused):
                await working
        server.restart()
    async with connected(server) as api:
        a = SessionAgent(Agent(api, await api.open_agent("worker")))
        # Whoever comes next delivers what is still on its way.
        await _turn(a, "last", TOOLS)
        made: Counter[str] = Counter()
        told: Counter[str] = Counter()
        for s in (*opened, "last"):
            # The last one of a round may never have come to be.
            await a.open(s, allow_existing=True)
            made.update(candidate["item"] for candidate in await proposed(a, s))
            told.update(transition.key for transition in await a.transitions(s))
    assert made, "there was something to learn"
    assert set(made.values()) == {1}
    assert told == made, "and each is told of"


async def _work(a: SessionAgent, rng: random.Random, opened: list[str]) -> None:
    """Does one turn in each of ever new sessions until the server is gone."""
    while True:
        name = f"s{len(opened)}"
        opened.append(name)
        await _turn(a, name, rng.choices(TOOLS, k=3))


async def _turn(a: SessionAgent, session_id: str, tools: tuple[str, ...] | list[str]) -> None:
    await a.open(session_id, allow_existing=True)
    turn = await a.begin_turn(session_id)
    for tool in tools:
        await finish(a, (await start(a, session_id, name=tool)).ticket)
    await a.call("EndTurn", pb.EndTurnRequest(session_id=session_id, turn=turn), pb.EndTurnResponse)
