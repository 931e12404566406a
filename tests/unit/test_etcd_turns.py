"""Turns of callers that would change the same thing."""

from __future__ import annotations

import asyncio

import pytest

from noosphere.consistency import LimitInfo, Reason, Refusal
from noosphere.server.storage.etcd.turns import WAITING_MAX, Turns


async def test_callers_of_one_name_take_turns_in_order_and_others_do_not_wait() -> None:
    turns, order = Turns(), []

    async def take(name: str, number: int) -> None:
        async with turns.of(name):
            await asyncio.sleep(0)
            order.append((name, number))

    async with turns.of("a"):
        waiting = [asyncio.create_task(take("a", number)) for number in range(3)]
        await take("b", 0)
    await asyncio.gather(*waiting)
    assert order == [("b", 0), ("a", 0), ("a", 1), ("a", 2)]
    assert not turns._locks, "nothing is kept of a name that nobody uses"


async def test_one_that_is_cancelled_or_fails_leaves_its_turn_to_the_next() -> None:
    turns = Turns()

    async def fail() -> None:
        async with turns.of("a"):
            raise LookupError

    async with turns.of("a"):
        cancelled, failing = asyncio.create_task(fail()), asyncio.create_task(fail())
        await asyncio.sleep(0)
        cancelled.cancel()
    with pytest.raises(LookupError):
        await failing
    async with asyncio.timeout(10), turns.of("a"):
        pass
    assert not turns._locks


async def test_more_than_the_limit_do_not_wait() -> None:
    turns = Turns()

    async def take() -> None:
        async with turns.of("a"):
            pass

    async with turns.of("a"):
        waiting = [asyncio.create_task(take()) for _ in range(WAITING_MAX)]
        await asyncio.sleep(0)
        with pytest.raises(Refusal) as refused:
            await take()
        assert refused.value.reason is Reason.LIMIT_EXCEEDED
        assert refused.value.detail == LimitInfo("a", WAITING_MAX + 1, WAITING_MAX)
    await asyncio.gather(*waiting)
    await take()
