"""``kill -9`` during checkpoints, restores and archiving: each has happened as a whole or not at all.

In every session a writer raises all items and a counter to the same number and says that number, in one transaction;
meanwhile it makes checkpoints and goes back to them. Whenever the server dies, all items of a session show the number
that was said last on its branch, and so does every checkpoint.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import grpc
import pytest
from tests.faults.conftest import connected
from tests.support.api import put
from tests.support.dying import DyingServer
from tests.support.process import ServerProcess
from tests.support.sessions import SessionAgent, proposed, said, space, texts
from tests.support.statuses import Refused

from noosphere.v1 import memory_service_pb2 as memory_pb
from noosphere.v1 import session_service_pb2 as pb

ROUNDS = int(os.environ.get("NOOSPHERE_TEST_KILLS", "3"))
SESSIONS = 4
ITEMS = 12
ACKNOWLEDGED_AT_KILL = 40
CLOSED_ITEMS = 180
"""More than two commits take."""


@dataclass
class Kill:
    """Kills the server once enough calls were acknowledged, while others are on their way."""

    server: ServerProcess
    after: int
    enough: asyncio.Event = field(default_factory=asyncio.Event)
    acknowledged: int = 0

    def count(self) -> None:
        """Notes an acknowledged call."""
        self.acknowledged += 1
        if self.acknowledged >= self.after:
            self.enough.set()

    async def wait(self, work: Sequence[asyncio.Task[None]]) -> None:
        """Kills the server when it is time, or work that has no end has ended."""
        enough = asyncio.create_task(self.enough.wait())
        await asyncio.wait({enough, *work}, return_when=asyncio.FIRST_COMPLETED)
        enough.cancel()
        await asyncio.to_thread(self.server.kill)


async def until_killed(work: asyncio.Task[None]) -> None:
    """Waits for work that the death of the server ends."""
    try:
        await work
    except Refused as refused:
        if refused.code is not grpc.StatusCode.UNAVAILABLE:
            raise


async def play(a: SessionAgent, s: str, kill: Kill, rng: random.Random, number: int) -> None:
    """Writes, saves and goes back for ever, with numbers above ``number``."""
    while True:
        number += 1
        operations = [put(f"k{place:02}", number, blind=True) for place in range(ITEMS)]
        said_so = memory_pb.Operation(append=memory_pb.AppendOperation(message=said(str(number))))
        await a.agent.transact(space(s), *operations, said_so)
        kill.count()
        made = await a.checkpoints(s)
        if rng.random() < 0.5:
            await a.checkpoint(s)
        elif made:
            await a.restore(s, rng.choice(made).id)
        kill.count()


async def check_whole(a: SessionAgent, s: str) -> str:
    """Checks that items and transcript agree; returns the number that they agree on."""
    last = next(iter(texts(await a.messages(s, reverse=True))), "")
    items = await a.items(s)
    assert set(items.values()) == ({last.encode()} if last else set())
    assert len(items) == (ITEMS if last else 0)
    return last


@pytest.mark.campaign
async def test_checkpoints_and_restores_are_whole(server: ServerProcess) -> None:
    ids = [f"s{number}" for number in range(SESSIONS)]
    rng = random.Random(7)
    for number in range(ROUNDS):
        async with connected(server) as api:
            a = SessionAgent(await api.agent(f"a-{number}"))
            for s in ids:
                await a.open(s, allow_existing=True, settings=pb.SessionSettings(checkpoints_max=6))
            kill = Kill(server, ACKNOWLEDGED_AT_KILL)
            work = [asyncio.create_task(play(a, s, kill, rng, number * 1_000)) for s in ids]
            await kill.wait(work)
            await asyncio.gather(*map(until_killed, work))
        server.restart()
        async with connected(server) as api:
            a = SessionAgent(await api.agent(f"b-{number}"))
            for s in ids:
                await check_whole(a, s)
                branch = (await a.get(s)).branch
                for earlier in range(branch):
                    numbers = [int(text) for text in texts(await a.messages(s, branch=earlier))]
                    assert numbers == sorted(set(numbers))
                made = await a.checkpoints(s)
                assert len(made) <= 7, "one more at most, if the server died before the oldest went"
                for checkpoint in made:
                    fork = (await a.fork(s, checkpoint_id=checkpoint.id)).id
                    assert await check_whole(a, fork) == await _said_at(a, s, checkpoint)
                if made:
                    await a.restore(s, made[-1].id)
                    await check_whole(a, s)


async def _said_at(a: SessionAgent, s: str, checkpoint: pb.Checkpoint) -> str:
    messages = await a.messages(s, branch=checkpoint.branch)
    said_at = dict(zip((message.key for message in messages), texts(messages), strict=True))
    return said_at[checkpoint.last_message] if checkpoint.last_message else ""


@pytest.mark.campaign
async def test_an_archived_item_is_a_candidate_or_still_there(dying: DyingServer) -> None:
    expected = {f"k{place:03}" for place in range(CLOSED_ITEMS)}
    torn = 0
    for number in range(ROUNDS):
        ids = [f"r{number}-{place}" for place in range(3)]
        async with connected(dying) as api:
            a = SessionAgent(await api.agent(f"a-{number}"))
            for s in ids:
                await a.open(s)
                keys = sorted(expected)
                for begin in range(0, CLOSED_ITEMS, 60):
                    await a.agent.transact(space(s), *(put(key, 1) for key in keys[begin : begin + 60]))
            # In the middle of closing. Sooner or later, whatever else is committed meanwhile.
            dying.die_after(1 + number % 2)
            closing = [asyncio.create_task(_close(a, s)) for s in ids]
            await asyncio.gather(*map(until_killed, closing))
            await dying.dead()
        dying.restart()
        async with connected(dying) as api:
            a = SessionAgent(await api.agent(f"b-{number}"))
            for s in ids:
                items, candidates = set(await a.items(s)), await _candidates(a, s)
                assert items | set(candidates) == expected
                assert items & set(candidates) == set()
                assert len(candidates) == len(set(candidates))
                torn += bool(items)
                done = await a.close(s)
                assert done.archived == CLOSED_ITEMS
                assert sorted(await _candidates(a, s)) == sorted(expected)
                assert await a.items(s) == {}
    assert torn > 0, "the server has died too late to interrupt anything"


async def _close(a: SessionAgent, s: str) -> None:
    await a.close(s)


async def _candidates(a: SessionAgent, s: str) -> list[str]:
    return [candidate["item"] for candidate in await proposed(a, s)]
