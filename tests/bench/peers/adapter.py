"""What a product has to offer to agents, as an adapter says it in a few lines.

An adapter is one agent's way to a product, used as the product's documentation says. It has two methods of its own,
``load`` and ``save``; everything else is what an agent makes of these, and an adapter whose product knows better
overrides it. Methods may be plain or ``async``: who calls them awaits what can be awaited.

This module and all that adapters run with know the standard library alone: a peer has an environment of its own.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

Mode = Literal["threads", "loop"]

Think = Callable[[Any], Awaitable[Any]]
"""A model call: gets what the agent has read, takes its time, and returns what the agent wants to write."""

Perform = Callable[[str], Awaitable[None]]
"""Does a task, by name."""

ATTEMPTS_MAX = 2_000
"""Of one change; only a product that lets nobody through needs so many."""


class Unsupported(Exception):
    """The product has nothing of this kind; the message says what is missing."""


class Refused(Exception):
    """A change was not made in so many attempts. Nothing was written, and the agent knows."""


class Claimed(NamedTuple):
    """A task that the product has handed out: its name, and what proves that it is this agent's."""

    task: str
    token: Any


@dataclass(frozen=True, slots=True)
class Place:
    """Where the product keeps its state.

    Attributes:
        folder: a folder that all agents of a run share.
        address: ``host:port`` of the server that the run has started; empty if the product needs none.
    """

    folder: str
    address: str


class Adapter:
    """One agent's way to a product. Keys are of one run alone; values are what JSON can say.

    Attributes:
        mode: ``threads`` gives each agent a thread of its own, ``loop`` has all agents of a process in one event loop.
        space: goes before every key; a name of its own for each run.
        told: what the product has told this agent to be lost of its acknowledged writes, by id.
    """

    mode: ClassVar[Mode] = "threads"

    def __init__(self, place: Place, agent: str) -> None:
        self.place = place
        self.agent = agent
        self.space = ""
        self.told: list[str] = []

    def open(self) -> Any:
        """Connects."""

    def begin(self, space: str) -> Any:
        """Goes to the keys of another run."""
        self.space = space

    def prepare(self) -> Any:
        """Prepares the keys of a run; one agent does, before all others begin."""

    def close(self) -> Any:
        """Disconnects."""

    # What every adapter says.

    def load(self, key: str) -> Any:
        """Returns the value (None if there is none) and what tells its version, None if the product has no such."""
        raise NotImplementedError

    def save(self, key: str, value: Any, version: Any) -> Any:
        """Writes a value in place of the version that was loaded; returns whether it is written."""
        raise NotImplementedError

    # What agents do.

    async def get(self, key: str) -> Any:
        """Returns the value of a key."""
        return (await settled(self.load(key)))[0]

    async def put(self, key: str, value: Any) -> None:
        """Writes a key, whatever is there."""
        if not await settled(self.save(key, value, None)):
            raise Refused(key)

    async def change(self, key: str, function: Callable[[Any], Awaitable[Any]]) -> Any:
        """Reads, lets a function make a new value of it, and writes that; again if the product says so."""
        for _ in range(ATTEMPTS_MAX):
            value, version = await settled(self.load(key))
            if await settled(self.save(key, await function(value), version)):
                return None
        raise Refused(key)

    async def edit(self, key: str, think: Think) -> None:
        """Adds what a model makes of a list to that list; returns once the product has acknowledged it."""

        async def added(items: Any) -> Any:
            return [*(items or []), await think(items or [])]

        await self.change(key, added)

    async def note(self, key: str, item: str) -> None:
        """Adds to a scratchpad what needs no look at it; returns once the product has acknowledged it."""

        async def added(items: Any) -> Any:
            return [*(items or []), item]

        await self.change(key, added)

    async def items(self, key: str) -> Sequence[str]:
        """Returns what is in a list or scratchpad."""
        return await self.get(key) or []

    async def decide(self, guard: str, target: str, think: Think, *, again: bool) -> bool:
        """Writes what a model makes of ``guard`` to ``target``, if the product lets it.

        Args:
            guard: what the decision rests on.
            target: where it goes.
            think: the model.
            again: think again if it is refused; otherwise it is dropped.

        Returns:
            Whether it is written.
        """
        for _ in range(ATTEMPTS_MAX):
            value, version = await settled(self.load(guard))
            if await self.commit(guard, version, target, await think(value)):
                return True
            if not again:
                return False
        raise Refused(target)

    async def commit(self, guard: str, version: Any, target: str, result: Any) -> bool:
        """Writes a decision; with versions, after a look whether what it rests on still has the one that was seen."""
        if version is not None and (await settled(self.load(guard)))[1] != version:
            return False
        _, current = await settled(self.load(target))
        return bool(await settled(self.save(target, result, current)))

    async def late(self, guard: str, target: str, think: Think) -> bool:
        """Writes the result of a tool that was called for ``guard``; tells whether it counts."""
        return await self.decide(guard, target, think, again=False)

    async def post(self, board: str, tasks: Sequence[str]) -> None:
        """Puts tasks on a board."""
        for task in tasks:
            await self.put(f"{board}/{task}", {"by": "", "until": 0.0, "done": False})

    async def claim(self, board: str, tasks: Sequence[str], lease_s: float) -> Claimed | None:
        """Takes the first free task, None if there is none: a record per task says whose it is, and until when."""
        for task in tasks:
            state, version = await settled(self.load(f"{board}/{task}"))
            if state["done"] or state["until"] > time.time():
                continue
            mine = {"by": self.agent, "until": time.time() + lease_s, "done": False}
            if await settled(self.save(f"{board}/{task}", mine, version)):
                return Claimed(task, mine)
        return None

    async def complete(self, board: str, claimed: Claimed) -> bool:
        """Says that a task is done; tells whether the product takes that."""
        state, version = await settled(self.load(f"{board}/{claimed.task}"))
        if state != claimed.token:
            return False
        return bool(await settled(self.save(f"{board}/{claimed.task}", {**state, "done": True}, version)))

    async def take(self, board: str, tasks: Sequence[str], lease_s: float, perform: Perform) -> bool | None:
        """Takes a task, performs it, and says that it is done.

        Returns:
            Whether the product takes it for done by this agent; None if there was no task to take.
        """
        claimed = await self.claim(board, tasks, lease_s)
        if claimed is None:
            return None
        await perform(claimed.task)
        return await self.complete(board, claimed)

    async def finished(self, board: str, task: str) -> bool:
        """Tells whether a task is done."""
        return bool((await self.get(f"{board}/{task}"))["done"])

    async def settle(self) -> None:
        """Asks whether anything of this agent's is lost, where the product says such things; see ``told``."""

    # What is only timed.

    async def batch(self, values: Mapping[str, Any]) -> None:
        """Writes many keys."""
        for key, value in values.items():
            await self.put(key, value)

    def watch(self, key: str) -> AsyncIterator[Any]:
        """Yields each new value of a key; first a None once it watches."""
        raise Unsupported("tells nobody of changes")


async def settled(found: Any) -> Any:
    """Returns a result, whether a plain method has given it or an ``async`` one."""
    return await found if inspect.isawaitable(found) else found
