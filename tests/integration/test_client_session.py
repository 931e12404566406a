"""Sessions through the client: opening, transcript, turns, control state, items, savepoints and the end."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel
from tests.support.process import ServerProcess
from tests.support.threaded import Connect

import noosphere.testing
from noosphere.client import (
    Append,
    CallsPending,
    ChildrenOpen,
    Client,
    EntryNotFound,
    InvalidArgument,
    Message,
    Put,
    SessionClosed,
    SessionExists,
    SessionNotFound,
    SessionOpen,
    SessionSettings,
    TranscriptMoved,
    VersionMismatch,
    new_request_id,
)
from noosphere.consistency import decode_causal


class Goal(BaseModel):
    """What a session is for."""

    text: str


@pytest.fixture
async def clients(binary: ServerProcess, connect: Connect) -> AsyncIterator[tuple[Client, Client]]:
    async with AsyncExitStack() as stack:
        yield (
            await stack.enter_async_context(connect(binary.address, timeout=60)),
            await stack.enter_async_context(connect(binary.address, timeout=60)),
        )


@pytest.fixture
def name() -> str:
    return new_request_id()


async def listed(items: Any) -> list[Any]:
    return [item async for item in items]


async def texts(session: Any, **which: Any) -> list[str]:
    return [message.text async for message in session.messages(**which)]


async def test_a_session_stays_open_for_others(clients: tuple[Client, Client], name: str) -> None:
    a, b = clients
    async with a.session(name, title="Launch", labels={"team": "blue"}) as session:
        assert (session.created, session.opened.owner, session.opened.turn) == (True, a.agent, 0)
        assert session.opened.settings.window_turns == 5
        assert session.opened.settings.idle_timeout == timedelta(days=7)
        await session.append({"role": "user", "content": "hi"})
    async with b.session(name, title="other") as session:
        assert (session.created, session.opened.title, dict(session.opened.labels)) == (
            False,
            "Launch",
            {"team": "blue"},
        )
        assert await texts(session) == ["hi"]
        info = await session.update(title="Landing", set_labels={"x": "1"}, remove_labels=["team"])
        assert (info.title, dict(info.labels)) == ("Landing", {"x": "1"})
        assert await session.info() == info
    assert [info.id async for info in b.sessions(owner=a.agent, labels={"x": "1"})] == [name]


async def test_whether_a_session_may_be_there_is_the_callers_to_say(clients: tuple[Client, Client], name: str) -> None:
    a, _ = clients
    with pytest.raises(SessionNotFound):
        async with a.session(name, existing="required"):
            pass
    async with a.session(name, existing="refused") as session:
        pass
    with pytest.raises(SessionExists):
        async with a.session(name, existing="refused"):
            pass
    async with a.session(name, existing="required") as session:
        assert not session.created
        await session.close()
    with pytest.raises(SessionClosed):
        async with a.session(name):
            pass
    # To be read, a closed one is as good as any.
    async with a.session(name, existing="required") as session:
        assert session.opened.status == "closed"


async def test_the_server_names_a_session_without_an_id(clients: tuple[Client, Client]) -> None:
    a, b = clients
    async with a.session(settings=SessionSettings(window_turns=7, idle_timeout=3600)) as session:
        assert session.id
        assert (session.opened.settings.window_turns, session.opened.settings.idle_timeout) == (
            7,
            timedelta(hours=1),
        )
        async with b.session(session.id, existing="required") as other:
            assert other.opened == session.opened


async def test_an_ephemeral_session_is_gone_with_the_block_that_opened_it(clients: tuple[Client, Client]) -> None:
    a, b = clients
    async with a.session(ephemeral=True) as session:
        await session.append({"role": "user", "content": "secret"})
        async with b.session(session.id, existing="required") as other:
            assert await texts(other) == ["secret"]
        # Whoever joins it leaves it as it is.
        assert await texts(session) == ["secret"]
    with pytest.raises(SessionNotFound):
        await session.info()
    async with a.session(ephemeral=True) as session:
        await session.close()


async def test_what_is_wrong_with_a_session_is_told_before_anything_is_sent(client_of_nobody: Client) -> None:
    for wrong, said in (
        ({"existing": "maybe"}, "existing: 'maybe' is not one of allowed, required, refused"),
        ({"existing": "required"}, "session_id: is needed"),
        ({"session_id": "x", "ephemeral": True}, "session_id: 'x' is given, but the server names ephemeral sessions"),
        ({"labels": {"a": 1}}, "labels['a']: 1 is int, not text"),
        ({"settings": SessionSettings(window_turns=0)}, "settings.window_turns: 0 is not a whole number from 1"),
        ({"settings": SessionSettings(checkpoint_policy="never")}, "settings.checkpoint_policy: 'never' is not one"),  # type: ignore[arg-type]
        (
            {"settings": SessionSettings(idle_timeout=-1)},
            "settings.idle_timeout: -1 is not a number of seconds above 0",
        ),
    ):
        with pytest.raises(InvalidArgument) as refused:
            client_of_nobody.session(**wrong)
        assert said in str(refused.value)


@pytest.fixture
def client_of_nobody(clients: tuple[Client, Client]) -> Client:
    return clients[0]


async def test_messages_come_back_as_they_were_appended(clients: tuple[Client, Client], name: str) -> None:
    a, b = clients
    async with a.session(name) as session, session.turn() as turn, b.session(name) as other:
        call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        stored = await session.append(
            {"role": "system", "content": "be brief"},
            Message("user", "how much?", id="u-1"),
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "42"},
        )
        [theirs] = await other.append({"role": "user", "content": "me too"})
        found = await listed(session.messages())
        assert found == [*stored, theirs]
        assert [message.role for message in found] == ["system", "user", "assistant", "tool", "user"]
        assert [message.author for message in found] == [a.agent] * 4 + [b.agent]
        assert [message.turn for message in found] == [turn.number] * 4 + [0]
        assert found[1].tokens == 3
        assert sorted(message.key for message in found) == [message.key for message in found]
        assert await listed(session.messages(reverse=True, page_size=2)) == found[::-1]
        assert await listed(session.messages(turn=turn.number)) == list(stored)
        # An id is appended once, whatever is said under it later.
        assert await session.append(Message("user", "other words", id="u-1")) == (stored[1],)


async def test_an_append_may_insist_on_the_newest_message(clients: tuple[Client, Client], name: str) -> None:
    a, b = clients
    async with a.session(name) as session, b.session(name) as other:
        [first] = await session.append({"role": "user", "content": "1"}, expected_last="")
        await other.append({"role": "user", "content": "2"})
        with pytest.raises(TranscriptMoved):
            await session.append({"role": "user", "content": "3"}, expected_last=first.id)
        assert await texts(session) == ["1", "2"]


async def test_a_message_can_be_taken_back(clients: tuple[Client, Client], name: str) -> None:
    async with clients[0].session(name) as session:
        [message] = await session.append({"role": "user", "content": "my secret"})
        left = await session.retract(message.id)
        assert (left.retracted, left.text, left.key) == (True, "", message.key)
        assert await listed(session.messages()) == [left]
        with pytest.raises(EntryNotFound):
            await session.retract("nothing")


async def test_a_turn_ends_with_its_block(clients: tuple[Client, Client], name: str) -> None:
    async with clients[0].session(name) as session:
        async with session.turn() as turn:
            assert (turn.number, turn.ended) == (1, None)
            await session.items.put("notes/a", 1)
            assert [opened.number for opened in (await session.info()).open_turns] == [1]
        assert turn.ended is not None
        assert (turn.ended.number, bool(turn.ended.checkpoint_id)) == (1, True)
        assert (await session.info()).open_turns == ()
        with pytest.raises(ZeroDivisionError):
            async with session.turn():
                raise ZeroDivisionError
        assert (await session.info()).open_turns == ()
        third = await session.begin_turn()
        assert await third.end() == await third.end()
        assert (await session.info()).turn == 3


async def test_a_turn_does_not_outlive_its_session(clients: tuple[Client, Client], name: str) -> None:
    async with clients[0].session(name) as session, session.turn() as turn:
        await session.close()
    assert turn.ended is None


async def test_the_control_state_is_replaced_as_a_whole(clients: tuple[Client, Client], name: str) -> None:
    async with clients[0].session(name) as session:
        assert (await session.control.get()).version == 0
        version = await session.control.set(next_node="review", data={"draft": 1}, expected_version=0)
        state = await session.control.get()
        assert (state.next_node, state.data, state.version) == ("review", {"draft": 1}, version)
        assert state.author == clients[0].agent
        with pytest.raises(VersionMismatch):
            await session.control.set(next_node="x", expected_version=version - 1)
        await session.control.set(pending_interrupt="approval", retries=2, expected_version=version)
        state = await session.control.get()
        assert (state.next_node, state.pending_interrupt, state.retries, state.data) == ("", "approval", 2, None)


async def test_items_are_records_of_a_namespace(clients: tuple[Client, Client], name: str) -> None:
    a, _ = clients
    async with a.session(name) as session:
        await session.goal(model=Goal).put(Goal(text="find the price"))
        record = await session.items.get("goals/main", Goal)
        assert record is not None
        assert record.value.text == "find the price"
        assert (await a.namespace(f"sessions/{name}").get("goals/main")) is not None
        result = await session.items.transact(
            operations=[Append({"role": "user", "content": "noted"}), Put("notes/a", "x")]
        )
        assert result.revision
        [message] = await listed(session.messages())
        assert message.text == "noted"
        assert message.key.endswith(f"{result.revision:016x}-0001"), message.key
        with pytest.raises(InvalidArgument, match="_session/"):
            await session.items.put("_session/control", {}, blind=True)


async def test_going_back_leaves_a_branch(clients: tuple[Client, Client], name: str) -> None:
    async with clients[0].session(name) as session:
        await session.append({"role": "user", "content": "1"})
        plan = await session.items.put("plan", "a")
        saved = await session.checkpoint("before")
        assert (saved.name, saved.cause, saved.items) == ("before", "request", 1)
        await session.append({"role": "user", "content": "2"})
        await plan.replace("b")
        await session.items.put("notes/late", 1)
        restored = await session.restore(saved)
        assert (restored.abandoned_branch, restored.session.branch) == (0, 1)
        assert (restored.restored, restored.removed) == (1, 1)
        record = await session.items.get("plan")
        assert record is not None
        assert record.value == "a"
        assert await texts(session) == ["1"]
        assert await texts(session, branch=0) == ["1", "2"]
        assert [one.cause for one in await listed(session.checkpoints())] == ["restore", "request"]
        with pytest.raises(EntryNotFound):
            await session.restore("nothing")


async def test_a_fork_begins_where_its_parent_is(clients: tuple[Client, Client], name: str) -> None:
    async with clients[0].session(name) as session:
        await session.append({"role": "user", "content": "1"})
        await session.items.put("plan", "a")
        fork = await session.fork(f"{name}-2", title="other way")
        assert (fork.id, fork.opened.parent, fork.opened.title) == (f"{name}-2", name, "other way")
        await fork.append({"role": "user", "content": "2"})
        assert await texts(fork) == ["1", "2"]
        assert await texts(session) == ["1"]
        record = await fork.items.get("plan")
        assert record is not None
        assert record.value == "a"
        await session.close()
        with pytest.raises(ChildrenOpen):
            await session.purge()
        await fork.close(items="drop")
        await fork.purge()
        assert await session.purge()


def seen_by(client: Client) -> set[str]:
    """The namespaces of which a client has seen something."""
    text = client.causal_token()
    return set(decode_causal(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), "token").revisions)


async def test_a_session_that_the_server_has_named_is_handed_over_like_any(clients: tuple[Client, Client]) -> None:
    mine, theirs = clients
    async with mine.session() as session:
        assert seen_by(mine) == {f"sessions/{session.id}"}
        await theirs.observe(await session.handoff(to=theirs.agent))
        assert f"sessions/{session.id}" in seen_by(theirs)


async def test_what_a_client_has_seen_of_a_fork_is_of_the_fork(clients: tuple[Client, Client]) -> None:
    async with clients[0].session() as session:
        fork = await session.fork()
        assert seen_by(clients[0]) == {f"sessions/{session.id}", f"sessions/{fork.id}"}


async def test_closing_decides_about_items_and_calls(clients: tuple[Client, Client], name: str) -> None:
    async with clients[0].session(name) as session:
        await session.items.put("notes/a", 1)
        await session.start_tool("search")
        with pytest.raises(CallsPending):
            await session.close(pending_calls="refuse")
        with pytest.raises(SessionOpen):
            await session.purge()
        closed = await session.close()
        assert closed == (1, 0, 1)
        assert [call.status async for call in session.tool_calls()] == ["failed"]
        with pytest.raises(SessionClosed):
            await session.append({"role": "user", "content": "too late"})
        assert await session.purge()
        assert await session.purge() == 0
        with pytest.raises(SessionNotFound):
            await session.info()


async def test_the_controller_tells_what_it_would_do_and_does_it(clients: tuple[Client, Client], name: str) -> None:
    async with clients[0].session(name) as session:
        await session.items.put("notes/a", "a note")
        await session.items.put("goals/main", "a goal")
        would = await session.run_transitions("notes/a", "goals/main", instruction="archive", dry_run=True)
        assert [(one.key, one.action) for one in would] == [("goals/main", "retain"), ("notes/a", "archive")]
        assert await listed(session.transitions()) == []
        did = await session.run_transitions("notes/a", "goals/main", instruction="archive")
        assert [(one.key, one.action, one.reason) for one in did] == [
            (one.key, one.action, one.reason) for one in would
        ]
        assert [one.key for one in await listed(session.transitions())] == ["notes/a"]
        assert await session.items.get("notes/a") is None
        health = await session.health()
        assert health.items == 1
        assert [figure.metric for figure in health.figures] == [
            "context_utilization",
            "state_hit_rate",
            "state_lifespan",
            "token_growth",
        ]
        assert all(figure.verdict == "unknown" and figure.advice for figure in health.figures if figure.value is None)


async def test_a_summary_of_what_has_left_the_window(clients: tuple[Client, Client], name: str) -> None:
    settings = SessionSettings(window_turns=1, window_steps=2)
    async with clients[0].session(name, settings=settings) as session:
        assert await session.summarize() is None
        for number in range(6):
            async with session.turn():
                await session.append({"role": "user", "content": f"We decided to take plan {number}."})
        summary = await session.summarize()
        assert summary is not None
        keys = [message.key async for message in session.messages()]
        assert (summary.first, summary.messages) == (keys[0], keys.index(summary.last) + 1)
        assert summary.narrative


async def test_nobody_is_told_of_a_session_that_is_gone(clients: tuple[Client, Client], name: str) -> None:
    a, b = clients
    async with a.session(ephemeral=True) as passing, a.session(name) as session:
        while_open = a.causal_token()
        await b.observe(while_open)
        await session.close()
        await session.purge()
    told = base64.urlsafe_b64decode(a.causal_token() + "==")
    assert passing.id.encode() not in told
    assert name.encode() not in told
    # An older token that names them disturbs nobody.
    await b.observe(while_open)


async def test_a_token_outlives_an_ephemeral_session_that_ended_with_the_server() -> None:
    async with (
        noosphere.testing.server() as srv,
        srv.client("a") as a,
        srv.client("b") as b,
        a.session() as lasting,
        # Its block will have nothing left to close, which is what it wants.
        a.session(ephemeral=True) as passing,
    ):
        await passing.append({"role": "user", "content": "secret"})
        token = a.causal_token()
        await srv.restart()
        await b.observe(token)
        assert lasting.id.encode() in base64.urlsafe_b64decode(b.causal_token() + "==")
        with pytest.raises(SessionNotFound):
            await passing.info()
