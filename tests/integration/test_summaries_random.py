"""Random lives of a session: whatever happens, what left the window is covered, and nothing taken back is quoted."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import pytest
from tests.support.endpoint import Asked, completion, open_endpoint, send
from tests.support.engine import LocalServer, local_server
from tests.support.sessions import SessionAgent, caller, said
from tests.support.worlds import LocalWorld

from noosphere.server.sessions.types import SessionSettings
from noosphere.v1 import session_service_pb2 as pb

STEPS = 60
_LISTS: dict[str, list[str]] = {"goals": ["G"], "decisions": [], "open_questions": [], "entities": []}


class Moody:
    """A model that quotes what it was given, or fails in one of its ways."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    async def __call__(self, writer: asyncio.StreamWriter, asked: Asked) -> None:
        mood = self._chance.random()
        if mood < 0.2:
            writer.transport.abort()
            return
        await asyncio.sleep(0)
        quoted = " ".join(message["text"] for message in asked.data["messages"])[-600:]
        text = "no JSON" if mood < 0.3 else json.dumps({**_LISTS, "narrative": quoted})
        send(writer, completion(text))


class Life:
    """A session of two agents, and what a test has to know about it."""

    def __init__(self, server: LocalServer, agents: list[SessionAgent], session_id: str, chance: random.Random) -> None:
        self.server = server
        self.agents = agents
        self.id = session_id
        self.chance = chance
        self.words: dict[str, str] = {}
        self.taken_back: set[str] = set()
        self.turns: dict[int, list[int]] = {0: [], 1: []}
        self.checkpoints: list[str] = []

    async def step(self) -> None:
        who = self.chance.randrange(2)
        agent = self.agents[who]
        act = self.chance.choices(
            [self.say, self.call_tools, self.begin, self.end, self.take_back, self.save, self.go_back, self.nudge],
            [30, 10, 12, 14, 4, 4, 2, 2],
        )[0]
        await act(agent, who)

    async def say(self, agent: SessionAgent, who: int) -> None:
        role = self.chance.choice([pb.ROLE_USER, pb.ROLE_ASSISTANT])
        messages = [self._said(role, who) for _ in range(self.chance.randint(1, 4))]
        await agent.append(self.id, *messages)

    async def call_tools(self, agent: SessionAgent, who: int) -> None:
        names = [f"c{self.chance.getrandbits(32)}" for _ in range(self.chance.randint(1, 3))]
        calls = [pb.ToolUse(call_id=name, name="look", arguments="{}") for name in names]
        asked = pb.Message(role=pb.ROLE_ASSISTANT, tool_calls=calls, turn=self._turn(who))
        results = [
            pb.Message(role=pb.ROLE_TOOL, tool_call_id=name, parts=[pb.Part(text="done")], turn=self._turn(who))
            for name in names
            if self.chance.random() < 0.9
        ]
        await agent.append(self.id, asked, *results)

    async def begin(self, agent: SessionAgent, who: int) -> None:
        if len(self.turns[who]) < 2:
            self.turns[who].append(await agent.begin_turn(self.id))

    async def end(self, agent: SessionAgent, who: int) -> None:
        if self.turns[who]:
            await agent.end_turn(self.id, self.turns[who].pop())
        if self.chance.random() < 0.7:
            await self.check()

    async def take_back(self, agent: SessionAgent, who: int) -> None:
        known = sorted(set(self.words) - self.taken_back)
        if known:
            name = self.chance.choice(known)
            await agent.retract(self.id, name)
            self.taken_back.add(name)
            await self.check_quotes()

    async def save(self, agent: SessionAgent, who: int) -> None:
        self.checkpoints.append((await agent.checkpoint(self.id)).id)

    async def go_back(self, agent: SessionAgent, who: int) -> None:
        if self.checkpoints:
            await agent.restore(self.id, self.chance.choice(self.checkpoints))

    async def nudge(self, agent: SessionAgent, who: int) -> None:
        self.server.engine.sessions.summary_worker.nudge(self.id, urgent=self.chance.random() < 0.3)

    async def check(self) -> None:
        """Checks, once everything is done that was due."""
        worker = self.server.engine.sessions.summary_worker
        worker.nudge(self.id)
        await worker.idle()
        await self.check_quotes()
        messages = [m for m in await self.agents[0].messages(self.id)]
        found = await self.server.engine.sessions.summaries.recent(self.id)
        covered = 0
        if found:
            keys = [m.key for m in messages]
            assert found[0].data.last in keys, "a summary tells of what is no part of the history"
            covered = keys.index(found[0].data.last) + 1
            assert found[0].data.messages == covered
            assert found[0].data.first == keys[0]
        left = messages[covered:]
        settings = SessionSettings()
        # Results are no units of their own; so there are at most as many units as other messages, and waiting calls
        # may hold up a few.
        assert len([m for m in left if m.role != pb.ROLE_TOOL]) <= settings.window_steps
        assert len({m.turn for m in left} - {0}) <= settings.window_turns + 2
        calls = {use.call_id for m in messages[:covered] for use in m.tool_calls}
        late = [m for m in left[:1] if m.role == pb.ROLE_TOOL and m.tool_call_id in calls]
        assert not late, "a call is covered without the result that follows it"

    async def check_quotes(self) -> None:
        records = str(await self.agents[0].agent.listing(f"sessions/{self.id}", "_session/summaries/"))
        for name in self.taken_back:
            assert self.words[name] not in records

    def _said(self, role: pb.Role.ValueType, who: int) -> pb.Message:
        name = f"m{len(self.words)}"
        self.words[name] = f"Zw{self.chance.getrandbits(40):x}q"
        return said(f"Please look at {self.words[name]} today.", role, id=name, turn=self._turn(who))

    def _turn(self, who: int) -> int:
        return self.turns[who][-1] if self.turns[who] else 0


@pytest.mark.parametrize("model", [False, True], ids=["rules", "model"])
@pytest.mark.parametrize("seed", range(6))
async def test_random_lives(tmp_path: Path, seed: int, model: bool) -> None:
    chance = random.Random(seed)
    async with open_endpoint(Moody(random.Random(seed))) as endpoint:
        settings: dict[str, Any] = {"summariser": "openai", "summariser_url": endpoint.url, "summariser_model": "moody"}
        async with local_server(tmp_path, **(settings if model else {})) as server:
            world = LocalWorld(server)
            agents = [await caller(world, name) for name in ("a", "b")]
            life = Life(server, agents, (await agents[0].open()).id, chance)
            for _ in range(STEPS):
                await life.step()
                server.clock.advance(10_000)
            await life.check()
            assert server.fatal == []
