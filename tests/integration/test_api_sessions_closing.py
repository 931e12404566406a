"""Closing and purging sessions in every world; what upkeep does with those that nobody looks after."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from tests.support.engine import LocalServer
from tests.support.interleaving import interleave
from tests.support.killed import Killed
from tests.support.sessions import SessionAgent, caller, outbox_puts, proposed, refusal, session_name, space, texts
from tests.support.toolcalls import finish, listed, start
from tests.support.worlds import LocalWorld, World

from noosphere.server.sessions import closing
from noosphere.v1 import session_service_pb2 as pb
from noosphere.v1 import types_pb2 as types

DAY_MS = 24 * 3600 * 1000


async def opened(world: World, **settings: Any) -> tuple[SessionAgent, str]:
    """Opens a session."""
    a = await caller(world)
    return a, (await a.open(session_name(a), settings=pb.SessionSettings(**settings))).id


async def candidates(a: SessionAgent, session_id: str) -> dict[str, Any]:
    """Returns what the outbox ever had, by the keys that the items had."""
    found = await proposed(a, session_id)
    by_key = {candidate["item"]: candidate for candidate in found}
    assert len(by_key) == len(found)
    return by_key


async def test_a_closed_session_is_read_and_nothing_else(world: World) -> None:
    a, s = await opened(world)
    await a.say(s, "hello")
    await a.begin_turn(s)
    await a.agent.put(space(s), "k", "v")
    done = await a.close(s, items=pb.ITEM_DISPOSITION_KEEP)
    assert done.session.status == pb.SESSION_STATUS_CLOSED
    assert done.session.HasField("close_time")
    assert list(done.session.open_turns) == []
    assert (done.archived, done.dropped, done.failed_calls) == (0, 0, 0)
    assert await a.items(s) == {"k": b'"v"'}
    assert texts(await a.messages(s)) == ["hello"]
    assert [session.id for session in await a.listed(status=pb.SESSION_STATUS_CLOSED, owner=done.session.owner)] == [s]
    for attempt in (
        a.say(s, "late"),
        a.begin_turn(s),
        a.set_control(s, control=pb.ControlState(next_node="x")),
        a.checkpoint(s),
        a.restore(s, (await a.checkpoints(s))[0].id),
        a.update(s, title="x"),
        a.agent.put(space(s), "k", "late", blind=True),
        a.agent.delete(space(s), "k", blind=True),
        a.open(s, allow_existing=True),
    ):
        with refusal("SESSION_CLOSED", s):
            await attempt


async def test_archived_items_leave_candidates_in_the_commit_that_removes_them(world: World) -> None:
    a, s = await opened(world)
    await a.agent.put(space(s), "notes/a", "text", attributes={"kind": "note", "importance": 0.5})
    await a.agent.put(space(s), "raw", b"\x00\xff", encoding=types.ENCODING_BYTES)
    await a.agent.add(space(s), "count", 7)
    version = (await a.agent.get(space(s), "notes/a")).version
    done = await a.close(s)
    assert (done.archived, done.dropped) == (3, 0)
    assert await a.items(s) == {}
    found = await candidates(a, s)
    assert found.keys() == {"notes/a", "raw", "count"}
    assert found["notes/a"]["value"]["json"] == "text"
    assert found["notes/a"]["version"] == version
    assert found["notes/a"]["attributes"] == {"kind": "note", "importance": 0.5}
    assert found["notes/a"]["reason"] == "session_closed"
    assert found["raw"]["value"]["data"] == "AP8="
    assert found["count"]["value"]["json"] == 7
    closed = (await outbox_puts(a, s))[0][0]
    last = next(batch for batch in await a.agent.history(space(s)) if batch.revision == closed)
    removed = [change.record.key for change in last.changes if not change.record.values]
    made = [change.record.key for change in last.changes if change.record.key.startswith("_session/outbox/")]
    assert (len(removed), len(made)) == (3, 3)


async def test_values_side_by_side_leave_one_candidate_with_all_of_them(world: World) -> None:
    a, s = await opened(world)
    await a.agent.ensure(space(s), types.NamespacePolicy(conflict_policy=types.CONFLICT_POLICY_SIBLINGS))
    await a.agent.put(space(s), "k", "one")
    await a.agent.put(space(s), "k", "two", context=types.CausalContext())
    await a.close(s)
    found = (await candidates(a, s))["k"]
    assert (found["value"]["json"], [other["json"] for other in found["others"]]) == ("two", ["one"])


async def test_dropped_items_leave_nothing(world: World) -> None:
    a, s = await opened(world)
    await a.agent.put(space(s), "k", "v")
    done = await a.close(s, items=pb.ITEM_DISPOSITION_DROP)
    assert (done.archived, done.dropped) == (0, 1)
    assert await a.items(s) == {}
    assert await candidates(a, s) == {}


async def test_many_items_are_archived_in_steps_that_leave_none_behind(world: World) -> None:
    a, s = await opened(world)
    await a.agent.ensure(space(s), types.NamespacePolicy(item_bytes_max=64 * 1024))
    expected = {f"k{number:03}" for number in range(200)}
    for key in expected:
        await a.agent.put(space(s), key, "x")
    for number in range(5):
        await a.agent.put(space(s), f"large{number}", "x" * 60_000)
        expected.add(f"large{number}")
    done = await a.close(s)
    assert done.archived == 205
    assert (await candidates(a, s)).keys() == expected
    commits = [batch for batch in await a.agent.history(space(s)) if len(batch.changes) > 2]
    assert len(commits) > 2
    # The state before is in the checkpoint that closing made.
    assert (await a.checkpoints(s))[0].cause == "close"
    assert (await a.checkpoints(s))[0].items == 205


async def test_pending_calls_fail_or_keep_the_session_open(world: World) -> None:
    a, s = await opened(world)
    tickets = [(await start(a, s, f"c{number}")).ticket for number in range(3)]
    await finish(a, tickets[0])
    await a.agent.put(space(s), "k", "v")
    with refusal("CALLS_PENDING", "2", s, "'c1'"):
        await a.close(s, pending_calls=pb.PENDING_CALLS_REFUSE)
    assert (await a.get(s)).status == pb.SESSION_STATUS_OPEN
    done = await a.close(s)
    assert (done.failed_calls, done.archived) == (2, 1)
    assert list((await a.control(s)).pending_calls) == []
    assert [call.status for call in await listed(a, s)] == [
        pb.TOOL_CALL_STATUS_DONE,
        pb.TOOL_CALL_STATUS_FAILED,
        pb.TOOL_CALL_STATUS_FAILED,
    ]
    with refusal("SESSION_CLOSED"):
        await finish(a, tickets[1])
    assert (await a.close(s)).failed_calls == 2


async def test_without_pending_calls_there_is_nothing_to_refuse(world: World) -> None:
    a, s = await opened(world)
    await finish(a, (await start(a, s)).ticket)
    await a.close(s, pending_calls=pb.PENDING_CALLS_REFUSE)
    assert (await a.get(s)).status == pb.SESSION_STATUS_CLOSED


@pytest.mark.parametrize("seed", range(12))
async def test_a_call_that_starts_meanwhile_is_not_overlooked(local: LocalServer, seed: int) -> None:
    a, s = await opened(LocalWorld(local))
    b = SessionAgent(await local.api.agent("b"))
    interleave(local, random.Random(seed))
    close = a.close(s, pending_calls=pb.PENDING_CALLS_REFUSE)
    closed, started = await asyncio.gather(close, start(b, s, "c"), return_exceptions=True)
    outcome = getattr(closed, "reason", "closed"), getattr(started, "reason", "started")
    assert outcome in {("CALLS_PENDING", "started"), ("closed", "SESSION_CLOSED")}


async def test_closing_again_says_the_same(world: World) -> None:
    a, s = await opened(world)
    await a.agent.put(space(s), "k", "v")
    call = a.agent.call(sequence=1)
    first = await a.close(s, call=call)
    again = await a.close(s, call=call)
    other = await a.close(s, items=pb.ITEM_DISPOSITION_DROP)
    assert first.archived == again.archived == other.archived == 1
    assert first.session == again.session == other.session
    with refusal("SESSION_NOT_FOUND"):
        await a.close(s + "-other")
    for fields in ({"items": 9}, {"pending_calls": 9}):
        with refusal("INVALID_FIELD", *fields, "9"):
            await a.close(s, **fields)


async def test_a_session_is_purged_with_all_that_it_holds_once_it_is_closed(world: World) -> None:
    a, s = await opened(world)
    await a.agent.put(space(s), "k", "v")
    await a.say(s, "hello")
    with refusal("SESSION_OPEN", s):
        await a.purge(s)
    await a.close(s, items=pb.ITEM_DISPOSITION_KEEP)
    assert await a.purge(s) >= 5
    assert await a.purge(s) == 0
    with refusal("SESSION_NOT_FOUND"):
        await a.get(s)
    with refusal("SESSION_NOT_FOUND"):
        await a.purge(s + "-other")
    anew = await a.open(s)
    assert (anew.status, await a.messages(s), await a.items(s)) == (pb.SESSION_STATUS_OPEN, [], {})


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closing, "_ITEMS_A_STEP", 2)


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("cut", range(1, 4))
async def test_a_closing_that_was_cut_short_is_carried_on(
    local: LocalServer, cut: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = LocalWorld(local)
    a, s = await opened(world)
    for number in range(7):
        await a.agent.put(space(s), f"k{number}", number)
    left = [cut]
    real = local.engine.store.commit

    async def commit(*args: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        return await real(*args)

    monkeypatch.setattr(local.engine.store, "commit", commit)
    with pytest.raises(Killed):
        await a.close(s)
    await local.crash()
    a = await caller(world)
    found = await candidates(a, s)
    assert {**found, **await a.items(s)}.keys() == {f"k{number}" for number in range(7)}
    assert found.keys() & (await a.items(s)).keys() == set()
    assert (await a.get(s)).status == pb.SESSION_STATUS_CLOSED
    await local.sweep()
    assert (await candidates(a, s)).keys() == {f"k{number}" for number in range(7)}
    assert (await a.close(s)).archived == 7


async def test_idle_sessions_are_closed_and_closed_ones_purged(local: LocalServer) -> None:
    world = LocalWorld(local)
    a, s = await opened(world)
    _, short = await opened(world, idle_timeout=Duration(seconds=60), purge_after=Duration(seconds=120))
    await a.agent.put(space(short), "k", "v")
    await local.elapse(59_000)
    await local.sweep()
    assert (await a.get(short)).status == pb.SESSION_STATUS_OPEN
    await a.agent.put(space(short), "k", "w", blind=True)
    await local.elapse(59_000)
    await local.sweep()
    assert (await a.get(short)).status == pb.SESSION_STATUS_OPEN, "an item was written a minute ago"
    await local.elapse(1_001)
    await local.sweep()
    assert (await a.get(short)).status == pb.SESSION_STATUS_CLOSED
    assert (await candidates(a, short)).keys() == {"k"}
    await local.elapse(119_000)
    await local.sweep()
    await a.get(short)
    await local.elapse(1_001)
    await local.sweep()
    with refusal("SESSION_NOT_FOUND"):
        await a.get(short)
    assert (await a.get(s)).status == pb.SESSION_STATUS_OPEN
    await local.elapse(7 * DAY_MS)
    await local.sweep()
    assert (await a.get(s)).status == pb.SESSION_STATUS_CLOSED
    await local.restart()
    a = await caller(world)
    await local.elapse(30 * DAY_MS)
    await local.sweep()
    with refusal("SESSION_NOT_FOUND"):
        await a.get(s)


@pytest.mark.parametrize("work", ["append", "turn", "control", "rename", "delete"])
async def test_any_work_keeps_a_session_open(local: LocalServer, work: str) -> None:
    world = LocalWorld(local)
    a, s = await opened(world, idle_timeout=Duration(seconds=60))
    await a.agent.put(space(s), "k", "v")
    await local.elapse(50_000)
    match work:
        case "append":
            await a.say(s, "hello")
        case "turn":
            await a.begin_turn(s)
        case "control":
            await a.set_control(s, control=pb.ControlState(next_node="x"))
        case "rename":
            await a.update(s, title="x")
        case "delete":
            await a.agent.delete(space(s), "k", blind=True)
    await local.elapse(50_000)
    await local.sweep()
    assert (await a.get(s)).status == pb.SESSION_STATUS_OPEN
    await local.elapse(10_001)
    await local.sweep()
    assert (await a.get(s)).status == pb.SESSION_STATUS_CLOSED


async def test_old_checkpoints_go_by_themselves(local: LocalServer) -> None:
    world = LocalWorld(local)
    a, s = await opened(world, checkpoint_age_max=Duration(seconds=60))
    await a.agent.put(space(s), "k", "one")
    await a.checkpoint(s)
    await a.agent.put(space(s), "k", "two", blind=True)
    await local.elapse(30_000)
    newer = await a.checkpoint(s)
    await a.agent.put(space(s), "k", "three", blind=True)
    await local.elapse(30_001)
    await local.sweep()
    assert await a.checkpoints(s) == [newer]
    await local.elapse(30_001)
    await local.sweep()
    assert await a.checkpoints(s) == []
    stats = await local.engine.store.stats(await local.engine.sessions.scribe.living(s))
    assert stats.own_count == 0, "copies and manifests are gone too"
    anew = await a.checkpoint(s)
    await a.agent.put(space(s), "k", "four", blind=True)
    await a.restore(s, anew.id)
    assert await a.items(s) == {"k": b'"three"'}
