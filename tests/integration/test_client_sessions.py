"""Session guarantees over random histories: agents read, write, tell each other, and a failover loses writes.

Read your writes, monotonic reads, monotonic writes, writes follow reads, and "B reads after A told B", each for
what a client has seen or was told of. What a failover has taken away is told before anything older is shown.
"""

from __future__ import annotations

import random
from collections import Counter
from contextlib import AsyncExitStack

import pytest
from tests.support.effort import effort

import noosphere.testing
from noosphere.client import AckedWritesLost, Client, LostRevisions, Namespace, Record

AGENTS = 4
STEPS = 120
SPACES = ("launch", "landing")
KEYS = ("a", "b", "c")

Place = tuple[str, str]


class Session:
    """One agent, what it may rely on, and of what it has yet to be told that it is gone."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.relies_on: dict[Place, int] = {}
        self.seen: dict[str, set[int]] = {f"shared/{name}": set() for name in SPACES}
        self.untold: set[str] = set()

    def takes(self, place: Place, version: int) -> None:
        """It has seen a version, or was told of it."""
        self.relies_on[place] = max(version, self.relies_on.get(place, 0))
        self.seen[place[0]].add(version)

    def check(self, record: Record[int]) -> None:
        """Holds a record that was shown against what the agent relies on."""
        place = (record.namespace, record.key)
        assert record.version is not None
        assert record.version >= self.relies_on.get(place, 0), f"{place} went back"
        self.takes(place, record.version)

    def loses(self, namespace: str, after: int, through: int) -> None:
        """Versions are gone; if it has seen one of them, it has to be told before it looks again."""
        if any(after < version <= through for version in self.seen[namespace]):
            self.untold.add(namespace)

    def was_told(self, told: AckedWritesLost | LostRevisions) -> None:
        """It knows now, and relies on nothing of that any more."""
        self.untold.discard(told.namespace)
        for place, version in tuple(self.relies_on.items()):
            if place[0] == told.namespace and told.lost_after < version <= told.lost_through:
                self.relies_on[place] = 0
        seen = self.seen[told.namespace]
        self.seen[told.namespace] = {v for v in seen if not told.lost_after < v <= told.lost_through}


class History:
    """One random history."""

    def __init__(
        self, server: noosphere.testing.Server, sessions: list[Session], witness: Client, chance: random.Random
    ) -> None:
        self.done: Counter[str] = Counter()
        self._server = server
        self._sessions = sessions
        self._witness = witness
        self._chance = chance
        self._commits = 0

    async def step(self) -> None:
        """Lets one of them do something."""
        session = self._chance.choice(self._sessions)
        space = session.client.shared(self._chance.choice(SPACES))
        place = (space.name, self._chance.choice(KEYS))
        act = self._chance.choices(("put", "get", "list", "many", "plain", "tell", "fail"), (6, 6, 2, 2, 2, 5, 1))[0]
        self.done[act] += 1
        match act:
            case "put":
                written = await space.put(place[1], self._commits, blind=True)
                self._commits += 1
                assert written.version is not None
                # Whatever it has seen of this key is older than what it writes.
                assert written.version > session.relies_on.get(place, 0)
                session.takes(place, written.version)
            case "plain":
                # What it sees here it also relies on, but a loss is not told.
                read = await space.key(place[1]).read()
                session.takes(place, read.version or 0)
            case "tell":
                await self.tell(session, self._chance.choice(self._sessions))
            case "fail":
                await self.fail()
            case _:
                await self.look(session, space, act, place[1])

    async def look(self, session: Session, space: Namespace, how: str = "list", key: str = KEYS[0]) -> None:
        """Reads causally: what is shown is no older than what is relied on, and a loss is told first."""
        try:
            match how:
                case "get":
                    session.check(await space.key(key).read(consistency="causal"))
                case "many":
                    for record in await space.get_many(KEYS, consistency="causal"):
                        session.check(record)
                case _:
                    async for record in space.list(consistency="causal"):
                        session.check(record)
        except AckedWritesLost as told:
            self.done["told"] += 1
            session.was_told(told)
        else:
            assert space.name not in session.untold, "what was lost was not told"

    async def tell(self, giver: Session, taker: Session) -> None:
        """One agent hands over what it has seen, to another or to itself."""
        relied_on = dict(giver.relies_on)
        try:
            await taker.client.observe(giver.client.causal_token())
        except AckedWritesLost as told:
            self.done["told on the way"] += 1
            taker.was_told(told)
            for other in told.others:
                taker.was_told(other)
        else:
            for place, version in relied_on.items():
                taker.takes(place, version)
            assert not giver.untold, "what was lost was handed over"

    async def fail(self) -> None:
        """The server fails over and loses some of the last commits."""
        before = await self._heads()
        await self._server.faults.fail_over(lose=self._chance.randint(0, min(self._commits, 4)))
        self._commits = 0
        for name, cut in (await self._heads()).items():
            for session in self._sessions:
                session.loses(name, cut, before[name])

    async def _heads(self) -> dict[str, int]:
        spaces = [self._witness.shared(name) for name in SPACES]
        return {space.name: (await space.get_many(["none"]))[0].head for space in spaces}


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(effort(4, 12)))
async def test_nobody_ever_sees_less_than_it_relies_on(seed: int) -> None:
    async with noosphere.testing.server() as server, AsyncExitStack() as stack:
        sessions = []
        for number in range(AGENTS):
            client = await stack.enter_async_context(server.client(f"agent-{number}"))
            if number % 2:
                # Half of them read from copies, which lag behind, and have what the server has lost.
                for name in SPACES:
                    await stack.enter_async_context(client.shared(name).cached())
            sessions.append(Session(client))
        witness = await stack.enter_async_context(server.client("witness"))
        history = History(server, sessions, witness, random.Random(seed))
        for _ in range(STEPS):
            await history.step()
        for session in sessions:
            for name in SPACES:
                await history.look(session, session.client.shared(name))
    assert min(history.done[act] for act in ("put", "get", "tell")) > 5
