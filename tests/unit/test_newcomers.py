"""Incarnations that a process does not know: each is asked for once at a time, and those that have ended not again."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from noosphere.consistency import Reason, Refusal
from noosphere.server.memory.newcomers import ASKED_MAX, ENDED_MAX, ENDED_MS, Newcomers
from noosphere.server.ports.coordinator import Coordinator, Incarnation
from noosphere.testing import ManualClock

A, B = Incarnation("a", 7), Incarnation("b", 8)


class Asked:
    """A coordinator that counts what it is asked, and answers when the test lets it."""

    def __init__(self) -> None:
        self.asked: list[Incarnation] = []
        self.answers = asyncio.Event()
        self.refuses: Reason | None = Reason.STALE_INCARNATION

    async def keep_agent(self, incarnation: Incarnation) -> None:
        self.asked.append(incarnation)
        await self.answers.wait()
        if self.refuses is not None:
            raise Refusal(self.refuses, "no")


def newcomers(coordinator: Asked, clock: ManualClock | None = None) -> Newcomers:
    return Newcomers(cast(Coordinator, coordinator), clock or ManualClock())


async def begin(*calls: Any) -> list[asyncio.Task[None]]:
    """Begins calls, and returns when they wait."""
    tasks = [asyncio.create_task(call) for call in calls]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return tasks


async def test_a_flood_of_one_ended_incarnation_is_one_question_and_then_none() -> None:
    coordinator, clock = Asked(), ManualClock()
    made = newcomers(coordinator, clock)
    tasks = await begin(*(made.settle(A) for _ in range(100)))
    assert not made.has_ended(A)
    coordinator.answers.set()
    await asyncio.gather(*tasks)
    assert coordinator.asked == [A]
    assert made.has_ended(A)
    assert not made.has_ended(B), "nobody else has"
    clock.advance(ENDED_MS - 1)
    assert made.has_ended(A)
    clock.advance(1)
    assert not made.has_ended(A), "after a while it is asked again"
    await made.settle(A)
    assert coordinator.asked == [A, A]


async def test_of_one_that_is_current_nothing_is_remembered() -> None:
    coordinator = Asked()
    coordinator.refuses = None
    coordinator.answers.set()
    made = newcomers(coordinator)
    await made.settle(A)
    assert not made.has_ended(A)


async def test_a_question_that_fails_is_no_answer() -> None:
    coordinator = Asked()
    coordinator.refuses = Reason.ENGINE_UNAVAILABLE
    coordinator.answers.set()
    made = newcomers(coordinator)
    for _ in range(2):
        with pytest.raises(Refusal) as refused:
            await made.settle(A)
        assert refused.value.reason is Reason.ENGINE_UNAVAILABLE
        assert not made.has_ended(A)
    assert coordinator.asked == [A, A]


async def test_whoever_gives_up_leaves_the_answer_to_others() -> None:
    coordinator = Asked()
    made = newcomers(coordinator)
    first, second = await begin(made.settle(A), made.settle(A))
    first.cancel()
    await asyncio.wait((first,))
    coordinator.answers.set()
    await second
    assert (made.has_ended(A), coordinator.asked) == (True, [A])


async def test_more_questions_than_the_limit_are_refused_at_once() -> None:
    coordinator = Asked()
    made = newcomers(coordinator)
    many = await begin(*(made.settle(Incarnation("x", number + 1)) for number in range(ASKED_MAX)))
    with pytest.raises(Refusal) as refused:
        await made.settle(A)
    assert (refused.value.reason, str(ASKED_MAX) in refused.value.message) == (Reason.ENGINE_UNAVAILABLE, True)
    (again,) = await begin(made.settle(Incarnation("x", 1)))
    coordinator.answers.set()
    await asyncio.gather(*many, again)
    assert len(coordinator.asked) == ASKED_MAX
    await made.settle(A)


async def test_what_is_remembered_is_bounded_and_the_oldest_goes() -> None:
    coordinator = Asked()
    coordinator.answers.set()
    made = newcomers(coordinator)
    ended = [Incarnation("x", number + 1) for number in range(ENDED_MAX + 10)]
    for incarnation in ended:
        await made.settle(incarnation)
    assert [made.has_ended(i) for i in (ended[0], ended[9], ended[10], ended[-1])] == [False, False, True, True]
