"""Simulated agents: real clients that work together, think in between, and write down what they are told."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from tests.support.worker import BOARD, SPACE, Worker

from noosphere.client import (
    Client,
    ClientClosed,
    Fence,
    Message,
    NoosphereError,
    ServerError,
    ToolCall,
    ToolResultSuperseded,
)

from .loop import family
from .witness import Witness

NOTES = "shared/notes"
LOCKED = "shared/locked"
LOCK = "deploy"
FACTS = "facts"
"""Not a namespace: where facts are noted, by their scopes."""
_SLOT = re.compile(r"[0-9a-f]{16}")
THINK_SECONDS = 0.4
"""Half of the thoughts take less."""
LEASE_SECONDS = 5.0
"""How long workers hold tasks: those of killed agents are handed out again while a run lasts."""
HEALED = "healed"
"""The key that a watcher waits for in the end."""


Doing = Callable[[Client], Awaitable[object]]
"""One thing that an agent does, as a client."""


@dataclass
class Surrounding:
    """What an agent lives in.

    Attributes:
        name: the agent's.
        life: which of its lives this is, from 1.
        chance: its own source of chance.
        witness: takes note of what it is told.
        connect: connects, given whether calls share a stream.
    """

    name: str
    life: int
    chance: random.Random
    witness: Witness
    connect: Callable[[bool], contextlib.AbstractAsyncContextManager[Client]]

    @property
    def full_name(self) -> str:
        """Names this life, and no other of anybody."""
        return f"{self.name}.{self.life}"

    async def think(self) -> None:
        """Takes as long as a model."""
        await asyncio.sleep(THINK_SECONDS * self.chance.lognormvariate(0, 1))


async def persevere(life: Surrounding, coalesce: bool, work: Callable[[Client], Awaitable[None]]) -> None:
    """Works as a client; connects anew if its incarnation has ended or the server cannot be reached."""
    while True:
        try:
            async with life.connect(coalesce) as client:
                await work(client)
                return
        except NoosphereError as error:
            _end_if_dead()
            life.witness.steps[f"connecting: {type(error).__name__}"] += 1
            await life.think()


def _end_if_dead() -> None:
    """Ends what goes on although its process was killed: what it is told on its way out nobody hears.

    Raises:
        CancelledError: it was.
    """
    own = family.get()
    if own is not None and own.dead:
        raise asyncio.CancelledError


async def attempt(life: Surrounding, what: str, doing: Awaitable[object]) -> bool:
    """Does something and takes note of how it ends; returns whether it went well.

    Raises:
        ClientClosed, StaleIncarnation: the client is of no more use.
    """
    try:
        await doing
    except ServerError as error:
        _end_if_dead()
        life.witness.wrong(f"{life.name}: {what} met a mistake of the server: {error}")
    except NoosphereError as error:
        _end_if_dead()
        life.witness.steps[f"{what}: {type(error).__name__}"] += 1
        if isinstance(error, ClientClosed) or error.reason in ("STALE_INCARNATION", "AGENT_ACTIVE"):
            raise
        return False
    life.witness.steps[what] += 1
    return True


async def recorded_worker(life: Surrounding, stop: asyncio.Event) -> None:
    """Does what the workers of fault campaigns do, with every call recorded.

    Once it is told to stop it ends with a step that goes well: that it ends proves that it gets something done.
    """

    async def work(client: Client) -> None:
        worker = Worker(client, life.full_name, chance=life.chance, lease_seconds=LEASE_SECONDS, think=life.think)
        while not await attempt(life, "work", worker.step()) or not stop.is_set():
            await life.think()

    await persevere(life, False, work)


class Rover:
    """Does a little of everything else, on one stream."""

    def __init__(self, life: Surrounding) -> None:
        self._life = life
        self._number = 0
        self._fence: Fence | None = None
        self._session = f"session-of-{life.name}"

    async def run(self, stop: asyncio.Event) -> None:
        """Works until it is told to stop, and then ends with a step that goes well."""

        async def work(client: Client) -> None:
            if self._life.life > 1:
                await attempt(self._life, "go on", self._go_on(client))
            while not await self.step(client) or not stop.is_set():
                await self._life.think()

        await persevere(self._life, True, work)

    async def step(self, client: Client) -> bool:
        """Does one thing; returns whether it went well."""
        self._number += 1
        steps: Sequence[tuple[int, str, Doing]] = (
            (6, "note", self._note),
            (3, "note both", self._note_both),
            (4, "locked", self._locked),
            (2, "late", self._write_late),
            (3, "say", self._say),
            (2, "use a tool", self._use_tool),
            (2, "learn", self._learn),
            (2, "cache", self._cache),
        )
        [(_, what, doing)] = self._life.chance.choices(steps, [weight for weight, _, _ in steps])
        return await attempt(self._life, what, doing(client))

    @property
    def kinds(self) -> Mapping[str, Doing]:
        """What it does that has to go well sooner or later, whatever has happened before."""
        return {"lock": self._locked, "turn": self._say, "tool call": self._use_tool, "cache": self._cache}

    @property
    def _name(self) -> str:
        return f"{self._life.full_name}/{self._number}"

    async def _put_in(self, space: str, place: str, names: Sequence[str], doing: Awaitable[int]) -> None:
        """Puts things somewhere, and writes down what comes of it."""
        witness = self._life.witness
        for name in names:
            witness.wants(space, place, name)
        try:
            revision = await doing
        except NoosphereError as error:
            _end_if_dead()
            if error.outcome == "not_applied":
                for name in names:
                    witness.refused(space, place, name)
            raise
        for name in names:
            witness.has(space, place, name, revision)

    async def _note(self, client: Client) -> None:
        async def append() -> int:
            return (await client.namespace(NOTES).key(place).log_append(self._name)).version

        place = f"log/{self._life.name}"
        await self._put_in(NOTES, place, [self._name], append())

    async def _note_both(self, client: Client) -> None:
        """Two at the same time, which leave in one batch and share a sync."""

        async def append(name: str) -> None:
            async def one() -> int:
                return (await client.namespace(NOTES).key("log/all").log_append(name)).version

            await self._put_in(NOTES, "log/all", [name], one())

        results = await asyncio.gather(append(f"{self._name}a"), append(f"{self._name}b"), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _locked(self, client: Client) -> None:
        async with client.lock(LOCK, lease=3, wait=5) as lock:
            space = client.fenced(lock.fence).namespace(LOCKED)
            for _ in range(2):
                record = await space.put("owner", {"token": lock.fence.token}, blind=True)
                assert record.version is not None
                self._life.witness.fenced(LOCKED, record.version, lock.fence.token)
                self._fence = lock.fence
                await self._life.think()

    async def _write_late(self, client: Client) -> None:
        """Writes under the lock that it once held, as a process does that was stopped for a while."""
        if self._fence is not None:
            token = self._fence.token
            record = await client.fenced(self._fence).namespace(LOCKED).put("owner", {"token": token}, blind=True)
            assert record.version is not None
            self._life.witness.fenced(LOCKED, record.version, token)

    async def _say(self, client: Client) -> None:
        async with client.session(self._session) as session, session.turn():
            names = [f"{self._name}-{part}" for part in "ab"]

            async def append() -> int:
                written = await session.append(*(Message("user", name, id=name) for name in names))
                return _revision_in(written[0].key)

            await self._put_in(f"sessions/{self._session}", "messages", names, append())
            await self._life.think()

    async def _use_tool(self, client: Client) -> None:
        async with client.session(self._session) as session:
            name = self._name
            started: list[ToolCall] = []

            async def start() -> int:
                started.append(await session.start_tool("search", {"q": name}, call_id=name))
                return _revision_in(started[0].key)

            await self._put_in(f"sessions/{self._session}", "tool calls", [name], start())
            await self._life.think()
            await self._put_in(f"sessions/{self._session}", "tools", [name], _finish(started[0]))

    async def _go_on(self, client: Client) -> None:
        """Finishes the tool calls that earlier lives have left behind, each once."""
        witness, space = self._life.witness, f"sessions/{self._session}"
        async with client.session(self._session) as session:
            async for call in session.tool_calls(status="pending"):
                witness.wants(space, "tools", call.call_id)
                try:
                    revision = await _finish(call)
                except ToolResultSuperseded:
                    # What an earlier life has sent was only late.
                    continue
                witness.has(space, "tools", call.call_id, revision)

    async def _learn(self, client: Client) -> None:
        """Remembers what a user has said, which becomes a fact."""
        async with client.session(self._session) as session:
            name = self._name
            said: list[Message] = []

            async def say() -> int:
                said.extend(await session.append(Message("user", f"I have been at {name}.", id=name)))
                return _revision_in(said[0].key)

            async def remember() -> int:
                text, owner = f"Has been at {name}.", f"user/{self._life.name}"
                decision = await client.facts.remember(text, owner=owner, evidence=said, session=session, timeout=20)
                if decision.status != "queued" and not decision.known:
                    self._life.witness.wrong(f"{name} did not become a fact: {decision.explain()}")
                return int(decision.known)

            await self._put_in(f"sessions/{self._session}", "messages", [name], say())
            await self._put_in(FACTS, f"user/{self._life.name}", [f"Has been at {name}."], remember())

    async def _cache(self, client: Client) -> None:
        key = f"cached/{self._life.name}"
        space = client.namespace(NOTES)
        async with space.cached() as cache:
            record = await space.put(key, {"n": self._number}, blind=True)
            await cache.caught_up(timeout=3)
            shown = cache.get(key)
            if shown is None or shown.value != {"n": self._number} or shown.version != record.version:
                self._life.witness.wrong(f"{self._name}: the cache shows {shown!r} after {record!r} was written")


async def _finish(call: ToolCall) -> int:
    """Brings a result; returns the revision at which the transcript has it."""
    done = await call.finish({"found": call.call_id}, append_message=True)
    return 1 if done.message is None else _revision_in(done.message.key)


def _revision_in(key: str) -> int:
    """Returns the revision that the store has put into a key."""
    found = _SLOT.search(key)
    assert found is not None, f"{key} has no revision in it"
    return int(found[0], 16)


async def watcher(life: Surrounding, space: str) -> None:
    """Watches a namespace and writes down the commits that it is told of, until somebody writes :data:`HEALED`."""

    async def work(client: Client) -> None:
        told = life.witness.watching(space)
        async with client.namespace(space).watch(snapshot=True, patience=600) as batches:
            async for batch in batches:
                match batch.kind:
                    case "changes":
                        told.append(batch.revision)
                    case "snapshot" | "reset":
                        # Of what has happened in between it was not told one by one.
                        told = life.witness.watching(space)
                if any(event.key == HEALED for event in batch.events):
                    return

    await persevere(life, True, work)


async def prepare(life: Surrounding, client: Client, tasks: int) -> None:
    """Adds the tasks that workers share."""
    board = client.namespace(SPACE).board(BOARD)
    for number in range(tasks):
        name = f"{number:04}"
        life.witness.wants(SPACE, BOARD, name)
        record = await board.add({"number": number}, name)
        life.witness.has(SPACE, BOARD, name, record.version or 0)


async def finish_tasks(life: Surrounding, seconds: float) -> None:
    """Does every task that is left, also those whose holders were killed, within so much time."""
    left: list[str] = []
    try:
        async with asyncio.timeout(seconds), life.connect(False) as client:
            board = client.namespace(SPACE).board(BOARD)
            while left := [task.key async for task in board.list() if task.claim is None or not task.claim.done]:
                async with board.claim(lease=LEASE_SECONDS, wait=1) as claim:
                    if claim is not None:
                        await claim.complete({"by": life.name})
    except (NoosphereError, TimeoutError) as error:
        life.witness.wrong(f"{', '.join(left)} cannot be done {seconds:g} s after everybody has stopped: {error!r}")
