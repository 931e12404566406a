"""The conflict queue: keys with several live values, in the order in which they began to have them.

An entry is written and removed in the same commit as the siblings that it stands for, so the queue is as
durable as they are and never lags behind.
"""

from __future__ import annotations

from typing import NamedTuple

from noosphere.consistency import check_collection

from .codec import decode_entry
from .core import Core, check_tokens, deleted, located
from .internal import CONFLICTS, decode_queue_entry, queue_key
from .reads import PAGE_BYTES_MAX, check_page_size
from .types import Call, RecordView

_SCAN_STEP = 128
_SCANNED_MAX = 10_000
"""Most entries that one page looks through for matches; the page may then be empty, with a next token."""


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
        store = self._core.store
        ref = await self._core.locate(namespace)
        found: list[PendingConflict] = []
        cursor, scanned, taken = after, 0, 0
        while True:
            page = await store.scan(ref, CONFLICTS, after=cursor, limit=max(size, _SCAN_STEP))
            if page.view.deleted:
                newer = await self._core.relocate(ref)
                if newer is None:
                    raise located(deleted(namespace), namespace, page.view.head)
                ref, cursor = newer, None
                continue
            queued = [(entry.key, decode_queue_entry(entry.data)) for entry in page.entries]
            queued = [(name, entry) for name, entry in queued if entry.key.startswith(collection)]
            read = await store.read(ref, tuple(entry.key for _, entry in queued))
            head, now_ms = read.view.head, read.view.now_ms
            check_tokens(call, namespace, read.view)
            for (name, entry), stored in zip(queued, read.entries, strict=True):
                cursor = name
                record = decode_entry(stored)
                # Between the two reads the conflict may have been resolved, and another one begun further down.
                # Values may also have ended that were not swept yet.
                if record is None or record.queued is None or queue_key(record.queued) != name:
                    continue
                if len(record.live(now_ms)) < 2:
                    continue
                view = RecordView(entry.key, record, now_ms, head)
                found.append(PendingConflict(view, record.queued[0], entry.since_ms))
                taken += sum(len(sibling.data or b"") for sibling in record.siblings)
                if len(found) >= size or taken >= PAGE_BYTES_MAX:
                    return ConflictPage(
                        tuple(found), head, cursor if page.more or cursor < page.entries[-1].key else None
                    )
            if not page.more:
                return ConflictPage(tuple(found), head, None)
            cursor = page.entries[-1].key
            scanned += len(page.entries)
            if found or scanned >= _SCANNED_MAX:
                return ConflictPage(tuple(found), head, cursor)
