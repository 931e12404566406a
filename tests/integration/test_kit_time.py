"""The test kit's time: it stands still until it is moved, and then everything happens when it is due."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta

import pytest

from noosphere.client import (
    AgentActive,
    ClaimLost,
    Client,
    ContextTooOld,
    PreconditionRequired,
    Watch,
    WatchBatch,
)
from noosphere.testing import Server, _rest, server

SPACE = "shared/launch"
SECONDS_MAX = 60.0
"""A bound against hanging."""


@pytest.fixture
async def srv() -> AsyncIterator[Server]:
    async with server() as found:
        yield found


@pytest.fixture
async def client(srv: Server) -> AsyncIterator[Client]:
    async with srv.client("planner-0") as found:
        yield found


async def next_batch(watch: Watch[object], kind: str) -> WatchBatch[object]:
    """Returns the next batch that is no bookmark, or the next bookmark if that is asked for."""
    async with asyncio.timeout(SECONDS_MAX):
        async for batch in watch:
            if kind == "bookmark" or batch.kind != "bookmark":
                assert batch.kind == kind
                return batch
    raise AssertionError("the watch ended")


async def test_time_stands_still_until_it_is_moved(srv: Server, client: Client) -> None:
    before = srv.now
    for number in range(20):
        await client.namespace(SPACE).put(f"k{number}", number)
    assert srv.now == before
    assert (await client.server_info()).store_time == before
    await srv.advance(0.25)
    assert srv.now == before + timedelta(milliseconds=250)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), 1e12])
async def test_time_moves_by_a_sensible_amount_only(srv: Server, seconds: float) -> None:
    with pytest.raises(ValueError, match=r"^seconds: "):
        await srv.advance(seconds)


async def test_a_value_ends_at_its_moment_and_its_watcher_hears_of_it(srv: Server, client: Client) -> None:
    space = client.namespace(SPACE)
    begun = srv.now
    await space.put("note", "short-lived", ttl=5)
    await space.put("other", "longer", ttl=50)
    async with space.watch() as watch:
        await srv.advance(4.999)
        assert await space.get("note") is not None
        await srv.advance(0.001)
        assert await space.get("note") is None
        # One step over both ends: each is committed at its own moment all the same.
        await srv.advance(100)
        first = await next_batch(watch, "changes")
        second = await next_batch(watch, "changes")
    assert [(e.kind, e.key) for b in (first, second) for e in b.events] == [("expire", "note"), ("expire", "other")]
    ends = [entry.time for key in ("note", "other") async for entry in space.history(key)][1::2]
    assert ends == [begun + timedelta(seconds=5), begun + timedelta(seconds=50)]


async def test_a_cached_value_ends_with_the_stored_one(srv: Server, client: Client) -> None:
    space = client.namespace(SPACE)
    await space.put("note", "short-lived", ttl=5)
    async with space.cached() as cache:
        assert cache.get("note") is not None
        await srv.advance(5)
        assert cache.get("note") is None


async def test_tombstones_are_reaped_when_their_hour_has_come(srv: Server, client: Client) -> None:
    space = client.namespace(SPACE)
    seen = await space.put("note", 1)
    await seen.delete()
    await srv.advance(3_599)
    assert (await srv.engine.store.stats(await srv.engine.memory.core.locate(SPACE))).record_count == 1
    await srv.advance(2)
    assert (await srv.engine.store.stats(await srv.engine.memory.core.locate(SPACE))).record_count == 0
    with pytest.raises(ContextTooOld):
        await seen.replace(2)


async def test_more_ends_at_once_than_one_sweep_takes(srv: Server, client: Client) -> None:
    space = client.namespace(SPACE)
    await asyncio.gather(*(space.put(f"k{number}", number, ttl=5) for number in range(600)))
    async with space.watch() as watch:
        await srv.advance(5)
        gone: set[str] = set()
        while len(gone) < 600:
            gone |= {event.key for event in (await next_batch(watch, "changes")).events}


async def test_the_log_forgets_what_is_too_old(srv: Server, client: Client) -> None:
    space = client.namespace(SPACE)
    await space.put("note", 1)
    async with space.watch(after=0) as watch:
        batch = await next_batch(watch, "changes")
    await space.put("other", 2)
    await srv.advance(601)
    assert [entry async for entry in space.history()] == []
    async with space.watch(resume=batch.resume) as watch:
        assert {event.key for event in (await next_batch(watch, "reset")).events} == {"note", "other"}


async def test_an_idle_watch_gets_its_bookmark(srv: Server, client: Client) -> None:
    space = client.namespace(SPACE)
    await space.put("note", 1)
    async with space.watch() as watch:
        waiting = asyncio.ensure_future(next_batch(watch, "bookmark"))
        await srv.advance(4.9)
        assert not waiting.done()
        await srv.advance(0.1)
        assert (await waiting).revision == (await space.key("note").read()).head


async def test_whoever_watches_has_reacted_by_the_time_that_the_test_goes_on(srv: Server, client: Client) -> None:
    reacted: list[str] = []

    async def react(other: Client) -> None:
        async with other.namespace(SPACE).watch() as batches:
            async for batch in batches:
                for event in batch.events:
                    # As agents do: a look, then something done about it.
                    await other.namespace(SPACE).key("other").read()
                    reacted.append(f"{event.kind} {event.key}")

    async with srv.client("other") as other:
        task = asyncio.create_task(react(other))
        await srv.settle()
        await client.namespace(SPACE).put("note", 1, ttl=5)
        await srv.settle()
        assert reacted == ["put note"]
        await srv.advance(5)
        assert reacted == ["put note", "expire note"]
        task.cancel()
        await asyncio.wait([task])


async def test_a_request_id_is_remembered_for_two_minutes(srv: Server, client: Client) -> None:
    space, request = client.namespace(SPACE), str(uuid.uuid4())
    await space.put("note", 1, request_id=request)
    await srv.advance(119)
    again = await space.put("note", 1, request_id=request)
    assert again.applied is not None
    assert again.applied.replayed
    await srv.advance(2)
    with pytest.raises(PreconditionRequired):
        await space.put("note", 1, request_id=request)


async def test_a_living_holder_keeps_its_claim_however_long_it_works(srv: Server, client: Client) -> None:
    board = client.namespace(SPACE).board("todo/")
    await board.add("crawl", "first")
    async with srv.client("other") as other, board.claim(lease=30) as claim:
        assert claim is not None
        await srv.advance(600)
        assert claim.is_open
        async with other.namespace(SPACE).board("todo/").claim() as theirs:
            assert theirs is None
        await claim.complete("done")


async def test_a_suspended_holder_loses_its_claim_and_is_told_so(srv: Server, client: Client) -> None:
    board = client.namespace(SPACE).board("todo/")
    await board.add("crawl", "first")
    async with srv.client("other") as other, board.claim(lease=30) as claim:
        assert claim is not None
        with srv.faults.suspended("planner-0"):
            await srv.advance(29)
            async with other.namespace(SPACE).board("todo/").claim() as theirs:
                assert theirs is None
            await srv.advance(1)
            async with other.namespace(SPACE).board("todo/").claim() as theirs:
                assert theirs is not None
                await theirs.complete("theirs")
        with pytest.raises(ClaimLost):
            await claim.complete("mine")


async def test_a_holder_that_comes_back_too_late_is_cancelled(srv: Server, client: Client) -> None:
    board = client.namespace(SPACE).board("todo/")
    await board.add("crawl", "first")

    async def work() -> None:
        async with board.claim(lease=30):
            with srv.faults.suspended("planner-0"):
                await srv.advance(31)
            async with asyncio.timeout(SECONDS_MAX):
                await asyncio.Event().wait()

    with pytest.raises(ClaimLost):
        await work()


async def test_who_waits_for_a_task_waits_as_long_as_it_said(srv: Server, client: Client) -> None:
    async def wait() -> object:
        async with client.namespace(SPACE).board("todo/").claim(wait=12) as claim:
            return claim

    waiting = asyncio.create_task(wait())
    await srv.advance(11.5)
    assert not waiting.done()
    await srv.advance(1)
    assert await waiting is None


async def test_who_waits_for_a_task_gets_one_that_becomes_free(srv: Server, client: Client) -> None:
    board = client.namespace(SPACE).board("todo/")
    await board.add("crawl", "first")
    got: list[str] = []

    async def wait(other: Client) -> None:
        async with other.namespace(SPACE).board("todo/").claim(wait=50) as claim:
            got.append(srv.now.isoformat() if claim is not None else "nothing")

    begun = srv.now
    async with srv.client("other") as other:
        with suppress(ClaimLost):
            async with board.claim(lease=30):
                waiting = asyncio.create_task(wait(other))
                with srv.faults.suspended("planner-0"):
                    await srv.advance(45)
                await waiting
    # At the moment at which the lease ended, not at the end of the step over it.
    assert got == [(begun + timedelta(seconds=30)).isoformat()]


async def test_agents_stay_connected_and_suspended_ones_do_not(srv: Server, client: Client) -> None:
    await srv.advance(300)
    with pytest.raises(AgentActive):
        async with srv.client("planner-0"):
            raise AssertionError("two at once")
    with srv.faults.suspended("planner-0"):
        await srv.advance(16)
        async with srv.client("planner-0") as successor:
            assert successor.actor != client.actor


async def test_nobody_is_held_up_by_somebody_who_never_rests(
    srv: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_rest, "SECONDS_MAX", 0.5)
    key = client.namespace(SPACE).key("counter")

    async def busy() -> None:
        while True:
            await key.increment(1)

    task = asyncio.create_task(busy())
    with pytest.raises(TimeoutError, match="planner-0 has 1 calls under way"):
        await srv.advance(1)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    await srv.advance(1)
