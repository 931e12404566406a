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
    StaleEntry,
    StampMode,
    ancestors,
)

from ..ports.store import Check, CollectionCheck, KeyCheck, NamespaceRef
from .core import Core
from .staleness import Present, differences, explained, look, stale_read_set
from .types import Call


class Validation(NamedTuple):
    """The outcome of comparing a read set with the present.

    Attributes:
        checks: what the commit has to check again.
        not_after_ms: from then on something guarded has ended; None if nothing does.
        stale: what changed, appeared or vanished.
        valid: the written namespace's collections whose stamps are still as seen, guarded or not; those that
            the write touches are among the checks.
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
    ends_ms = NEVER_MS
    for name in elsewhere:
        core.admit_reader(call, name, lately=True)
        seen = guarded.namespaces[name]
        present = await look(core, await core.locate(name), seen, accepted=False)
        differing = differences(present, seen)
        stale += await explained(core, present, seen, differing)
        ends_ms = min(ends_ms, _first_end_ms(seen, differing))
    checks: tuple[Check, ...] = ()
    valid: frozenset[tuple[str, StampMode]] = frozenset()
    own = tokens.read_set.namespaces.get(ref.name)
    if own is not None:
        # What has changed there, and who did it, is for readers.
        core.access.require(call, ref.name)
        present = await look(core, ref, own, accepted=True)
        seen = guarded.namespaces.get(ref.name, NamespaceSeen(own.revision))
        differing = differences(present, seen)
        stale += await explained(core, present, seen, differing)
        ends_ms = min(ends_ms, _first_end_ms(seen, differing))
        valid = frozenset(name for name in own.collections if own.is_as_seen(*name, present.stamps[name]))
        checks = _checks(present, seen, differing, valid, written)
    if stale and not tokens.warn:
        raise stale_read_set(stale)
    return Validation(checks, None if ends_ms == NEVER_MS else ends_ms, tuple(stale), valid)


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
    if own is None:
        return read_set
    keys = {
        key: after for key, (before, after) in written.items() if key in own.keys and own.keys[key].version == before
    }
    touched = _above(written)
    lively = _above(key for key, (before, after) in written.items() if bool(before) is not bool(after.version))
    collections = {
        (name, mode): revision
        for name, mode in validation.valid
        if name in (touched if mode is StampMode.CHANGED else lively)
    }
    advanced = read_set.advanced(namespace, keys, collections)
    for (name, mode), ends_ms in _own_ends(written, validation).items():
        # It is in the list from now on, and will vanish from it like any other value: the first end counts.
        advanced = advanced.with_collection(namespace, own.revision, name, mode, CollectionSeen(revision, ends_ms))
    return advanced


def _own_ends(
    written: Mapping[str, tuple[int, KeySeen]], validation: Validation
) -> Mapping[tuple[str, StampMode], int]:
    """Returns when the first of the written values ends, by the collections that it is now a part of."""
    ends_ms: dict[str, int] = {}
    for key, (_, after) in written.items():
        if after.expires_at_ms != NEVER_MS:
            for name in ancestors(key):
                ends_ms[name] = min(ends_ms.get(name, NEVER_MS), after.expires_at_ms)
    return {listed: ends_ms[listed[0]] for listed in validation.valid if listed[0] in ends_ms}


def _above(keys: Iterable[str]) -> set[str]:
    return {collection for key in keys for collection in ancestors(key)}


def _first_end_ms(seen: NamespaceSeen, stale: list[StaleEntry]) -> int:
    """Returns when the first of what is not stale ends."""
    over = {(entry.name, entry.is_collection) for entry in stale}
    ends = [key.expires_at_ms for name, key in seen.keys.items() if (name, False) not in over]
    ends += [listed.expires_at_ms for (name, _), listed in seen.collections.items() if (name, True) not in over]
    return min(ends, default=NEVER_MS)


def _checks(
    present: Present,
    seen: NamespaceSeen,
    stale: list[StaleEntry],
    valid: frozenset[tuple[str, StampMode]],
    written: Iterable[str],
) -> tuple[Check, ...]:
    """Returns what must still be so inside the commit: what is guarded, and what advancing will build on.

    The commit moves the stamps of the collections above what it writes. Unless it checks that nobody else
    had moved them, an advanced read set would hide somebody else's change.
    """
    over = {(entry.name, entry.is_collection) for entry in stale}
    keys = [
        KeyCheck(key, present.keys[key].stored, present.keys[key].version > 0)
        for key in seen.keys
        if (key, False) not in over
    ]
    guarded = {listed for listed in seen.collections if (listed[0], True) not in over}
    touched = _above(written)
    moved = {listed for listed in valid if listed[0] in touched}
    collections = [CollectionCheck(*listed, present.stamps[listed]) for listed in sorted(guarded | moved)]
    return (*keys, *collections)
