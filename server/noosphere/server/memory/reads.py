"""Reads: one key, many keys, a collection by pages, the log."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from noosphere.consistency import (
    NEVER_MS,
    NOTHING_READ,
    CollectionSeen,
    KeySeen,
    ReadSet,
    Refusal,
    Scalar,
    StampMode,
    check_collection,
    check_key,
    check_presented,
    exhausted,
    invalid,
    matches,
    too_large,
)
from noosphere.consistency.limits import BATCH_GET_KEYS_MAX

from ..ports.store import Compacted, NamespaceRef, ReadResult, ScanResult
from .codec import decode_entry, decode_record
from .core import Core, check_tokens, deleted, located, state_of
from .expiry import expire_keys
from .internal import before_first, is_internal
from .log import compacted, view_batch
from .types import BatchView, Call, HistoryReply, ListReply, ReadReply, RecordView

PAGE_DEFAULT = 100
PAGE_MAX = 1000
PAGE_BYTES_MAX = 1024 * 1024
_STEP_RECORDS = 64
_SCAN_STEP = 128
BATCH_BYTES_MAX = 16 * 1024 * 1024
_SCANNED_MAX = 10_000
"""Most entries that one page looks through for matches; the page may then be empty, with a next token."""


class Reads:
    """The read side of shared memory. Every answer is synced."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def get(self, call: Call, namespace: str, key: str) -> ReadReply:
        """Reads one key; an absent key gives a view without a record.

        Raises:
            Refusal: INVALID_FIELD, PERMISSION_DENIED, STALE_INCARNATION, NAMESPACE_DELETED.
        """
        check_key(key)
        return await self._read(call, namespace, (key,))

    async def batch_get(self, call: Call, namespace: str, keys: Sequence[str]) -> ReadReply:
        """Reads up to 256 keys at one head.

        Raises:
            Refusal: as for :meth:`get`; VALUE_TOO_LARGE for too many keys, LIMIT_EXCEEDED for more than an
                answer can hold.
        """
        if len(keys) > BATCH_GET_KEYS_MAX:
            raise too_large("keys", len(keys), BATCH_GET_KEYS_MAX, "entries")
        for key in keys:
            check_key(key, "keys")
        return await self._read(call, namespace, tuple(keys))

    async def _read(self, call: Call, namespace: str, keys: tuple[str, ...]) -> ReadReply:
        self._core.admit_reader(call, namespace)
        ref = await self._core.locate(namespace)
        # A key that is asked for many times is read once: the answer's size is known before it is built.
        apart = tuple(dict.fromkeys(keys))
        result: ReadResult = await self._core.store.read(ref, apart, bytes_max=BATCH_BYTES_MAX)
        if result.view.deleted:
            newer = await self._core.relocate(ref)
            if newer is None:
                raise located(deleted(namespace), namespace, result.view.head)
            result = await self._core.store.read(newer, apart, bytes_max=BATCH_BYTES_MAX)
        head, now_ms = result.view.head, result.view.now_ms
        check_tokens(call, namespace, result.view)
        by_key = dict(zip(apart, result.entries, strict=True))
        entries = [by_key[key] for key in keys]
        size = sum(len(entry.data) for entry in entries if entry is not None)
        if size > BATCH_BYTES_MAX:
            too_much = exhausted("keys", size, BATCH_BYTES_MAX, "too many bytes for one answer, ask for fewer keys")
            raise located(too_much, namespace, head)
        views = tuple(
            RecordView(key, decode_entry(entry), now_ms, head) for key, entry in zip(keys, entries, strict=True)
        )
        if (extension := self._core.extension).concerns(namespace):
            extension.accessed(call, namespace, keys)
        return ReadReply(views, head, _with_keys(call, namespace, head, views))

    async def list(
        self,
        call: Call,
        namespace: str,
        collection: str,
        *,
        page_size: int,
        after: str | None,
        reverse: bool,
        where: tuple[tuple[str, Scalar], ...],
        claimed_only: bool,
    ) -> ListReply:
        """Reads one page of a collection's living records in key order.

        Records that are found expired have their expiry committed first, so that the stamps that come
        with the page already count it.

        Args:
            call: who reads.
            namespace: where.
            collection: empty or ending in ``/``.
            page_size: 1 to 1,000; 0 means 100.
            after: the last key of the previous page, None for the first page.
            reverse: descending key order.
            where: attributes that must be equal.
            claimed_only: only records under a live claim.

        Raises:
            Refusal: as for :meth:`get`.
        """
        check_collection(collection)
        size = check_page_size(page_size)
        self._core.admit_reader(call, namespace)
        reply = await self._page(call, namespace, collection, size, after, reverse, where, claimed_only)
        return _with_collection(call, namespace, collection, reply, claimed_only)

    async def _page(
        self,
        call: Call,
        namespace: str,
        collection: str,
        size: int,
        after: str | None,
        reverse: bool,
        where: tuple[tuple[str, Scalar], ...],
        claimed_only: bool,
    ) -> ListReply:
        ref = await self._core.locate(namespace)
        found: list[RecordView] = []
        taken = scanned = 0
        cursor = after
        first: ScanResult | None = None
        while True:
            page = await self._scan(ref, collection, cursor, reverse, max(size, _SCAN_STEP))
            if page.view.deleted:
                newer = await self._core.relocate(ref)
                if newer is None:
                    raise located(deleted(namespace), namespace, page.view.head)
                ref, cursor, first = newer, after, None
                continue
            first = first or page
            if page.view.head != first.view.head:
                # What was looked through without a match may hold one by now, and a page is consistent at one head.
                return ListReply((), first.view.head, cursor, first.stamps)
            now_ms, head = page.view.now_ms, page.view.head
            check_tokens(call, namespace, page.view)
            for position, entry in enumerate(page.entries):
                cursor = entry.key
                scanned += 1
                if scanned % _STEP_RECORDS == 0:
                    # The page is already read, at one head; making records of it must not hold up other callers.
                    await asyncio.sleep(0)
                if entry.live_until_ms <= now_ms or is_internal(entry.key):
                    continue
                record = decode_record(entry.data, entry.revision)
                if not matches(record, where):
                    continue
                if claimed_only and (record.claim is None or not record.claim.active(now_ms)):
                    continue
                found.append(RecordView(entry.key, record, now_ms, head))
                taken += len(entry.data)
                if len(found) >= size or taken >= PAGE_BYTES_MAX:
                    more = page.more or position + 1 < len(page.entries)
                    return ListReply(tuple(found), head, cursor if more else None, page.stamps)
            if not page.more:
                return ListReply(tuple(found), head, None, page.stamps)
            if found or scanned >= _SCANNED_MAX:
                return ListReply(tuple(found), head, cursor, page.stamps)

    async def _scan(
        self, ref: NamespaceRef, collection: str, cursor: str | None, reverse: bool, limit: int
    ) -> ScanResult:
        after, before = (None, cursor) if reverse else (cursor, None)
        if after is None:
            after = before_first(collection)
        store = self._core.store
        page = await store.scan(ref, collection, after=after, before=before, limit=limit, reverse=reverse)
        lapsed = tuple(
            e.key for e in page.entries if 0 < e.live_until_ms <= page.view.now_ms and not is_internal(e.key)
        )
        if lapsed and await expire_keys(self._core, ref, lapsed):
            page = await store.scan(ref, collection, after=after, before=before, limit=limit, reverse=reverse)
        return page

    async def history(self, call: Call, namespace: str, key: str, *, page_size: int, after: int | None) -> HistoryReply:
        """Reads one page of the log, oldest first; ``after`` None begins at the log's floor.

        Raises:
            Refusal: COMPACTED if the log no longer reaches back to ``after``; else as for :meth:`get`.
        """
        if key:
            check_key(key)
        size = check_page_size(page_size)
        self._core.admit_reader(call, namespace)
        ref = await self._core.locate(namespace)
        view = (await self._core.store.read(ref, ())).view
        if view.deleted:
            newer = await self._core.relocate(ref)
            if newer is None:
                raise located(deleted(namespace), namespace, view.head)
            ref = newer
            view = (await self._core.store.read(ref, ())).view
        check_tokens(call, namespace, view)
        if after is not None:
            try:
                check_presented((after,), state_of(namespace, view))
            except Refusal as refusal:
                raise located(refusal, namespace, view.head) from None
        cursor = view.floor if after is None else after
        found: list[BatchView] = []
        taken = 0
        while len(found) < size and taken < PAGE_BYTES_MAX:
            result = await self._core.store.changes(ref, cursor, _SCAN_STEP)
            if isinstance(result, Compacted):
                if after is None and not found:
                    cursor = result.floor
                    continue
                raise located(compacted(namespace, cursor, result.floor), namespace, result.head)
            for batch in result.batches:
                cursor = batch.revision
                seen = view_batch(batch, lambda name: not key or name == key)
                if seen.changes:
                    found.append(seen)
                    taken += sum(len(change.data or b"") for change in batch.changes)
                    if len(found) >= size or taken >= PAGE_BYTES_MAX:
                        break
            else:
                if not result.more:
                    return HistoryReply(tuple(found), view.floor, result.head, None)
            # Nothing above waits, so a search through a long log would hold up everybody else.
            await asyncio.sleep(0)
        return HistoryReply(tuple(found), view.floor, view.head, cursor)


def _with_keys(call: Call, namespace: str, head: int, views: tuple[RecordView, ...]) -> ReadSet | None:
    tokens = call.tokens
    if tokens is None or not tokens.record:
        return None if tokens is None else tokens.read_set
    seen = {}
    for view in views:
        seen[view.key] = KeySeen(view.version, NEVER_MS if view.record is None else view.record.ends_ms(view.now_ms))
    return (tokens.read_set or NOTHING_READ).with_keys(namespace, head, seen)


def _with_collection(call: Call, namespace: str, collection: str, reply: ListReply, claimed_only: bool) -> ListReply:
    tokens = call.tokens
    if tokens is None or not tokens.record:
        return reply if tokens is None else reply._replace(read_set=tokens.read_set)
    records = [view.record for view in reply.records if view.record is not None]
    ends_ms = min((record.ends_ms(reply.records[0].now_ms) for record in records), default=NEVER_MS)
    if claimed_only:
        # A claim that lapses takes its record off the list without any commit.
        ends_ms = min((ends_ms, *(r.claim.expires_at_ms for r in records if r.claim is not None)))
    listed = CollectionSeen(reply.stamps.changed, ends_ms)
    read_set = (tokens.read_set or NOTHING_READ).with_collection(
        namespace, reply.head, collection, StampMode.CHANGED, listed
    )
    return reply._replace(read_set=read_set)


def check_page_size(page_size: int) -> int:
    """Returns the page size in force.

    Raises:
        Refusal: INVALID_FIELD.
    """
    if not 0 <= page_size <= PAGE_MAX:
        raise invalid("page_size", f"{page_size} is not between 0 and {PAGE_MAX}")
    return page_size or PAGE_DEFAULT
