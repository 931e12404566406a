"""Records that the services keep for themselves in a namespace, out of the users' sight.

Their keys begin with NUL, which no user's key may contain. They are committed without an event, so they
appear in no log and move no collection; only lists of a whole namespace have to step over them.
"""

from __future__ import annotations

from typing import NamedTuple

from noosphere.consistency import to_hex

INTERNAL = "\0"
FIRST_USER_KEY_AFTER = "\0\U0010ffff"
"""An exclusive lower bound below every user's key and above every internal one."""

CONFLICTS = "\0conflicts/"
RESERVATIONS = "\0reservations/"

_TIME_BYTES = 8


def before_first(collection: str) -> str | None:
    """Returns the exclusive lower bound from which a scan of ``collection`` begins; None for its start."""
    return None if collection else FIRST_USER_KEY_AFTER


def is_internal(key: str) -> bool:
    """Tells whether a key belongs to the services."""
    return key.startswith(INTERNAL)


class QueueEntry(NamedTuple):
    """An entry of the conflict queue: a key that began to have several live values, and at which store time."""

    key: str
    since_ms: int


def encode_queue_entry(entry: QueueEntry) -> bytes:
    """Returns an entry's stored form."""
    return entry.since_ms.to_bytes(_TIME_BYTES, "big") + entry.key.encode()


def decode_queue_entry(data: bytes) -> QueueEntry:
    """Returns a stored entry."""
    return QueueEntry(data[_TIME_BYTES:].decode(), int.from_bytes(data[:_TIME_BYTES], "big"))


def queue_key(queued: tuple[int, int]) -> str:
    """Returns where the entry lies that a record names; by revision, so the longest waiting comes first."""
    revision, index = queued
    return f"{CONFLICTS}{to_hex(revision)}-{index:04x}"
