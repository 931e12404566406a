"""A near cache over kills, failovers and a cut log: nothing from before a rollback, nothing older than was seen."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from tests.support.etcd import needs_etcd
from tests.support.fleet import Fleet
from tests.support.process import ServerProcess
from tests.support.redis import needs_redis
from tests.support.wal import cut_wal, frames

from noosphere.client import AckedWritesLost, NearCache, NotCached, RetryPolicy, connect
from noosphere.server.storage.embedded.sqlite import FILE

PATIENT = RetryPolicy(attempts_max=10_000, delay_max=0.2)


async def test_nothing_of_a_lost_history_is_shown_once_the_cache_answers_again(server: ServerProcess) -> None:
    """The cache held what was lost. From the moment it is cut off it says nothing; then it has what is true now."""
    wal = server.data / f"{FILE}-wal"
    async with (
        connect(server.address, agent="writer", timeout=60, retry=PATIENT) as writer,
        connect(server.address, agent="reader", timeout=60, retry=PATIENT) as reader,
    ):
        source = writer.shared("s")
        kept = await source.put("kept", 1)
        await source.put("changed", "as it was")
        cut = frames(wal)
        lost = [await source.put("changed", "lost", blind=True), *[await source.put(f"lost/{n}", n) for n in range(20)]]
        lost_revision = lost[-1].version
        assert lost_revision is not None
        async with reader.shared("s").cached() as cache:
            await cache.caught_up(lost_revision)
            assert cache.value("changed") == "lost"
            server.kill()
            while cache.is_live:  # noqa: ASYNC110 # the end of another process
                await asyncio.sleep(0.01)
            cut_wal(wal, keep_frames=cut)
            server.restart()
            shown = await _until_answered(cache, "changed")
            assert shown == "as it was"
            assert [record.key for record in cache.list()] == ["changed", "kept"]
            assert cache.get("lost/3") is None
            again = await source.put("new", 2)
            assert again.version is not None
            await cache.caught_up(again.version)
            # In a new epoch the server judges what was seen before it, once; from then on the cache answers.
            assert await _until_answered(cache, "new") == 2
            record = cache.get("kept")
            assert record is not None
            assert record.version == kept.version


async def _until_answered(cache: NearCache, key: str) -> object:
    """Asks for a key until the cache answers, telling it whatever the server says; it may never show what was lost."""
    while True:
        try:
            return cache.value(key)
        except NotCached:
            pass
        # Said once; the client has then dropped what it had seen of that history.
        with contextlib.suppress(AckedWritesLost):
            await cache.read(key)
        await asyncio.sleep(0)


@pytest.mark.campaign
async def test_over_kills_a_cache_shows_each_counter_rising_and_never_less_than_was_seen(server: ServerProcess) -> None:
    """One reader, one writer that tells it what was acknowledged, five kills."""
    async with (
        connect(server.address, agent="writer", timeout=60, retry=PATIENT) as writer,
        connect(server.address, agent="reader", timeout=60, retry=PATIENT) as reader,
    ):
        source, told = writer.shared("s"), reader._transport.progress.causal
        acked = 0
        stopping = False

        async def write() -> None:
            nonlocal acked
            while not stopping:
                result = await source.key("n").increment(1)
                told.saw("shared/s", result.version)
                acked += 1

        first = await source.key("n").increment(1)
        acked += 1
        writing = asyncio.create_task(write())
        async with reader.shared("s").cached() as cache:
            await cache.caught_up(first.version)
            answers = kills = last = 0
            while kills < 5:
                at_least, before = acked, answers
                try:
                    shown = cache.value("n")
                except NotCached:
                    # The way that a caller takes who must have an answer.
                    shown = (await cache.read("n")).value
                else:
                    answers += 1
                assert shown >= max(at_least, last), "less than was acknowledged and told"
                last = shown
                await asyncio.sleep(0)
                if answers > before and answers % 200 == 0:
                    server.kill()
                    server.restart()
                    kills += 1
            assert answers >= 1_000
        stopping = True
        await writing
        final = await source.get("n", int)
        assert final is not None
        assert final.value == acked


@needs_redis
@needs_etcd
@pytest.mark.campaign
@pytest.mark.timeout(300)
async def test_a_cache_at_another_replica_forgets_what_a_failover_has_lost(fleet: Fleet) -> None:
    here, there = fleet.addresses[:2]
    async with (
        connect(here, agent="writer", timeout=60, retry=PATIENT) as writer,
        connect(there, agent="reader", timeout=60, retry=PATIENT) as reader,
    ):
        source = writer.shared("s")
        kept = await source.put("kept", 1)
        await source.put("changed", "as it was")
        fleet.cut_replica_off()
        await source.put("changed", "lost", blind=True)
        born = await source.put("born", "lost")
        assert born.version is not None
        async with reader.shared("s").cached() as cache:
            await cache.caught_up(born.version)
            assert (cache.value("changed"), cache.value("born")) == ("lost", "lost")
            fleet.fail_over(lose=True)
            # Until it hears of the epoch it shows what was there; afterwards nothing of it, all of it at once.
            while await _until_answered(cache, "changed") == "lost":  # noqa: ASYNC110 # told by another process
                await asyncio.sleep(0.01)
            assert cache.value("changed") == "as it was"
            assert [record.key for record in cache.list()] == ["changed", "kept"]
            assert cache.get("born") is None
            again = await source.put("new", 2)
            assert again.version is not None
            await cache.caught_up(again.version)
            assert await _until_answered(cache, "new") == 2
            record = cache.get("kept")
            assert record is not None
            assert record.version == kept.version
