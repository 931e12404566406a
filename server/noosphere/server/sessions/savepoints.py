"""Copy on write: what a checkpoint needs is kept when it is overwritten, in the commit that overwrites it.

A checkpoint copies nothing when it is made. It is a position: everything that was live at its revision belongs to
it. Whoever overwrites such a version first moves the old record aside; later writes find a newer version there,
which no checkpoint needs. So at most one copy is made of an item between two checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from noosphere.consistency import NEVER_MS

from ..ports.store import Mutation, StoredEntry
from .hooks import ItemChange
from .keys import SAVEPOINTS, version_key


class Savepoints(msgspec.Struct, array_like=True, frozen=True):
    """Where the checkpoints of a session stand, as of the newest.

    Attributes:
        newest: the newest checkpoint's number; numbers begin with 1 and have no gaps.
        oldest: the oldest one's that is kept.
        at: the revision of the newest one: what was stored up to it belongs to it.
        bytes: what all that are kept have added to the session.
        branch: the branch that the newest one is on.
        last_message: the newest message's key at that moment.
        last_session: the session in which that lies, if it is another.
        summary: the newest summary's key at that moment.
    """

    newest: int = 0
    oldest: int = 1
    at: int = 0
    bytes: int = 0
    branch: int = 0
    last_message: str = ""
    last_session: str = ""
    summary: str = ""

    @property
    def count(self) -> int:
        """How many checkpoints are kept."""
        return self.newest - self.oldest + 1


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Savepoints)


def encode_savepoints(savepoints: Savepoints) -> bytes:
    """Returns the stored form."""
    return _encoder.encode(savepoints)


def decode_savepoints(entry: StoredEntry | None) -> Savepoints:
    """Returns what is stored; nothing if no checkpoint is kept."""
    return Savepoints() if entry is None else _decoder.decode(entry.data)


def moved_aside(entry: StoredEntry) -> Mutation:
    """Returns what keeps a version that is about to be overwritten."""
    return Mutation(version_key(entry.key, entry.revision), entry.data, NEVER_MS, NEVER_MS, False, b"")


class VersionKeeper:
    """Keeps the versions that checkpoints need."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The record of where the newest checkpoint stands: a write must not miss one that is made meanwhile."""
        return (SAVEPOINTS,)

    def changed(self, entries: Mapping[str, StoredEntry | None], change: ItemChange) -> Iterable[Mutation]:
        """Returns the copy of the old version if a checkpoint needs it."""
        before = change.before
        if before is None or not change.version or before.revision > decode_savepoints(entries[SAVEPOINTS]).at:
            return ()
        return (moved_aside(before),)
