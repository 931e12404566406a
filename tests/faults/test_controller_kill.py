"""``kill -9`` while the controller archives: an item is in working memory or its candidate is in the outbox."""

from __future__ import annotations

import asyncio

import pytest
from tests.faults.conftest import connected
from tests.support.api import Agent
from tests.support.process import ServerProcess
from tests.support.sessions import SessionAgent, proposed, space
from tests.support.statuses import Refused

from noosphere.v1 import session_service_pb2 as pb

S = "long"
ROUNDS = 3
TURNS_A_ROUND = 15
ITEMS_A_TURN = 6


@pytest.mark.campaign
async def test_no_item_is_ever_without_its_candidate(server: ServerProcess) -> None:
    written: set[str] = set()
    for number in range(ROUNDS):
        async with connected(server) as api:
            a = SessionAgent(Agent(api, await api.open_agent(f"worker-{number}")))
            await a.open(S, settings=pb.SessionSettings(grace_turns=1), allow_existing=True)
            working = asyncio.create_task(_work(a, number, written))
            # Some turn well into the round: its end is under way, or just over, or about to begin.
            while len(written) < (number + 1) * TURNS_A_ROUND * ITEMS_A_TURN:
                await asyncio.sleep(0)
                assert not working.done(), working.result()
            server.kill()
            with pytest.raises(Refused):
                await working
        server.restart()
    async with connected(server) as api:
        a = SessionAgent(Agent(api, await api.open_agent("reader")))
        items = set(await a.items(S))
        candidates = [candidate["item"] for candidate in await proposed(a, S)]
        events = [transition.key for transition in await a.transitions(S)]
    assert len(candidates) == len(set(candidates)), "an item left once"
    assert not items & set(candidates)
    assert written <= items | set(candidates), "an acknowledged item is neither here nor there"
    assert set(candidates) == set(events), "whatever left is told of"
    assert candidates, "the controller had something to do"


async def _work(a: SessionAgent, number: int, written: set[str]) -> None:
    """Writes items and ends turns until the server is gone."""
    turn = 0
    while True:
        turn += 1
        for n in range(ITEMS_A_TURN):
            key = f"notes/{number}-{turn}-{n}"
            await a.agent.put(space(S), key, n)
            written.add(key)
        await a.turns(S)
