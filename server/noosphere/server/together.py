"""Reads of a store that is far away, side by side: as slow as the slowest of them instead of as all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

A = TypeVar("A")
B = TypeVar("B")


async def both(first: Coroutine[Any, Any, A], second: Coroutine[Any, Any, B]) -> tuple[A, B]:
    """Awaits two reads side by side. If one fails the other is cancelled, and the failure raised."""
    tasks = asyncio.create_task(first), asyncio.create_task(second)
    try:
        return await asyncio.gather(*tasks)
    finally:
        _end(tasks)


async def each(reads: Iterable[Coroutine[Any, Any, A]]) -> list[A]:
    """Awaits reads side by side, as many as are given: the caller bounds them. Failures are as of :func:`both`."""
    waiting = list(reads)
    if len(waiting) == 1:
        return [await waiting[0]]
    tasks = [asyncio.create_task(one) for one in waiting]
    try:
        return await asyncio.gather(*tasks)
    finally:
        _end(tasks)


def _end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    # What they raise later is nobody's concern, and `gather` has looked at it.
    for task in tasks:
        task.cancel()
