"""Liveness: after everything has healed, a newcomer gets work of every kind done, each within the time that it has."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping

from noosphere.client import Client, Increment, Message, Put

from .agents import NOTES, Doing, Rover, Surrounding, attempt

PROBE = "probe"


class NotYet(Exception):
    """What was done has not had the effect that it has to have."""


class Prober:
    """See the module.

    Args:
        life: the newcomer's.
        knows_facts: whether there is a place for facts.
    """

    def __init__(self, life: Surrounding, *, knows_facts: bool) -> None:
        self._life = life
        self._knows_facts = knows_facts
        self._rover = Rover(life)
        self._tasks = 0

    async def run(self, until: float) -> None:
        """Does everything at the same time, each kind of work until it goes well once.

        Args:
            until: time of the event loop by which all has to be done.
        """
        async with self._life.connect(True) as client:
            await asyncio.gather(*(self._persist(what, doing, client, until) for what, doing in self._kinds().items()))

    def _kinds(self) -> Mapping[str, Doing]:
        kinds: dict[str, Doing] = {
            "write": self._write,
            "merge": self._merge,
            "transaction": self._transact,
            "watch": self._watch,
            "task": self._work,
            **self._rover.kinds,
        }
        if self._knows_facts:
            kinds["fact"] = self._learn
        return kinds

    async def _persist(self, what: str, doing: Doing, client: Client, until: float) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout_at(until):
                while not await self._well(what, doing(client)):
                    await self._life.think()
        except TimeoutError:
            self._life.witness.wrong(f"no {what} gets done {loop.time() - began:.1f} s after everything has healed")

    async def _well(self, what: str, doing: Awaitable[object]) -> bool:
        try:
            return await attempt(self._life, f"probe: {what}", doing)
        except NotYet:
            return False

    async def _write(self, client: Client) -> None:
        space = client.namespace(NOTES)
        written = await space.put(f"{PROBE}/put", {"n": 1}, blind=True)
        read = await space.get(f"{PROBE}/put")
        _check(read is not None and read.version == written.version)

    async def _merge(self, client: Client) -> None:
        await client.namespace(NOTES).key(f"{PROBE}/merged").increment(1)

    async def _transact(self, client: Client) -> None:
        keys = [f"{PROBE}/left", f"{PROBE}/right"]
        space = client.namespace(NOTES)
        seen = await space.get_many(keys)
        changes = [Put(key, "set", seen=record) for key, record in zip(keys, seen, strict=True)]
        await space.transact(operations=[*changes, Increment(f"{PROBE}/sets", 1)])

    async def _watch(self, client: Client) -> None:
        space = client.namespace(NOTES)
        async with space.watch(f"{PROBE}/watched/", snapshot=True) as batches:
            written = await space.put(f"{PROBE}/watched/it", "new", blind=True)
            async for batch in batches:
                if batch.revision >= (written.version or 0):
                    return

    async def _work(self, client: Client) -> None:
        board = client.namespace(NOTES).board(f"{PROBE}/tasks/")
        self._tasks += 1
        await board.add({"do": "it"}, f"{self._tasks}")
        async with board.claim(lease=3, wait=2) as claim:
            _check(claim is not None)
            assert claim is not None
            await claim.complete({"done": True})

    async def _learn(self, client: Client) -> None:
        async with client.session(PROBE) as session:
            (said,) = await session.append(Message("user", "I saw that everything has healed."))
            text, owner = "Saw that everything has healed.", f"user/{PROBE}"
            decision = await client.facts.remember(text, owner=owner, evidence=said, session=session, timeout=10)
            _check(decision.known)
            _check(text in [hit.text for hit in await client.facts.search("who saw it healed?", owner=owner)])


def _check(there: bool) -> None:
    if not there:
        raise NotYet
