"""A client process under load: the real client against a real server, every call recorded.

Run as ``python -m tests.support.worker ADDRESS NAME JOURNAL``. It works until its standard input is closed,
finishes what it has begun and exits with 0. No call is given up: each is retried, with the same request id,
until the server answers, so what was acknowledged is exactly what was done.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

from noosphere.client import (
    Client,
    Conflict,
    Increment,
    Namespace,
    Put,
    RetryPolicy,
    TransactionFailed,
    connect,
)
from noosphere.server.checking import HistoryWriter, Recorder

SPACE = "shared/load"
COUNTER = "tally"
DOCUMENT = "document"
PAIR = ("pair/left", "pair/right")
BOARD = "tasks/"
TASKS = 300
CALL_SECONDS_MAX = 120.0
"""Longer than any outage that a test makes."""
ATTEMPT_SECONDS_MAX = 5.0


class Persistent(RetryPolicy):
    """Retries that do not wait for half of a long deadline for whoever does not answer."""

    def attempt_timeout(self, remaining: float, wait: float = 0.0) -> float:
        return min(remaining, wait + ATTEMPT_SECONDS_MAX)


class Worker:
    """What one process does, over and over.

    Args:
        client: with which it does it.
        name: its own, from which it draws its chances.
        steps_per_tally: after so many steps it counts in other tallies, as a checker compares each with all that was
            counted in it; 0: in one for ever.
        chance: decides what it does; by default its name does.
        lease_seconds: how long it holds a task without a word.
        think: what it does between taking a task and completing it; by default nothing.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        steps_per_tally: int = 0,
        *,
        chance: random.Random | None = None,
        lease_seconds: float = 60,
        think: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._steps_per_tally = steps_per_tally
        self._space: Namespace = client.namespace(SPACE)
        self._private: Namespace = client.private
        self._name = name
        self._chance = chance or random.Random(name)
        self._lease_seconds = lease_seconds
        self._think = think
        self._number = 0

    async def step(self) -> None:
        """Does one thing."""
        self._number += 1
        steps: Sequence[tuple[int, Callable[[], Awaitable[object]]]] = (
            (6, self._count),
            (3, self._append),
            (3, self._pair),
            (3, self._own),
            (3, self._look),
            (2, self._work),
            (1, self._come_and_go),
        )
        weights = [weight for weight, _ in steps]
        await self._chance.choices([step for _, step in steps], weights)[0]()

    @property
    def _tally(self) -> str:
        return self._in_turn(COUNTER)

    def _in_turn(self, counter: str) -> str:
        return f"{counter}/{self._number // self._steps_per_tally}" if self._steps_per_tally else counter

    async def _count(self) -> None:
        await self._space.key(self._tally).increment(1)

    async def _append(self) -> None:
        document = self._space.key(DOCUMENT, list[str])
        await document.update(partial(_with, f"{self._name}/{self._number}"), attempts=1_000)

    async def _pair(self) -> None:
        left, right = await self._space.get_many(PAIR)
        mine = f"{self._name}/{self._number}"
        with contextlib.suppress(TransactionFailed):
            counted = Increment(self._in_turn("pairs"), 1)
            await self._space.transact(
                operations=[Put(PAIR[0], mine, seen=left), Put(PAIR[1], mine, seen=right), counted]
            )

    async def _own(self) -> None:
        await self._private.put(f"note/{self._number % 5}", self._number)

    async def _look(self) -> None:
        await self._space.get_many([self._tally, DOCUMENT, *PAIR])

    async def _work(self) -> None:
        async with self._space.board(BOARD).claim(lease=self._lease_seconds) as claim:
            if claim is not None and self._think is not None:
                await self._think()
            if claim is not None and self._number % 4:
                await claim.complete({"by": self._name})

    async def _come_and_go(self) -> None:
        record = await self._space.key("on and off").read()
        with contextlib.suppress(Conflict):
            await (record.delete() if record.exists else record.replace(f"{self._name}/{self._number}"))


def _with(mine: str, held: list[str] | None, _: Conflict[list[str]] | None) -> list[str]:
    # The newest few, so that the document keeps fitting an item.
    return [*(held or []), mine][-20:]


@contextlib.asynccontextmanager
async def recorded(address: str, name: str, journal: Path) -> AsyncIterator[Client]:
    """Connects as an agent that never gives a call up and records each."""
    with HistoryWriter(journal) as writer:
        async with connect(
            address,
            agent=name,
            interceptors=[Recorder(writer, name)],
            timeout=CALL_SECONDS_MAX,
            retry=Persistent(attempts_max=10_000, delay_max=0.2),
            coalesce=False,
        ) as client:
            yield client


async def prepare(client: Client) -> None:
    """Adds the tasks that the workers share."""
    board = client.namespace(SPACE).board(BOARD)
    for number in range(TASKS):
        await board.add({"number": number}, f"{number:04}")


async def run(address: str, name: str, journal: Path, stop: asyncio.Event) -> None:
    """Works until ``stop`` is set."""
    async with recorded(address, name, journal) as client:
        worker = Worker(client, name)
        while not stop.is_set():
            await worker.step()


async def _main() -> None:
    address, name, journal = sys.argv[1:]
    stop = asyncio.Event()
    asyncio.get_running_loop().run_in_executor(None, sys.stdin.read).add_done_callback(lambda _: stop.set())
    await run(address, name, Path(journal), stop)


if __name__ == "__main__":
    asyncio.run(_main())
