"""Mistakes in background work: a round that fails is followed by the next one, a task that ends is noticed."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from structlog.testing import capture_logs
from tests.support.api import Agent
from tests.support.engine import LocalServer, local_server
from tests.support.sessions import SessionAgent
from tests.support.watching import watching

from noosphere.consistency import Reason, Refusal
from noosphere.server.sessions.upkeep import INTERVAL_MS_MIN
from noosphere.server.supervision import MISTAKES_MAX, TaskEnded, supervise
from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1 import session_service_pb2 as pb_sessions

SPACE = "shared/s"
SWEEP_MS = 1_000


class Planted(Exception):
    """A mistake of ours."""


@pytest.fixture
async def local(tmp_path: Path) -> AsyncIterator[LocalServer]:
    async with local_server(tmp_path, sweep_seconds=SWEEP_MS / 1000) as server:
        yield server


def failing(method: Any, times: float = 1) -> Any:
    """Returns ``method`` with a mistake that happens at the first calls."""
    calls = 0

    async def call(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls <= times:
            raise Planted("planted by the test")
        return await method(*arguments)

    return call


@pytest.mark.parametrize("where", ["round", "_look_at"])
async def test_a_mistake_in_one_round_of_upkeep_is_logged_and_the_next_round_runs(
    local: LocalServer, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    agent = await local.api.agent("a")
    put = await agent.put(SPACE, "k", 1, ttl_ms=SWEEP_MS // 2)
    upkeep = local.engine.memory.upkeep
    monkeypatch.setattr(upkeep, where, failing(getattr(upkeep, where)))
    with capture_logs() as logged:
        await local.elapse(SWEEP_MS)
    (line,) = [line for line in logged if line["log_level"] == "error"]
    assert isinstance(line["exc_info"], Planted)
    async with watching(agent, SPACE, after=put.revision) as watch:
        await local.elapse(SWEEP_MS)
        assert [change.kind for change in (await watch.batch()).changes] == [pb.CHANGE_KIND_EXPIRE]
    assert not local.fatal


async def test_a_namespace_with_a_mistake_keeps_no_other_from_upkeep(
    local: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = await local.api.agent("a")
    puts = {s: await agent.put(s, "k", 1, ttl_ms=SWEEP_MS // 2) for s in ("shared/a", "shared/b")}
    upkeep = local.engine.memory.upkeep
    monkeypatch.setattr(upkeep, "_look_at", failing(upkeep._look_at))
    async with watching(agent, "shared/b", after=puts["shared/b"].revision) as watch:
        with capture_logs() as logged:
            await local.elapse(SWEEP_MS)
            assert [change.kind for change in (await watch.batch()).changes] == [pb.CHANGE_KIND_EXPIRE]
    assert [line["namespace"] for line in logged if line["log_level"] == "error"] == ["shared/a"]


async def idle_sessions(local: LocalServer) -> SessionAgent:
    """Opens two sessions whose time is over; nobody has looked at them since."""
    agent = SessionAgent(Agent(local.api, await local.api.open_agent("a")))
    for session_id in ("s", "t"):
        await agent.open(session_id, settings=pb_sessions.SessionSettings(idle_timeout=Duration(seconds=1)))
    local.clock.advance(2_000)
    return agent


async def statuses(agent: SessionAgent) -> set[str]:
    return {name for name in ("s", "t") if (await agent.get(name)).status == pb_sessions.SESSION_STATUS_CLOSED}


async def test_a_mistake_in_a_round_over_sessions_is_followed_by_the_next_one(
    local: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = await idle_sessions(local)
    upkeep = local.engine.sessions.upkeep
    monkeypatch.setattr(upkeep, "round", failing(upkeep.round))
    with capture_logs() as logged:
        await local.elapse(INTERVAL_MS_MIN)
        assert await statuses(agent) == set()
        await local.elapse(INTERVAL_MS_MIN)
    assert await statuses(agent) == {"s", "t"}
    (line,) = [line for line in logged if line["log_level"] == "error"]
    assert isinstance(line["exc_info"], Planted)
    assert not local.fatal


async def test_a_session_with_a_mistake_keeps_no_other_from_upkeep(
    local: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = await idle_sessions(local)
    upkeep = local.engine.sessions.upkeep
    monkeypatch.setattr(upkeep, "_look_at", failing(upkeep._look_at))
    with capture_logs() as logged:
        await local.elapse(INTERVAL_MS_MIN)
    assert await statuses(agent) == {"t"}
    assert [line["namespace"] for line in logged if line["log_level"] == "error"] == ["sessions/s"]
    assert not local.fatal


async def test_what_goes_wrong_round_after_round_stops_the_process(
    local: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    upkeep = local.engine.memory.upkeep
    monkeypatch.setattr(upkeep, "round", failing(upkeep.round, math.inf))
    with capture_logs() as logged:
        for _ in range(MISTAKES_MAX - 1):
            await local.elapse(SWEEP_MS)
        assert not local.fatal
        await local.elapse(SWEEP_MS)
    assert [str(failure) for failure in local.fatal] == ["noosphere-upkeep: Planted"]
    assert sum(line["event"] == "upkeep has failed" for line in logged) == MISTAKES_MAX


async def test_a_server_whose_watchers_nobody_wakes_any_more_stops(
    local: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fire(storage_id: bytes) -> None:
        raise Planted("planted by the test")

    monkeypatch.setattr(local.engine.memory.signals, "fire", fire)
    agent = await local.api.agent("a")
    with capture_logs() as logged:
        await agent.put(SPACE, "k", 1)
        await local.elapse(1)
    (failure,) = local.fatal
    assert isinstance(failure, TaskEnded)
    assert str(failure) == "noosphere-heads: Planted"
    assert [line["task"] for line in logged if line["log_level"] == "error"] == ["noosphere-heads"]


async def _fail(error: Exception | None) -> None:
    if error is not None:
        raise error


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (Planted("planted"), "a task: Planted"),
        (Refusal(Reason.LIMIT_EXCEEDED, "full"), "a task: Refusal"),
        (None, "a task: returned"),
        (Refusal(Reason.ENGINE_UNAVAILABLE, "away"), "a task: Refusal"),
    ],
    ids=["mistake", "refusal", "return", "store away"],
)
async def test_a_task_that_ends_by_itself_is_told(error: Exception | None, told: str) -> None:
    failures: list[BaseException] = []
    task = asyncio.create_task(_fail(error), name="a task")
    supervise((task,), failures.append)
    await asyncio.wait((task,))
    await asyncio.sleep(0)
    assert [str(failure) for failure in failures] == [told]
    assert all(failure.__cause__ is error for failure in failures)


@pytest.mark.parametrize(
    ("error", "told"),
    [(Refusal(Reason.ENGINE_UNAVAILABLE, "failed"), []), (Planted("planted"), ["a task: Planted"])],
    ids=["refusal", "mistake"],
)
async def test_where_the_store_has_failed_that_alone_was_to_be_told(error: Exception, told: list[str]) -> None:
    failures: list[BaseException] = []
    task = asyncio.create_task(_fail(error), name="a task")
    supervise((task,), failures.append, lambda: True)
    await asyncio.wait((task,))
    await asyncio.sleep(0)
    assert [str(failure) for failure in failures] == told


async def test_a_task_that_is_cancelled_is_not_told() -> None:
    failures: list[BaseException] = []
    task = asyncio.create_task(asyncio.sleep(3600), name="a task")
    supervise((task,), failures.append)
    task.cancel()
    await asyncio.wait((task,))
    await asyncio.sleep(0)
    assert not failures
