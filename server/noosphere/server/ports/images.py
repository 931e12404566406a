"""A namespace as a whole, as it leaves one working store and enters another.

What is not in an image: the log (its floor is then the head, so that watchers begin anew), remembered calls, and stamps
of collections (each is then taken to have changed at the head, which costs a decision and loses none).
"""

from __future__ import annotations

from typing import NamedTuple

from noosphere.consistency import Cut

from .store import NamespaceRef

PAGE_RECORDS_MAX = 512
"""Most records of one page of an image."""

PAGE_BYTES_MAX = 4 * 1024 * 1024
"""About how many bytes of keys and records one page of an image has; a single record may have more."""


class NamespaceImage(NamedTuple):
    """What there is to say of a namespace once, all of it synced.

    Attributes:
        ref: the newest generation.
        deleted: whether it was dropped; it then has no records and no fences.
        head: the newest revision.
        config_version: the highest configuration version that a commit has carried.
        floor_context: contexts below it cannot judge an absent key.
        cuts: what survived each epoch in which there were commits, oldest first.
        fences: the highest fencing token seen of each lock, by its name.
    """

    ref: NamespaceRef
    deleted: bool
    head: int
    config_version: int
    floor_context: int
    cuts: tuple[Cut, ...]
    fences: tuple[tuple[str, int], ...] = ()


class ImageRecord(NamedTuple):
    """A stored record; see :class:`~.store.StoredEntry` and :class:`~.store.Mutation`."""

    key: str
    revision: int
    live_until_ms: int
    due_ms: int
    data: bytes


ImageRecords = tuple[ImageRecord, ...]
