"""Sessions in the test kit: time closes and purges them, faults meet their calls, and rest includes summaries."""

from __future__ import annotations

import asyncio

import pytest

import noosphere.testing
import noosphere.testing.sync
from noosphere.client import (
    Append,
    Client,
    Put,
    SessionClosed,
    SessionNotFound,
    SessionSettings,
    StaleRead,
)
from noosphere.testing import Server

BRIEF = SessionSettings(idle_timeout=60, purge_after=120)
"""Days would pass in many steps: a client that is connected renews its lease all the while."""


async def test_an_idle_session_is_closed_and_later_purged() -> None:
    async with (
        noosphere.testing.server() as srv,
        srv.client("a") as client,
        client.session("s", settings=BRIEF) as session,
    ):
        await srv.advance(50)
        await session.append({"role": "user", "content": "still here"})
        await srv.advance(50)
        assert (await session.info()).status == "open"
        await srv.advance(20)
        assert (await session.info()).status == "closed"
        with pytest.raises(SessionClosed):
            await session.append({"role": "user", "content": "too late"})
        await srv.advance(120)
        with pytest.raises(SessionNotFound):
            await session.info()


@pytest.mark.parametrize("method", ["OpenSession", "AppendMessages", "BeginTurn", "EndTurn", "CreateCheckpoint"])
async def test_a_lost_reply_makes_nothing_happen_twice(method: str) -> None:
    async with noosphere.testing.server() as srv, srv.client("a") as client:
        srv.faults.drop_reply(method=method)
        async with client.session("s") as session:
            assert session.created
            async with session.turn():
                await session.append({"role": "user", "content": "hi"})
                await session.checkpoint("one")
                await session.items.put("notes/a", 1)
        assert [message.text async for message in session.messages()] == ["hi"]
        assert [one.cause async for one in session.checkpoints()] == ["turn_end", "request"]
        assert ((await session.info()).turn, (await session.info()).open_turns) == (1, ())


async def test_a_lost_reply_to_anything_that_changes_includes_sessions() -> None:
    async with noosphere.testing.server() as srv, srv.client("a") as client:
        srv.faults.drop_reply()
        async with client.session("s") as session:
            assert srv.faults.unmet == ()
            assert session.created


async def test_a_slow_context_takes_the_time_that_a_test_gives_it() -> None:
    async with noosphere.testing.server() as srv, srv.client("a") as client, client.session("s") as session:
        srv.faults.delay(2, method="AssembleContext")
        asking = asyncio.create_task(session.context(input="hi", timeout=10))
        await srv.settle()
        assert not asking.done()
        await srv.advance(2)
        assert (await asking).tokens_used


async def test_somebody_changes_the_plan_just_before_a_decision_is_written() -> None:
    async with noosphere.testing.server() as srv, srv.client("a") as client, client.session("s") as session:
        await session.items.put("plan/next", "mine")
        context = await session.context(input="go on", guard="plan/")
        srv.faults.conflict_next("sessions/s", "plan/next", "theirs")
        with pytest.raises(StaleRead) as stale:
            await context.commit(Append({"role": "assistant", "content": "so"}), Put("plan/next", "mine again"))
        assert "rival#" in stale.value.as_message()["content"]
        assert [message async for message in session.messages()] == []


async def test_at_rest_summaries_that_were_due_are_made() -> None:
    settings = SessionSettings(window_turns=1, window_steps=4)
    async with noosphere.testing.server() as srv, srv.client("a") as client:

        async def talk(number: int) -> None:
            async with client.session(f"s{number}", settings=settings) as session:
                for turn in range(6):
                    async with session.turn():
                        await session.append(*({"role": "user", "content": f"{turn} words " * 50} for _ in range(4)))

        await asyncio.gather(*map(talk, range(6)))
        await srv.settle()
        # Nothing is left to be done in the background: whoever waits for that need not wait.
        idle = asyncio.create_task(srv.engine.sessions.summary_worker.idle())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert idle.done()
        for number in range(6):
            space = client.namespace(f"sessions/s{number}")
            assert [record.key async for record in space.list("_session/summaries/", keys_only=True)]


async def test_a_failover_tells_which_messages_are_lost_and_they_can_be_sent_again() -> None:
    async with noosphere.testing.server() as srv, srv.client("a") as client, client.session("s") as session:
        await session.append({"role": "user", "content": "kept"})
        await session.append({"role": "user", "content": "lost", "id": "m-2"}, {"role": "user", "content": "too"})
        await srv.faults.fail_over(lose=1)
        assert await _texts_after_loss(srv, client) == ["kept", "lost", "too"]


async def _texts_after_loss(srv: Server, client: Client) -> list[str]:
    from noosphere.client import AckedWritesLost

    token = client.causal_token()
    with pytest.raises(AckedWritesLost) as lost:
        await client.observe(token)
    assert [(write.operation, write.key, write.kept) for write in lost.value.own_writes] == [
        ("append", "m-2", True),
        ("append", "", True),
    ]
    for _ in range(2):
        assert all(again.error is None for again in await client.resubmit(lost.value))
    async with client.session("s") as session:
        return [message.text async for message in session.messages()]


def test_the_sync_kit_has_sessions_too() -> None:
    with (
        noosphere.testing.sync.server() as srv,
        srv.client("a") as client,
        client.session("s", settings=BRIEF) as session,
    ):
        srv.faults.drop_reply(method="AppendMessages")
        with session.turn() as turn:
            session.append({"role": "user", "content": "hi"})
        assert turn.ended is not None
        assert [message.text for message in session.messages()] == ["hi"]
        srv.advance(61)
        assert session.info().status == "closed"
