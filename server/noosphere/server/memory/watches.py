"""Watches: ordered, atomic per revision, resumable, and never silent about a gap.

A watcher pulls from the log at its own pace, so a slow one holds no buffer; when the log no longer
reaches back to it, it is told so. Decoded batches are shared between the watchers of a namespace.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import NamedTuple

from noosphere.consistency import (
    Reason,
    Refusal,
    ResumePoint,
    check_collection,
    check_presented,
    find_lost,
)

from ..ports.grants import Verb
from ..ports.runtime import Clock
from ..ports.store import Compacted, NamespaceRef, NamespaceView
from .codec import decode_record
from .core import Core, deleted, draining, located, state_of
from .internal import before_first
from .log import compacted
from .signals import Following, HeadSignals
from .tails import Page, Tail, Tails
from .types import BatchView, Call, RecordView

BOOKMARK_MS = 5_000
BOOKMARK_AFTER_MOVE_MS = 20
_SCAN_STEP = 256
_SNAPSHOT_BYTES_MAX = 1024 * 1024


class WatchStart(NamedTuple):
    """Where a watch begins; at most one of the three is given, none means from now on."""

    after: int | None = None
    resume: ResumePoint | None = None
    snapshot: bool = False


class SnapshotPage(NamedTuple):
    """Part of what was there when the watch began."""

    records: tuple[RecordView, ...]
    last: bool


class Bookmark(NamedTuple):
    """Nothing was missed; ``draining`` announces the end of the stream."""

    draining: bool


class EpochChanged(NamedTuple):
    """Revisions after the start point were lost; the watch ends."""

    epoch: int
    cut: int


class WatchMessage(NamedTuple):
    """One message of a watch; ``resume`` is None inside a snapshot."""

    event: SnapshotPage | BatchView | Bookmark | EpochChanged
    resume: ResumePoint | None
    head: int


class Watches:
    """Serves watches of one process."""

    def __init__(self, core: Core, signals: HeadSignals, clock: Clock) -> None:
        self._core = core
        self._signals = signals
        self._clock = clock
        self._tails = Tails(core, signals, clock)
        self.open_count = 0

    def forget_decoded(self) -> None:
        """Forgets what was kept of changes."""
        self._tails.forget()

    async def watch(
        self, call: Call, namespace: str, collection: str, start: WatchStart
    ) -> AsyncGenerator[WatchMessage, None]:
        """Streams the changes of a collection.

        Raises:
            Refusal: COMPACTED, FUTURE_REVISION, NAMESPACE_DELETED, DRAINING, or a reason that concerns
                the caller.
        """
        check_collection(collection)
        self._core.admit_reader(call, namespace, Verb.WATCH)
        self.open_count += 1
        try:
            async with aclosing(self._run(call, namespace, collection, start)) as messages:
                async for message in messages:
                    yield message
        finally:
            self.open_count -= 1

    async def _run(
        self, call: Call, namespace: str, collection: str, start: WatchStart
    ) -> AsyncGenerator[WatchMessage, None]:
        ref, view = await self._living(namespace)
        cursor = self._start(namespace, ref, view, start)
        if isinstance(cursor, WatchMessage):
            yield cursor
            return
        if start.snapshot:
            delivered: dict[str, int] = {}
            async with aclosing(self._snapshot(ref, view, collection, delivered)) as messages:
                async for message in messages:
                    yield message
            if delivered:
                # Changes that the snapshot already contains are not told again.
                horizon = max(delivered.values())
                async with aclosing(self._follow(call, ref, collection, cursor, until=horizon)) as messages:
                    async for message in messages:
                        cursor = message.resume.revision if message.resume is not None else cursor
                        if (left := _without_delivered(message, delivered)) is not None:
                            yield left
        elif start == WatchStart():
            # Without it a watcher that is cut off before the first change would not know where to resume.
            yield WatchMessage(Bookmark(False), ResumePoint(ref.storage_id, cursor), view.head)
        async with aclosing(self._follow(call, ref, collection, cursor)) as messages:
            async for message in messages:
                yield message

    async def _living(self, namespace: str) -> tuple[NamespaceRef, NamespaceView]:
        ref = await self._core.locate(namespace)
        view = (await self._core.store.read(ref, ())).view
        if view.deleted:
            newer = await self._core.relocate(ref)
            if newer is None:
                raise located(deleted(namespace), namespace, view.head)
            ref = newer
            view = (await self._core.store.read(ref, ())).view
        return ref, view

    def _start(self, namespace: str, ref: NamespaceRef, view: NamespaceView, start: WatchStart) -> int | WatchMessage:
        if start.snapshot or (start.after is None and start.resume is None):
            return view.head
        if start.resume is not None:
            if start.resume.storage_id != ref.storage_id:
                # Another generation, or a token of another namespace: its log is not this one's.
                raise located(compacted(namespace, start.resume.revision, view.floor), namespace, view.head)
            after = start.resume.revision
        else:
            after = start.after or 0
        if (lost := find_lost(after, view.cuts)) is not None:
            return WatchMessage(EpochChanged(view.epoch, lost.after), None, view.head)
        try:
            check_presented((after,), state_of(namespace, view))
        except Refusal as refusal:
            raise located(refusal, namespace, view.head) from None
        if after < view.floor:
            raise located(compacted(namespace, after, view.floor), namespace, view.head)
        return after

    async def _snapshot(
        self, ref: NamespaceRef, first: NamespaceView, collection: str, delivered: dict[str, int]
    ) -> AsyncGenerator[WatchMessage, None]:
        key = before_first(collection)
        last = False
        while not last:
            page = await self._core.store.scan(ref, collection, after=key, limit=_SCAN_STEP)
            if page.view.deleted:
                raise located(deleted(ref.name), ref.name, page.view.head)
            now_ms, head = page.view.now_ms, page.view.head
            records = []
            taken = read = 0
            for entry in page.entries:
                key, read = entry.key, read + 1
                if entry.revision > first.head:
                    delivered[entry.key] = entry.revision
                if entry.live_until_ms > now_ms:
                    records.append(RecordView(entry.key, decode_record(entry.data, entry.revision), now_ms, head))
                    if (taken := taken + len(entry.data)) >= _SNAPSHOT_BYTES_MAX:
                        break
            last = read == len(page.entries) and not page.more
            resume = ResumePoint(ref.storage_id, first.head) if last else None
            yield WatchMessage(SnapshotPage(tuple(records), last), resume, first.head)

    async def _follow(
        self, call: Call, ref: NamespaceRef, collection: str, cursor: int, until: int | None = None
    ) -> AsyncGenerator[WatchMessage, None]:
        told, told_ms = cursor, self._clock.monotonic_ms()
        head = cursor
        async with Following(self._core.store) as following:
            await following.to(ref)
            with self._tails.join(ref) as tail:
                while True:
                    idle_ms = self._clock.monotonic_ms() - told_ms
                    try:
                        page = await self._page(tail, ref, cursor, until or 0, refresh=idle_ms >= BOOKMARK_MS)
                    except Refusal as refusal:
                        if not self._signals.draining or refusal.reason is not Reason.ENGINE_UNAVAILABLE:
                            raise
                        # The store's epoch has ended, and the services with it: that is no end of the watch.
                        yield WatchMessage(Bookmark(True), ResumePoint(ref.storage_id, cursor), head)
                        raise located(draining(), ref.name, head) from None
                    head = page.head
                    for batch in page.batches:
                        cursor = batch.revision
                        seen = batch.view(collection)
                        if seen.changes:
                            self._core.metrics.told(self._core.store.now_ms() - seen.time_ms)
                            yield WatchMessage(seen, ResumePoint(ref.storage_id, cursor), page.head)
                            told, told_ms = cursor, self._clock.monotonic_ms()
                        if until is not None and cursor >= until:
                            return
                    # The log may lack revisions that carry no event (reaping); nothing is missing up to there.
                    cursor = page.end
                    if until is not None and cursor >= until:
                        return
                    if page.moved is None:
                        continue
                    if self._signals.draining:
                        yield WatchMessage(Bookmark(True), ResumePoint(ref.storage_id, cursor), page.head)
                        raise located(draining(), ref.name, page.head)
                    idle_ms = self._clock.monotonic_ms() - told_ms
                    due_ms = BOOKMARK_AFTER_MOVE_MS if cursor > told else BOOKMARK_MS
                    if idle_ms >= due_ms:
                        if not self._core.renew(call):
                            ended = Refusal(Reason.STALE_INCARNATION, f"{call.actor} has ended")
                            raise located(ended, ref.name, page.head)
                        yield WatchMessage(Bookmark(False), ResumePoint(ref.storage_id, cursor), page.head)
                        told, told_ms = cursor, self._clock.monotonic_ms()
                        continue
                    await self._clock.wait(page.moved, (due_ms - idle_ms) / 1000)

    async def _page(self, tail: Tail, ref: NamespaceRef, cursor: int, at_least: int, *, refresh: bool) -> Page:
        try:
            page = await tail.after(cursor, at_least=at_least, refresh=refresh)
        except Refusal as refusal:
            raise located(refusal, ref.name, (await self._core.store.read(ref, ())).view.head) from None
        if isinstance(page, Compacted):
            raise located(compacted(ref.name, cursor, page.floor), ref.name, page.head)
        return page


def _without_delivered(message: WatchMessage, delivered: dict[str, int]) -> WatchMessage | None:
    event = message.event
    if not isinstance(event, BatchView):
        return message
    left = tuple(c for c in event.changes if event.revision > delivered.get(c.key, 0))
    # Nothing is sent for a revision of which nothing is left: a bookmark would vouch for everything up to the head.
    return message._replace(event=event._replace(changes=left)) if left else None
