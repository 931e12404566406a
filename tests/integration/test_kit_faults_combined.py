"""Several of the test kit's faults at a time: each happens, and none in the place of another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from noosphere.client import Client, Key, RetryPolicy, Unavailable, VersionMismatch, connect, new_request_id
from noosphere.testing import Server, server

SPACE = "shared/launch"


@pytest.fixture
async def srv() -> AsyncIterator[Server]:
    async with server() as found:
        yield found


@pytest.fixture(params=["pipelined", "unary"])
async def client(srv: Server, request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    """A client whose calls share a stream, and one whose calls do not."""
    async with connect(srv.address, agent="planner-0", coalesce=request.param == "pipelined") as found:
        yield found


async def test_a_call_meets_one_delay_and_leaves_the_next_to_the_next_call(srv: Server, client: Client) -> None:
    srv.faults.delay(5)
    srv.faults.delay(7, method="Put")
    space = client.namespace(SPACE)
    first = asyncio.create_task(space.put("first", 1))
    await srv.advance(5)
    await first
    assert srv.faults.unmet == ("a delay of 7 s of Put",)
    second = asyncio.create_task(space.put("second", 1))
    await srv.advance(5)
    assert not second.done()
    await srv.advance(2)
    await second
    assert not srv.faults.unmet


async def test_a_call_loses_one_reply_and_leaves_the_next_loss_to_the_next_attempt(srv: Server) -> None:
    async with connect(srv.address, agent="hasty", retry=RetryPolicy(attempts_max=1)) as client:
        space = client.namespace(SPACE)
        srv.faults.drop_reply(method="Put")
        srv.faults.drop_reply(agent="hasty")
        request_id = new_request_id()
        for left in (("a lost reply of any call that changes something by hasty",), ()):
            with pytest.raises(Unavailable):
                await space.put("plan", "mine", request_id=request_id)
            assert srv.faults.unmet == left
        written = await space.put("plan", "mine", request_id=request_id)
        assert written.applied is not None
        assert written.applied.replayed


async def test_a_call_is_delayed_then_conflicts_and_then_loses_its_reply(srv: Server, client: Client) -> None:
    key = client.namespace(SPACE).key("plan")
    await key.put("old")
    srv.faults.delay(2, method="Put")
    srv.faults.conflict_next(SPACE, "plan", "theirs")
    srv.faults.drop_reply(method="Put")
    shown: list[object] = []

    def revise(current: object, conflict: object) -> str:
        shown.append((current, conflict is not None))
        return "mine"

    updating = asyncio.create_task(key.update(revise))
    await srv.advance(2)
    assert (await updating).value == "mine"
    assert shown == [("old", False), ("theirs", True)]
    assert srv.faults.unmet == ()


async def test_the_server_may_fail_over_just_before_a_write(srv: Server, client: Client) -> None:
    key = client.namespace(SPACE).key("plan")
    seen = await key.put("old")
    srv.faults.before_write(SPACE, "plan", lambda _: srv.faults.fail_over())
    written = await seen.replace("mine")
    assert srv.epoch == 2
    assert (await key.read()).writers[0].revision == written.version
    assert srv.faults.unmet == ()


async def test_the_server_may_be_restarted_just_before_a_write(srv: Server, client: Client) -> None:
    key = client.namespace(SPACE).key("plan")
    srv.faults.before_write(SPACE, "plan", lambda _: srv.restart())
    written = await key.put("mine")
    assert written.applied is not None
    assert not written.applied.replayed, "it was not executed before the restart"
    assert (await key.read()).value == "mine"


async def test_time_may_pass_just_before_a_write(srv: Server, client: Client) -> None:
    key = client.namespace(SPACE).key("plan")
    seen = await key.put("old", ttl=10)
    srv.faults.before_write(SPACE, "plan", lambda _: srv.advance(10))
    with pytest.raises(VersionMismatch) as caught:
        await key.put("mine", expected_version=seen.version, timeout=60)
    assert caught.value.theirs is not None
    assert not caught.value.theirs.exists


async def test_what_another_agent_does_is_not_given_up_with_the_call(srv: Server, client: Client) -> None:
    key = client.namespace(SPACE).key("plan")
    begun, cancelled, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def act(theirs: Key[Any]) -> None:
        begun.set()
        await cancelled.wait()
        await theirs.put("theirs")
        done.set()

    srv.faults.before_write(SPACE, "plan", act)
    mine = asyncio.create_task(key.put("mine"))
    await begun.wait()
    mine.cancel()
    await asyncio.wait([mine])
    cancelled.set()
    await done.wait()
    assert (await key.read()).value == "theirs"


async def test_nobody_is_suspended_by_a_wrong_name(srv: Server, client: Client) -> None:
    with (
        pytest.raises(ValueError, match="no client of 'planer-0' is connected"),
        srv.faults.suspended("planer-0"),
    ):
        raise AssertionError("suspended")
