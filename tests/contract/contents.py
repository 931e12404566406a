"""Namespaces with something of everything in them, and what can be asked about them."""

from __future__ import annotations

from typing import Any

from tests.contract.build import (
    NS,
    bury,
    change,
    logged,
    put,
    reap,
    remember,
    sequence,
    uuid,
    write,
)

from noosphere.server.ports.store import Fence, NamespaceRef, WorkingStore

OTHER = NamespaceRef("shared/other")


async def snapshot(store: WorkingStore, ref: NamespaceRef) -> tuple[Any, ...]:
    """Returns what can be asked about a namespace, except time and epoch."""
    page = await store.scan(ref, "", limit=2_000)
    view = page.view._replace(now_ms=0, epoch=0, cuts=())
    if view.deleted:
        return (view,)
    stats = await store.stats(ref)
    return (
        view,
        page.entries,
        [(await store.scan(ref, c, limit=1)).stamps for c in ("", "a/", "b/", "c/", "c/d/")],
        (await store.read(ref, (), locks=("l", "m"))).fences,
        [(await store.read(ref, (), request=r)).remembered for r in (sequence(1), sequence(2), uuid("u"))],
        await logged(store, view.floor, ref),
        await store.due(ref, 10**15, 1_000),
        stats._replace(view=view),
    )


async def busy(store: WorkingStore, ref: NamespaceRef = NS) -> None:
    """Leaves something of everything."""
    await write(store, *(put(f"a/{i}", b"x" * i) for i in range(300)), namespace=ref, request=remember(sequence(1)))
    await write(store, put("b/x", due_ms=9), put("c/d/e"), namespace=ref, fences=(Fence("l", 2), Fence("m", 3)))
    await write(store, bury("b/x"), change("a/7"), namespace=ref, request=remember(uuid("u")))
    await write(store, reap("b/x", raise_floor_context=4), reap("a/8"), namespace=ref)
    await write(store, put("log/", rev_slot=True), namespace=ref, request=remember(sequence(2, 1)))
    for i in range(20):
        await write(store, change(f"a/{i}", b"later"), namespace=ref)
