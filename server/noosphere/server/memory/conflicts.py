"""The conflict queue: keys with several live values, in the order in which they began to have them.

An entry is written and removed in the same commit as the siblings that it stands for, so the queue is as
durable as they are and never lags behind.
"""

from __future__ import annotations

from typing import NamedTuple

from noosphere.consistency import Record, check_collection

from .codec import decode_entry
from .core import Core, deleted, located
from .internal import CONFLICTS
from .reads import check_page_size
from .types import Call, RecordView

_SCANNED_MAX = 10_000


class PendingConflict(NamedTuple):
    """A key that waits for somebody to resolve its siblings, and since when."""

    view: RecordView
    since: int
    since_ms: int


class ConflictPage(NamedTuple):
    """One page of the queue; ``next_entry`` is None at the end."""

    conflicts: tuple[PendingConflict, ...]
    head: int
    next_entry: str | None


class Conflicts:
    """Shows the conflict queue."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def list(
        self, call: Call, namespace: str, collection: str, *, page_size: int, after: str | None
    ) -> ConflictPage:
        """Returns one page of the queue, the longest waiting first.

        Raises:
            Refusal: INVALID_FIELD, PERMISSION_DENIED, STALE_INCARNATION, NAMESPACE_DELETED.
        """
        check_collection(collection)
        size = check_page_size(page_size)
        self._core.admit_reader(call, namespace)
        ref = await self._core.locate(namespace)
        found: list[PendingConflict] = []
        cursor, scanned = after, 0
        while True:
            page = await self._core.store.scan(ref, CONFLICTS, after=cursor, limit=size)
            if page.view.deleted:
                newer = await self._core.relocate(ref)
                if newer is None:
                    raise located(deleted(namespace), namespace, page.view.head)
                ref, cursor = newer, None
                continue
            head, now_ms = page.view.head, page.view.now_ms
            keys = tuple(entry.data.decode() for entry in page.entries)
            read = await self._core.store.read(ref, keys)
            for position, (entry, key, stored) in enumerate(zip(page.entries, keys, read.entries, strict=True)):
                cursor = entry.key
                scanned += 1
                record = decode_entry(stored)
                # Siblings may have ended, or been resolved between the two reads.
                if record is None or len(record.live(now_ms)) < 2 or not key.startswith(collection):
                    continue
                since = second_dot(record, now_ms)
                found.append(PendingConflict(RecordView(key, record, now_ms, head), *since))
                if len(found) >= size:
                    more = page.more or position + 1 < len(page.entries)
                    return ConflictPage(tuple(found), head, cursor if more else None)
            if not page.more:
                return ConflictPage(tuple(found), head, None)
            if found or scanned >= _SCANNED_MAX:
                return ConflictPage(tuple(found), head, cursor)


def second_dot(record: Record, now_ms: int) -> tuple[int, int]:
    """Returns revision and store time at which the oldest two of a record's values first stood side by side."""
    second = sorted(record.live(now_ms))[1]
    return second.dot, second.time_ms
