"""One agent of the demo, as a process of its own (``python -m noosphere.server.demo.agent``).

It claims sections one after the other and adds each to three shared things. An agent may be killed at
any point and its section be done again by somebody else, so every step has to be worth doing twice:

- The **outline** and the **index** are plain records, changed by read-modify-write. Each section's part
  has its own place in them, so adding it again changes nothing; and a write that does not contain what
  others added meanwhile is refused and decided again.
- The **tally** is a counter, and adding to a counter twice would count twice. So the agent adds to it in
  one transaction with a *marker* of the section that must not exist yet. Whoever does the section again
  finds the marker, and with it the proof that the counters have been moved.
- **Complete** comes last and is accepted from the present holder only, so a section counts as done only
  when all of it is, and once.

The control is a number changed by read-modify-write with a blind write. It has neither protection.
"""

from __future__ import annotations

import asyncio
import math
import random
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from noosphere.client import (
    AckedWritesLost,
    Claim,
    ClaimLost,
    Conflict,
    Increment,
    KeepMax,
    Key,
    Namespace,
    Put,
    TransactionFailed,
    connect,
)
from noosphere.server.checking import HistoryWriter, Recorder

from .job import Outline, Shelf, Task, count_words, pick_terms, shelf_of, with_entry, with_terms
from .protocol import (
    GO,
    ORDERS,
    PAUSE,
    Claimed,
    Completed,
    Conflicted,
    Counted,
    Event,
    Finished,
    Holding,
    Lost,
    Orders,
    Overwrote,
    Ready,
    Updated,
    to_line,
)
from .recovery import Recovery, Redo

BOARD = "sections/"
OUTLINE = "outline"
INDEX = "index/"
MARKERS = "counted/"
WORDS = "tally/words"
SECTIONS = "tally/sections"
LONGEST = "tally/longest"
CONTROL = "control"

CALL_LIMIT_S = 30.0
"""A busy machine is no failure of the demo."""

ATTEMPTS_MAX = 500
EXPLANATION_TOKENS = 240

Model = TypeVar("Model", bound=BaseModel)

_CLAIM_WAIT = 1.0
_THINK_SIGMA = 0.6
_THINK_TIMES_MAX = 5.0


class Agent:
    """Works on sections until all are done.

    Args:
        orders: what to do.
        namespace: where.
        pause: set when the agent has to stop in the middle of its next section.
        recovery: what to do when writes are lost; None if none will be.
    """

    def __init__(
        self, orders: Orders, namespace: Namespace, pause: asyncio.Event, recovery: Recovery | None = None
    ) -> None:
        self._orders = orders
        self._space = namespace
        self._board = namespace.board(BOARD, Task)
        self._pause = pause
        self._chance = random.Random(f"{orders.seed}/{orders.agent}")
        self._explained = False
        self._recovery = recovery

    async def work(self) -> None:
        """Does sections until there is none left to do, and nothing left to be made good."""
        while True:
            section = ""
            try:
                self._check()
                async with self._board.claim(lease=self._orders.lease_ms / 1000, wait=_CLAIM_WAIT) as claim:
                    if claim is not None:
                        section = claim.value.number
                        say(Claimed(section, claim.attempts))
                        await self._do(claim)
            except (ClaimLost, AckedWritesLost) as error:
                loss = self._recovery.cause_of(error) if self._recovery is not None else None
                if self._recovery is not None and loss is not None:
                    await self._recovery.recover(loss, section)
                elif isinstance(error, ClaimLost):
                    say(Lost(section))
                else:
                    raise
            if not section and await self._all_done():
                if self._recovery is None or self._recovery.settled:
                    return
                await self._recovery.settle()

    def _check(self) -> None:
        """Stops the work if something was lost that it rests on."""
        if self._recovery is not None:
            self._recovery.check()

    def _made(self, revision: int, redo: Redo) -> None:
        if self._recovery is not None:
            self._recovery.made(revision, redo)

    async def _do(self, claim: Claim[Task]) -> None:
        task = claim.value
        await self._think()
        await self._update(self._space.key(OUTLINE, Outline), lambda held: with_entry(held, task))
        await self._count(task, again=claim.attempts > 1)
        if self._pause.is_set():
            # The worst moment: outline and tally have the section, the index has not, and it is not done.
            say(Holding(task.number))
            await asyncio.Event().wait()
        by_shelf: dict[str, list[str]] = {}
        for term in pick_terms(task.content):
            by_shelf.setdefault(shelf_of(term), []).append(term)
        for shelf, terms in by_shelf.items():
            await self._update(self._space.key(INDEX + shelf, Shelf), partial(_shelve, task, terms))
        await self._overwrite()
        self._check()
        await claim.complete({"by": self._orders.agent})
        say(Completed(task.number))

    async def _update(self, key: Key[Model], add: Callable[[Model | None], Model]) -> None:
        """Adds to a record by read-modify-write with a slow thought in between."""
        attempts = 0

        async def change(current: Model | None, conflict: Conflict[Model] | None) -> Model:
            nonlocal attempts
            attempts += 1
            if conflict is not None:
                text = "" if self._explained else conflict.explain(EXPLANATION_TOKENS)
                self._explained = True
                say(Conflicted(key.name, text))
            await self._think()
            return add(current)

        record = await key.update(change, attempts=ATTEMPTS_MAX)
        self._made(record.version or 0, lambda: self._update(key, add))
        say(Updated(key.name, attempts))

    async def _count(self, task: Task, *, again: bool) -> None:
        """Adds the section to the tally, once whoever does it how often."""
        marker = MARKERS + task.number
        if again and await self._space.get(marker) is not None:
            say(Counted(task.number, again=True))
            return
        words = count_words(task.content)
        try:
            counted = await self._space.transact(
                operations=[
                    Put(marker, {"by": self._orders.agent}, expected_version=0),
                    Increment(WORDS, words),
                    Increment(SECTIONS, 1),
                    KeepMax(LONGEST, words),
                ]
            )
        except TransactionFailed:
            if await self._space.get(marker) is None:
                raise
            say(Counted(task.number, again=True))
        else:
            self._made(counted.revision, lambda: self._count(task, again=True))
            say(Counted(task.number, again=False))

    async def _overwrite(self) -> None:
        """The control: adds 1 to a number and writes it whatever others have written meanwhile."""
        key = self._space.key(CONTROL, int)
        record = await key.read()
        await self._think()
        await key.put((record.value if record.exists else 0) + 1, blind=True)
        say(Overwrote())

    async def _all_done(self) -> bool:
        async for record in self._board.list():
            if record.claim is None or not record.claim.done:
                return False
        return True

    async def _think(self) -> None:
        median_ms = self._orders.think_ms
        drawn_ms = self._chance.lognormvariate(math.log(median_ms), _THINK_SIGMA) if median_ms > 0 else 0.0
        await asyncio.sleep(min(drawn_ms, median_ms * _THINK_TIMES_MAX) / 1000)


def _shelve(task: Task, terms: list[str], held: Shelf | None) -> Shelf:
    return with_terms(held, task, terms)


def say(event: Event) -> None:
    """Tells the demo, at once: what a killed agent said before counts."""
    sys.stdout.buffer.write(to_line(event))
    sys.stdout.buffer.flush()


async def run(orders: Orders, commands: asyncio.StreamReader) -> None:
    """Connects, waits for the start, and works; ends early if the demo does."""
    pause = asyncio.Event()
    with HistoryWriter(Path(orders.journal)) as writer:
        async with connect(
            orders.server,
            # Not the name alone: one that was killed keeps its name until its lease ends, also from the next demo.
            agent=f"{orders.namespace.rpartition('/')[2]}/{orders.agent}",
            timeout=CALL_LIMIT_S,
            coalesce=False,
            interceptors=[Recorder(writer, orders.agent)],
            in_order=True,
        ) as client:
            say(Ready())
            if await commands.readline() != GO:
                return
            space = client.namespace(orders.namespace)
            recovery = Recovery(client, space, say) if orders.chaos else None
            work = asyncio.create_task(Agent(orders, space, pause, recovery).work())
            beside = [asyncio.create_task(_listen(commands, pause))]
            if recovery is not None:
                beside.append(asyncio.create_task(recovery.watch()))
            async with asyncio.timeout(orders.limit_s):
                try:
                    await asyncio.wait([work, *beside], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for task in beside:
                        task.cancel()
                    if not work.done():
                        work.cancel()
                    await asyncio.wait([work, *beside])
            for task in (work, *beside):
                if not task.cancelled():
                    task.result()
            if not work.cancelled():
                say(Finished())


async def _listen(commands: asyncio.StreamReader, pause: asyncio.Event) -> None:
    """Obeys until the demo goes away, so that no agent outlives it."""
    while line := await commands.readline():
        if line == PAUSE:
            pause.set()


async def main() -> None:
    """Reads the orders from stdin and obeys."""
    commands = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    await run(ORDERS.decode(await commands.readline()), commands)


if __name__ == "__main__":
    asyncio.run(main())
