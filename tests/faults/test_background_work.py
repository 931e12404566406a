"""Mistakes in background work: a round that fails is followed by the next one, a task that ends is noticed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.support.engine import LocalServer, local_server
from tests.support.watching import watching

from noosphere.consistency import Reason, Refusal
from noosphere.server.supervision import TaskEnded, supervise
from noosphere.v1 import memory_service_pb2 as pb

SPACE = "shared/s"
SWEEP_MS = 1_000


class Planted(Exception):
    """A mistake of ours."""


@pytest.fixture
async def local(tmp_path: Path) -> AsyncIterator[LocalServer]:
    async with local_server(tmp_path, sweep_seconds=SWEEP_MS / 1000) as server:
        yield server


def failing_once(method: Any) -> Any:
    """Returns ``method`` with a mistake that happens at the first call."""
    calls = 0

    async def call(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
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
    monkeypatch.setattr(upkeep, where, failing_once(getattr(upkeep, where)))
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
    monkeypatch.setattr(upkeep, "_look_at", failing_once(upkeep._look_at))
    async with watching(agent, "shared/b", after=puts["shared/b"].revision) as watch:
        with capture_logs() as logged:
            await local.elapse(SWEEP_MS)
            assert [change.kind for change in (await watch.batch()).changes] == [pb.CHANGE_KIND_EXPIRE]
    assert [line["namespace"] for line in logged if line["log_level"] == "error"] == ["shared/a"]


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
        # The store has failed, and has said so itself.
        (Refusal(Reason.ENGINE_UNAVAILABLE, "failed"), None),
    ],
    ids=["mistake", "refusal", "return", "failed store"],
)
async def test_a_task_that_ends_by_itself_is_told(error: Exception | None, told: str | None) -> None:
    failures: list[BaseException] = []
    task = asyncio.create_task(_fail(error), name="a task")
    supervise((task,), failures.append)
    await asyncio.wait((task,))
    await asyncio.sleep(0)
    assert [str(failure) for failure in failures] == ([told] if told is not None else [])
    assert all(failure.__cause__ is error for failure in failures)


async def test_a_task_that_is_cancelled_is_not_told() -> None:
    failures: list[BaseException] = []
    task = asyncio.create_task(asyncio.sleep(3600), name="a task")
    supervise((task,), failures.append)
    task.cancel()
    await asyncio.wait((task,))
    await asyncio.sleep(0)
    assert not failures
