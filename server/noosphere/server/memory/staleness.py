"""What has changed since somebody saw it, and who changed it."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Mapping
from typing import NamedTuple

from noosphere.consistency import (
    NEVER_MS,
    CollectionSeen,
    KeySeen,
    NamespaceSeen,
    ReadSet,
    Reason,
    Refusal,
    StaleChange,
    StaleEntry,
    StaleInfo,
    StampMode,
    ancestors,
    check_presented,
    revisions_back,
)
from noosphere.consistency.limits import STALE_CHANGES_SHOWN_MAX, STALE_ENTRIES_SHOWN_MAX

from ..ports.store import Compacted, NamespaceRef, NamespaceView, ScanResult
from .codec import decode_entry, decode_events, decode_record
from .core import Core, deleted, located, state_of
from .expiry import expire_keys
from .internal import before_first, is_internal
from .types import Call

_LOG_PAGE = 256
_LOG_REVISIONS_MAX = 2_048
"""How far back the log is searched for who made something stale; naming them is a service, not a promise."""

_EXPLAINED_MAX = 64
"""For how many stale entries that is done; the others are named all the same."""

_DUE_MAX = 2_048
"""How many of the records whose time has come are looked at; what ends beyond them is noticed when it is swept."""

_SCAN_STEP = 256
_SCANNED_MAX = 10_000
"""How many records a refresh looks through for the first that ends; what ends later is noticed when it is swept."""


class KeyNow(NamedTuple):
    """A key's present state: version, stored revision (tombstones included), and when its value ends."""

    version: int = 0
    stored: int = 0
    ends_ms: int = NEVER_MS


class Present(NamedTuple):
    """The present state of what a read set names in one namespace.

    ``ended`` are the collections that hold a record which has ended and was not swept yet: nothing has moved their
    stamps, but what was listed is no longer so.
    """

    ref: NamespaceRef
    view: NamespaceView
    keys: Mapping[str, KeyNow]
    stamps: Mapping[tuple[str, StampMode], int]
    ended: frozenset[str]


async def look(core: Core, ref: NamespaceRef, seen: NamespaceSeen, *, accepted: bool) -> Present:
    """Reads the present state of everything that ``seen`` names.

    Raises:
        Refusal: NAMESPACE_DELETED, ACKED_WRITES_LOST, FUTURE_REVISION.
    """
    keys = tuple(seen.keys)
    read = await core.store.read(ref, keys, accepted=accepted)
    while read.view.deleted:
        newer = await core.relocate(ref)
        if newer is None:
            raise located(deleted(ref.name), ref.name, read.view.head)
        ref = newer
        read = await core.store.read(ref, keys, accepted=accepted)
    view = read.view
    try:
        check_presented(seen.revisions(), state_of(ref.name, view))
    except Refusal as refusal:
        raise located(refusal, ref.name, view.head) from None
    found: dict[str, KeyNow] = {}
    for key, entry in zip(keys, read.entries, strict=True):
        record = decode_entry(entry)
        if record is None:
            found[key] = KeyNow()
        else:
            found[key] = KeyNow(record.version(view.now_ms), record.stored, record.ends_ms(view.now_ms))
    stamps: dict[tuple[str, StampMode], int] = {}
    for collection, mode in seen.collections:
        both = (await core.store.scan(ref, collection, limit=1, accepted=accepted)).stamps
        stamps[collection, mode] = both.members if mode is StampMode.MEMBERS else both.changed
    ended = await _ended(core, ref, view.now_ms) if stamps else frozenset()
    return Present(ref, view, found, stamps, ended)


async def _ended(core: Core, ref: NamespaceRef, now_ms: int) -> frozenset[str]:
    due = await core.store.due(ref, now_ms, _DUE_MAX)
    entries = (await core.store.read(ref, due, accepted=True)).entries if due else ()
    ended = (e.key for e in entries if e is not None and 0 < e.live_until_ms <= now_ms and not is_internal(e.key))
    return frozenset(name for key in ended for name in ancestors(key))


def differences(present: Present, seen: NamespaceSeen) -> list[StaleEntry]:
    """Returns what differs between what was seen and the present, without who changed it."""
    name, now_ms = present.ref.name, present.view.now_ms
    stale: list[StaleEntry] = []
    for key, was in seen.keys.items():
        version = present.keys[key].version
        # One of several values may have ended, which moves the version only when it is swept.
        if version != was.version or was.expires_at_ms <= now_ms:
            stale.append(StaleEntry(name, key, False, was.version, version))
    for (collection, mode), listed in seen.collections.items():
        stamp = present.stamps[collection, mode]
        ended = listed.expires_at_ms <= now_ms or collection in present.ended
        if ended or not seen.is_as_seen(collection, mode, stamp):
            stale.append(StaleEntry(name, collection, True, listed.stamp, stamp))
    return stale


async def explained(core: Core, present: Present, seen: NamespaceSeen, stale: list[StaleEntry]) -> list[StaleEntry]:
    """Returns ``stale`` with who changed what, as far as the log reaches back."""
    if not stale:
        return stale
    concerned: dict[str, list[int]] = defaultdict(list)
    for index, entry in enumerate(stale[:_EXPLAINED_MAX]):
        concerned[entry.name].append(index)
    found: list[deque[StaleChange]] = [deque(maxlen=STALE_CHANGES_SHOWN_MAX) for _ in stale]
    # Nothing here was read before this revision, so nothing up to it has made anything stale.
    searched = revisions_back(present.view.head, _LOG_REVISIONS_MAX, present.view.cuts)
    cursor = max(seen.revision, present.view.floor, searched)
    more = True
    while more:
        result = await core.store.changes(present.ref, cursor, _LOG_PAGE)
        if isinstance(result, Compacted):
            cursor = result.floor
            continue
        for batch in result.batches:
            cursor = batch.revision
            for key, data, events in batch.changes:
                for name in (key, *ancestors(key)):
                    for index in concerned.get(name, ()):
                        entry = stale[index]
                        if batch.revision > entry.seen:
                            if not entry.seen and not entry.is_collection and _is_over(data, batch.revision):
                                # The key was absent when it was seen: whoever ended an earlier life changed nothing.
                                found[index].clear()
                            else:
                                actor = decode_events(events)[-1].actor
                                found[index].append(StaleChange(key, actor, batch.revision))
        # What is committed while this runs is not searched for ever.
        more = result.more and cursor < present.view.head
        await asyncio.sleep(0)
    return [entry._replace(changes=tuple(reversed(found[index]))) for index, entry in enumerate(stale)]


def _is_over(data: bytes | None, revision: int) -> bool:
    """Tells whether a change ended its record's life; a delete or an expiry may leave siblings."""
    return data is not None and decode_record(data, revision).live_until_ms == 0


def stale_read_set(stale: list[StaleEntry]) -> Refusal:
    """Returns the refusal of a decision whose grounds have changed."""
    first = stale[0]
    actors = sorted({change.actor for entry in stale for change in entry.changes if change.actor})
    by = f" by {', '.join(actors[:3])}" if actors else ""
    more = f" and {len(stale) - 1} more" if len(stale) > 1 else ""
    return Refusal(
        Reason.STALE_READ_SET,
        f"{first.name!r} in {first.namespace!r}{more} changed{by} after it was read; nothing was written",
        StaleInfo(tuple(stale[:STALE_ENTRIES_SHOWN_MAX])),
    )


class Refreshed(NamedTuple):
    """A read set held against the present.

    Attributes:
        stale: what differs.
        read_set: the same keys and collections as they are now.
        heads: the head of each namespace that was looked at.
    """

    stale: list[StaleEntry]
    read_set: ReadSet
    heads: Mapping[str, int]


async def refresh(core: Core, call: Call) -> Refreshed:
    """Compares a call's read set, as far as its guards cover it, with the present.

    Raises:
        Refusal: PERMISSION_DENIED, STALE_INCARNATION, NAMESPACE_DELETED, ACKED_WRITES_LOST, FUTURE_REVISION.
    """
    tokens = call.tokens
    assert tokens is not None
    read_set = tokens.read_set
    assert read_set is not None
    stale: list[StaleEntry] = []
    parts = dict(read_set.namespaces)
    heads: dict[str, int] = {}
    for name, seen in read_set.guarded(tokens.guards).namespaces.items():
        core.admit_reader(call, name, lately=True)
        present = await look(core, await core.locate(name), seen, accepted=False)
        if await _expire_ended(core, present, differences(present, seen)):
            present = await look(core, present.ref, seen, accepted=False)
        stale += await explained(core, present, seen, differences(present, seen))
        parts[name] = await _renewed(core, present, seen, parts[name])
        heads[name] = present.view.head
    return Refreshed(stale, ReadSet(parts), heads)


async def _renewed(core: Core, present: Present, seen: NamespaceSeen, whole: NamespaceSeen) -> NamespaceSeen:
    keys, collections = dict(whole.keys), dict(whole.collections)
    for key, now in present.keys.items():
        keys[key] = KeySeen(now.version, now.ends_ms)
    for listed, stamp in present.stamps.items():
        was = collections[listed]
        ended = was.expires_at_ms <= present.view.now_ms or listed[0] in present.ended
        unchanged = whole.is_as_seen(*listed, stamp) and not ended
        ends_ms = was.expires_at_ms if unchanged else await _first_end_ms(core, present, listed[0])
        collections[listed] = CollectionSeen(stamp, ends_ms)
    all_new = len(seen.keys) == len(whole.keys) and len(seen.collections) == len(whole.collections)
    return NamespaceSeen(present.view.head if all_new else whole.revision, keys, collections)


async def _expire_ended(core: Core, present: Present, stale: list[StaleEntry]) -> bool:
    """Commits the expiry of what has ended in stale collections, as a list does before it records their stamps.

    Otherwise the sweeper, who comes later, would make stale once more what the caller has just been told of.
    Returns whether anything was committed.
    """
    done = False
    for entry in stale:
        if entry.is_collection:
            async for page in _pages(core, present, entry.name):
                now_ms = page.view.now_ms
                ended = [e.key for e in page.entries if 0 < e.live_until_ms <= now_ms and not is_internal(e.key)]
                if ended:
                    done = await expire_keys(core, present.ref, ended) or done
    return done


async def _first_end_ms(core: Core, present: Present, collection: str) -> int:
    """Returns when the first of a collection's values ends."""
    ends_ms = NEVER_MS
    async for page in _pages(core, present, collection):
        for entry in page.entries:
            record = None if is_internal(entry.key) else decode_entry(entry)
            if record is not None:
                ends_ms = min(ends_ms, record.ends_ms(present.view.now_ms))
    return ends_ms


async def _pages(core: Core, present: Present, collection: str) -> AsyncIterator[ScanResult]:
    """Yields what is stored in a collection, page by page, up to a limit."""
    cursor = before_first(collection)
    for _ in range(_SCANNED_MAX // _SCAN_STEP):
        page = await core.store.scan(present.ref, collection, after=cursor, limit=_SCAN_STEP)
        yield page
        if not page.more:
            break
        cursor = page.entries[-1].key
        await asyncio.sleep(0)
