"""Load shedding: what is refused when, what is never, and that it ends by itself."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noosphere.consistency import Reason, Refusal
from noosphere.server.rpc.gate import Rpc
from noosphere.server.rpc.steps.shedding import (
    HELD_MAX,
    HOLD_MS_MAX,
    RETRY_MS_MAX,
    RETRY_MS_MIN,
    SHARE_MAX,
    STANDING_MS,
    Load,
    SheddingStep,
    Thresholds,
)
from noosphere.testing import ManualClock
from noosphere.v1 import memory_service_pb2 as pb

PUT = "/noosphere.v1.MemoryService/Put"
RENEW = "/noosphere.v1.MemoryService/Renew"
CLAIM = "/noosphere.v1.MemoryService/ClaimNext"
WATCH = "/noosphere.v1.MemoryService/Watch"
STATS = "/noosphere.v1.AdminService/GetStats"
HEALTH = "/grpc.health.v1.Health/Check"
LAG_MS = 200
REQUEST = pb.PutRequest(namespace="shared/x", put=pb.PutOperation(key="k"))


def _load(**thresholds: int) -> Load:
    known = {"lag_ms": 0, "calls": 0, "request_bytes": 0, "streams": 0, **thresholds}
    return Load(Thresholds(**known), 0)


def _step(**thresholds: int) -> SheddingStep:
    return SheddingStep(_load(**thresholds), ManualClock(), random.Random(7))


def _call(method: str = PUT, *, streams: bool = False) -> Rpc:
    return Rpc(method, None, REQUEST, streams=streams)


def _begins(step: SheddingStep, method: str, *, streams: bool = False) -> bool:
    try:
        step.begin(_call(method, streams=streams))
    except Refusal as refusal:
        found = refusal
    else:
        return True
    assert found.reason is Reason.OVERLOADED
    assert found.retry_after_ms is not None
    return False


def test_one_stall_refuses_nobody() -> None:
    load = _load(lag_ms=LAG_MS)
    load.observe(60_000, 60_000)
    assert load.share > 0, "a stall of a minute is no short one"
    load = _load(lag_ms=LAG_MS)
    load.observe(STANDING_MS - 1, STANDING_MS - 1)
    load.observe(0, STANDING_MS)
    load.observe(STANDING_MS - 1, 2 * STANDING_MS - 1)
    assert load.share == 0


@given(st.lists(st.tuples(st.integers(0, 20_000), st.integers(1, 2_000)), max_size=100))
def test_the_share_stays_in_its_bounds_and_ends(observed: list[tuple[int, int]]) -> None:
    load, now_ms = _load(lag_ms=LAG_MS), 0
    for lag_ms, step_ms in observed:
        now_ms += step_ms
        load.observe(lag_ms, now_ms)
        assert 0 <= load.share <= SHARE_MAX
        assert RETRY_MS_MIN / 2 <= load.retry_ms(0.0) <= load.retry_ms(0.999) <= RETRY_MS_MAX
    for _ in range(30):
        now_ms += 200
        load.observe(0, now_ms)
    assert load.share == 0


def test_the_longer_calls_wait_the_more_are_refused_and_between_the_marks_nothing_changes() -> None:
    few, many = _load(lag_ms=LAG_MS), _load(lag_ms=LAG_MS)
    for index in range(20):
        few.observe(LAG_MS + 10, 600 + 200 * index)
        many.observe(20 * LAG_MS, 600 + 200 * index)
    assert 0.4 < few.share < 0.6
    assert many.share > 0.9
    share = many.share
    many.observe(LAG_MS - 1, 10_000)
    assert many.share == share


@given(st.integers(2, 200))
def test_crowded_ends_only_when_a_fifth_is_free(calls: int) -> None:
    load = _load(calls=calls)
    load.calls = calls
    assert load.crowded()
    while load.calls > calls * 0.8:
        assert load.crowded()
        load.calls -= 1
    assert not load.crowded()


def test_what_makes_room_is_refused_last_and_operators_never() -> None:
    step = _step(calls=4)
    for _ in range(4):
        assert _begins(step, PUT)
    assert not _begins(step, PUT)
    assert not _begins(step, CLAIM)
    for _ in range(4):
        assert _begins(step, RENEW)
    assert not _begins(step, RENEW)
    for method in (STATS, HEALTH):
        assert _begins(step, method)
        assert step.refusal(method) is None
    assert step.refusal(PUT) is not None


def test_bytes_count_and_what_has_ended_does_not() -> None:
    step = _step(request_bytes=10 * REQUEST.ByteSize())
    begun = [_call() for _ in range(10)]
    for rpc in begun:
        step.begin(rpc)
    assert not _begins(step, PUT)
    for rpc in begun:
        step.end(rpc)
    assert (step.load.calls, step.load.request_bytes) == (0, 0)
    assert _begins(step, PUT)


def test_calls_that_wait_for_somebody_else_are_no_load() -> None:
    step = _step(calls=2)
    for _ in range(50):
        assert _begins(step, CLAIM)
    assert _begins(step, PUT)


def test_streams_have_a_limit_of_their_own() -> None:
    step = _step(streams=2, calls=1)
    watches = [_call(WATCH, streams=True) for _ in range(2)]
    for watch in watches:
        step.begin(watch)
    assert not _begins(step, WATCH, streams=True)
    step.end(watches[0])
    assert _begins(step, WATCH, streams=True)
    assert _begins(step, PUT)


def test_a_call_inside_a_pipeline_is_drawn_for_once_one_by_itself_before_it_is_read() -> None:
    step = _step(lag_ms=LAG_MS)
    step.load.share = SHARE_MAX
    alone = [step.refusal(PUT) is not None for _ in range(200)]
    assert sum(alone) > 150
    assert all(_begins(step, PUT) for _ in range(200))
    parent = Rpc("/noosphere.v1.MemoryService/Pipeline", None, None, streams=True)
    refused = 0
    for _ in range(200):
        try:
            step.begin(Rpc(PUT, None, REQUEST, streams=False, parent=parent))
        except Refusal:
            refused += 1
    assert refused > 150
    assert step.load.refused_count == sum(alone) + refused


@contextlib.asynccontextmanager
async def _holding(step: SheddingStep, count: int, peer: str) -> AsyncIterator[list[asyncio.Task[None]]]:
    refusals = [Refusal(Reason.OVERLOADED, "", retry_after_ms=RETRY_MS_MAX) for _ in range(count)]
    held = [asyncio.create_task(step.hold(refusal, peer)) for refusal in refusals]
    for _ in range(3):
        await asyncio.sleep(0)
    yield held
    for task in held:
        task.cancel()
    await asyncio.gather(*held, return_exceptions=True)


async def test_refused_calls_are_held_and_of_a_connection_that_heeds_nothing_longer() -> None:
    clock = ManualClock()
    step = SheddingStep(_load(), clock, random.Random(7))
    async with _holding(step, 1, "one") as patient, _holding(step, 200, "many") as flood:
        clock.advance(RETRY_MS_MAX - RETRY_MS_MIN)
        await asyncio.wait(patient)
        assert any(not task.done() for task in flood)
        clock.advance(HOLD_MS_MAX)
        await asyncio.wait(flood)


async def test_no_more_calls_are_held_than_there_is_room() -> None:
    step = SheddingStep(_load(), ManualClock(), random.Random(7))
    async with _holding(step, HELD_MAX + 10, "flood") as held:
        assert sum(task.done() for task in held) == 10


async def test_a_probe_that_is_not_answered_is_seen_all_the_same() -> None:
    clock = ManualClock()
    step = SheddingStep(_load(lag_ms=LAG_MS), clock, random.Random(7))
    never = asyncio.Event()

    async def probe() -> None:
        await never.wait()

    running = asyncio.create_task(step.run(probe))
    for _ in range(100):
        clock.advance(100)
        for _ in range(5):
            await asyncio.sleep(0)
    assert step.load.lag_ms > 5_000
    assert step.load.share > 0.9
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
