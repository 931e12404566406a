"""Several agents on one session at the same millisecond: nothing is lost or made up, nobody is refused in vain.

Each example plays rounds of calls that run at once, with the server's clock standing still. What was acknowledged is
held against the transcript at the end, which tells for every append whether it could have happened in one step:
messages of one call lie together in their order, and before an append that expected a last message lies that message.
Between rounds the server may be restarted, or killed.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.support.api import put
from tests.support.effort import examples
from tests.support.engine import local_server
from tests.support.interleaving import interleave
from tests.support.sessions import SessionAgent, said, space, texts
from tests.support.transport import Refused

from noosphere.v1 import memory_service_pb2 as memory_pb
from noosphere.v1 import session_service_pb2 as pb

S = "s"
AGENTS = 3


class Step(NamedTuple):
    """One call of a round: who makes it, and what kind it is."""

    agent: int
    kind: str
    size: int
    known: int


STEPS = st.builds(
    Step,
    agent=st.integers(0, AGENTS - 1),
    kind=st.sampled_from(["say", "expect", "expect", "again", "transact", "begin", "end", "rename", "item", "retract"]),
    size=st.integers(1, 3),
    known=st.integers(0, 1_000),
)
ROUNDS = st.lists(
    st.tuples(st.lists(STEPS, min_size=1, max_size=8), st.sampled_from(["", "", "", "restart", "crash", "sweep"])),
    min_size=1,
    max_size=8,
)


class Made(NamedTuple):
    """An acknowledged append: its own text for each message, and the last message that it expected."""

    author: str
    texts: tuple[str, ...]
    after: str | None


class Play:
    """One example."""

    def __init__(self, agents: Sequence[SessionAgent]) -> None:
        self.agents = agents
        self.made: list[Made] = []
        self.stored: dict[str, pb.Message] = {}
        self.retracted: set[str] = set()
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.refused: list[str] = []
        self.shared: dict[str, set[str]] = {}
        self.count = 0
        self.lives = 0
        self.round = 0

    async def run(self, step: Step) -> None:
        """Makes one call; only what could not be otherwise may be refused."""
        agent = self.agents[step.agent]
        self.count += 1
        words = tuple(f"{self.count}.{number}" for number in range(step.size))
        messages = [said(text, id=f"id {text}" if number % 2 else "") for number, text in enumerate(words)]
        match step.kind:
            case "say":
                self._note(agent, words, None, await agent.append(S, *messages))
            case "expect":
                last = await self._last(agent)
                try:
                    self._note(agent, words, last, await agent.append(S, *messages, expected_last=last))
                except Refused as error:
                    self.refused.append(error.reason)
                    assert await self._last(agent) != last
            case "again":
                # At the same time as others say it, for the first time or once more.
                shared, text = f"shared {self.round - step.known % 2}", f"shared by {self.count}"
                reply = await agent.append(S, said(text, id=shared))
                self.shared.setdefault(shared, set()).add(reply.messages[0].key)
                if reply.revision:
                    self._note(agent, (text,), None, reply)
            case "transact":
                operations = [memory_pb.Operation(append=memory_pb.AppendOperation(message=m)) for m in messages]
                item = put(f"item/{self.count}", 1)
                applied = await agent.agent.transact(space(S), item, *operations)
                self.made.append(Made(agent.agent.actor.agent_id, words, None))
                assert [result.version for result in applied.results] == [applied.revision] * (1 + step.size)
            case "begin":
                self.begun.append(await agent.begin_turn(S))
            case "end":
                try:
                    self.ended.append((await agent.end_turn(S)).turn)
                except Refused as error:
                    self.refused.append(error.reason)
            case "rename":
                await agent.update(S, set_labels={f"label {step.agent}": str(self.count)})
            case "item":
                await agent.agent.add(space(S), "count")
            case "retract" if self.stored:
                earlier = list(self.stored.values())[step.known % len(self.stored)]
                assert (await agent.retract(S, earlier.id)).key == earlier.key
                self.retracted.add(earlier.key)
            case _:
                pass

    async def check(self) -> None:
        """Holds what was acknowledged against what is there."""
        found = await self.agents[0].messages(S, page_size=3)
        assert [m.key for m in await self.agents[1].messages(S, reverse=True)] == [m.key for m in reversed(found)]
        assert [m.key for m in found] == sorted({m.key for m in found})
        times = [message.create_time.ToMilliseconds() for message in found]
        # A killed server goes on a little later than it may have been; otherwise no time passes.
        assert times == sorted(times)
        assert len(set(times)) <= 1 + self.lives
        for message in found:
            assert message.retracted == (message.key in self.retracted)
        there = ["" if m.retracted else t for m, t in zip(found, texts(found), strict=True)]
        original = {key: texts([message])[0] for key, message in self.stored.items()}
        there = [original.get(m.key, text) if m.retracted else text for m, text in zip(found, there, strict=True)]
        assert sorted(there) == sorted(text for made in self.made for text in made.texts)
        at = {text: index for index, text in enumerate(there)}
        for author, words, after in self.made:
            first = at[words[0]]
            assert there[first : first + len(words)] == list(words)
            assert {m.author for m in found[first : first + len(words)]} == {author}
            if after is not None:
                assert (found[first - 1].id if first else "") == after
        session = await self.agents[2].get(S)
        assert sorted(self.begun) == list(range(1, session.turn + 1))
        assert sorted([*self.ended, *(opened.turn for opened in session.open_turns)]) == sorted(self.begun)
        assert session.last_message == (found[-1].key if found else "")
        assert all(len(keys) == 1 for keys in self.shared.values())
        assert set(self.refused) <= {"TRANSCRIPT_MOVED", "TURN_NOT_OPEN"}

    def _note(
        self, agent: SessionAgent, words: tuple[str, ...], after: str | None, reply: pb.AppendMessagesResponse
    ) -> None:
        assert texts(reply.messages) == list(words)
        self.made.append(Made(agent.agent.actor.agent_id, words, after))
        self.stored.update((message.key, message) for message in reply.messages)

    async def _last(self, agent: SessionAgent) -> str:
        request = pb.ListMessagesRequest(session_id=S, page_size=1, reverse=True)
        page = await agent.call("ListMessages", request, pb.ListMessagesResponse)
        return page.messages[0].id if page.messages else ""


async def _play(rounds: list[tuple[list[Step], str]], seed: int, folder: Path) -> None:
    rng = random.Random(seed)
    async with local_server(folder) as server:
        interleave(server, rng)
        agents = [SessionAgent(await server.api.agent(f"agent {number}")) for number in range(AGENTS)]
        await agents[0].open(S)
        play = Play(agents)
        for steps, happening in rounds:
            play.round += 1
            await asyncio.gather(*map(play.run, steps))
            if happening == "sweep":
                await server.sweep()
            elif happening:
                await (server.restart() if happening == "restart" else server.crash())
                play.lives += happening == "crash"
                interleave(server, rng)
                for agent in agents:
                    agent.agent.api = server.api
            await play.check()


@settings(max_examples=examples(60), phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(rounds=ROUNDS, seed=st.integers(0, 1 << 32))
def test_agents_that_share_a_session_at_one_millisecond_lose_nothing(
    rounds: list[tuple[list[Step], str]], seed: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_play(rounds, seed, Path(folder)))


def test_a_thousand_messages_in_one_millisecond_keep_their_order(tmp_path: Path) -> None:
    async def play() -> None:
        async with local_server(tmp_path) as server:
            agents = [SessionAgent(await server.api.agent(name)) for name in ("a", "b")]
            await agents[0].open(S)

            async def speak(agent: SessionAgent, name: str) -> None:
                for number in range(500):
                    await agent.say(S, f"{name}{number}")

            await asyncio.gather(*(speak(agent, name) for agent, name in zip(agents, "ab", strict=True)))
            found = await agents[0].messages(S, page_size=1000)
            assert len({message.create_time.ToMilliseconds() for message in found}) == 1
            for name in "ab":
                assert [t for t in texts(found) if t[0] == name] == [f"{name}{number}" for number in range(500)]
            await server.restart()
            agents[0].agent.api = server.api
            assert [m.key for m in await agents[0].messages(S)] == [m.key for m in found]

    asyncio.run(play())


@settings(max_examples=examples(5), phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(seed=st.integers(0, 1 << 32))
def test_the_last_places_for_items_are_given_out_once(seed: int) -> None:
    async def play(folder: Path) -> None:
        async with local_server(folder) as server:
            agent = SessionAgent(await server.api.agent("a"))
            await agent.open(S)
            for start in range(0, 250, 50):
                await agent.agent.transact(space(S), *(put(f"item/{start + n}", n) for n in range(50)))
            interleave(server, random.Random(seed))
            made = (agent.agent.put(space(S), f"more/{number}", number) for number in range(16))
            done = await asyncio.gather(*made, return_exceptions=True)
            assert sorted(getattr(found, "reason", "made") for found in done) == ["LIMIT_EXCEEDED"] * 10 + ["made"] * 6
            assert len(await agent.agent.listing(space(S), "more/")) == 6

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(play(Path(folder)))
