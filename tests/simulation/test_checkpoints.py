"""Random histories of a session and its forks against a model of dicts: every checkpoint is an exact copy.

The model copies everything at each checkpoint; the server copies nothing then, and keeps what is overwritten later.
After every step items, control state and the transcript of every branch are compared, and which copies the server
keeps: just those that a checkpoint needs. At the end all checkpoints are restored and forked.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from tests.support.api import delete, put
from tests.support.effort import examples
from tests.support.engine import LocalServer, local_server
from tests.support.interleaving import interleave
from tests.support.sessions import SessionAgent, refusal, said, space, texts

from noosphere.consistency import NEVER_MS
from noosphere.server.ports.store import NamespaceRef
from noosphere.server.sessions.keys import MANIFESTS, SAVEPOINTS, VERSIONS, version_key
from noosphere.server.sessions.manifests import base_of, chain_of, decode_delta, resolve
from noosphere.server.sessions.savepoints import decode_savepoints
from noosphere.v1 import memory_service_pb2 as memory_pb
from noosphere.v1 import session_service_pb2 as pb

CHECKPOINTS_MAX = 5
SESSIONS_MAX = 4
TTL_MS = 1_000


class Step(NamedTuple):
    """One call: what kind, in which session, and two numbers to choose by."""

    kind: str
    session: int
    key: int
    chosen: int


KINDS = (
    *("put", "put", "delete", "add", "transact", "short", "say", "named", "named", "control"),
    *("turn", "save", "save", "restore", "restore", "fork"),
    *("elapse", "sweep", "restart", "crash"),
)
STEPS = st.builds(
    Step,
    kind=st.sampled_from(KINDS),
    session=st.integers(0, SESSIONS_MAX - 1),
    key=st.integers(0, 5),
    chosen=st.integers(0, 1_000),
)


class Item(NamedTuple):
    """An item's value and when it ends."""

    value: bytes
    ends_ms: int = NEVER_MS


@dataclass
class State:
    """What a checkpoint holds; ``named`` are the texts of messages by their ids."""

    items: dict[str, Item] = field(default_factory=dict)
    control: str = ""
    said: list[str] = field(default_factory=list)
    named: dict[str, str] = field(default_factory=dict)


@dataclass
class Session:
    """What is known of one session.

    Attributes:
        state: its present state.
        branches: the transcript of each branch that was left.
        saved: by checkpoint, oldest first, what it holds; those that are gone too.
        changed: whether anything has changed since the newest checkpoint.
    """

    id: str
    state: State
    branches: list[list[str]] = field(default_factory=list)
    saved: dict[str, State] = field(default_factory=dict)
    changed: bool = False

    @property
    def kept(self) -> list[str]:
        """The checkpoints that must still be there."""
        return list(self.saved)[-CHECKPOINTS_MAX:]


class Play:
    """One example."""

    def __init__(self, server: LocalServer, agent: SessionAgent, first: str) -> None:
        self.server = server
        self.agent = agent
        self.sessions = [Session(first, State())]
        self.count = 0

    @property
    def now_ms(self) -> int:
        """Store time, which stands still unless a step moves it; a crash does too."""
        return self.server.engine.store.now_ms()

    async def run(self, step: Step) -> None:
        """Makes one call on both sides."""
        session = self.sessions[step.session % len(self.sessions)]
        state, a, where = session.state, self.agent, space(session.id)
        key, self.count = f"k{step.key}", self.count + 1
        before = deepcopy(state)
        match step.kind:
            case "put":
                await a.agent.put(where, key, self.count, blind=True)
                state.items[key] = Item(b"%d" % self.count)
            case "short":
                await a.agent.put(where, key, self.count, blind=True, ttl_ms=TTL_MS)
                state.items[key] = Item(b"%d" % self.count, self.now_ms + TTL_MS)
            case "delete":
                await a.agent.delete(where, key, blind=True)
                state.items.pop(key, None)
            case "add":
                await a.agent.add(where, "count", step.chosen)
                held = state.items.get("count", Item(b"0"))
                state.items["count"] = Item(b"%d" % (int(held.value) + step.chosen))
            case "transact":
                other = f"k{(step.key + 1) % 6}"
                await a.agent.transact(where, put(key, self.count, blind=True), delete(other, blind=True))
                state.items[key] = Item(b"%d" % self.count)
                state.items.pop(other, None)
            case "say":
                words = [f"{self.count}.{number}" for number in range(1 + step.chosen % 3)]
                await a.append(session.id, *map(said, words))
                state.said += words
            case "named":
                reply = await a.append(session.id, said(str(self.count), id=key))
                assert texts(reply.messages) == [state.named.setdefault(key, str(self.count))]
                if reply.revision:
                    state.said.append(str(self.count))
            case "control":
                await a.set_control(session.id, control=pb.ControlState(next_node=str(self.count)))
                state.control = str(self.count)
            case "turn":
                await a.begin_turn(session.id)
                made = (await a.end_turn(session.id)).checkpoint_id
                self._expire()
                if made:
                    session.saved[made] = deepcopy(state)
                elif session.saved:
                    # What was made and removed again since the newest one has changed nothing.
                    assert not session.changed or state == session.saved[session.kept[-1]]
                session.changed = False
                return
            case "save":
                made = (await a.checkpoint(session.id, name=str(self.count))).id
                self._expire()
                session.saved[made] = deepcopy(state)
                session.changed = False
                return
            case "restore" if session.saved:
                await self._restore(session, list(session.saved)[step.chosen % len(session.saved)])
                return
            case "fork" if len(self.sessions) < SESSIONS_MAX:
                await self._fork(session, step.chosen)
                return
            case "elapse":
                await self.server.elapse(1 + step.chosen % TTL_MS)
            case "sweep":
                await self.server.sweep()
            case "restart" | "crash":
                await (self.server.restart() if step.kind == "restart" else self.server.crash())
                a.agent.api = self.server.api
            case _:
                pass
        session.changed |= state != before

    async def check(self) -> None:
        """Compares everything."""
        self._expire()
        for session in self.sessions:
            assert await self._state(session.id) == _shown(session.state)
            for branch, expected in enumerate([*session.branches, session.state.said]):
                assert texts(await self.agent.messages(session.id, branch=branch, page_size=5)) == expected
            listed = [checkpoint.id for checkpoint in reversed(await self.agent.checkpoints(session.id))]
            assert listed == session.kept
            await self._check_copies(session)

    async def check_all_checkpoints(self, rng: random.Random) -> None:
        """Forks and restores everything that is kept, in any order."""
        for session in list(self.sessions):
            for checkpoint in rng.sample(session.kept, len(session.kept)):
                self._expire()
                fork = await self.agent.fork(session.id, checkpoint_id=checkpoint)
                assert await self._state(fork.id) == _shown(session.saved[checkpoint])
        for session in self.sessions:
            left = session.kept
            for checkpoint in rng.sample(left, len(left)):
                if checkpoint in session.kept:
                    await self._restore(session, checkpoint)
                    await self.check()

    async def _restore(self, session: Session, checkpoint: str) -> None:
        if checkpoint not in session.kept:
            with refusal("ENTRY_NOT_FOUND", checkpoint):
                await self.agent.restore(session.id, checkpoint)
            return
        reply = await self.agent.restore(session.id, checkpoint)
        self._expire()
        assert reply.abandoned_branch == len(session.branches)
        (newest, *_) = await self.agent.checkpoints(session.id)
        if newest.id not in session.saved:
            assert newest.cause == "restore"
            session.saved[newest.id] = deepcopy(session.state)
        session.branches.append(session.state.said)
        session.state = deepcopy(session.saved[checkpoint])
        session.changed = True

    async def _fork(self, session: Session, chosen: int) -> None:
        self._expire()
        kept = session.kept
        checkpoint = kept[chosen % len(kept)] if kept and chosen % 2 else ""
        fork = await self.agent.fork(session.id, checkpoint_id=checkpoint)
        state = session.saved[checkpoint] if checkpoint else session.state
        self.sessions.append(Session(fork.id, deepcopy(state), changed=True))

    def _expire(self) -> None:
        """What has ended is gone from everywhere."""
        for session in self.sessions:
            for state in (session.state, *session.saved.values()):
                ended = [
                    k for k, item in state.items.items() if item.ends_ms is not None and item.ends_ms <= self.now_ms
                ]
                for key in ended:
                    del state.items[key]
                    session.changed |= state is session.state

    async def _state(self, session_id: str) -> tuple[dict[str, bytes], str, list[str]]:
        a = self.agent
        control = (await a.control(session_id)).control.next_node
        return await a.items(session_id), control, texts(await a.messages(session_id))

    async def _check_copies(self, session: Session) -> None:
        """Copies and manifests are kept that a checkpoint needs, and no others."""
        store = self.server.engine.store
        ref = await self.server.engine.sessions.scribe.living(session.id)
        (entry,) = (await store.read(ref, (SAVEPOINTS,))).entries
        savepoints = decode_savepoints(entry)
        numbers = range(savepoints.oldest, savepoints.newest + 1)
        chains = [(await store.read(ref, chain_of(number))).entries for number in numbers]
        manifests = [resolve(decode_delta(e.data) for e in chain if e is not None) for chain in chains]
        needed = {version_key(key, version.revision) for m in manifests for key, version in m.items()}
        copies = await _keys(store, ref, VERSIONS)
        assert copies <= needed
        assert len(await _keys(store, ref, MANIFESTS)) == (savepoints.newest - base_of(savepoints.oldest) + 1) * bool(
            savepoints.newest
        )


async def _keys(store: object, ref: NamespaceRef, collection: str) -> set[str]:
    page = await store.scan(ref, collection, limit=2_000)  # type: ignore[attr-defined] # a working store
    return {entry.key for entry in page.entries}


def _shown(state: State) -> tuple[dict[str, bytes], str, list[str]]:
    return {key: item.value for key, item in state.items.items()}, state.control, state.said


async def _play(steps: list[Step], seed: int, folder: Path) -> None:
    async with local_server(folder) as server:
        agent = SessionAgent(await server.api.agent("a"))
        limits = pb.SessionSettings(checkpoints_max=CHECKPOINTS_MAX)
        play = Play(server, agent, (await agent.open(settings=limits)).id)
        for step in steps:
            await play.run(step)
            await play.check()
        await play.check_all_checkpoints(random.Random(seed))


@settings(max_examples=examples(60), phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink))
@example([Step(kind, 0, key, 0) for kind, key in (("put", 0), ("turn", 0), ("put", 1), ("delete", 1), ("turn", 0))], 0)
@given(steps=st.lists(STEPS, min_size=5, max_size=40), seed=st.integers(0, 1 << 32))
def test_every_checkpoint_is_an_exact_copy_and_nothing_of_any_branch_is_lost(steps: list[Step], seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_play(steps, seed, Path(folder)))


@settings(max_examples=examples(25), phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(seed=st.integers(0, 1 << 32))
def test_a_checkpoint_amid_writes_is_what_was_there_at_one_moment(seed: int) -> None:
    """Writers go on while checkpoints are made and restored; what each writer did shows up to some moment, whole."""

    async def play(folder: Path) -> None:
        rng = random.Random(seed)
        async with local_server(folder) as server:
            agents = [SessionAgent(await server.api.agent(f"agent {number}")) for number in range(3)]
            s = (await agents[0].open()).id
            interleave(server, rng)

            async def pairs(agent: SessionAgent, name: str) -> None:
                for number in range(12):
                    both = (put(f"{name}/{side}", number, blind=True) for side in ("left", "right"))
                    told = memory_pb.AppendOperation(message=said(f"{name}{number}"))
                    await agent.agent.transact(space(s), *both, memory_pb.Operation(append=told))

            async def control() -> None:
                for number in range(12):
                    await agents[2].set_control(s, control=pb.ControlState(retries=number))

            async def savepoints() -> None:
                for _ in range(6):
                    for _ in range(rng.randrange(30)):
                        await asyncio.sleep(0)
                    await agents[2].checkpoint(s)

            await asyncio.gather(pairs(agents[0], "a"), pairs(agents[1], "b"), control(), savepoints())
            last: dict[str, int] = {}
            retries = 0
            for checkpoint in reversed(await agents[2].checkpoints(s)):
                await agents[2].restore(s, checkpoint.id)
                items = await agents[2].items(s)
                heard = texts(await agents[2].messages(s))
                for name in "ab":
                    assert items.get(f"{name}/left") == items.get(f"{name}/right")
                    there = int(items.get(f"{name}/left", b"-1"))
                    assert there >= last.get(name, -1)
                    assert [text for text in heard if text[0] == name] == [f"{name}{n}" for n in range(there + 1)]
                    last[name] = there
                now = (await agents[2].control(s)).control.retries
                assert now >= retries
                retries = now

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(play(Path(folder)))


@settings(max_examples=examples(25), phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(seed=st.integers(0, 1 << 32))
def test_a_restore_amid_writes_removes_what_came_before_it_and_nothing_else(seed: int) -> None:
    async def play(folder: Path) -> None:
        rng = random.Random(seed)
        async with local_server(folder) as server:
            agents = [SessionAgent(await server.api.agent(f"agent {number}")) for number in range(3)]
            s = (await agents[0].open()).id
            await agents[0].agent.put(space(s), "kept", 1)
            point = await agents[0].checkpoint(s)
            interleave(server, rng)
            made: dict[str, int] = {}
            told: dict[str, int] = {}

            async def write(agent: SessionAgent, name: str) -> None:
                for number in range(10):
                    key = f"{name}/{number}"
                    made[key] = (await agent.agent.put(space(s), key, number)).revision
                    if number % 3 == 0:
                        told[key] = (await agent.append(s, said(key))).revision

            async def restore() -> int:
                for _ in range(rng.randrange(40)):
                    await asyncio.sleep(0)
                return (await agents[2].restore(s, point.id)).head

            *_, restored = await asyncio.gather(write(agents[0], "a"), write(agents[1], "b"), restore())
            assert (await agents[0].items(s)).keys() == {"kept", *(k for k, at in made.items() if at > restored)}
            assert sorted(texts(await agents[0].messages(s))) == sorted(k for k, at in told.items() if at > restored)
            left = next(c for c in await agents[0].checkpoints(s) if c.cause == "restore" or c.id == point.id)
            await agents[2].restore(s, left.id)
            assert (await agents[0].items(s)).keys() == {"kept", *(k for k, at in made.items() if at < restored)}
            assert sorted(texts(await agents[0].messages(s))) == sorted(k for k, at in told.items() if at < restored)

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(play(Path(folder)))
