"""What a decision depends on that is made with a context: its read set, which has room for 64 KiB of names.

Long keys, many of them, need more. Then guarded collections stand for the keys in them, which says the same: whatever
changes, appears or vanishes there makes a decision stale. If that is not enough, the least valuable of the other items
are not shown: a decision cannot depend on what nobody has seen.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from noosphere.consistency import (
    NEVER_MS,
    NOTHING_READ,
    CollectionSeen,
    KeySeen,
    ReadSet,
    StampMode,
    key_seen_bytes,
    read_set_room,
)

from ..ports.store import CollectionStamps
from ..sessions.keys import CONTROL, MESSAGES, namespace_of
from ..sessions.types import Item
from . import entries
from .asked import Asked
from .types import WHY, Candidate, Entry, Fate, SectionKind

ITEM = "item:"
"""How the ids of items begin in a manifest."""


class Readable(NamedTuple):
    """What was read of a session that a decision may depend on.

    Attributes:
        session_id: the session.
        head: the oldest head at which anything was read.
        stamps: of the guarded collections, and of the transcript.
        keys: the keys that are guarded whether they are shown or not, as they were seen.
    """

    session_id: str
    head: int
    stamps: Mapping[str, CollectionStamps]
    keys: Mapping[str, KeySeen]


class Reading(NamedTuple):
    """How a context's read set is made.

    Attributes:
        read: what was read of the session.
        base: what the caller saw before.
        transcript: whether new messages make a decision stale.
        named: keys that the caller guards by name.
        folded: collections that stand for the keys in them.
    """

    read: Readable
    base: ReadSet = NOTHING_READ
    transcript: bool = False
    named: Collection[str] = ()
    folded: tuple[str, ...] = ()

    def read_set(self, shown: Sequence[Item]) -> ReadSet:
        """Returns what a decision depends on that is made with these items in sight.

        Raises:
            Refusal: VALUE_TOO_LARGE.
        """
        read = self.read
        namespace = namespace_of(read.session_id)
        keys = {item.key: KeySeen(item.version, item.expires_at_ms) for item in shown} | dict(read.keys)
        own = {key: seen for key, seen in keys.items() if not self._folds(key)}
        found = self.base.with_keys(namespace, read.head, own)
        for collection, stamps in read.stamps.items():
            if self.transcript or collection != MESSAGES:
                seen = CollectionSeen(stamps.members)
                found = found.with_collection(namespace, read.head, collection, StampMode.MEMBERS, seen)
        for collection in self.folded:
            # Its values end as those of its keys would have.
            ends_ms = [seen.expires_at_ms for key, seen in keys.items() if key.startswith(collection)]
            seen = CollectionSeen(read.stamps[collection].changed, min(ends_ms, default=NEVER_MS))
            found = found.with_collection(namespace, read.head, collection, StampMode.CHANGED, seen)
        return found

    @property
    def room(self) -> int:
        """How many bytes of other keys have room beside what is guarded."""
        return read_set_room(self.read_set(()))

    def weight(self, collection: str) -> int:
        """Returns how many bytes the keys of a guarded collection take."""
        keys = (key for key in self.read.keys if key.startswith(collection) and not self._folds(key))
        return sum(map(key_seen_bytes, keys))

    def _folds(self, key: str) -> bool:
        return key != CONTROL and key not in self.named and key.startswith(self.folded)


Data = Mapping[SectionKind, tuple[Candidate, ...]]


class Fitted(NamedTuple):
    """How the read set is made, the candidates that it has room for, and those that are not shown for its sake."""

    reading: Reading
    data: Data
    refused: tuple[Entry, ...]


def fitted(read: Readable, asked: Asked, base: ReadSet | None, data: Data) -> Fitted:
    """Returns which items a context may show, so that its read set can hold all of them.

    Args:
        read: what was read of the session.
        asked: what is asked for.
        base: what the caller saw before, None if that does not matter.
        data: the candidates of all sections.

    Raises:
        Refusal: VALUE_TOO_LARGE.
    """
    reading = Reading(read, base or NOTHING_READ, asked.guard_transcript, frozenset(asked.guarded_keys))
    items = [one for many in data.values() for one in many if _has_own_key(one, read)]
    wanted = sum(map(_bytes_of, items))
    room = reading.room
    collections = [name for name in read.stamps if name != MESSAGES]
    for collection in sorted(collections, key=reading.weight, reverse=True):
        if wanted <= room:
            break
        folding = reading._replace(folded=(*reading.folded, collection))
        if (more := folding.room) > room:
            reading, room = folding, more
    if wanted <= room:
        return Fitted(reading, data, ())
    out: set[str] = set()
    for one in sorted(items, key=lambda one: (-one.value, one.id)):
        size = _bytes_of(one)
        if size <= room:
            room -= size
        else:
            out.add(one.id)
    refused = (
        entries.of_candidate(one, Fate.DROPPED, WHY.read_set_full, 0, 0)
        for many in data.values()
        for one in many
        if one.id in out
    )
    kept = {kind: tuple(one for one in many if one.id not in out) for kind, many in data.items()}
    return Fitted(reading, kept, tuple(refused))


def _has_own_key(candidate: Candidate, read: Readable) -> bool:
    return candidate.id.startswith(ITEM) and candidate.id.removeprefix(ITEM) not in read.keys


def _bytes_of(candidate: Candidate) -> int:
    return key_seen_bytes(candidate.id.removeprefix(ITEM))
