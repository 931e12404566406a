"""Waiting for what becomes of something: everybody is told, and nothing is kept of those who have left."""

from __future__ import annotations

import gc
import weakref

from noosphere.server.facts.awaited import Awaited


async def test_everybody_who_waits_for_the_same_is_told() -> None:
    awaited: Awaited[int] = Awaited()
    first, second, other = awaited.future("a"), awaited.future("a"), awaited.future("b")
    awaited.tell("a", 1)
    assert (first.result(), second.result(), other.done()) == (1, 1, False)


async def test_who_comes_after_it_was_told_waits_for_what_comes_next() -> None:
    awaited: Awaited[int] = Awaited()
    before = awaited.future("a")
    awaited.tell("a", 1)
    after = awaited.future("a")
    awaited.tell("a", 2)
    assert (before.result(), after.result()) == (1, 2)


async def test_one_who_stops_waiting_takes_nobody_elses_place() -> None:
    awaited: Awaited[int] = Awaited()
    leaving, staying = awaited.future("a"), awaited.future("a")
    del leaving
    gc.collect()
    awaited.tell("a", 1)
    assert staying.result() == 1


async def test_nothing_is_kept_of_what_nobody_waits_for() -> None:
    awaited: Awaited[int] = Awaited()
    future = awaited.future("a")
    left = weakref.ref(future)
    del future
    gc.collect()
    assert left() is None
    awaited.tell("a", 1)
