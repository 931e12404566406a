"""Random operations on a store and on a naive model: same answers, same state, over restarts and crashes too."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
from typing import Any

import pytest
from tests.contract.lab import EmbeddedLab, StoreLab, turns
from tests.contract.model import Model, Outcome
from tests.contract.redislab import RedisLab
from tests.support.redis import needs_redis

from noosphere.consistency import NEVER_MS, Cut, Refusal, RequestRef
from noosphere.consistency.limits import CLIENT_REQUEST_AGE_MS
from noosphere.server.ports.store import (
    Changes,
    Check,
    CollectionCheck,
    Commit,
    CommitResult,
    Committed,
    Dropped,
    Failed,
    Fence,
    KeyCheck,
    Mutation,
    NamespaceRef,
    Replayed,
    RequestRecord,
    StampMode,
)

RUNS = int(os.environ.get("NOOSPHERE_MODEL_RUNS", "40"))
STEPS = 40
KEYS = ("a", "a/x", "a/y", "a/b/z", "c/w", "log/", "\0own/q")
COLLECTIONS = ("", "a/", "a/b/", "c/", "log/", "none/")
LOCKS = ("l", "m")


class Run:
    """One random history."""

    def __init__(self, lab: StoreLab, seed: int) -> None:
        self.lab = lab
        self.chance = random.Random(seed)
        self.model = Model()
        self.refs = [NamespaceRef("shared/one"), NamespaceRef("agents/two")]
        self.numbers = itertools.count(1)
        self.config_version = 0
        self.requests: list[RequestRef] = []

    async def run(self) -> None:
        for _ in range(STEPS):
            step = self.chance.choices(
                (
                    self.group,
                    self.lost_group,
                    self.pass_time,
                    self.compact,
                    self.erase,
                    self.drop,
                    self.reopen,
                    self.crash,
                ),
                (60, 5, 8, 8, 4, 3, 5, 5),
            )[0]
            await step()
            await self.compare()

    def commit(self, ref: NamespaceRef) -> Commit:
        """Makes up a commit, mostly one that should pass."""
        chance, space, store = self.chance, self.model.space(ref), self.lab.store
        mutations = []
        for key in chance.sample(KEYS, chance.choice((0, 1, 1, 1, 2, 4))):
            mutations.append(self.mutation(key, new=key not in space.entries))
        checks: list[Check] = []
        for key in chance.sample(KEYS, chance.choice((0, 1, 2))):
            entry = space.entries.get(key)
            live = entry is not None and entry.live_until_ms > store.now_ms()
            revision = entry.revision if entry is not None else 0
            if chance.random() < 0.15:
                revision, live = chance.choice(((revision + 1, live), (revision, not live), (0, False)))
            checks.append(KeyCheck(key, revision, live))
        for collection in chance.sample(COLLECTIONS, chance.choice((0, 0, 1))):
            mode = chance.choice(list(StampMode))
            # What an emptied collection shows is the driver's business, as long as it is new: see compare().
            if not space.is_empty(collection):
                checks.append(
                    CollectionCheck(collection, mode, space.stamp(collection, mode) + (chance.random() < 0.2))
                )
        request = None
        if chance.random() < 0.4:
            if self.requests and chance.random() < 0.4:
                wanted = chance.choice(self.requests)
            elif chance.random() < 0.3:
                wanted = RequestRef(uuid=f"u{next(self.numbers)}")
            else:
                number = next(self.numbers)
                wanted = RequestRef("p#1", number, max(0, number - chance.choice((2, 100))))
            self.requests.append(wanted)
            answered, newest_ms = space.clients.get(wanted.client, (0, 0))
            if 0 < wanted.sequence <= answered and newest_ms + CLIENT_REQUEST_AGE_MS <= self.lab.awake_ms:
                # Whether a copy of so old a call is still known as answered is left to the driver.
                wanted = RequestRef(uuid=f"u{next(self.numbers)}")
            request = RequestRecord(wanted, b"meaning", str(len(self.requests)).encode())
        self.config_version += chance.random() < 0.05
        fences = tuple(Fence(lock, chance.randrange(4)) for lock in chance.sample(LOCKS, chance.choice((0, 0, 1, 2))))
        return Commit(
            store.epoch + (chance.random() < 0.02),
            max(0, self.config_version - (chance.random() < 0.05)),
            tuple(checks),
            tuple(mutations),
            request,
            fences,
            store.now_ms() + chance.choice((0, 1, 1000)) if chance.random() < 0.1 else None,
        )

    def mutation(self, key: str, new: bool) -> Mutation:
        chance, now_ms = self.chance, self.lab.store.now_ms()
        data = bytes(chance.randrange(256) for _ in range(chance.randrange(6)))
        if key.endswith("/"):
            return Mutation(key, data, NEVER_MS, NEVER_MS, True, b"append", rev_slot=True)
        if key.startswith("\0"):
            return Mutation(key, chance.choice((None, data)), NEVER_MS, NEVER_MS, False, b"")
        kind = chance.random()
        if kind < 0.2:
            return Mutation(key, None, 0, NEVER_MS, False, b"", raise_floor_context=chance.randrange(1 << 50))
        if kind < 0.4:
            return Mutation(key, data, 0, now_ms + chance.randrange(20_000), True, b"delete")
        until_ms = chance.choice((NEVER_MS, now_ms + chance.randrange(1, 20_000)))
        return Mutation(key, data, until_ms, until_ms, new or chance.random() < 0.4, b"put" * chance.randrange(1, 3))

    async def submit(self) -> list[tuple[asyncio.Task[CommitResult], Outcome]]:
        """Sends commits at once; each is decided when it is sent, on all before it."""
        sent = []
        for _ in range(self.chance.choice((1, 1, 2, 5, 12))):
            ref = self.chance.choice(self.refs)
            commit = self.commit(ref)
            # The first use of a namespace after a restart loads it; then what is decided is decided at once.
            await self.load(ref)
            store = self.lab.store
            expected = self.model.commit(ref, commit, store.epoch, store.now_ms(), self.lab.awake_ms)
            task = asyncio.create_task(self.lab.store.commit(ref, commit))
            await turns(2)
            sent.append((task, expected))
        return sent

    async def load(self, ref: NamespaceRef) -> None:
        await self.lab.store.read(ref, ())

    async def group(self) -> None:
        before = self.model.copy()
        async with self.lab.holding():
            sent = await self.submit()
            await self.compare(before)
            await self.compare_accepted()
        for task, expected in sent:
            assert await outcome(task) == expected

    async def lost_group(self) -> None:
        """A crash before the sync: nothing of the group may be left, and nobody may have been told otherwise."""
        before = self.model.copy()
        async with self.lab.holding():
            sent = await self.submit()
            await turns()
            heads = [before.space(ref).head for ref in self.refs]
            for task, expected in sent:
                if task.done():
                    assert await outcome(task) == expected
                    assert expected[0] != "committed" or expected[1] in heads, "acknowledged, but not synced"
            await self.lab.crash()
        await asyncio.gather(*(task for task, _ in sent), return_exceptions=True)
        self.model = before

    async def pass_time(self) -> None:
        self.lab.advance(self.chance.choice((1, 100, 5_000, 130_000, 700_000)))
        if self.chance.random() < 0.3:
            self.lab.set_wall_back(3_600_000)
        await turns()

    async def compact(self) -> None:
        ref = self.chance.choice(self.refs)
        space = self.model.space(ref)
        floor = max(0, space.head + self.chance.randrange(-8, 4))
        await self.lab.store.compact(ref, floor)
        self.model.compact(ref, floor)

    async def erase(self) -> None:
        ref = self.chance.choice(self.refs)
        erased = await self.lab.store.erase(ref)
        head, logged, told = self.model.erase(ref)
        assert erased[:2] == (head, logged)
        # Calls that are too old to be told of may be gone already.
        assert erased.request_count <= told

    async def drop(self) -> None:
        index = self.chance.randrange(len(self.refs))
        ref = self.refs[index]
        space = self.model.space(ref)
        result = await self.lab.store.drop(ref, space.head)
        if space.exists:
            head, count = self.model.drop(ref)
            assert result == Dropped(head, count)
            self.refs[index] = NamespaceRef(ref.name, ref.generation + 1, head)

    async def reopen(self) -> None:
        await self.lab.reopen()

    async def crash(self) -> None:
        await self.lab.crash()

    async def compare(self, model: Model | None = None) -> None:
        """Compares everything that readers can see."""
        await self._compare(model or self.model, accepted=False)

    async def compare_accepted(self) -> None:
        await self._compare(self.model, accepted=True)

    async def _compare(self, model: Model, accepted: bool) -> None:
        store = self.lab.store
        for ref in self.refs:
            space = model.space(ref)
            page = await store.scan(ref, "", limit=1000, accepted=accepted)
            assert list(page.entries) == [space.entries[key] for key in sorted(space.entries)]
            view = page.view
            cuts = list(space.cuts)
            if not space.exists or space.head >> 40 < store.epoch:
                cuts.append(Cut(store.epoch, space.head))
            expected: Any = (space.exists, space.deleted, space.head, space.config_version, space.floor_context, cuts)
            assert expected == (
                view.exists, view.deleted, view.head, view.config_version, view.floor_context, list(view.cuts)
            )  # fmt: skip
            read = await store.read(ref, KEYS, locks=LOCKS, accepted=accepted)
            assert read.entries == tuple(space.entries.get(key) for key in KEYS)
            assert read.fences == tuple((lock, space.fences.get(lock, 0)) for lock in LOCKS)
            for collection in COLLECTIONS:
                stamps = (await store.scan(ref, collection, limit=1, accepted=accepted)).stamps
                expected = (space.stamp(collection, StampMode.CHANGED), space.stamp(collection, StampMode.MEMBERS))
                if space.is_empty(collection) and stamps != expected:
                    assert stamps.changed == stamps.members >= max(expected)
                else:
                    assert stamps == expected
            for request in self.requests[-20:]:
                found = (await store.read(ref, (), request=request, accepted=accepted)).remembered
                expected = space.find(request, self.lab.awake_ms)
                # What a client says it has the answer to may be forgotten as soon as it says so.
                assert found == expected or (found is self.model.space(ref).find(request, self.lab.awake_ms) is None)
            if not accepted:
                await self._compare_synced(ref, model)

    async def _compare_synced(self, ref: NamespaceRef, model: Model) -> None:
        store, space = self.lab.store, model.space(ref)
        if not space.deleted:
            result = await store.changes(ref, space.floor, 500)
            assert result == Changes(tuple(space.log), space.head, False)
        now_ms = store.now_ms()
        due = sorted((due_ms, key) for key, due_ms in space.due.items() if due_ms <= now_ms)
        assert await store.due(ref, now_ms, 100) == tuple(key for _, key in due)
        stats = await store.stats(ref)
        own = sum(key.startswith("\0") for key in space.entries)
        assert (stats.record_count, stats.own_count) == (len(space.entries) - own, own)
        assert stats.record_bytes == sum(len(e.key) + len(e.data) for e in space.entries.values())
        assert stats.log_count == len(space.log)


class Direct(Run):
    """A history on a driver that syncs within its commits, under a clock that is the machine's."""

    lab: Any

    async def load(self, ref: NamespaceRef) -> None:
        await self.lab.warm(ref)

    async def group(self) -> None:
        for task, expected in await self.submit():
            assert await outcome(task) == expected

    async def lost_group(self) -> None:
        await self.crash()

    async def pass_time(self) -> None:
        self.lab.advance(self.chance.choice((1, 100, 5_000, 130_000, 700_000)))


async def outcome(task: asyncio.Task[CommitResult]) -> Outcome:
    """Returns a result as the model tells it."""
    try:
        result = await task
    except Refusal as refusal:
        return "refused", refusal.reason
    match result:
        case Committed(revision):
            return "committed", revision
        case Replayed(remembered):
            return "replayed", remembered
        case Failed(failures):
            return "failed", failures


@pytest.mark.parametrize("seed", range(RUNS))
async def test_a_random_history_is_told_as_the_model_tells_it(embedded: EmbeddedLab, seed: int) -> None:
    await Run(embedded, seed).run()


@needs_redis
@pytest.mark.parametrize("seed", range(RUNS // 8))
async def test_a_random_history_on_redis_is_told_as_the_model_tells_it(redis: RedisLab, seed: int) -> None:
    await Direct(redis, seed).run()


@pytest.mark.parametrize("seed", range(RUNS // 2))
async def test_neither_folding_nor_eviction_changes_a_history(embedded: EmbeddedLab, seed: int) -> None:
    """Between any two steps namespaces may be folded, or leave memory and come back."""
    upset = random.Random(seed)

    class Upset(Run):
        async def compare(self, model: Model | None = None) -> None:
            keeper = embedded.store._keeper
            if model is None and upset.random() < 0.5:
                await keeper.fold_all()
                if upset.random() < 0.5:
                    keeper._memory_bytes_max = 0
                    embedded.advance(10_001)
                    await keeper.evict()
            await super().compare(model)

    await Upset(embedded, 10_000 + seed).run()
