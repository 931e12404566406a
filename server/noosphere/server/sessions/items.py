"""Items: how many a session may have, so that one commit can put all of them back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from noosphere.consistency import exhausted

from ..memory.expiry import key_check
from ..ports.store import NamespaceRef, NamespaceView, StoredEntry, WorkingStore
from .draft import Draft, Look
from .keys import ITEM_RANGES, ITEMS_COUNTED

ITEMS_MAX = 256
_ALONE_FROM = ITEMS_MAX // 2
"""From so many items on, commits that make items take turns; below, that many would have to be made at once."""

_SCAN_STEP = 512
_PAGE_SMALL = 64


async def all_items(store: WorkingStore, ref: NamespaceRef) -> AsyncGenerator[StoredEntry, None]:
    """Yields the items of a session as accepted, tombstones too; others may change them meanwhile."""
    for after, before in ITEM_RANGES:
        cursor, more = after, True
        while more:
            page = await store.scan(ref, "", after=cursor, before=before, limit=_SCAN_STEP, accepted=True)
            for entry in page.entries:
                yield entry
            more = page.more
            if more:
                cursor = page.entries[-1].key
                await asyncio.sleep(0)


async def count_items(store: WorkingStore, ref: NamespaceRef) -> int:
    """Returns how many items a session has, as accepted."""
    now_ms = store.now_ms()
    return sum([entry.live_until_ms > now_ms async for entry in all_items(store, ref)])


async def live_items(store: WorkingStore, ref: NamespaceRef, view: NamespaceView) -> tuple[StoredEntry, ...] | None:
    """Returns all items of a session that are live, as of a view of it; None if any has changed since.

    What else is written to the namespace meanwhile, messages above all, is in nobody's way.
    """
    found: list[StoredEntry] = []
    for after, before in ITEM_RANGES:
        cursor, more = after, True
        while more:
            # Small pages, because a driver may let others in before a large one.
            page = await store.scan(ref, "", after=cursor, before=before, limit=_PAGE_SMALL, accepted=True)
            if any(entry.revision > view.head for entry in page.entries):
                return None
            found += [entry for entry in page.entries if entry.live_until_ms > view.now_ms]
            more = page.more
            if more:
                cursor = page.entries[-1].key
    return tuple(found)


async def check_item_room(store: WorkingStore, ref: NamespaceRef, look: Look, draft: Draft) -> None:
    """Checks that a session has room for the items that a draft makes; ``keys.ITEMS_COUNTED`` must have been read.

    Raises:
        Refusal: LIMIT_EXCEEDED.
    """
    made = draft.items_made
    if made <= 0:
        return
    if (await store.stats(ref)).record_count + made <= _ALONE_FROM:
        return  # so few records, whatever they are
    held = await count_items(store, ref)
    if held + made > ITEMS_MAX:
        raise exhausted("items", held + made, ITEMS_MAX, "too many items in the session, archive or drop some")
    if held + made > _ALONE_FROM:
        draft.require(key_check(ITEMS_COUNTED, look.entries[ITEMS_COUNTED], look.now_ms))
        draft.keep(ITEMS_COUNTED, b"")
