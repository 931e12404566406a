"""Turns at keys that callers have met at: who waits, for how long, and what becomes of those who give up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from noosphere.server.memory import turns as module
from noosphere.server.memory.turns import Turns

SPACE = b"space"


class Callers:
    """Callers of one key, each of which stays in its turn until it is told to end it."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._let: dict[str, asyncio.Event] = {}
        self.inside: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def come(self, name: str, *, patient: bool = True, key: str = "k") -> None:
        """Begins a call, and lets it get as far as it can."""
        self._let[name] = asyncio.Event()
        self.tasks[name] = asyncio.create_task(self._call(name, key, patient))
        await _settle()

    async def end(self, name: str) -> None:
        """Ends a turn, and lets others get as far as they can."""
        self._let[name].set()
        await _settle()

    async def give_up(self, name: str) -> None:
        """Cancels a call."""
        self.tasks[name].cancel()
        await asyncio.wait([self.tasks[name]])
        await _settle()

    async def _call(self, name: str, key: str, patient: bool) -> None:
        async with self._turns.turn(SPACE, (key,), patient):
            self.inside.append(name)
            try:
                await self._let[name].wait()
            finally:
                self.inside.remove(name)


async def _settle() -> None:
    for _ in range(8):
        await asyncio.sleep(0)


@asynccontextmanager
async def callers(*met: str) -> AsyncIterator[Callers]:
    turns = Turns()
    for key in met:
        turns.met(SPACE, key)
    made = Callers(turns)
    yield made
    for task in made.tasks.values():
        task.cancel()
    if made.tasks:
        await asyncio.wait(made.tasks.values())


async def test_nobody_waits_where_nobody_has_met() -> None:
    async with callers("other") as they:
        for name in "abc":
            await they.come(name)
        assert they.inside == ["a", "b", "c"]


async def test_the_patient_come_one_after_the_other_in_the_order_in_which_they_came() -> None:
    async with callers("k") as they:
        for name in "abc":
            await they.come(name)
        assert they.inside == ["a"]
        await they.end("a")
        assert they.inside == ["b"]
        await they.end("b")
        assert they.inside == ["c"]


async def test_those_who_only_look_come_together_once_the_turn_under_way_ends() -> None:
    async with callers("k") as they:
        await they.come("a")
        for name in "xyz":
            await they.come(name, patient=False)
        assert they.inside == ["a"]
        await they.end("a")
        assert they.inside == ["x", "y", "z"]


async def test_a_key_where_nobody_waits_any_more_is_free_again() -> None:
    async with callers("k") as they:
        await they.come("a")
        await they.end("a")
        for name in "bc":
            await they.come(name)
        assert they.inside == ["b", "c"]


@pytest.mark.parametrize("patient", [True, False])
async def test_who_gives_up_while_waiting_is_passed_over(patient: bool) -> None:
    async with callers("k") as they:
        await they.come("a")
        await they.come("b", patient=patient)
        await they.come("c")
        await they.give_up("b")
        await they.end("a")
        assert they.inside == ["c"]


async def test_a_turn_given_to_somebody_who_gives_up_at_that_moment_goes_to_the_next() -> None:
    async with callers("k") as they:
        for name in "abc":
            await they.come(name)
        # In one step of the event loop: the turn is given to b, which has not run since when it is cancelled.
        they.tasks["a"].add_done_callback(lambda _: they.tasks["b"].cancel())
        await they.give_up("a")
        assert they.tasks["b"].cancelled()
        assert they.inside == ["c"]


async def test_a_turn_ends_with_the_call_that_fails_in_it() -> None:
    async with callers("k") as they:
        for name in "ab":
            await they.come(name)
        await they.give_up("a")
        assert they.inside == ["b"]


async def test_beyond_its_limit_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING_MAX", 1)
    async with callers("k") as they:
        for name in "abc":
            await they.come(name)
        assert they.inside == ["a", "c"]


async def test_beyond_its_limit_a_key_that_nobody_is_at_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINES_MAX", 2)
    turns = Turns()
    they = Callers(turns)
    turns.met(SPACE, "k")
    await they.come("a")
    turns.met(SPACE, "idle")
    turns.met(SPACE, "new")
    await they.come("b", key="new")
    await they.come("c", key="new")
    # Now somebody is at each of both.
    turns.met(SPACE, "more")
    for name in "de":
        await they.come(name, key="more")
    await they.come("f")
    assert they.inside == ["a", "b", "d", "e"]
    for name in "abcdef":
        await they.give_up(name)
