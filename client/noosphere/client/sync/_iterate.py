"""Asynchronous iterators as plain ones."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import TypeVar

from ._portal import Portal
from ._twin import with_twins

Inner = TypeVar("Inner")
V = TypeVar("V")

ITEMS_MAX = 128
"""The most items that are fetched in one turn of the loop."""


def iterate(portal: Portal, source: AsyncIterator[Inner], twin: Callable[[Portal, Inner], V]) -> Iterator[V]:
    """Yields the items of a listing.

    Each turn of the loop brings twice as many as the one before, up to :data:`ITEMS_MAX`: a long list costs
    few turns, and one that is left early has fetched no more than twice what was used.
    """
    wanted = 1
    while True:
        items, error = portal.run(_take, source, wanted)
        for item in items:
            yield twin(portal, item)
        if error is not None:
            raise with_twins(portal, error)
        if len(items) < wanted:
            return
        wanted = min(2 * wanted, ITEMS_MAX)


async def _take(source: AsyncIterator[Inner], wanted: int) -> tuple[list[Inner], Exception | None]:
    items: list[Inner] = []
    try:
        while len(items) < wanted:
            items.append(await anext(source))
    except StopAsyncIteration:
        pass
    except Exception as error:
        # What came before the error is the caller's all the same.
        if items:
            return items, error
        raise
    return items, None


def as_it_is(portal: Portal, item: V) -> V:
    """The twin of an item that needs none."""
    return item
