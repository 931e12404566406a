"""Servers of the test kit: restarts, failovers that lose what they are told to, and nothing left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from noosphere.client import AckedWritesLost, Client, Conflict, Record, RetryPolicy, Unavailable, connect
from noosphere.testing import Server, server

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


async def put_all(client: Client, *keys: str, space: str = SPACE) -> list[Record[object]]:
    return [await client.namespace(space).put(key, key) for key in keys]


async def keys_of(client: Client, space: str = SPACE) -> list[str]:
    return [record.key async for record in client.namespace(space).list()]


async def test_a_restart_changes_nothing_but_the_connection(srv: Server, client: Client) -> None:
    (seen,) = await put_all(client, "plan")
    address, epoch, now = srv.address, srv.epoch, srv.now
    async with client.namespace(SPACE).watch(after=0) as watch:
        first = await anext(watch)
        await srv.restart()
        assert (srv.address, srv.epoch, srv.now) == (address, epoch, now)
        await seen.replace("changed")
        async with asyncio.timeout(SECONDS_MAX):
            async for batch in watch:
                if batch.kind == "changes":
                    break
    assert [event.key for event in (*first.events, *batch.events)] == ["plan", "plan"]


async def test_a_failover_without_a_loss_begins_an_epoch_and_loses_nothing(srv: Server, client: Client) -> None:
    (seen,) = await put_all(client, "plan")
    epoch = srv.epoch
    await srv.faults.fail_over()
    assert srv.epoch == epoch + 1
    assert await keys_of(client) == ["plan"]
    written = await seen.replace("changed")
    assert written.applied is not None
    assert written.applied.revision >> 40 == srv.epoch


async def test_a_reply_that_was_lost_before_the_failover_is_given_after_it(srv: Server) -> None:
    patient = RetryPolicy(first_delay=20, delay_max=20)
    async with connect(srv.address, agent="planner-0", retry=patient, timeout=100) as client:
        srv.faults.drop_reply(method="Merge")
        counting = asyncio.create_task(client.namespace(SPACE).key("count").increment(1))
        await srv.settle()
        assert srv.faults.unmet == ()
        await srv.faults.fail_over()
        await srv.advance(20)
        assert (await counting).replayed
        assert (await client.namespace(SPACE).key("count").read()).value == 1


@pytest.mark.parametrize("lose", [1, 2, 4])
@pytest.mark.parametrize("pause", [0, 60], ids=["at once", "folded"])
async def test_the_last_commits_are_lost_exactly(srv: Server, client: Client, lose: int, pause: float) -> None:
    keys = ["a", "b", "c", "d", "e"]
    records = await put_all(client, *keys)
    if pause:
        # By now the store has moved its journal into its tables.
        await srv.advance(pause)
    await srv.faults.fail_over(lose=lose)
    assert await keys_of(client) == keys[:-lose]
    for record in records[:-lose]:
        await record.replace("still valid")
    for record in records[-lose:]:
        with pytest.raises(AckedWritesLost) as caught:
            await record.replace("from what was lost")
        assert caught.value.lost_after == records[-lose - 1].head
    assert await keys_of(client) == keys[:-lose]


async def test_commits_before_and_after_an_erasure_are_lost_as_exactly(srv: Server, client: Client) -> None:
    """An erasure replaces the journal's file, and what a failover leaves behind goes by the journal."""
    core = srv.engine.memory.core
    await put_all(client, "a")
    await core.store.erase(await core.locate(SPACE))
    await put_all(client, "b", "c")
    await srv.faults.fail_over(lose=1)
    assert await keys_of(client) == ["a", "b"]
    core = srv.engine.memory.core
    await core.store.erase(await core.locate(SPACE))
    await put_all(client, "d")
    await srv.restart()
    assert await keys_of(client) == ["a", "b", "d"]


async def test_losses_are_counted_over_all_namespaces(srv: Server, client: Client) -> None:
    await put_all(client, "a")
    await put_all(client, "b", space="shared/other")
    await put_all(client, "c")
    await put_all(client, "d", space="shared/third")
    await srv.faults.fail_over(lose=3)
    assert await keys_of(client) == ["a"]
    assert await keys_of(client, "shared/other") == []
    assert await keys_of(client, "shared/third") == []


async def test_of_writes_that_were_synced_together_some_can_be_lost(srv: Server, client: Client) -> None:
    await asyncio.gather(*(client.namespace(SPACE).put(f"k{number}", number) for number in range(64)))
    await srv.faults.fail_over(lose=17)
    assert len(await keys_of(client)) == 47


async def test_what_the_server_does_by_itself_is_no_write_that_anybody_was_told_of(srv: Server, client: Client) -> None:
    await client.namespace(SPACE).put("note", 1, ttl=5)
    await put_all(client, "plan")
    await srv.advance(5)
    await srv.faults.fail_over(lose=1)
    # The write of `plan` went, and with it the expiry that came after it; the value ends all the same.
    assert await keys_of(client) == []
    await srv.advance(1)
    history = [(event.kind, event.key) async for entry in client.namespace(SPACE).history() for event in entry.events]
    assert history == [("put", "note"), ("expire", "note")]


async def test_claims_reservations_and_merges_can_be_lost_too(srv: Server, client: Client) -> None:
    space = client.namespace(SPACE)
    await space.board("todo/").add("crawl", "first")
    await space.key("count").increment(1)
    async with space.board("todo/").claim() as claim:
        assert claim is not None
        await claim.complete("done")
    # Claim and completion.
    await srv.faults.fail_over(lose=2)
    found = await space.key("todo/first").read()
    assert found.claim is None
    assert (await space.key("count").read()).value == 1
    await srv.faults.fail_over()
    assert (await space.key("count").read()).value == 1


async def test_more_cannot_be_lost_than_was_written_and_the_server_goes_on(srv: Server, client: Client) -> None:
    await put_all(client, "a", "b")
    with pytest.raises(ValueError, match="lose: 3 commits, but only 2 were made since the server was started"):
        await srv.faults.fail_over(lose=3)
    await srv.restart()
    with pytest.raises(ValueError, match="only 0 were made"):
        await srv.faults.fail_over(lose=1)
    await put_all(client, "c")
    await srv.faults.fail_over(lose=1)
    assert await keys_of(client) == ["a", "b"]


async def test_several_failovers_in_a_row(srv: Server, client: Client) -> None:
    for number in range(4):
        await put_all(client, f"kept{number}", f"lost{number}")
        await srv.faults.fail_over(lose=1)
    assert await keys_of(client) == [f"kept{number}" for number in range(4)]
    assert srv.epoch == 5


async def test_a_watcher_is_told_of_the_loss_and_begins_anew(srv: Server, client: Client) -> None:
    await put_all(client, "a", "b")
    async with client.namespace(SPACE).watch(after=0) as watch, asyncio.timeout(SECONDS_MAX):
        told = [await anext(watch), await anext(watch)]
        await srv.faults.fail_over(lose=1)
        while told[-1].kind != "reset":
            told.append(await anext(watch))
    assert [batch.kind for batch in told] == ["changes", "changes", "epoch", "reset"]
    assert [event.key for event in told[-1].events] == ["a"]
    assert told[2].revision == told[0].revision


async def test_store_time_never_goes_back(srv: Server, client: Client) -> None:
    await put_all(client, "a", "b")
    await srv.advance(100)
    for step in (srv.restart, srv.faults.fail_over, srv.restart):
        before = srv.now
        await step()
        assert before <= srv.now
        assert (srv.now - before).total_seconds() <= 4
    await srv.advance(10)
    await client.namespace(SPACE).put("note", 1, ttl=5)
    await srv.advance(5)
    assert await client.namespace(SPACE).get("note") is None


async def test_servers_side_by_side_share_nothing() -> None:
    async with server() as one, server() as two, one.client("a") as first, two.client("a") as second:
        assert one.address != two.address
        await put_all(first, "mine")
        await one.advance(100)
        assert (one.now - two.now).total_seconds() == 100
        assert await keys_of(second) == []
        one.faults.conflict_next(SPACE, "plan", 1)
        await put_all(second, "plan")
        assert two.faults.unmet == ()
        assert len(one.faults.unmet) == 1
        await first.namespace(SPACE).put("plan", 1, blind=True)
        await one.faults.fail_over()
        assert two.epoch == 1


async def test_code_under_test_connects_as_it_always_does(srv: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOOSPHERE_SERVER", srv.address)
    async with connect(agent="worker") as client:
        await client.private.put("draft", 1)
        # It lives by the test's time: its lease is renewed while that moves.
        await srv.advance(100)
        assert srv.engine.memory.core.coordinator.active_count() == 1


async def use_everything() -> str:
    """Uses the kit once; returns where its server was."""
    async with server() as srv, srv.client("planner-0") as client:
        (seen,) = await put_all(client, "plan")
        srv.faults.conflict_next(SPACE, "plan", 1)
        async with client.namespace(SPACE).watch(after=0) as watch, client.namespace(SPACE).cached():
            await anext(watch)
            with pytest.raises(Conflict):
                await seen.replace("mine")
            await srv.advance(100)
            await srv.restart()
            await put_all(client, "other")
            await srv.faults.fail_over(lose=1)
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert [task for task in left if "noosphere" in repr(task)] == []
    return srv.address


def open_files() -> list[str]:
    """Returns what this process has open, but for sockets and pollers: gRPC's live as long as the process."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
    return sorted(path for path in found if not path.startswith(("socket:", "anon_inode:", "pipe:", "/proc")))


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = open_files()
    address = asyncio.run(use_everything())
    assert list(tmp_path.iterdir()) == []
    assert [thread for thread in threading.enumerate() if "noosphere" in thread.name] == []
    assert open_files() == before

    async def look_for_it() -> None:
        async with connect(address, timeout=0.2):
            raise AssertionError("still there")

    with pytest.raises(Unavailable):
        asyncio.run(look_for_it())
