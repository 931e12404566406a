"""Validates read sets: does what a model saw still hold when its decision is written?

What lies in the written namespace is compared on the accepted state and checked again inside the commit
(ATOMIC). What lies elsewhere can only be compared by a linearizable read just before (CHECKED), which a
strict commit refuses unless the caller accepts it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
)
from noosphere.consistency.limits import STALE_CHANGES_SHOWN_MAX, STALE_ENTRIES_SHOWN_MAX

from ..ports.store import Changes, Check, CollectionCheck, KeyCheck, NamespaceRef, NamespaceView
from .codec import decode_entry, decode_events
from .core import Core, deleted, state_of
from .internal import before_first
from .types import Call

_LOG_PAGE = 256
_LOG_BATCHES_MAX = 2_048
"""How far the log is searched for who made something stale; naming them is a service, not a promise."""


class Present(NamedTuple):
    """The present state of what a read set names in one namespace."""

    ref: NamespaceRef
    view: NamespaceView
    keys: Mapping[str, tuple[int, int, int]]
    """Version, stored revision and end of life by key."""
    stamps: Mapping[tuple[str, StampMode], int]


class Validation(NamedTuple):
    """The outcome of comparing a read set with the present.

    Attributes:
        checks: what the commit has to check again.
        not_after_ms: from then on something guarded has ended; None if nothing does.
        stale: what changed, appeared or vanished.
        valid: the written namespace's collections that are still as seen, guarded or not.
    """

    checks: tuple[Check, ...]
    not_after_ms: int | None
    stale: tuple[StaleEntry, ...]
    valid: frozenset[tuple[str, StampMode]]


UNGUARDED = Validation((), None, (), frozenset())


async def validate(core: Core, call: Call, ref: NamespaceRef, written: Iterable[str]) -> Validation:
    """Compares the guarded part of a call's read set with the present.

    Args:
        core: the ports.
        call: who writes, with the read set and its guards.
        ref: the namespace that is written.
        written: the keys that are written.

    Raises:
        Refusal: STALE_READ_SET (in strict mode), UNCHECKABLE_GUARD, ACKED_WRITES_LOST, FUTURE_REVISION,
            NAMESPACE_DELETED, PERMISSION_DENIED.
    """
    tokens = call.tokens
    if tokens is None or tokens.read_set is None:
        return UNGUARDED
    guarded = tokens.read_set.guarded(tokens.guards)
    elsewhere = [name for name in guarded.namespaces if name != ref.name]
    if elsewhere and not tokens.warn and not tokens.allow_checked:
        raise Refusal(
            Reason.UNCHECKABLE_GUARD,
            f"{elsewhere[0]!r} is guarded but not written, so it can only be checked just before the commit; "
            "set allow_checked to accept that, or name the guards",
        )
    stale: list[StaleEntry] = []
    for name in elsewhere:
        core.admit_reader(call, name)
        seen = guarded.namespaces[name]
        present = await look(core, await core.locate(name), seen, accepted=False)
        stale += await differences(core, present, seen)
    checks: list[Check] = []
    valid: set[tuple[str, StampMode]] = set()
    own = tokens.read_set.namespaces.get(ref.name)
    if own is not None:
        present = await look(core, ref, own, accepted=True)
        mine = guarded.namespaces.get(ref.name, NamespaceSeen(own.revision))
        own_stale = await differences(core, present, mine)
        stale += own_stale
        overruled = {(entry.name, entry.is_collection) for entry in own_stale}
        checks += _checks(present, mine, overruled)
        valid = {name for name, seen in own.collections.items() if present.stamps[name] == seen.stamp}
        # The commit will move these stamps; that they were as seen until then has to be checked with it.
        touched = {collection for key in written for collection in ancestors(key)}
        checks += [
            CollectionCheck(name, mode, own.collections[name, mode].stamp)
            for name, mode in valid
            if name in touched and (name, mode) not in mine.collections
        ]
    if stale and not tokens.warn:
        raise stale_read_set(stale)
    ends_ms = guarded.not_after_ms
    return Validation(tuple(checks), None if ends_ms == NEVER_MS or stale else ends_ms, tuple(stale), frozenset(valid))


async def look(core: Core, ref: NamespaceRef, seen: NamespaceSeen, *, accepted: bool) -> Present:
    """Reads the present state of everything that ``seen`` names.

    Raises:
        Refusal: NAMESPACE_DELETED, ACKED_WRITES_LOST, FUTURE_REVISION.
    """
    keys = tuple(seen.keys)
    read = await core.store.read(ref, keys, accepted=accepted)
    if read.view.deleted:
        newer = await core.relocate(ref)
        if newer is None:
            raise deleted(ref.name)
        ref = newer
        read = await core.store.read(ref, keys, accepted=accepted)
    view = read.view
    check_presented(_revisions(seen), state_of(ref.name, view))
    found: dict[str, tuple[int, int, int]] = {}
    for key, entry in zip(keys, read.entries, strict=True):
        record = decode_entry(entry)
        if record is None:
            found[key] = (0, 0, NEVER_MS)
        else:
            found[key] = (record.version(view.now_ms), record.stored, record.next_expiry_ms)
    stamps: dict[tuple[str, StampMode], int] = {}
    for collection, mode in seen.collections:
        both = (await core.store.scan(ref, collection, limit=1, accepted=accepted)).stamps
        stamps[collection, mode] = both.members if mode is StampMode.MEMBERS else both.changed
    return Present(ref, view, found, stamps)


async def differences(core: Core, present: Present, seen: NamespaceSeen) -> list[StaleEntry]:
    """Returns what differs between what was seen and the present, with who changed it."""
    name, now_ms = present.ref.name, present.view.now_ms
    stale: list[StaleEntry] = []
    for key, was in seen.keys.items():
        version = present.keys[key][0]
        if version != was.version:
            stale.append(StaleEntry(name, key, False, was.version, version))
    for (collection, mode), listed in seen.collections.items():
        stamp = present.stamps[collection, mode]
        # A value that has ended but was not swept yet has not moved the stamp.
        if stamp != listed.stamp or listed.expires_at_ms <= now_ms:
            stale.append(StaleEntry(name, collection, True, listed.stamp, stamp))
    return await _with_changes(core, present, stale) if stale else stale


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


def advance(
    read_set: ReadSet, namespace: str, revision: int, written: Mapping[str, tuple[int, KeySeen]], validation: Validation
) -> ReadSet:
    """Returns a read set advanced over the reader's own commit.

    Args:
        read_set: what the model saw.
        namespace: what was written.
        revision: the commit's revision.
        written: by key, the version before the commit and what the commit left behind.
        validation: what the commit has checked.
    """
    own = read_set.namespaces.get(namespace)
    if own is None or not revision:
        return read_set
    keys = {
        key: after for key, (before, after) in written.items() if key in own.keys and own.keys[key].version == before
    }
    touched = {collection for key in written for collection in ancestors(key)}
    lively = {
        c for key, (before, after) in written.items() if bool(before) is not bool(after.version) for c in ancestors(key)
    }
    collections = {
        (name, mode): revision
        for name, mode in validation.valid
        if name in (touched if mode is StampMode.CHANGED else lively)
    }
    return read_set.advanced(namespace, keys, collections)


async def refresh(core: Core, call: Call) -> tuple[list[StaleEntry], ReadSet]:
    """Compares a read set with the present; returns what differs and a read set of the present.

    Raises:
        Refusal: as for :func:`validate`, without STALE_READ_SET.
    """
    tokens = call.tokens
    assert tokens is not None
    read_set = tokens.read_set
    assert read_set is not None
    stale: list[StaleEntry] = []
    parts = dict(read_set.namespaces)
    for name, seen in read_set.guarded(tokens.guards).namespaces.items():
        core.admit_reader(call, name)
        present = await look(core, await core.locate(name), seen, accepted=False)
        stale += await differences(core, present, seen)
        whole = parts[name]
        keys = dict(whole.keys)
        collections = dict(whole.collections)
        for key, (version, _, ends_ms) in present.keys.items():
            keys[key] = KeySeen(version, ends_ms if version else NEVER_MS)
        for listed, stamp in present.stamps.items():
            unchanged = stamp == collections[listed].stamp and collections[listed].expires_at_ms > present.view.now_ms
            ends_ms = collections[listed].expires_at_ms if unchanged else await _first_end(core, present, listed[0])
            collections[listed] = CollectionSeen(stamp, ends_ms)
        parts[name] = NamespaceSeen(present.view.head, keys, collections)
    return stale, ReadSet(parts)


async def _first_end(core: Core, present: Present, collection: str) -> int:
    ends_ms = NEVER_MS
    key = before_first(collection)
    while True:
        page = await core.store.scan(present.ref, collection, after=key, limit=_LOG_PAGE)
        for entry in page.entries:
            key = entry.key
            record = decode_entry(entry)
            if record is not None and record.next_expiry_ms > present.view.now_ms:
                ends_ms = min(ends_ms, record.next_expiry_ms)
        if not page.more:
            return ends_ms


def _revisions(seen: NamespaceSeen) -> Iterable[int]:
    yield seen.revision
    for key in seen.keys.values():
        yield key.version
    for collection in seen.collections.values():
        yield collection.stamp


def _checks(present: Present, seen: NamespaceSeen, overruled: set[tuple[str, bool]]) -> Iterable[Check]:
    for key in seen.keys:
        if (key, False) not in overruled:
            version, stored, _ = present.keys[key]
            yield KeyCheck(key, stored, version > 0)
    for collection, mode in seen.collections:
        if (collection, True) not in overruled:
            yield CollectionCheck(collection, mode, present.stamps[collection, mode])


async def _with_changes(core: Core, present: Present, stale: list[StaleEntry]) -> list[StaleEntry]:
    """Adds who changed what, as far as the log reaches back."""
    since = min((entry.seen for entry in stale if entry.seen), default=present.view.floor)
    cursor = max(since, present.view.floor)
    found: dict[int, list[StaleChange]] = {index: [] for index in range(len(stale))}
    for _ in range(_LOG_BATCHES_MAX // _LOG_PAGE):
        result = await core.store.changes(present.ref, cursor, _LOG_PAGE)
        if not isinstance(result, Changes):
            break
        for batch in result.batches:
            cursor = batch.revision
            for key, _, events in batch.changes:
                hits = [i for i, entry in enumerate(stale) if batch.revision > entry.seen and _concerns(entry, key)]
                if hits:
                    actor = decode_events(events)[-1].actor
                    for index in hits:
                        found[index].append(StaleChange(key, actor, batch.revision))
        if not result.more:
            break
    return [
        entry._replace(changes=tuple(reversed(found[index][-STALE_CHANGES_SHOWN_MAX:])))
        for index, entry in enumerate(stale)
    ]


def _concerns(entry: StaleEntry, key: str) -> bool:
    return key.startswith(entry.name) if entry.is_collection else key == entry.name
