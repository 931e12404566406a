"""Waking whoever waits for a namespace, without keeping anything for those who no longer do."""

from __future__ import annotations

import asyncio
import gc
import weakref

from noosphere.server.memory.signals import HeadSignals


async def test_everybody_who_waits_for_a_namespace_is_woken_and_nobody_else() -> None:
    signals = HeadSignals()
    first, second, other = signals.next_move(b"a"), signals.next_move(b"a"), signals.next_move(b"b")
    signals.fire(b"a")
    await asyncio.wait_for(first, 30)
    await asyncio.wait_for(second, 30)
    assert not other.done()
    assert not signals.next_move(b"a").done()


async def test_nothing_is_kept_for_a_waiter_that_has_gone() -> None:
    signals = HeadSignals()
    future = weakref.ref(signals.next_move(b"a"))
    gc.collect()
    assert future() is None


async def test_draining_wakes_everybody() -> None:
    signals = HeadSignals()
    waiting = [signals.next_move(name) for name in (b"a", b"b")]
    signals.drain()
    await asyncio.wait_for(asyncio.gather(*waiting), 30)
    assert signals.draining
