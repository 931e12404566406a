"""``kill -9`` while outboxes are drained: every item that was archived is one candidate, and none is two."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest
from tests.faults.conftest import connected
from tests.support.api import Agent, put
from tests.support.dying import DyingServer
from tests.support.facts import FactAgent, user_name
from tests.support.sessions import OUTBOX, SessionAgent, space
from tests.support.statuses import Refused

ROUNDS = 3
SESSIONS = 3
ITEMS = 60
COMMITS_AT_LEAST = 2 * SESSIONS
"""What closing the sessions and handing over what they leave takes, however much is committed together."""


@pytest.mark.campaign
async def test_what_was_archived_is_handed_over_once_in_effect(dying: DyingServer) -> None:
    rng = random.Random(7)
    torn = 0
    for number in range(ROUNDS):
        owner = user_name()
        ids = [f"r{number}-{place}" for place in range(SESSIONS)]
        expected = {f"item {item} of session {s} is worth a fact" for s in ids for item in range(ITEMS)}
        async with connected(dying) as api:
            a = SessionAgent(Agent(api, await api.open_agent(f"a-{number}")))
            for s in ids:
                await _fill(a, s, owner)
            # In the first round when nothing has been handed over, later when others are on their way.
            dying.die_after(rng.randrange(1, COMMITS_AT_LEAST) if number else 1)
            closing = await asyncio.gather(*(a.close(s) for s in ids), return_exceptions=True)
            await dying.dead()
            for ended in closing:
                assert not isinstance(ended, Exception) or isinstance(ended, Refused)
        dying.restart()
        async with connected(dying) as api:
            a = SessionAgent(Agent(api, await api.open_agent(f"b-{number}")))
            for s in ids:
                torn += bool(await a.agent.listing(space(s), OUTBOX))
                await a.close(s)
                await _emptied(a, s)
            found = await _decided(a, owner, len(expected))
            assert set(found) == expected
            assert set(found.values()) == {1}
    assert torn, "the server was never killed with something left to hand over"


async def _fill(a: SessionAgent, s: str, owner: str) -> None:
    await a.open(s)
    texts = [f"item {item} of session {s} is worth a fact" for item in range(ITEMS)]
    puts = [put(f"notes/n{item}", text, attributes={"owner": owner}) for item, text in enumerate(texts)]
    await a.agent.transact(space(s), *puts)


async def _head(a: SessionAgent, s: str) -> int:
    return (await a.agent.history(space(s)))[-1].revision


async def _emptied(a: SessionAgent, s: str) -> None:
    """Returns once an outbox is empty."""
    changes = a.agent.watch(space(s), OUTBOX, after=await _head(a, s))
    while await a.agent.listing(space(s), OUTBOX):
        await anext(changes)
    await changes.aclose()


async def _decided(a: SessionAgent, owner: str, count: int) -> Counter[str]:
    """Returns how often each text is a candidate, once at least so many are decided about."""
    facts = FactAgent(a.agent)
    decisions = facts.watch(owner)
    await anext(decisions)
    decided = {one.candidate.id for one in await facts.candidates(owner, page_size=100)}
    while len(decided) < count:
        decided.add((await anext(decisions)).decision.candidate_id)
        decided.discard("")
    await decisions.aclose()
    return Counter(one.candidate.text for one in await facts.candidates(owner, page_size=100))
