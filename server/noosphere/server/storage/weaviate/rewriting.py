"""Makes the collection of facts anew, beside the old one, which it replaces in the end or not at all."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from ...ports.factstore import BATCH_MAX, FactContent, FactKey, StoreModel
from ...ports.runtime import Clock
from ..facts.rewriting import Change, Rewritten
from . import wire
from .access import WeaviateAccess
from .calls import Calls, together, unavailable
from .contents import Contents
from .filters import with_vector
from .querying import Queries
from .schema import Collection, Schema, number_of, numbered
from .searching import PAGE_KEYS, Searching

_FIRST = FactKey("", "", 0)


class _Side:
    """One of the two collections."""

    def __init__(self, calls: Calls, collection: Collection, clock: Clock, *, quorum: bool) -> None:
        self.collection = collection
        self.queries = Queries(calls, collection, quorum=quorum)
        self.searching = Searching(self.queries, collection.buckets, clock)
        self.contents = Contents(self.queries, collection)

    async def count(self) -> int:
        """Returns how many versions it has."""
        return sum(await together(self.queries.count(tenant, None) for tenant in self.collection.tenants))

    async def vectors(self) -> int:
        """Returns how many of them have a vector."""
        return sum(await together(self.queries.count(tenant, with_vector()) for tenant in self.collection.tenants))

    async def keys(self, tenant: str) -> AsyncIterator[list[FactKey]]:
        """Streams the keys of a tenant in order, by pages."""
        after = _FIRST
        while page := await self.searching.page_of(tenant, after, PAGE_KEYS):
            yield page
            after = page[-1]


async def rewrite(
    access: WeaviateAccess, model: StoreModel, change: Change, *, clock: Clock, told: Callable[[int, int], None]
) -> Rewritten:
    """Writes every version anew, as ``change`` returns it.

    Servers may go on meanwhile. The old collection answers and is written to until all of it was copied; then it takes
    no more writes, for as long as it takes to copy what came, and the alias is moved. Whatever ends this early leaves
    the old collection in its place; if that is the end of the process, it may be read-only until this is done again.

    Args:
        access: how Weaviate is reached.
        model: which embedder the vectors are of from now on.
        change: returns up to 256 versions, given in the same order, with the same keys.
        clock: the source of time.
        told: is told after every batch how many versions are done, and how many there are.

    Raises:
        ImportError: the package ``weaviate`` is not installed.
        Refusal: ENGINE_UNAVAILABLE, or there are no facts.
    """
    wire.load()
    calls = Calls(access, clock)
    try:
        schema = Schema(calls, access)
        name = await schema.behind_alias()
        found = None if name is None else await schema.read(name)
        if found is None:
            raise unavailable(f"{access.collection} of Weaviate at {access.url} holds no facts")
        quorum = access.replication > 1
        old = _Side(calls, found, clock, quorum=quorum)
        target = numbered(access.collection, number_of(found.name) + 1)
        # What an earlier one has left behind.
        await schema.drop(target)
        await schema.make(target, model, found)
        made = await schema.read(target)
        if made is None:
            raise unavailable(f"the collection {target} of Weaviate is gone: is it made anew twice at once?")
        new = _Side(calls, made, clock, quorum=quorum)
        async with _dropped_unless_done(schema, target) as done:
            await _copy(old, new, change, told)
            async with _frozen(schema, found):
                # Whoever has begun to write before knows by then what became of it.
                await clock.sleep(access.call_ms_max / 1000)
                await _catch_up(old, new, change)
                counts = Rewritten(await new.count(), await new.vectors(), found.model)
                await schema.move(target)
                done()
        await schema.drop(found.name)
        return counts
    finally:
        await calls.close()


async def _copy(old: _Side, new: _Side, change: Change, told: Callable[[int, int], None]) -> None:
    total, copied = await old.count(), 0
    for tenant in old.collection.tenants:
        async for page in old.keys(tenant):
            for start in range(0, len(page), BATCH_MAX):
                part = page[start : start + BATCH_MAX]
                await _bring(old, new, change, part)
                copied += len(part)
                told(copied, max(total, copied))


async def _catch_up(old: _Side, new: _Side, change: Change) -> None:
    """Brings what has come since it was copied, and removes what has gone."""
    for tenant in old.collection.tenants:
        present = {key async for page in old.keys(tenant) for key in page}
        copied = {key async for page in new.keys(tenant) for key in page}
        for keys, act in ((present - copied, _bringing(old, new, change)), (copied - present, new.contents.remove)):
            listed = sorted(keys)
            for start in range(0, len(listed), BATCH_MAX):
                await act(listed[start : start + BATCH_MAX])


def _bringing(old: _Side, new: _Side, change: Change) -> Callable[[Sequence[FactKey]], Awaitable[object]]:
    async def bring(keys: Sequence[FactKey]) -> None:
        await _bring(old, new, change, keys)

    return bring


async def _bring(old: _Side, new: _Side, change: Change, keys: Sequence[FactKey]) -> None:
    found = await old.contents.read(keys)
    contents: list[FactContent] = [found[key] for key in keys if key in found]
    await new.contents.write(await change(contents))


@contextlib.asynccontextmanager
async def _frozen(schema: Schema, collection: Collection) -> AsyncIterator[None]:
    """Lets nobody write to a collection; if this fails, they may again."""
    try:
        await schema.freeze(collection, frozen=True)
        yield
    except BaseException:
        await schema.freeze(collection, frozen=False)
        raise


@contextlib.asynccontextmanager
async def _dropped_unless_done(schema: Schema, name: str) -> AsyncIterator[Callable[[], None]]:
    """Removes a collection again, unless it was said to be complete."""
    complete = False

    def done() -> None:
        nonlocal complete
        complete = True

    try:
        yield done
    finally:
        if not complete:
            await schema.drop(name)
