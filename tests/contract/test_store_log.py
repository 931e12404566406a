"""The log and moved heads: ordered, atomic per revision, and honest about what is gone."""

from __future__ import annotations

import asyncio
import random

import pytest
from tests.contract.build import NS, bury, change, commit, head, logged, put, reap, write
from tests.contract.lab import StoreLab, turns

from noosphere.consistency import Reason, Refusal
from noosphere.server.ports.store import Changes, Compacted, HeadMoved, LoggedBatch, NamespaceRef


async def test_after_is_exclusive_and_pages_join_without_gap_or_repeat(lab: StoreLab) -> None:
    revisions = [await write(lab.store, put(f"k{i % 3}", str(i).encode())) for i in range(20)]
    for after in [0, *revisions]:
        found: list[int] = []
        cursor, more = after, True
        while more:
            result = await lab.store.changes(NS, cursor, 3)
            assert isinstance(result, Changes)
            assert len(result.batches) <= 3
            found += [b.revision for b in result.batches]
            assert result.head == revisions[-1]
            more = result.more
            cursor = found[-1] if found else cursor
        assert found == [r for r in revisions if r > after]


async def test_between_two_revisions_the_log_goes_on_with_the_next(lab: StoreLab) -> None:
    revision = await write(lab.store, put("a"))
    await lab.crash()
    second = await write(lab.store, put("a"))
    result = await lab.store.changes(NS, second - 1, 10)
    assert isinstance(result, Changes)
    assert [b.revision for b in result.batches] == [second]
    assert [b.revision for b in await logged(lab.store)] == [revision, second]


async def test_below_the_floor_the_answer_is_compacted_and_never_a_gap(lab: StoreLab) -> None:
    revisions = [await write(lab.store, put("a")) for _ in range(10)]
    await lab.store.compact(NS, revisions[3])
    assert (await lab.store.read(NS, ())).view.floor == revisions[3]
    for after in (0, revisions[2]):
        assert await lab.store.changes(NS, after, 5) == Compacted(revisions[3], revisions[-1])
    result = await lab.store.changes(NS, revisions[3], 100)
    assert isinstance(result, Changes)
    assert [b.revision for b in result.batches] == revisions[4:]


async def test_the_floor_never_sinks_and_never_passes_the_head(lab: StoreLab) -> None:
    revisions = [await write(lab.store, put("a")) for _ in range(5)]
    for floor, expected in ((revisions[3], 3), (revisions[1], 3), (0, 3), (revisions[4] + 1000, 4)):
        await lab.store.compact(NS, floor)
        assert (await lab.store.read(NS, ())).view.floor == revisions[expected]
    await lab.crash()
    assert (await lab.store.read(NS, ())).view.floor == revisions[4]
    last = await write(lab.store, put("a"))
    assert [b.revision for b in await logged(lab.store, revisions[4])] == [last]


async def test_of_concurrent_compactions_the_highest_floor_stays(lab: StoreLab) -> None:
    revisions = [await write(lab.store, put("a")) for _ in range(5)]
    await asyncio.gather(*(lab.store.compact(NS, revisions[i]) for i in (1, 3, 0, 2)))
    for _ in range(2):
        assert (await lab.store.read(NS, ())).view.floor == revisions[3]
        assert [b.revision for b in await logged(lab.store, revisions[3])] == revisions[4:]
        await lab.crash()


async def test_compacting_what_does_not_exist_does_nothing(lab: StoreLab) -> None:
    await lab.store.compact(NS, 5)
    assert (await lab.store.read(NS, ())).view.floor == 0
    assert not (await lab.store.read(NS, ())).view.exists


@pytest.mark.parametrize("seed", range(5))
async def test_compaction_beside_writers_and_a_slow_reader_loses_no_event(lab: StoreLab, seed: int) -> None:
    """The reader either gets every revision or is told that it must start over; it then takes a snapshot."""
    chance = random.Random(seed)
    seen: dict[str, bytes] = {}
    told: list[int] = []
    resets = cursor = delivered = 0

    async def make(number: int) -> None:
        key = f"k{chance.randrange(10)}"
        mutation = chance.choice((put(key, str(number).encode()), bury(key), reap(key)))
        revision = await write(lab.store, mutation)
        if mutation.event:
            told.append(revision)

    async def follow() -> bool:
        """Reads on; returns whether there was anything."""
        nonlocal resets, cursor, delivered
        begun = cursor
        result = await lab.store.changes(NS, cursor, chance.randrange(1, 4))
        if isinstance(result, Compacted):
            resets += 1
            page = await lab.store.scan(NS, "", limit=1000)
            cursor = page.view.head
            seen.clear()
            seen.update({e.key: e.data for e in page.entries})
            return True
        for batch in result.batches:
            cursor = batch.revision
            seen.update({c.key: c.data for c in batch.changes if c.data is not None})
        delivered += len(result.batches)
        assert [b.revision for b in result.batches] == sorted(r for r in told if begun < r <= cursor)
        return bool(result.batches)

    for number in range(400):
        step = chance.random()
        if step < 0.5:
            await asyncio.gather(*(make(number) for _ in range(chance.choice((1, 1, 5)))))
        elif step < 0.65:
            await lab.store.compact(NS, await head(lab.store) - chance.randrange(12))
        else:
            await follow()
    while await follow():
        pass
    page = await lab.store.scan(NS, "", limit=1000)
    stored = {e.key: e.data for e in page.entries}
    # Reaping is not told: what was reaped may be anything to whoever followed the log.
    assert {k: v for k, v in seen.items() if k in stored} == stored
    assert resets > 5
    assert delivered > 50


async def test_the_log_of_a_dropped_namespace_is_refused(lab: StoreLab) -> None:
    revision = await write(lab.store, put("a"))
    await lab.store.drop(NS, None)
    with pytest.raises(Refusal) as refused:
        await lab.store.changes(NS, revision, 10)
    assert refused.value.reason is Reason.NAMESPACE_DELETED


async def test_a_namespace_nobody_wrote_to_has_an_empty_log(lab: StoreLab) -> None:
    assert await lab.store.changes(NS, 0, 10) == Changes((), 0, False)
    later = NamespaceRef("shared/launch", 2, origin=50)
    assert await lab.store.changes(later, 50, 10) == Changes((), 50, False)
    assert await lab.store.changes(later, 49, 10) == Compacted(50, 50)


async def test_heads_tell_every_moved_namespace_the_newest_head(lab: StoreLab) -> None:
    feed = lab.store.heads()
    other = NamespaceRef("shared/other")
    await lab.store.follow(NS)
    await lab.store.follow(other)
    for _ in range(5):
        first = await write(lab.store, put("a"))
        second = await write(lab.store, put("b"), namespace=other)
    moved: dict[bytes, int] = {}
    while moved != {NS.storage_id: first, other.storage_id: second}:
        storage_id, moved_head = await anext(feed)
        assert moved_head > moved.get(storage_id, 0)
        moved[storage_id] = moved_head


async def test_heads_begin_when_the_stream_is_asked_for_not_when_it_is_first_read(lab: StoreLab) -> None:
    await lab.store.follow(NS)
    feed = lab.store.heads()
    revision = await write(lab.store, put("a"))
    assert await anext(feed) == HeadMoved(NS.storage_id, revision)


async def test_every_stream_of_heads_gets_all_of_them(lab: StoreLab) -> None:
    await lab.store.follow(NS)
    feeds = [lab.store.heads() for _ in range(5)]
    waiting = [asyncio.ensure_future(anext(feed)) for feed in feeds]
    await turns()
    revision = await write(lab.store, put("a"))
    assert await asyncio.gather(*waiting) == [HeadMoved(NS.storage_id, revision)] * 5


async def test_a_head_is_told_after_the_change_can_be_read(lab: StoreLab) -> None:
    await lab.store.follow(NS)
    feed = lab.store.heads()
    seen: list[LoggedBatch] = []

    async def follow() -> None:
        cursor = 0
        while len(seen) < 200:
            moved = await anext(feed)
            result = await lab.store.changes(NS, cursor, 500)
            assert isinstance(result, Changes)
            assert result.head >= moved.head
            seen.extend(result.batches)
            cursor = seen[-1].revision

    following = asyncio.create_task(follow())
    await asyncio.gather(*(commit(lab.store, change(f"k{i}")) for i in range(200)))
    await following
    assert [b.revision for b in seen] == [b.revision for b in await logged(lab.store)]


async def test_a_drop_is_told_to_streams_of_heads(lab: StoreLab) -> None:
    revision = await write(lab.store, put("a"))
    await lab.store.follow(NS)
    feed = lab.store.heads()
    await lab.store.drop(NS, None)
    assert await anext(feed) == HeadMoved(NS.storage_id, revision)


async def test_streams_of_heads_end_with_the_store(lab: StoreLab) -> None:
    feed = lab.store.heads()
    waiting = asyncio.ensure_future(anext(feed))
    await turns()
    await lab.store.close()
    with pytest.raises(StopAsyncIteration):
        await waiting
    with pytest.raises(StopAsyncIteration):
        await anext(lab.store.heads())
