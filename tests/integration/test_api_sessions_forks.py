"""Forks in every world: what they begin with, what they read of their parent, and what that keeps it from."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from tests.support.engine import LocalServer
from tests.support.killed import Killed
from tests.support.sessions import SessionAgent, caller, refusal, said, session_name, space, texts
from tests.support.worlds import LocalWorld, World

from noosphere.server.sessions.children import FORK_MS_MAX
from noosphere.v1 import session_service_pb2 as pb
from noosphere.v1 import types_pb2 as types


async def opened(world: World, **fields: Any) -> tuple[SessionAgent, str]:
    """Opens a session."""
    a = await caller(world)
    return a, (await a.open(session_name(a), **fields)).id


async def test_a_fork_begins_as_the_session_is_and_goes_its_own_way(world: World) -> None:
    a, s = await opened(world, title="one", labels={"team": "blue"}, settings=pb.SessionSettings(window_turns=7))
    await a.agent.put(space(s), "k", "v", attributes={"pinned": True})
    await a.agent.add(space(s), "count", 3)
    await a.set_control(s, control=pb.ControlState(next_node="act"))
    turn = await a.begin_turn(s)
    await a.say(s, "hello", id="m1")
    await a.say(s, "world")
    b = await caller(world, "b")
    fork = await b.fork(s, fork_id=session_name(b, "fork"))
    assert (fork.id, fork.parent, fork.owner) == (session_name(b, "fork"), s, b.agent.actor.agent_id)
    assert (fork.title, dict(fork.labels), fork.settings.window_turns) == ("one", {"team": "blue"}, 7)
    assert (fork.branch, fork.turn, list(fork.open_turns)) == (0, turn, [])
    assert await b.items(fork.id) == {"k": b'"v"', "count": b"3"}
    assert (await b.agent.get(space(fork.id), "k")).attributes["pinned"].bool_value
    assert (await b.control(fork.id)).control.next_node == "act"
    there, here = await a.messages(s), await b.messages(fork.id)
    assert texts(here) == texts(there) == ["hello", "world"]
    assert [(m.author, m.turn, m.tokens, m.create_time) for m in here] == [
        (m.author, m.turn, m.tokens, m.create_time) for m in there
    ]
    assert here[0].id == "m1"
    assert fork.last_message == here[-1].key

    await b.agent.put(space(fork.id), "k", "fork", blind=True)
    await b.agent.add(space(fork.id), "count", 1)
    await b.say(fork.id, "in the fork")
    await a.say(s, "in the session")
    assert await a.items(s) == {"k": b'"v"', "count": b"3"}
    assert texts(await a.messages(s)) == ["hello", "world", "in the session"]
    assert texts(await b.messages(fork.id)) == ["hello", "world", "in the fork"]
    # The copied message is known by its id.
    assert (await b.append(fork.id, said("other", id="m1"))).revision == 0
    last = (await b.messages(fork.id))[-1]
    await b.append(fork.id, said("next"), expected_last=last.id)


async def test_a_fork_at_a_checkpoint_begins_as_the_session_was(world: World) -> None:
    a, s = await opened(world)
    await a.agent.put(space(s), "k", "old")
    await a.agent.put(space(s), "gone", "later")
    await a.set_control(s, control=pb.ControlState(next_node="plan"))
    await a.say(s, "one")
    point = await a.checkpoint(s)
    await a.agent.put(space(s), "k", "new", blind=True)
    await a.agent.delete(space(s), "gone", blind=True)
    await a.agent.put(space(s), "made", "later")
    await a.set_control(s, control=pb.ControlState(next_node="act"))
    await a.say(s, "two")
    fork = await a.fork(s, checkpoint_id=point.id, title="back then")
    assert fork.title == "back then"
    assert await a.items(fork.id) == {"k": b'"old"', "gone": b'"later"'}
    assert (await a.control(fork.id)).control.next_node == "plan"
    assert texts(await a.messages(fork.id)) == ["one"]
    with refusal("ENTRY_NOT_FOUND", "checkpoint_id", "nowhere"):
        await a.fork(s, checkpoint_id="nowhere")


async def test_older_messages_are_read_through_the_parent(world: World) -> None:
    a, s = await opened(world)
    for start in range(0, 160, 16):
        await a.append(s, *(said(str(number)) for number in range(start, start + 16)))
    fork = (await a.fork(s)).id
    own = await a.agent.listing(space(fork), "_session/messages/")
    assert 0 < len(own) < 100
    await a.say(fork, "in the fork")
    expected = [*map(str, range(160)), "in the fork"]
    assert texts(await a.messages(fork, page_size=7)) == expected
    assert texts(await a.messages(fork, page_size=7, reverse=True)) == expected[::-1]
    # Forks and restores of a fork know its whole history too.
    point = await a.checkpoint(fork)
    await a.say(fork, "left")
    await a.restore(fork, point.id)
    await a.say(fork, "right")
    grandchild = (await a.fork(fork)).id
    assert texts(await a.messages(fork)) == texts(await a.messages(grandchild)) == [*expected, "right"]
    assert texts(await a.messages(fork, branch=0)) == [*expected, "left"]
    early = await a.fork(fork, checkpoint_id=point.id)
    assert texts(await a.messages(early.id)) == expected


async def test_a_fork_of_nothing_is_empty(world: World) -> None:
    a, s = await opened(world)
    fork = (await a.fork(s)).id
    assert (await a.messages(fork), await a.items(fork)) == ([], {})
    await a.append(fork, said("first"), expected_last="")
    await a.say(s, "not there")
    assert texts(await a.messages(fork)) == ["first"]


async def test_a_call_and_its_results_are_not_parted_by_what_is_copied(world: World) -> None:
    a, s = await opened(world)
    calls = [pb.ToolUse(call_id=f"c{n}", name="look", arguments="{}") for n in range(40)]
    results = [pb.Message(role=pb.ROLE_TOOL, tool_call_id=f"c{n}", name="look") for n in range(40)]
    for _ in range(2):
        await a.append(s, pb.Message(role=pb.ROLE_ASSISTANT, tool_calls=calls))
        for start in range(0, 40, 10):
            await a.append(s, *results[start : start + 10])
    fork = (await a.fork(s)).id
    first = (await a.agent.listing(space(fork), "_session/messages/"))[0]
    assert first.attributes["role"].string_value == "assistant"
    assert len(await a.messages(fork)) == 82


async def test_a_retry_makes_no_second_fork(world: World) -> None:
    a, s = await opened(world)
    point = await a.checkpoint(s)
    request = pb.ForkSessionRequest(session_id=s, checkpoint_id=point.id, call=a.agent.call(sequence=1))
    first = await a.call("ForkSession", request, pb.ForkSessionResponse)
    await a.agent.put(space(s), "k", "later")
    again = await a.call("ForkSession", request, pb.ForkSessionResponse)
    assert again.session == first.session
    with refusal("SESSION_EXISTS", s):
        await a.fork(s, fork_id=s)
    for wrong in ("a/b", "x" * 129, "~x"):
        with refusal("VALUE_TOO_LARGE" if len(wrong) > 9 else "INVALID_FIELD", "fork_id"):
            await a.fork(s, fork_id=wrong)
    with refusal("SESSION_NOT_FOUND"):
        await a.fork(s + "-other")


async def test_a_parent_is_not_purged_before_its_forks(world: World) -> None:
    a, s = await opened(world)
    await a.say(s, "old")
    fork = (await a.fork(s)).id
    grandchild = (await a.fork(fork)).id
    for parent, child in ((s, fork), (fork, grandchild)):
        await a.close(parent)
        with refusal("CHILDREN_OPEN", repr(parent), repr(child)):
            await a.purge(parent)
    assert texts(await a.messages(grandchild)) == ["old"]
    await a.close(grandchild)
    for session in (grandchild, fork, s):
        assert await a.purge(session) > 0


async def test_a_closed_session_can_be_forked(world: World) -> None:
    a, s = await opened(world)
    await a.agent.put(space(s), "k", "v")
    await a.say(s, "hello")
    await a.close(s)
    assert await a.items(s) == {}
    assert await a.items((await a.fork(s)).id) == {}
    (point,) = await a.checkpoints(s)
    fork = (await a.fork(s, checkpoint_id=point.id)).id
    assert (await a.items(fork), texts(await a.messages(fork))) == ({"k": b'"v"'}, ["hello"])
    await a.say(fork, "goes on")


async def test_a_fork_of_an_ephemeral_session_is_ephemeral(world: World) -> None:
    if world.kept[0] == "redis":
        pytest.skip("ephemeral sessions are refused on Redis")
    a = await caller(world)
    s = (await a.open(ephemeral=True)).id
    await a.say(s, "secret")
    with refusal("INVALID_FIELD", "fork_id", "ephemeral"):
        await a.fork(s, fork_id="public")
    fork = await a.fork(s)
    assert fork.id.startswith("~")
    assert fork.ephemeral
    with refusal("CHILDREN_OPEN", repr(fork.id), "close that first"):
        await a.close(s)
    assert texts(await a.messages(fork.id)) == ["secret"]
    await a.close(fork.id)
    await a.close(s)
    with refusal("SESSION_NOT_FOUND"):
        await a.fork(s)


async def test_what_fits_no_commit_is_refused_as_a_whole(world: World) -> None:
    a, s = await opened(world)
    await a.agent.ensure(space(s), types.NamespacePolicy(item_bytes_max=64 * 1024))
    for number in range(18):
        await a.agent.put(space(s), f"k{number:02}", "x" * 60_000)
    name = session_name(a, "fork")
    with refusal("VALUE_TOO_LARGE", "the fork", "1048576"):
        await a.fork(s, fork_id=name)
    with refusal("SESSION_NOT_FOUND"):
        await a.get(name)


async def test_a_fork_that_never_came_to_be_holds_its_parent_for_a_minute(
    local: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, s = await opened(LocalWorld(local))
    real, name = local.engine.store.commit, session_name(a, "fork")

    async def commit(ref: Any, what: Any) -> Any:
        if ref.name == space(name):
            await asyncio.sleep(0)
            raise Killed
        return await real(ref, what)

    monkeypatch.setattr(local.engine.store, "commit", commit)
    with pytest.raises(Killed):
        await a.fork(s, fork_id=name)
    await a.close(s)
    with refusal("CHILDREN_OPEN", name):
        await a.purge(s)
    await local.elapse(FORK_MS_MAX)
    assert await a.purge(s) > 0


async def test_a_fork_that_takes_too_long_is_none(local: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    a, s = await opened(LocalWorld(local))
    real, name = local.engine.store.commit, session_name(a, "fork")
    slow = [True]

    async def commit(ref: Any, what: Any) -> Any:
        if ref.name == space(name) and slow.pop():
            slow.append(False)
            local.clock.advance(FORK_MS_MAX)
        return await real(ref, what)

    monkeypatch.setattr(local.engine.store, "commit", commit)
    await a.fork(s, fork_id=name)
    await a.close(s)
    with refusal("CHILDREN_OPEN", name):
        await a.purge(s)


async def test_upkeep_leaves_parents_alone_until_their_forks_are_gone(local: LocalServer) -> None:
    settings = pb.SessionSettings(idle_timeout=Duration(seconds=60), purge_after=Duration(seconds=60))
    a, s = await opened(LocalWorld(local), settings=settings)
    await a.say(s, "old")
    # The parent comes first in a round.
    fork = (await a.fork(s, fork_id=session_name(a, "z"))).id
    await local.elapse(61_000)
    await local.sweep()
    await local.elapse(61_000)
    await local.sweep()
    assert (await a.get(s)).status == pb.SESSION_STATUS_CLOSED
    for _ in range(3):
        await local.elapse(3_600_000)
        await local.sweep()
    for gone in (s, fork):
        with refusal("SESSION_NOT_FOUND"):
            await a.get(gone)
