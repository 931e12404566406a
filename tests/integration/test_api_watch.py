"""Watch: ordered, atomic per revision, resumable, and never silent about a gap."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.support.api import Agent, contents, data, delete, put
from tests.support.engine import LocalServer, local_server
from tests.support.statuses import refusal
from tests.support.watching import watching
from tests.support.worlds import World

from noosphere.consistency import Reason
from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1 import types_pb2 as types


@pytest.fixture
async def agent(world: World) -> Agent:
    return await world.agent()


async def test_a_watch_gives_one_message_per_revision_in_order(world: World, agent: Agent) -> None:
    space, other = world.space(), await world.agent("b")
    start = await agent.put(space, "k", 0)
    async with watching(agent, space, after=start.revision) as watch:
        second = await other.put(space, "k", 1, context=start.context)
        both = await agent.transact(space, put("a", 1), delete("k", context=second.context))
        first, last = await watch.batches(2)
    assert [first.revision, last.revision] == [second.revision, both.revision]
    (change,) = first.changes
    assert (change.key, change.kind, change.actor, data(change.record)) == ("k", pb.CHANGE_KIND_PUT, other.name, b"1")
    assert change.record.version == second.version
    assert [(c.key, c.kind) for c in last.changes] == [("a", pb.CHANGE_KIND_PUT), ("k", pb.CHANGE_KIND_DELETE)]
    assert last.commit_time.ToMilliseconds() >= first.commit_time.ToMilliseconds()
    assert watch.heads == sorted(watch.heads)


async def test_a_watch_without_a_start_begins_now_and_says_where_that_is(world: World, agent: Agent) -> None:
    space = world.space()
    made = await agent.put(space, "k", 1)
    async with watching(agent, space) as watch:
        bookmark = await watch.bookmark()
        assert bookmark.head == made.revision
        newer = await agent.put(space, "k", 2, blind=True)
        assert (await watch.batch()).revision == newer.revision
    async with watching(agent, space, resume=bookmark.resume_token) as watch:
        assert (await watch.batch()).revision == newer.revision


async def test_a_watch_of_a_collection_tells_only_of_its_keys(world: World, agent: Agent) -> None:
    space = world.space()
    start = await agent.put(space, "k", 0)
    async with watching(agent, space, "a/", after=start.revision) as watch:
        await agent.put(space, "ab", 1)
        mixed = await agent.transact(space, put("a/1", 1), put("b/1", 1), put("a/b/2", 1))
        batch = await watch.batch()
    assert batch.revision == mixed.revision
    assert [change.key for change in batch.changes] == ["a/1", "a/b/2"]


async def test_a_bookmark_says_that_nothing_was_missed(world: World, agent: Agent) -> None:
    space = world.space()
    start = await agent.put(space, "k", 0)
    async with watching(agent, space, "a/", after=start.revision) as watch:
        elsewhere = await agent.put(space, "b/1", 1)
        waiting = asyncio.create_task(watch.bookmark())
        await world.elapse(20)
        bookmark = await waiting
        assert bookmark.head == elsewhere.revision
        assert not bookmark.bookmark.draining
    later = await agent.put(space, "a/1", 1)
    async with watching(agent, space, "a/", resume=bookmark.resume_token) as watch:
        assert (await watch.batch()).revision == later.revision


async def test_an_idle_watch_is_told_every_five_seconds(tmp_path: Path) -> None:
    async with local_server(tmp_path) as server:
        agent = await server.api.agent("a")
        start = await agent.put("shared/s", "k", 0)
        async with watching(agent, "shared/s", after=start.revision) as watch:
            for _ in range(6):
                waiting = asyncio.create_task(watch.bookmark())
                await server.elapse(4_999)
                assert not waiting.done()
                await server.elapse(1)
                assert (await waiting).head == start.revision
        # Half a minute of watching is twice the lease: a watch keeps its agent alive.
        with refusal(Reason.AGENT_ACTIVE):
            await server.api.agent("a")


async def test_a_snapshot_is_everything_there_then_every_change(world: World, agent: Agent) -> None:
    space = world.space()
    await agent.transact(space, *(put(f"c/{n}", n) for n in range(3)), put("d", 9))
    await agent.delete(space, "c/1", blind=True)
    async with watching(agent, space, "c/", snapshot=True) as watch:
        (page,) = await watch.snapshot()
        assert contents(page.records) == {"c/0": b"0", "c/2": b"2"}
        newer = await agent.put(space, "c/0", 5, blind=True)
        assert (await watch.batch()).revision == newer.revision


async def test_an_empty_namespace_has_an_empty_snapshot(world: World, agent: Agent) -> None:
    space = world.space()
    async with watching(agent, space, snapshot=True) as watch:
        (page,) = await watch.snapshot()
        assert not page.records
        made = await agent.put(space, "k", 1)
        assert (await watch.batch()).revision == made.revision


async def test_a_large_snapshot_comes_in_pages_that_any_client_can_take(world: World, agent: Agent) -> None:
    space = world.space()
    await agent.ensure(space, types.NamespacePolicy(item_bytes_max=65_536))
    for n in range(0, 80, 4):
        await agent.transact(space, *(put(f"k{m:03}", "x" * 65_000) for m in range(n, n + 4)))
    async with watching(agent, space, snapshot=True) as watch:
        pages = await watch.snapshot()
    # gRPC clients refuse messages above 4 MiB unless told otherwise.
    assert max(page.ByteSize() for page in pages) < 2 * 1024 * 1024
    assert [record.key for page in pages for record in page.records] == [f"k{n:03}" for n in range(80)]


async def test_writes_during_a_snapshot_are_neither_lost_nor_told_twice(world: World, agent: Agent) -> None:
    space, writer = world.space(), await world.agent("b")
    for n in range(0, 640, 64):
        await agent.transact(space, *(put(f"k{m:03}", 0) for m in range(n, n + 64)))
    async with watching(agent, space, snapshot=True) as watch:
        first = await watch.message()
        assert not first.snapshot.last
        # Some keys the snapshot has shown, some it has not reached, one it shows and one it never will.
        await writer.put(space, "k001", 1, blind=True)
        await writer.put(space, "k639", 2, blind=True)
        await writer.delete(space, "k638", blind=True)
        await writer.put(space, "zz", 3)
        await writer.put(space, "k639", 4, blind=True)
        state = contents(first.snapshot.records)
        for page in await watch.snapshot():
            state.update(contents(page.records))
        last = await writer.put(space, "end", 1)
        seen: list[int] = []
        while not seen or seen[-1] < last.revision:
            batch = await watch.batch()
            seen.append(batch.revision)
            for change in batch.changes:
                if change.record.version:
                    state[change.key] = data(change.record)
                else:
                    state.pop(change.key, None)
    assert state == contents(await agent.listing(space, page_size=1000))
    assert seen == sorted(set(seen))


async def test_a_resumed_watch_has_no_gap_and_no_duplicate(world: World, agent: Agent) -> None:
    space = world.space()
    start = await agent.put(space, "k", 0)
    revisions = [(await agent.put(space, "k", n, blind=True)).revision for n in range(1, 10)]
    seen: list[int] = []
    resume: bytes | None = None
    while len(seen) < len(revisions):
        async with watching(agent, space, after=start.revision if resume is None else None, resume=resume) as watch:
            seen += [batch.revision for batch in await watch.batches(min(2, len(revisions) - len(seen)))]
            resume = watch.resume
    assert seen == revisions


async def test_a_watch_may_resume_from_a_snapshot(world: World, agent: Agent) -> None:
    space = world.space()
    await agent.put(space, "k", 0)
    async with watching(agent, space, snapshot=True) as watch:
        await watch.snapshot()
        resume = watch.resume
    newer = await agent.put(space, "k", 1, blind=True)
    async with watching(agent, space, resume=resume) as watch:
        assert (await watch.batch()).revision == newer.revision


async def test_a_future_start_is_refused(world: World, agent: Agent) -> None:
    space = world.space()
    made = await agent.put(space, "k", 0)
    async with watching(agent, space, after=made.revision + 1) as watch:
        with refusal(Reason.FUTURE_REVISION) as error:
            await watch.ended()
    detail = error.log_range()
    assert (detail.namespace, detail.requested, detail.head) == (space, made.revision + 1, made.revision)


async def test_a_token_that_is_none_or_of_elsewhere_is_refused(world: World, agent: Agent) -> None:
    space, other = world.space(), world.space()
    await agent.put(space, "k", 0)
    await agent.put(other, "k", 0)
    for resume in (b"x", b"", bytes(40)):
        async with watching(agent, space, resume=resume) as watch:
            with refusal(Reason.INVALID_FIELD):
                await watch.ended()
    async with watching(agent, space, after=0) as watch:
        await watch.batch()
        resume = watch.resume
    async with watching(agent, other, resume=resume) as watch:
        with refusal(Reason.COMPACTED):
            await watch.ended()


async def test_a_start_below_the_log_is_refused_and_says_where_the_log_begins(local: LocalServer) -> None:
    agent = await local.api.agent("a")
    await agent.ensure("shared/s", types.NamespacePolicy(log_revisions_max=3))
    revisions = [(await agent.put("shared/s", "k", n, blind=True)).revision for n in range(10)]
    async with watching(agent, "shared/s", after=revisions[0]) as watch:
        await watch.batch()
        old = watch.resume
    await local.sweep()
    for start in ({"after": revisions[0]}, {"resume": old}):
        async with watching(agent, "shared/s", **start) as watch:
            with refusal(Reason.COMPACTED) as error:
                await watch.ended()
        detail = error.log_range()
        assert (detail.floor, detail.head) == (revisions[-4], revisions[-1])
        assert detail.requested in {revisions[0], revisions[1]}
    async with watching(agent, "shared/s", after=revisions[-4]) as watch:
        assert [batch.revision for batch in await watch.batches(3)] == revisions[-3:]
    assert [batch.revision for batch in await agent.history("shared/s")] == revisions[-3:]
    info = await local.api.get_namespace("shared/s")
    assert (info.floor, info.log_count) == (revisions[-4], 3)


async def test_expiry_is_an_event_and_reaping_is_none(local: LocalServer) -> None:
    agent = await local.api.agent("a")
    space = "shared/s"
    made = await agent.put(space, "k", 1, ttl_ms=1_000)
    async with watching(agent, space, after=made.revision) as watch:
        await local.elapse(1_000)
        await local.sweep()
        batch = await watch.batch()
        (change,) = batch.changes
        assert (change.key, change.kind, change.actor) == ("k", pb.CHANGE_KIND_EXPIRE, "")
        assert change.record.version == 0
        await local.elapse(3_600_000)
        await local.sweep()
        info = await local.api.get_namespace(space)
        assert info.record_count == 0
        assert info.head > batch.revision
        after_reaping = await agent.put(space, "l", 1)
        assert (await watch.batch()).revision == after_reaping.revision


async def test_deleting_the_namespace_ends_its_watches(world: World, agent: Agent) -> None:
    space = world.space()
    made = await agent.put(space, "k", 1)
    async with watching(agent, space, after=0) as watch:
        await watch.batch()
        waiting = asyncio.create_task(watch.ended())
        await world.api.delete_namespace(space)
        with refusal(Reason.NAMESPACE_DELETED) as error:
            await asyncio.wait_for(waiting, 30)
        assert error.metadata["namespace"] == space
        assert error.head == made.revision
    await agent.ensure(space)
    again = await agent.put(space, "k", 2)
    async with watching(agent, space, after=made.revision) as watch:
        # That everything was deleted is not in any log, so going on as if nothing were missing is refused.
        with refusal(Reason.COMPACTED) as error:
            await watch.ended()
    async with watching(agent, space, after=error.log_range().floor) as watch:
        assert (await watch.batch()).revision == again.revision


async def test_a_token_of_an_earlier_generation_is_compacted_away(world: World, agent: Agent) -> None:
    space = world.space()
    await agent.put(space, "k", 1)
    async with watching(agent, space, after=0) as watch:
        await watch.batch()
        resume = watch.resume
    await world.api.delete_namespace(space)
    await agent.ensure(space)
    await agent.put(space, "k", 2)
    async with watching(agent, space, resume=resume) as watch:
        with refusal(Reason.COMPACTED):
            await watch.ended()


async def test_an_ended_incarnation_stops_watching(local: LocalServer) -> None:
    agent = await local.api.agent("a")
    async with watching(agent, "shared/s") as watch:
        await watch.bookmark()
        waiting = asyncio.create_task(watch.ended())
        await local.api.agent("a", takeover=True)
        await local.elapse(5_000)
        with refusal(Reason.STALE_INCARNATION):
            await asyncio.wait_for(waiting, 30)


async def test_watches_are_counted_while_they_are_open(local: LocalServer) -> None:
    agent = await local.api.agent("a")
    async with watching(agent, "shared/s", snapshot=True) as one, watching(agent, "shared/t", snapshot=True) as two:
        await one.snapshot()
        await two.snapshot()
        assert (await local.api.stats()).watch_count == 2
    assert (await local.api.stats()).watch_count == 0


async def test_watching_is_only_for_those_who_may_read(world: World, agent: Agent) -> None:
    other = await world.agent("b")
    async with watching(other, f"agents/{agent.actor.agent_id}") as watch:
        with refusal(Reason.PERMISSION_DENIED):
            await watch.ended()
    async with watching(agent, world.space(), "no-slash") as watch:
        with refusal(Reason.INVALID_FIELD):
            await watch.ended()
