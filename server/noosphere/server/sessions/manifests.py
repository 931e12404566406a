"""Which versions a checkpoint consists of: pure rules, no I/O.

A manifest names the stored revision of every item, and of the control state. Checkpoints are numbered as they are
made; each stores what differs from the one before, and every 16th the whole. So a checkpoint costs what changed, and
is put together from at most 16 records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from noosphere.consistency import NEVER_MS

from ..ports.store import StoredEntry
from .keys import MANIFESTS

FULL_EVERY = 16


class SavedVersion(NamedTuple):
    """A version of an item: the revision at which it was stored, and when its last value ends."""

    revision: int
    ends_ms: int = NEVER_MS


Manifest = Mapping[str, SavedVersion]


class Delta(msgspec.Struct, array_like=True, frozen=True):
    """What a manifest differs in from the one before.

    Attributes:
        full: whether it says everything, and nothing came before.
        put: the revisions of versions that are other than before.
        gone: keys that are no longer there.
        ends_ms: when these versions end, of those that do.
    """

    full: bool
    put: dict[str, int] = msgspec.field(default_factory=dict)
    gone: tuple[str, ...] = ()
    ends_ms: dict[str, int] = msgspec.field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """Whether nothing differs."""
        return not self.put and not self.gone

    @property
    def touched(self) -> tuple[str, ...]:
        """The keys whose version before, if there was one, is no longer the present one."""
        return (*self.put, *self.gone)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Delta)


def manifest_key(number: int) -> str:
    """Returns where the manifest of the checkpoint with a number lies."""
    return f"{MANIFESTS}{number:016x}"


def encode_delta(delta: Delta) -> bytes:
    """Returns a manifest's stored form."""
    return _encoder.encode(delta)


def decode_delta(data: bytes) -> Delta:
    """Returns a stored manifest."""
    return _decoder.decode(data)


def manifest_of(entries: Iterable[StoredEntry]) -> dict[str, SavedVersion]:
    """Returns the manifest of what is live now."""
    return {entry.key: SavedVersion(entry.revision, entry.live_until_ms) for entry in entries}


def difference(before: Manifest, after: Manifest) -> Delta:
    """Returns what ``after`` differs in from ``before``."""
    put = {key: version for key, version in after.items() if before.get(key) != version}
    return _delta(False, put, tuple(sorted(key for key in before if key not in after)))


def stored_delta(number: int, delta: Delta, after: Manifest) -> Delta:
    """Returns what the checkpoint with this number stores: the difference, or everything if it is its turn."""
    return _delta(True, after) if base_of(number) == number else delta


def base_of(number: int) -> int:
    """Returns the number of the full manifest on which the one with this number rests; numbers begin with 1."""
    return number - (number - 1) % FULL_EVERY


def chain_of(number: int) -> tuple[str, ...]:
    """Returns the keys of the manifests from which one is put together, in order."""
    return tuple(map(manifest_key, range(base_of(number), number + 1)))


def resolve(chain: Iterable[Delta]) -> dict[str, SavedVersion]:
    """Puts a manifest together.

    Args:
        chain: a full one and what followed it, in order.
    """
    found: dict[str, SavedVersion] = {}
    for delta in chain:
        if delta.full:
            found = {}
        for key, revision in delta.put.items():
            found[key] = SavedVersion(revision, delta.ends_ms.get(key, NEVER_MS))
        for key in delta.gone:
            found.pop(key, None)
    return found


def _delta(full: bool, put: Manifest, gone: tuple[str, ...] = ()) -> Delta:
    ends_ms = {key: version.ends_ms for key, version in put.items() if version.ends_ms != NEVER_MS}
    return Delta(full, {key: version.revision for key, version in put.items()}, gone, ends_ms)
