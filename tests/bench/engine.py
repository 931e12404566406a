"""The services in process, without gRPC, on a store of some size; a worker of its own per size.

Two sizes in one process would share one garbage collector and one set of caches, which are just what
may make a large store slower.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from noosphere.consistency import Encoding, Precondition, Put, RequestRef
from noosphere.server.app import Engine, open_engine
from noosphere.server.config import Settings
from noosphere.server.memory.types import BatchView, Call, PutOp, ReadReply, WriteReply
from noosphere.server.memory.watches import WatchStart
from noosphere.server.ports.coordinator import Incarnation

from .bulk import COLLECTION, record_key
from .commands import WrongAnswer, main, obey
from .profiling import Window
from .workloads import NAMESPACE, value_of

_PER_TRANSACTION = 64
Result = TypeVar("Result")


class Sized:
    """The commands: one engine, its records, and batches of operations on records chosen at random.

    What is timed is only the calls: keys and requests are made before and replies are checked after,
    so the generator's own memory does not weigh on the larger store.
    """

    def __init__(self) -> None:
        self._stack = contextlib.AsyncExitStack()
        self._random = random.Random(0)
        self._versions: list[int] = []
        self._values: list[bytes] = []
        self._sequence = 0
        self._answered = 0
        self._unseen: list[int] = []
        self._head = 0
        self._window: Window | None = None

    async def open(self, data: str, records: int, populated: bool) -> dict[str, Any]:
        """Opens the engine on a folder; writes the records unless they are there."""

        def failed(error: BaseException) -> None:
            raise WrongAnswer(f"the store failed: {error}")

        settings = Settings(data=Path(data))
        self._engine: Engine = await self._stack.enter_async_context(open_engine(settings, on_fatal=failed))
        self._memory = self._engine.memory
        self._incarnation: Incarnation = await self._memory.agents.open("bench/engine", takeover=True)
        self._versions, self._values = [0] * records, [value_of(number) for number in range(records)]
        if populated:
            await self._learn()
        else:
            await self._fill()
        return {}

    async def get(self, calls: int) -> dict[str, Any]:
        """Reads records, one after the other."""
        numbers = self._random.choices(range(len(self._versions)), k=calls)
        keys = [record_key(number) for number in numbers]
        call = Call(self._incarnation)
        get = self._memory.reads.get

        async def timed() -> list[ReadReply]:
            return [await get(call, NAMESPACE, key) for key in keys]

        replies, spent = await self._timed(timed)
        for number, reply in zip(numbers, replies, strict=True):
            record = reply.records[0].record
            if record is None or record.siblings[-1].data != self._values[number]:
                raise WrongAnswer(f"{record_key(number)!r} was read with another value than was written")
        return {**spent, "calls": calls}

    async def put(self, calls: int, callers: int, per_round: int) -> dict[str, Any]:
        """Replaces records, each at most once in a round, so many at the same time that syncs are shared."""
        self._unseen = []
        self._head = (await self._memory.reads.get(Call(self._incarnation), NAMESPACE, record_key(0))).head
        total = {"calls": 0.0, "wall_s": 0.0, "cpu_s": 0.0}
        while (left := calls - len(self._unseen)) > 0:
            numbers = self._random.sample(range(len(self._versions)), k=min(left, per_round))
            taken = await self._put(numbers, callers)
            total = {name: total[name] + taken[name] for name in total}
        return total

    async def _put(self, numbers: Sequence[int], callers: int) -> dict[str, float]:
        jobs = [self._job(number) for number in numbers]
        replies: list[WriteReply | None] = [None] * len(jobs)
        queue = iter(enumerate(jobs))
        put = self._memory.writes.put

        async def caller() -> None:
            for index, (_, call, op) in queue:
                replies[index] = await put(call, NAMESPACE, op)

        async def timed() -> None:
            async with asyncio.TaskGroup() as group:
                for _ in range(callers):
                    group.create_task(caller())

        _, taken = await self._timed(timed)
        for (number, _, op), reply in zip(jobs, replies, strict=True):
            if reply is None or reply.replayed or reply.revision <= self._versions[number]:
                raise WrongAnswer(f"{record_key(number)!r} was not written anew: {reply}")
            self._versions[number] = reply.revision
            self._values[number] = op.put.data
            self._unseen.append(reply.revision)
        self._answered = self._sequence
        return {**taken, "calls": len(jobs)}

    async def watch(self) -> dict[str, Any]:
        """Receives the events of the last batch of Puts, as a watcher that lags behind it."""
        expected = sorted(self._unseen)
        call = Call(self._incarnation)
        revisions: list[int] = []

        async def timed() -> None:
            stream = self._memory.watches.watch(call, NAMESPACE, "", WatchStart(after=self._head))
            assert isinstance(stream, AsyncGenerator)
            async with contextlib.aclosing(stream) as messages:
                async for message in messages:
                    if isinstance(message.event, BatchView):
                        revisions.append(message.event.revision)
                        if len(revisions) == len(expected):
                            return

        _, taken = await self._timed(timed)
        if revisions != expected:
            raise WrongAnswer(
                f"a watcher received revisions {revisions[:1]} to {revisions[-1:]} ({len(revisions)}), "
                f"acknowledged were {expected[0]} to {expected[-1]} ({len(expected)})"
            )
        return {**taken, "calls": len(expected)}

    async def profile(self, work: str, calls: int, callers: int, per_round: int) -> dict[str, Any]:
        """Runs ``work`` (get, put or watch) under the profiler."""
        if work == "watch":
            await self.put(calls, callers, per_round)
        self._window = window = Window()
        try:
            match work:
                case "get":
                    await self.get(calls)
                case "put":
                    await self.put(calls, callers, per_round)
                case _:
                    await self.watch()
        finally:
            self._window = None
        return window.recorded()

    async def close(self) -> dict[str, Any]:
        """Closes the engine."""
        await self._stack.aclose()
        return {}

    async def _timed(self, work: Callable[[], Awaitable[Result]]) -> tuple[Result, dict[str, float]]:
        if self._window is not None:
            self._window.begin()
        cpu, wall = time.process_time(), time.perf_counter()
        result = await work()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        if self._window is not None:
            self._window.pause()
        return result, {"wall_s": wall, "cpu_s": cpu}

    def _job(self, number: int) -> tuple[int, Call, PutOp]:
        self._sequence += 1
        who = self._incarnation
        # Every call before those of this round has been answered.
        ref = RequestRef(f"{who.agent_id}#{who.number}", self._sequence, self._answered)
        data = value_of(1_000_000_000 + self._sequence)
        when = Precondition(expected_version=self._versions[number])
        return number, Call(who, ref), PutOp(record_key(number), Put(data, Encoding.JSON, precondition=when))

    async def _learn(self) -> None:
        after: str | None = None
        number = 0
        while True:
            page = await self._memory.reads.list(
                Call(self._incarnation),
                NAMESPACE,
                COLLECTION,
                page_size=1_000,
                after=after,
                reverse=False,
                where=(),
                claimed_only=False,
            )
            for view in page.records:
                if view.key != record_key(number) or view.record is None:
                    raise WrongAnswer(f"{view.key!r} is there instead of {record_key(number)!r}")
                self._versions[number] = view.version
                number += 1
            after = page.next_key
            if after is None:
                break
        if number != len(self._versions):
            raise WrongAnswer(f"{number} records are there instead of {len(self._versions)}")

    async def _fill(self) -> None:
        for start in range(0, len(self._versions), _PER_TRANSACTION):
            numbers = range(start, min(start + _PER_TRANSACTION, len(self._versions)))
            reply = await self._memory.writes.transact(
                Call(self._incarnation),
                NAMESPACE,
                (),
                tuple(
                    PutOp(
                        record_key(number),
                        Put(self._values[number], Encoding.JSON, precondition=Precondition(expected_version=0)),
                    )
                    for number in numbers
                ),
            )
            for number in numbers:
                self._versions[number] = reply.revision


async def run() -> None:
    sized = Sized()
    await obey({name: getattr(sized, name) for name in ("open", "get", "put", "watch", "profile", "close")})


if __name__ == "__main__":
    main(run)
