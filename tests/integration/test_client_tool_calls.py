"""Calls of tools through the client: finished once, by whoever has the ticket, late or not, small or large."""

from __future__ import annotations

import json
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
    Client,
    DeadlineExceeded,
    InvalidArgument,
    NotParked,
    Session,
    ToolResultSuperseded,
    ValueTooLarge,
    new_request_id,
)
from noosphere.client._tool_call import _PIECE_BYTES, RESULT_BYTES_MAX


class Prices(BaseModel):
    """What a search finds."""

    items: list[dict[str, Any]]


@pytest.fixture
async def clients(binary: ServerProcess, connect: Connect) -> AsyncIterator[tuple[Client, Client]]:
    async with AsyncExitStack() as stack:
        yield (
            await stack.enter_async_context(connect(binary.address, timeout=60)),
            await stack.enter_async_context(connect(binary.address, timeout=60)),
        )


@pytest.fixture
async def session(clients: tuple[Client, Client]) -> AsyncIterator[Session]:
    async with clients[0].session(new_request_id()) as opened:
        await opened.goal().put({"text": "find the price"})
        yield opened


async def test_another_process_finishes_a_call_by_its_ticket(clients: tuple[Client, Client], session: Session) -> None:
    a, b = clients
    async with session.turn() as turn:
        call = await session.start_tool("search", {"q": "prices"}, call_id="call_7", deadline=timedelta(minutes=20))
    assert (call.started, call.status, call.name, call.args) == (True, "pending", "search", {"q": "prices"})
    assert (call.author, call.turn, call.session_id, call.late) == (a.agent, turn.number, session.id, "apply_flagged")
    assert [basis.key for basis in call.based_on] == ["goals/main"]
    assert call.deadline == call.started_at + timedelta(minutes=20)
    assert (await session.control.get()).pending_calls == ("call_7",)

    theirs = await b.tool_call(call.ticket)
    assert (theirs.name, theirs.args, theirs.status, theirs.changes) == ("search", {"q": "prices"}, "pending", ())
    done = await theirs.finish({"price": 42})
    assert (done.status, done.content, done.compaction, done.changes) == ("done", '{"price":42}', "none", ())
    assert done.finished_at is not None
    assert (await call.refresh()).status == "done"
    assert call.status == "pending", "what was read does not change"
    with pytest.raises(ToolResultSuperseded):
        await theirs.finish({"price": 43})
    with pytest.raises(ToolResultSuperseded):
        await theirs.fail("no")


async def test_a_known_call_is_not_started_twice_unless_it_is_to_be_tried_again(session: Session) -> None:
    first = await session.start_tool("search", call_id="c")
    again = await session.start_tool("search", call_id="c")
    assert (again.started, again.ticket) == (False, first.ticket)
    retried = await session.start_tool("search", call_id="c", retry=True)
    assert (retried.started, retried.attempt, retried.ticket != first.ticket) == (True, 2, True)
    with pytest.raises(ToolResultSuperseded):
        await first.finish("late")
    assert (await retried.finish("in time")).content == "in time"


@pytest.mark.parametrize(
    ("late", "status"),
    [("apply", "done"), ("apply_flagged", "done"), ("park", "parked"), ("reject", "rejected")],
)
async def test_what_becomes_of_a_result_whose_goal_has_changed(
    clients: tuple[Client, Client], session: Session, late: Any, status: str
) -> None:
    call = await session.start_tool("search", {"q": 1}, based_on=("goals/main",), late=late)
    async with clients[1].session(session.id) as theirs:
        goal = await theirs.items.get("goals/main")
        assert goal is not None
        await goal.replace({"text": "find another price"})
    changed = [("goals/main", clients[1].actor)]
    now = await clients[0].tool_call(call.ticket)
    assert [(change.key, change.actor) for change in now.changes] == changed
    out = await call.finish("42")
    assert out.status == status
    assert [(change.key, change.actor) for change in out.changes] == ([] if late == "apply" else changed)


async def test_a_parked_result_waits_for_a_review(session: Session) -> None:
    calls = [await session.start_tool("search", call_id=f"c{n}", late="park") for n in range(2)]
    with pytest.raises(NotParked):
        await calls[0].accept()
    goal = await session.items.get("goals/main")
    assert goal is not None
    await goal.replace({"text": "another"})
    for call in calls:
        assert (await call.finish("42")).status == "parked"
    assert [call.call_id async for call in session.tool_calls(status="parked")] == ["c0", "c1"]
    assert (await calls[0].accept()).status == "done"
    assert (await calls[1].reject()).status == "rejected"
    assert await calls[1].raw() == b"42"
    assert [call.call_id async for call in session.tool_calls(reverse=True, page_size=1)] == ["c1", "c0"]


async def test_a_failure_tells_why(session: Session) -> None:
    call = await session.start_tool("search", "not json {", call_id="c")
    assert call.arguments == "not json {"
    failed = await call.fail("the site is down", append_message=True)
    assert (failed.status, failed.content) == ("failed", "the site is down")
    assert failed.message is not None
    assert [message async for message in session.messages()] == [failed.message]
    assert (failed.message.role, failed.message.tool_call_id) == ("tool", "c")


async def test_a_large_result_is_kept_whole_and_enters_small(session: Session) -> None:
    items = [{"price": 9_000 + n, "name": f"thing {n}", "text": f"lorem ipsum {n} " * 2_000} for n in range(40)]
    call = await session.start_tool("search")
    done = await call.finish(Prices(items=items), keep=("items[*].price",))
    raw = json.dumps({"items": items}, separators=(",", ":")).encode()
    assert len(raw) > _PIECE_BYTES
    assert (done.status, done.raw_bytes) == ("done", len(raw))
    assert done.compaction == "fields"
    assert all(str(item["price"]) in done.content for item in items)
    assert 0 < done.tokens <= 500
    assert await done.raw() == raw


@pytest.mark.parametrize("size", [0, 1, _PIECE_BYTES, _PIECE_BYTES + 1, 3 * _PIECE_BYTES])
async def test_a_result_of_any_size_arrives_byte_for_byte(session: Session, size: int) -> None:
    call = await session.start_tool("search")
    text = "äb" * (size // 3) + "c" * (size % 3)
    assert len(text.encode()) == size
    done = await call.finish(text)
    assert done.raw_bytes == size
    assert await done.raw() == text.encode()


async def test_a_result_that_no_session_keeps_is_refused_before_it_travels(session: Session) -> None:
    call = await session.start_tool("search")
    with pytest.raises(ValueTooLarge) as refused:
        await call.finish(b"x" * (RESULT_BYTES_MAX + 1))
    assert (refused.value.field, refused.value.actual, refused.value.limit) == (
        "result",
        RESULT_BYTES_MAX + 1,
        RESULT_BYTES_MAX,
    )
    assert (await call.refresh()).status == "pending"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"late": "never"}, "late: 'never' is not one of apply, apply_flagged, park, reject"),
        ({"args": {"a": {1}}}, "args.a: set is not JSON"),
        ({"based_on": "goals/main"}, "based_on: 'goals/main' is str, not several texts"),
        ({"deadline": 0}, "deadline: 0 is not a number of seconds above 0"),
    ],
)
async def test_a_wrong_argument_is_named(session: Session, wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        await session.start_tool("search", **wrong)
    assert said in str(refused.value)


async def test_what_is_no_ticket_is_refused(clients: tuple[Client, Client], session: Session) -> None:
    ticket = (await session.start_tool("search")).ticket
    for wrong in ("", "ticket", ticket[:-1] + ("0" if ticket[-1] != "0" else "1")):
        with pytest.raises(InvalidArgument, match="ticket"):
            await clients[0].tool_call(wrong)
    assert await (await session.start_tool("search")).raw() == b"", "there is no result yet"


async def test_a_decision_can_await_calls(session: Session) -> None:
    call = await session.start_tool("search")
    context = await session.context(input="and?")
    with pytest.raises(CallsPending):
        await context.commit(Append({"role": "assistant", "content": "so"}), awaited=(call,))
    await call.finish("42")
    assert (await context.commit(Append({"role": "assistant", "content": "so"}), awaited=(call.call_id,))).revision


async def test_a_lost_reply_finishes_a_call_once() -> None:
    async with noosphere.testing.server() as srv, srv.client("a") as client, client.session("s") as session:
        srv.faults.drop_reply(method="StartToolCall")
        call = await session.start_tool("search", call_id="c")
        assert call.started
        srv.faults.drop_reply(method="FinishToolCall")
        done = await call.finish("x" * (2 * _PIECE_BYTES), append_message=True)
        assert (done.status, done.replayed) == ("done", True)
        assert len([message async for message in session.messages()]) == 1


async def test_time_that_a_test_moves_makes_a_result_late() -> None:
    async with noosphere.testing.server() as srv, srv.client("a") as client, client.session("s") as session:
        call = await session.start_tool("search", deadline=60, late="park")
        await srv.advance(61)
        out = await call.finish("42")
        assert (out.status, out.overdue) == ("parked", True)


async def test_a_delayed_upload_keeps_to_the_deadline() -> None:
    async with noosphere.testing.server() as srv, srv.client("a") as client, client.session("s") as session:
        call = await session.start_tool("search")
        srv.faults.delay(30, method="FinishToolCall")
        with pytest.raises(DeadlineExceeded):
            await call.finish("x" * (2 * _PIECE_BYTES), timeout=0.2)
