"""``kill -9`` while an owner is forgotten: what is gone stays gone with every byte, and the rest is whole."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest
from tests.faults.conftest import connected
from tests.support.api import Api
from tests.support.dying import DyingServer
from tests.support.facts import Conversation, FactAgent
from tests.support.process import ServerProcess
from tests.support.statuses import Refused

from noosphere.v1 import fact_service_pb2 as pb

FACTS = 24
ROUNDS = 3
COMMITS_AT_LEAST = 2 * FACTS
"""What forgetting so many facts takes, one after the other: one for each fact, and then for the places of its words."""


def code(owner: str, number: int) -> str:
    """What a locker of an owner opens with; no two are alike, and none is part of another."""
    return f"canary-{owner.rpartition('/')[2]}-{number:02d}-end"


async def learn(api: Api, agent: str, owner: str) -> None:
    """Has an owner's lockers known, each from a message of its own."""
    facts = FactAgent(await api.agent(agent))
    talk = await Conversation.begin(facts.agent)
    candidates = []
    for number in range(FACTS):
        said = f"Locker {number} of the hall opens with {code(owner, number)}"
        heard = await talk.hears(said)
        candidates.append(pb.Candidate(text=said, owner=owner, channel=pb.CHANNEL_USER, evidence=[heard]))
    decisions = (await facts.submit(*candidates)).decisions
    assert all(decision.fact_id for decision in decisions)


async def known(facts: FactAgent, owner: str) -> set[str]:
    """What of an owner is known, in words."""
    return {fact.text.rpartition(" ")[2] for fact in await facts.listed(owner, include_superseded=True)}


def in_files(server: ServerProcess, owner: str) -> set[str]:
    """What of an owner stands in any file of the server."""
    contents = [path.read_bytes() for path in sorted(server.data.rglob("*")) if path.is_file()]
    codes = {code(owner, number) for number in range(FACTS)}
    return {one for one in codes if any(one.encode() in content for content in contents)}


@pytest.mark.campaign
async def test_what_is_gone_stays_gone_and_the_rest_is_whole(dying: DyingServer) -> None:
    rng = random.Random(11)
    other = "user/other"
    async with connected(dying) as api:
        await learn(api, "keeper", other)
    for round_number in range(ROUNDS):
        owner = f"user/round{round_number}"
        every = {code(owner, number) for number in range(FACTS)}
        async with connected(dying) as api:
            await learn(api, f"keeper-{round_number}", owner)
            op = FactAgent(await api.agent("cli/op", takeover=True))
            # Sometimes between two facts, sometimes while their words are being overwritten.
            dying.die_after(rng.randrange(1, COMMITS_AT_LEAST))
            forgetting = asyncio.create_task(op.forget(all=True, owner=owner))
            left_at_most = FACTS
            with contextlib.suppress(Refused):
                while True:
                    left_at_most = len(await known(op, owner))
            with pytest.raises(Refused):
                await forgetting
            await dying.dead()
        dying.restart()
        async with connected(dying) as api:
            op = FactAgent(await api.agent("cli/op", takeover=True))
            left = await known(op, owner)
            assert len(left) <= left_at_most, "what was gone is gone"
            await op.run_upkeep(owner)
            assert await known(op, owner) == left
        assert dying.terminate() == 0
        assert in_files(dying, owner) == left, "what is gone is in no file, and what is known has its source"
        dying.restart()
        async with connected(dying) as api:
            op = FactAgent(await api.agent("cli/op", takeover=True))
            for gone in sorted(every - left)[:2]:
                found = await op.search(f"Which locker opens with {gone}?", owner)
                assert not any(gone in hit.fact.text for hit in found)
            report = await op.forget(all=True, owner=owner)
            assert len(report.fact_ids) == len(left), "the same call goes on where it was cut off"
            assert await known(op, owner) == set()
            assert len(await known(op, other)) == FACTS
    assert dying.terminate() == 0
    for round_number in range(ROUNDS):
        assert in_files(dying, f"user/round{round_number}") == set()
    assert len(in_files(dying, other)) == FACTS, "another owner's words stand where they stood"
