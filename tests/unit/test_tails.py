"""Tails: one reading of a log for all its watchers, and each of them gets all of it, in order."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from noosphere.consistency import Reason, Refusal
from noosphere.server.memory import tails as module
from noosphere.server.memory.core import Core
from noosphere.server.memory.signals import HeadSignals
from noosphere.server.memory.tails import Tail, Tails
from noosphere.server.ports.store import Changes, Compacted, LoggedBatch, NamespaceRef
from noosphere.testing import ManualClock

NS = NamespaceRef("shared/s")
SECONDS_MAX = 60.0


async def _at_once() -> None:
    """A store that has everything in memory."""


class Log:
    """A log that others write to; ``pause`` is awaited before and after each reading of it."""

    def __init__(self, pause: Callable[[], Awaitable[object]] = _at_once) -> None:
        self.clock = ManualClock()
        self.signals = HeadSignals()
        self.tails = Tails(cast("Core", SimpleNamespace(store=self)), self.signals, self.clock)
        self.revisions: list[int] = []
        self.head = 0
        self.floor = 0
        self.readings = 0
        self.failure: Refusal | None = None
        self.pause = pause

    def commit(self, *, told: bool = True, event: bool = True) -> None:
        self.head += 1
        if event:
            self.revisions.append(self.head)
        if told:
            self.tell()

    def tell(self) -> None:
        self.signals.fire(NS.storage_id)

    def compact(self, floor: int) -> None:
        self.floor = max(self.floor, floor)

    async def changes(self, ref: NamespaceRef, after: int, limit: int) -> Changes | Compacted:
        assert ref == NS
        self.readings += 1
        await self.pause()
        if self.failure is not None:
            raise self.failure
        if after < self.floor:
            return Compacted(self.floor, self.head)
        found = [revision for revision in self.revisions if revision > after]
        result = Changes(tuple(LoggedBatch(n, 0, ()) for n in found[:limit]), self.head, len(found) > limit)
        await self.pause()
        return result


async def follow(log: Log, tail: Tail, cursor: int, until: int, seen: list[int]) -> list[int]:
    """Watches as the service does, from a revision until everything up to another was seen."""
    while cursor < until:
        page = await tail.after(cursor)
        if isinstance(page, Compacted):
            raise Refusal(Reason.COMPACTED, f"{cursor} is below {page.floor}")
        seen += [batch.revision for batch in page.batches]
        cursor = page.end
        if page.moved is not None and cursor < until:
            # Others wait for it too, so it must not be cancelled.
            await asyncio.wait((page.moved,), timeout=SECONDS_MAX)
            assert page.moved.done(), "nobody was told"
    return seen


async def turns() -> None:
    """Lets everybody run until they wait."""
    for _ in range(50):
        await asyncio.sleep(0)


async def test_many_watchers_cost_one_reading_a_commit() -> None:
    log = Log(pause=lambda: asyncio.sleep(0))
    with log.tails.join(NS) as tail:
        watching = [asyncio.create_task(follow(log, tail, 0, 100, [])) for _ in range(50)]
        await turns()
        before = log.readings
        for _ in range(100):
            log.commit()
            await turns()
        assert [await watcher for watcher in watching] == [log.revisions] * 50
    assert log.readings - before == 100


async def test_a_store_in_memory_is_read_in_the_turn_in_which_the_move_is_told() -> None:
    log = Log()
    with log.tails.join(NS) as tail:
        page = await tail.after(0)
        assert not isinstance(page, Compacted)
        log.commit()
        # No task, no future: nothing is waited for that is not the store.
        with pytest.raises(StopIteration) as stopped:
            tail.after(0).send(None)
        assert [batch.revision for batch in stopped.value.value.batches] == [1]


async def test_one_that_takes_nothing_holds_nobody_up_and_misses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_MAX", 8)
    log = Log()
    with log.tails.join(NS) as tail:
        await tail.after(0)
        quick = asyncio.create_task(follow(log, tail, 0, 200, []))
        for _ in range(200):
            log.commit()
            await asyncio.sleep(0)
        assert await quick == log.revisions
        readings = log.readings
        assert await follow(log, tail, 0, 200, []) == log.revisions
        assert 3 <= log.readings - readings <= 5, "in pages, from the store"
        assert await follow(log, tail, 193, 200, []) == log.revisions[193:]
        assert log.readings - readings <= 5, "what is kept is not read"


async def test_what_is_kept_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_BYTES_MAX", 0)
    log = Log()
    with log.tails.join(NS) as tail:
        await tail.after(0)
        for _ in range(3):
            log.commit()
        assert await follow(log, tail, 0, 3, []) == [1, 2, 3]
        readings = log.readings
        assert await follow(log, tail, 0, 3, []) == [1, 2, 3]
        assert log.readings == readings, "batches without bytes"


async def test_one_behind_what_is_kept_is_told_that_the_log_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_MAX", 2)
    log = Log()
    with log.tails.join(NS) as tail:
        await tail.after(0)
        for _ in range(10):
            log.commit()
            await tail.after(log.head - 1)
        log.compact(9)
        assert await tail.after(5) == Compacted(9, 10)
        assert await follow(log, tail, 8, 10, []) == [9, 10]


async def test_when_whoever_reads_goes_away_another_reads() -> None:
    gate = asyncio.Event()
    log = Log()
    with log.tails.join(NS) as tail:
        await tail.after(0)
        log.pause = lambda: gate.wait()
        log.commit()
        first, second = (asyncio.create_task(follow(log, tail, 0, 1, [])) for _ in range(2))
        await turns()
        first.cancel()
        await asyncio.wait((first,))
        gate.set()
        assert await asyncio.wait_for(second, SECONDS_MAX) == [1]


async def test_a_failed_reading_is_heard_by_everybody_and_the_next_one_counts() -> None:
    log = Log(pause=lambda: asyncio.sleep(0))
    with log.tails.join(NS) as tail:
        watching = [asyncio.create_task(follow(log, tail, 0, 1, [])) for _ in range(5)]
        await turns()
        log.failure = Refusal(Reason.NAMESPACE_DELETED, "gone")
        log.tell()
        assert await asyncio.gather(*watching, return_exceptions=True) == [log.failure] * 5
        log.failure = None
        log.commit()
        assert await follow(log, tail, 0, 1, []) == [1]


async def test_what_is_kept_is_not_shown_once_it_was_told_that_the_log_is_gone() -> None:
    log = Log()
    with log.tails.join(NS) as tail:
        await tail.after(0)
        log.commit()
        await tail.after(0)
        log.failure = Refusal(Reason.NAMESPACE_DELETED, "gone")
        log.tell()
        with pytest.raises(Refusal):
            await tail.after(0)


async def test_what_is_forgotten_is_not_kept_even_if_it_was_being_read() -> None:
    gate = asyncio.Event()
    log = Log()
    with log.tails.join(NS) as tail:
        await tail.after(0)
        log.commit()
        await tail.after(0)
        log.pause = lambda: gate.wait()
        log.commit()
        reading = asyncio.create_task(tail.after(1))
        await turns()
        log.tails.forget()
        gate.set()
        await reading
        log.compact(2)
        for cursor in (0, 1):
            assert await tail.after(cursor) == Compacted(2, 2)


async def test_a_move_that_nobody_told_is_found_by_one_and_heard_by_all() -> None:
    log = Log()
    with log.tails.join(NS) as tail:
        await tail.after(0)
        waiting = asyncio.create_task(follow(log, tail, 0, 1, []))
        await turns()
        log.commit(told=False)
        readings = log.readings
        await tail.after(0, refresh=True)
        assert log.readings == readings, "fresh enough"
        log.clock.advance(module.REFRESH_MS)
        await tail.after(0, refresh=True)
        assert await asyncio.wait_for(waiting, SECONDS_MAX) == [1]


async def test_a_head_that_the_caller_has_seen_is_read_even_if_it_was_not_told() -> None:
    log = Log()
    with log.tails.join(NS) as tail:
        await tail.after(0)
        log.commit(told=False, event=False)
        page = await tail.after(0, at_least=1)
        assert not isinstance(page, Compacted)
        assert page.end == 1


async def test_a_tail_that_nobody_watches_keeps_nothing() -> None:
    log = Log()
    with log.tails.join(NS) as tail:
        await tail.after(0)
        log.commit()
        await tail.after(0)
    log.commit()
    with log.tails.join(NS) as tail:
        readings = log.readings
        assert await follow(log, tail, 0, 2, []) == [1, 2]
        assert log.readings == readings + 1


@pytest.mark.parametrize("seed", range(100))
async def test_whatever_happens_each_watcher_sees_all_or_is_told(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(module, "KEPT_MAX", rng.choice((1, 3, 10, 1_000)))
    monkeypatch.setattr(module, "PAGE_MAX", rng.choice((1, 2, 64)))
    commits = 120

    async def pause() -> None:
        for _ in range(rng.choice((0, 0, 1, 5))):
            await asyncio.sleep(0)

    log = Log(pause)

    async def watch(start: int, until: int) -> None:
        seen: list[int] = []
        with log.tails.join(NS) as tail, contextlib.suppress(Refusal):
            await follow(log, tail, start, until, seen)
            assert seen == [n for n in log.revisions if start < n][: len(seen)]
            assert [n for n in log.revisions if start < n <= until] == [n for n in seen if n <= until]
        assert seen == [n for n in log.revisions if n > start][: len(seen)]

    watching: list[asyncio.Task[Any]] = []
    for _ in range(commits):
        match rng.randrange(12):
            case 0 | 1:
                until = rng.choice((log.head, commits, commits))
                watching.append(asyncio.create_task(watch(rng.randint(0, log.head), until)))
            case 2:
                log.compact(rng.randint(0, log.head))
            case 3 if watching:
                rng.choice(watching).cancel()
            case 4:
                log.tails.forget()
            case 5:
                log.failure = rng.choice((None, None, Refusal(Reason.ENGINE_UNAVAILABLE, "for now")))
        await pause()
        log.commit(event=rng.random() < 0.9 or log.head == commits - 1)
    log.failure = None
    log.tell()
    for outcome in await asyncio.gather(*watching, return_exceptions=True):
        assert outcome is None or isinstance(outcome, asyncio.CancelledError), repr(outcome)
