"""Writers on a working store that never give a commit up, and what must hold of what they were told."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from tests.contract.build import absent, alive, logged, put, remember, sequence

from noosphere.consistency import Reason, Refusal, find_lost
from noosphere.server.ports.store import Check, Commit, Failed, FailureKind, NamespaceRef, Replayed
from noosphere.server.storage.redis import RedisStore

SPACE = NamespaceRef("shared/load")
HOT = "hot"
WRITERS = 8
SECONDS_MAX = 90.0
"""A bound against hanging, far above what anything here takes."""


class Told(NamedTuple):
    """An acknowledged commit: who wrote what, and what it added to the hot key (0: nothing)."""

    writer: int
    number: int
    data: bytes
    hot: int


class Load:
    """Writers, each on one of some stores; they take turns at writing a pair of keys of their own and a hot key.

    Args:
        stores: which are used; writer n uses number n modulo their count.
        writers: how many there are.

    Attributes:
        told: acknowledged commits by revision. More than one of a revision is an error.
        refused: refusals met, by reason.
        replayed: commits of which a later try was told that they had been made before.
        read: how many reads of a pair were answered.
    """

    def __init__(self, stores: Sequence[RedisStore], writers: int = WRITERS) -> None:
        self._stores = stores
        self._writers = writers
        self._stopping = False
        self._moved = asyncio.Condition()
        self.told: dict[int, Told] = {}
        self.refused: Counter[Reason] = Counter()
        self.replayed = 0
        self.read = 0
        self.by_store: Counter[int] = Counter()
        self._going = [asyncio.Event() for _ in stores]
        self._busy: Counter[int] = Counter()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Runs for the length of the block; every writer then ends what it has begun, and is answered once more."""
        for going in self._going:
            going.set()
        async with asyncio.TaskGroup() as group:
            for number in range(self._writers):
                group.create_task(self._write(number))
            for store in range(len(self._stores)):
                group.create_task(self._read(store))
            try:
                yield
            finally:
                self._stopping = True
                for going in self._going:
                    going.set()

    async def rest(self, store: int) -> None:
        """Makes no further call of a store; returns once none is under way."""
        self._going[store].clear()
        async with asyncio.timeout(SECONDS_MAX), self._moved:
            await self._moved.wait_for(lambda: not self._busy[store])

    def go_on(self, store: int) -> None:
        """Uses a store again."""
        self._going[store].set()

    @contextlib.asynccontextmanager
    async def _turn(self, store: int) -> AsyncIterator[None]:
        await self._going[store].wait()
        self._busy[store] += 1
        try:
            yield
        finally:
            async with self._moved:
                self._busy[store] -= 1
                self._moved.notify_all()

    async def more(self, count: int, store: int | None = None) -> None:
        """Waits until so many more commits were acknowledged, by one of the stores or by any."""

        def made() -> int:
            return len(self.told) if store is None else self.by_store[store]

        goal = made() + count
        async with asyncio.timeout(SECONDS_MAX), self._moved:
            await self._moved.wait_for(lambda: made() >= goal)

    async def refusals(self, count: int, reason: Reason = Reason.ENGINE_UNAVAILABLE) -> None:
        """Waits until so many more calls were refused."""
        goal = self.refused[reason] + count
        async with asyncio.timeout(SECONDS_MAX), self._moved:
            await self._moved.wait_for(lambda: self.refused[reason] >= goal)

    async def check(self, store: RedisStore) -> set[int]:
        """Holds what was told against what is there, and returns the revisions that are missing: each was told lost."""
        cuts = (await store.read(SPACE, ())).view.cuts
        there = {batch.revision: batch.changes for batch in await logged(store, namespace=SPACE)}
        written = Counter(change.data for changes in there.values() for change in changes if change.key != HOT)
        missing = set()
        for revision, told in self.told.items():
            lost = find_lost(revision, cuts) is not None
            assert lost is not (revision in there), f"{revision:x} is {'there' if revision in there else 'not there'}"
            if lost:
                missing.add(revision)
                continue
            assert [change.data for change in there[revision] if change.key != HOT] == [told.data] * 2
        assert set(written.values()) <= {2}, "executed more than once"
        added = sum(1 for changes in there.values() for change in changes if change.key == HOT)
        hot = (await store.read(SPACE, (HOT,))).entries[0]
        assert hot is not None
        assert hot.data is not None
        assert int(hot.data) == added, "an update of the hot key was lost"
        return missing

    async def _write(self, number: int) -> None:
        place = number % len(self._stores)
        count = 0
        while not self._stopping:
            count += 1
            async with self._turn(place):
                await self._commit(self._stores[place], number, count)

    async def _commit(self, store: RedisStore, number: int, count: int) -> None:
        data = f"{number}/{count}".encode()
        pair = [put(f"{number}/{side}", data) for side in ("left", "right")]
        request = remember(sequence(count, count - 1, client=f"writer-{number}#1"), data)
        hot = count % 2
        while True:
            try:
                checks: tuple[Check, ...] = ()
                mutations = tuple(pair)
                if hot:
                    found = (await store.read(SPACE, (HOT,))).entries[0]
                    value = int(found.data or b"0") if found is not None else 0
                    checks = (absent(HOT) if found is None else alive(HOT, found.revision),)
                    mutations = (*pair, put(HOT, b"%d" % (value + 1)))
                made = Commit(store.epoch, 0, checks=checks, mutations=mutations, request=request)
                result = await store.commit(SPACE, made)
            except Refusal as refusal:
                await self._was_refused(refusal.reason)
                continue
            if isinstance(result, Failed):
                assert {failure.kind for failure in result.failures} <= {FailureKind.KEY, FailureKind.EPOCH}, result
                continue
            self.replayed += isinstance(result, Replayed)
            revision = result.remembered.revision if isinstance(result, Replayed) else result.revision
            assert revision not in self.told, f"{revision:x} was given to two commits"
            async with self._moved:
                self.told[revision] = Told(number, count, data, hot)
                self.by_store[number % len(self._stores)] += 1
                self._moved.notify_all()
            return

    async def _read(self, place: int) -> None:
        """Reads pairs, none of which is ever half written."""
        number = 0
        while not self._stopping:
            number = (number + 1) % self._writers
            async with self._turn(place):
                try:
                    result = await self._stores[place].read(SPACE, (f"{number}/left", f"{number}/right"))
                except Refusal as refusal:
                    await self._was_refused(refusal.reason)
                    continue
                left, right = (None if entry is None else entry.data for entry in result.entries)
                assert left == right, "half of a commit was read"
                self.read += 1
            await asyncio.sleep(0)

    async def _was_refused(self, reason: Reason) -> None:
        async with self._moved:
            self.refused[reason] += 1
            self._moved.notify_all()
        await asyncio.sleep(0.01)
