"""Watches of decisions: each once, in order, resumed by themselves, and never silent about a gap."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.unit.client_support import QUICK, SILENCE, Fault, ScriptedServer, scripted_server

from noosphere.client import Client, DecisionWatch, InvalidArgument, InvalidPageToken, Unavailable, connect
from noosphere.v1 import fact_service_pb2 as fs


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as script:
        yield script


@pytest.fixture
async def client(server: ScriptedServer) -> AsyncIterator[Client]:
    async with connect(server.address, agent="planner-0", retry=QUICK) as connected:
        yield connected


def place(number: int) -> fs.WatchCandidatesResponse:
    return fs.WatchCandidatesResponse(resume_token=b"at %d" % number)


def decision(number: int) -> fs.WatchCandidatesResponse:
    one = fs.Decision(candidate_id=f"c{number}", status=fs.CANDIDATE_STATUS_WRITTEN)
    return fs.WatchCandidatesResponse(decision=one, resume_token=b"at %d" % number)


def script(server: ScriptedServer, *streams: list[object]) -> None:
    server.script_watch(*streams, method="WatchCandidates")


def starts(server: ScriptedServer) -> list[bytes]:
    """Returns where each stream was asked to begin."""
    return [request.resume_token for request in server.requests["WatchCandidates"]]


async def take(watch: DecisionWatch, count: int) -> list[str]:
    return [(await anext(watch)).decision.candidate_id for _ in range(count)]


async def test_decisions_come_with_where_to_go_on(server: ScriptedServer, client: Client) -> None:
    script(server, [place(3), decision(4), place(5), decision(6), SILENCE])
    async with client.facts.watch("user/42") as watch:
        first, second = await anext(watch), await anext(watch)
    assert [(one.decision.candidate_id, one.resume) for one in (first, second)] == [("c4", b"at 4"), ("c6", b"at 6")]
    (request,) = server.requests["WatchCandidates"]
    assert (request.scope, request.call.actor.agent_id) == ("user/42", "planner-0")


async def test_the_watch_of_ones_own_begins_where_it_was_left(server: ScriptedServer, client: Client) -> None:
    script(server, [decision(8), SILENCE])
    async with client.facts.watch(resume=b"at 7") as watch:
        assert await take(watch, 1) == ["c8"]
    assert starts(server) == [b"at 7"]
    assert server.requests["WatchCandidates"][0].scope == "agent/planner-0"


async def test_from_now_on_is_a_place_once_the_block_is_entered(server: ScriptedServer, client: Client) -> None:
    """Lost before the first decision, the watch goes on from the same now: what came meanwhile is not missed."""
    script(server, [place(3), Fault("UNAVAILABLE")], [decision(4), SILENCE])
    async with client.facts.watch() as watch:
        assert await take(watch, 1) == ["c4"]
    assert starts(server) == [b"", b"at 3"]


async def test_a_decision_that_comes_at_once_is_delivered(server: ScriptedServer, client: Client) -> None:
    script(server, [decision(4), decision(5), SILENCE])
    async with client.facts.watch() as watch:
        assert await take(watch, 2) == ["c4", "c5"]


@pytest.mark.parametrize(
    "fault",
    [Fault("UNAVAILABLE"), Fault(reason="DRAINING"), Fault(reason="SLOW_CONSUMER", retry_delay=0.001), None],
    ids=["unavailable", "draining", "slow", "ended"],
)
async def test_a_lost_stream_goes_on_after_the_last_decision(
    server: ScriptedServer, client: Client, fault: Fault | None
) -> None:
    script(server, [place(3), decision(4), *([fault] if fault else [])], [decision(5), SILENCE])
    async with client.facts.watch() as watch:
        assert await take(watch, 2) == ["c4", "c5"]
    assert starts(server) == [b"", b"at 4"]


async def test_a_place_that_is_none_is_an_error(server: ScriptedServer, client: Client) -> None:
    """It is not asked again, and not taken for the beginning."""
    script(server, [Fault(reason="INVALID_PAGE_TOKEN")])
    async with client.facts.watch(resume=b"at 1") as watch:
        with pytest.raises(InvalidPageToken):
            await anext(watch)
    assert starts(server) == [b"at 1"]


async def test_a_watch_that_cannot_begin_says_so(server: ScriptedServer, client: Client) -> None:
    script(server, [Fault("UNAVAILABLE")], [Fault("UNAVAILABLE")])
    with pytest.raises(Unavailable, match="could not be resumed within 0 s"):
        async with client.facts.watch(patience=0):
            pass


async def test_a_cancelled_wait_loses_nothing(server: ScriptedServer, client: Client) -> None:
    messages: asyncio.Queue[object] = asyncio.Queue()
    messages.put_nowait(place(3))
    server.script_watch(messages, method="WatchCandidates")
    async with client.facts.watch() as watch:
        waiting = asyncio.ensure_future(anext(watch))
        await asyncio.wait([waiting], timeout=0)
        waiting.cancel()
        await asyncio.wait([waiting])
        messages.put_nowait(decision(4))
        assert await take(watch, 1) == ["c4"]


async def test_a_watch_is_for_one_use(server: ScriptedServer, client: Client) -> None:
    script(server, [place(3), SILENCE])
    watch = client.facts.watch()
    with pytest.raises(RuntimeError, match="has not begun"):
        await anext(watch)
    async with watch:
        pass
    assert [one async for one in watch] == []
    with pytest.raises(RuntimeError, match="for one use"):
        async with watch:
            pass


def test_where_to_begin_is_bytes(client: Client) -> None:
    with pytest.raises(InvalidArgument, match="resume: 'at 1' is str, not bytes"):
        client.facts.watch(resume="at 1")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="patience: -1 is not a number of seconds"):
        client.facts.watch(patience=-1)
