"""The working store on Redis."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from itertools import chain

from noosphere.consistency import NEVER_MS, Reason, Refusal, RequestRef, exhausted, to_hex
from noosphere.consistency.limits import CLIENT_REQUEST_AGE_MS, UUID_REQUEST_AGE_MS

from ...ports.coordinator import Coordinator
from ...ports.images import ImageRecords, NamespaceImage
from ...ports.runtime import Clock
from ...ports.store import (
    Changes,
    CollectionStamps,
    Commit,
    CommitResult,
    Committed,
    Compacted,
    Dropped,
    Erased,
    Failed,
    HeadMoved,
    NamespaceRef,
    NamespaceStats,
    NamespaceSummary,
    ReadResult,
    Replayed,
    ScanResult,
    StoreTotals,
)
from ..bounds import check_commit
from ..heads import HeadFeeds
from .catalogue import Catalogue
from .engine import Engine, unavailable
from .fence import META, heads_suffix
from .images import Images
from .instance import UnfitRedis, addresses_of, told
from .packing import (
    RECORD_EXTRA_BYTES,
    View,
    after_entry,
    batches_of,
    call_of,
    commit_arguments,
    common,
    entry_of,
    failures_of,
    field_of,
    stem_of,
    view_of,
)
from .rewriting import Rewriter
from .scripts import Script
from .storetime import StoreTime
from .tidings import Tidings
from .wire import TRUST, Address, CommandError, Reply, Trust, WireLost

SCAN_ENTRIES_MAX = 2_048
CHANGES_MAX = 512
"""Most entries of a page and batches of an answer: while a script runs, Redis does nothing else."""

log = logging.getLogger("noosphere.storage.redis")


class RedisStore:
    """See :class:`~noosphere.server.ports.store.WorkingStore`. Lives on one event loop. Made by :meth:`open`.

    Every call is one script, executed by one process in one step, so what is accepted is synced: ``accepted`` makes no
    difference. Calls that are made at once share round trips.

    Linearizable within an epoch. While an old primary still lives beside a new one, reads from it may be stale and
    writes to it will be lost; every loss is told (see ``NamespaceView.cuts``).
    """

    def __init__(self, engine: Engine, address: Address, time: StoreTime, durability: str, clock: Clock) -> None:
        self._engine = engine
        self._time = time
        self._durability = durability
        self._feeds = HeadFeeds()
        self._catalogue = Catalogue(engine)
        self._tidings = Tidings(engine, self._feeds, clock, self._head_of, heads_suffix(address))
        self._rewriter = Rewriter(engine, clock)
        self.images = Images(engine, self._catalogue, time)
        self._finishing: asyncio.Task[None] | None = None
        self._commit_count = 0
        self._closed = False

    @classmethod
    async def open(
        cls,
        urls: Sequence[str],
        coordinator: Coordinator,
        *,
        clock: Clock,
        on_epoch: Callable[[int], None] | None = None,
        restores: bool = False,
        trust: Trust = TRUST,
    ) -> RedisStore:
        """Opens the store on whichever of some Redis processes is the primary.

        Args:
            urls: ``redis://[user:password@]host[:port][/database]`` of the primary and its replicas.
            coordinator: knows which process belongs to which epoch; shared by all servers on this Redis.
            clock: the source of monotonic time and pauses.
            on_epoch: for those who keep in memory what a failover may have undone: if given, it is told of the first
                epoch that begins after opening, from which on every call is refused.
            restores: whether it is opened by a restore.
            trust: what is read for connections under TLS.

        Raises:
            UnfitRedis: no primary answers, or it cannot be used; the text says why.
        """
        addresses = addresses_of(urls, trust)
        engine = Engine(addresses, coordinator, clock, on_epoch, restores=restores)
        opened: RedisStore | None = None
        try:
            fenced = await engine.ready()
            times_ms = [int(await engine.ask(META, "HGET", META, "t") or 0)]
            for node in fenced.nodes:
                seconds, micros = await node.wire.call("TIME")
                times_ms.append(int(seconds) * 1000 + int(micros) // 1000)
            opened = store = cls(engine, addresses[0], StoreTime(clock, max(times_ms)), fenced.durability, clock)
            store._tidings.start()
            if await store._rewriter.owed():
                store._finishing = asyncio.create_task(store._finish_erasing())
        except (WireLost, CommandError, Refusal) as error:
            await (engine if opened is None else opened).close()
            raise UnfitRedis(str(error)) from error
        except BaseException:
            await (engine if opened is None else opened).close()
            raise
        return store

    @property
    def engine(self) -> str:
        """The driver's name."""
        return "redis"

    @property
    def durability(self) -> str:
        """What "synced" means: ``fsync`` only if Redis has ``appendonly yes`` and ``appendfsync always``."""
        return self._durability

    @property
    def remote(self) -> bool:
        """True: every call is a round trip."""
        return True

    @property
    def epoch(self) -> int:
        """The present epoch."""
        return self._engine.epoch

    @property
    def scripts(self) -> Engine:
        """What executes scripts, for whatever else stands on this Redis."""
        return self._engine

    @property
    def time(self) -> StoreTime:
        """Store time, to be told by whoever executes scripts."""
        return self._time

    @property
    def rewriter(self) -> Rewriter:
        """What has this Redis write its files anew."""
        return self._rewriter

    def now_ms(self) -> int:
        """Returns store time."""
        return self._time.now_ms()

    async def read(
        self,
        namespace: NamespaceRef,
        keys: Sequence[str],
        *,
        request: RequestRef | None = None,
        locks: Sequence[str] = (),
        accepted: bool = False,
        counted: bool = False,
        bytes_max: int = 0,
    ) -> ReadResult:
        """Reads keys, a remembered request and fencing tokens at one head.

        Raises:
            Refusal: LIMIT_EXCEEDED, if the records have more than ``bytes_max`` bytes; ENGINE_UNAVAILABLE.
        """
        field = "" if request is None else field_of(request)
        # What Redis keeps beside the bytes of a record must not have one refused that fits.
        room = bytes_max and bytes_max + len(keys) * RECORD_EXTRA_BYTES
        epoch, reply = await self._call(Script.READ, namespace, field, int(counted), room, len(keys), *keys, *locks)
        if len(reply) == 1:
            raise exhausted("keys", int(reply[0]), bytes_max, "too many bytes for one answer, ask for fewer keys")
        text, call, records, tokens, record_count = reply
        view = self._view(text)
        remembered = None
        if request is not None and call is not None:
            found = call_of(call)
            age_ms_max = UUID_REQUEST_AGE_MS if request.uuid else CLIENT_REQUEST_AGE_MS
            if found.time_ms + age_ms_max > view.now_ms:
                remembered = found
        return ReadResult(
            view.under(epoch),
            tuple(map(entry_of, keys, records)),
            remembered,
            tuple((lock, int(token or b"0", 16)) for lock, token in zip(locks, tokens, strict=True)),
            record_count,
        )

    async def scan(
        self,
        namespace: NamespaceRef,
        collection: str,
        *,
        after: str | None = None,
        before: str | None = None,
        limit: int,
        reverse: bool = False,
        accepted: bool = False,
    ) -> ScanResult:
        """Reads up to ``limit`` (and at most 2,048) entries of a collection in key order."""
        count = max(1, min(limit, SCAN_ENTRIES_MAX))
        first, last = _bounds(collection, after, before)
        command = "ZRANGEBYLEX"
        if reverse:
            first, last, command = last, first, "ZREVRANGEBYLEX"
        epoch, reply = await self._call(Script.SCAN, namespace, collection, first, last, count + 1, command)
        text, stamps, keys, records = reply
        entries = (entry_of(key.decode(), record) for key, record in zip(keys[:count], records, strict=False))
        return ScanResult(
            self._view(text).under(epoch),
            tuple(entry for entry in entries if entry is not None),
            len(keys) > count,
            CollectionStamps(int(stamps[:16], 16), int(stamps[16:], 16)),
        )

    async def commit(self, namespace: NamespaceRef, commit: Commit) -> CommitResult:
        """Makes a commit. A cancelled caller does not take its commit back.

        Raises:
            Refusal: also LIMIT_EXCEEDED, if Redis is out of memory; NOT_IMPLEMENTED for a volatile namespace.
        """
        check_commit(commit)
        if namespace.volatile:
            raise Refusal(
                Reason.NOT_IMPLEMENTED,
                f"namespace: {namespace.name!r} is to stay in memory, and Redis writes to its disk what it is given",
            )
        await self._catalogue.note(namespace)
        # Who remembers the call is told so by the second execution; nobody else may cause one.
        harmless = commit.request is not None
        _, reply = await self._call(Script.COMMIT, namespace, *commit_arguments(namespace, commit), harmless=harmless)
        # Again, if a failover has come between: the note may have been on the lost side.
        await self._catalogue.note(namespace)
        match reply[0]:
            case b"C":
                now_ms = int(reply[2], 16)
                self._time.heard(now_ms)
                self._commit_count += 1
                return Committed(int(reply[1], 16), now_ms)
            case b"R":
                return Replayed(call_of(reply[1]))
            case b"Q":
                raise Refusal(
                    Reason.REQUEST_ID_REUSED,
                    f"request_id.sequence: was answered, as was every call up to {int(reply[1], 16)}",
                )
            case _:
                return Failed(failures_of(reply))

    async def settle(self, namespace: NamespaceRef) -> None:
        """Returns at once: what is accepted is synced."""
        self._engine.check()

    async def changes(self, namespace: NamespaceRef, after: int, limit: int) -> Changes | Compacted:
        """Returns up to ``limit`` (and at most 512) logged batches after a revision.

        Raises:
            Refusal: NAMESPACE_DELETED.
        """
        count = max(1, min(limit, CHANGES_MAX))
        _, reply = await self._call(Script.CHANGES, namespace, to_hex(after), after_entry(after), count + 1)
        if reply[0] == b"D":
            raise Refusal(Reason.NAMESPACE_DELETED, f"namespace {namespace.name!r} was deleted")
        view = self._view(reply[1])
        if reply[0] == b"K":
            return Compacted(view.floor, view.head)
        return Changes(batches_of(reply[2][:count]), view.head, len(reply[2]) > count)

    async def namespaces(self, prefix: str, after: str, limit: int) -> tuple[NamespaceSummary, ...]:
        """Lists the newest generation of each namespace by name."""
        self._engine.check()
        found: list[NamespaceSummary] = []
        if limit > 0:
            async for stats, due_ms, ref in self._each(prefix, after):
                found.append(NamespaceSummary(ref, stats.view.deleted, stats.view.head, due_ms))
                if len(found) == limit:
                    break
        return tuple(found)

    async def drop(self, namespace: NamespaceRef, expected_head: int | None) -> Dropped | Failed:
        """Drops a namespace; fails with kind KEY and an empty name if its head is not the expected one."""
        expected = "" if expected_head is None else to_hex(expected_head)
        _, reply = await self._call(Script.DROP, namespace, expected, harmless=False)
        if reply[0] == b"F":
            return Failed(failures_of(reply))
        return Dropped(int(reply[1], 16), reply[2])

    async def due(self, namespace: NamespaceRef, now_ms: int, limit: int) -> tuple[str, ...]:
        """Returns keys whose time has come, earliest first."""
        _, keys = await self._call(Script.DUE, namespace, now_ms, max(0, limit))
        return tuple(key.decode() for key in keys)

    async def compact(self, namespace: NamespaceRef, floor: int) -> None:
        """Drops logged batches up to ``floor``, or the head if that is lower."""
        await self._call(Script.COMPACT, namespace, to_hex(max(0, floor)))

    async def erase(self, namespace: NamespaceRef) -> Erased:
        """Leaves no copy of what is no longer stored, in this Redis; replicas have files of their own. See the port.

        Raises:
            Refusal: ENGINE_UNAVAILABLE, also if this Redis may not be told to write its files anew.
        """
        before = (await self.read(namespace, ())).view
        if not before.exists:
            return Erased(before.head, 0, 0)
        await self._rewriter.owe()
        _, (text, logged, emptied) = await self._call(Script.ERASE, namespace)
        await self._rewriter.rewrite()
        return Erased(self._view(text).head, logged, emptied)

    async def forget_client(self, client: str) -> None:
        """Drops the remembered requests of an incarnation that has ended."""
        self._engine.check()
        async for page in self._catalogue.pages():
            calls = (self._call(Script.FORGET, ref, client) for ref in chain.from_iterable(page))
            await asyncio.gather(*calls)

    async def stats(self, namespace: NamespaceRef) -> NamespaceStats:
        """Returns how much a namespace holds."""
        stats, _ = await self._stats(namespace)
        return stats

    async def totals(self) -> StoreTotals:
        """Returns how much the store holds. Goes over all namespaces."""
        self._engine.check()
        spaces = records = record_bytes = 0
        async for stats, _, _ in self._each("", ""):
            spaces += 1
            records += stats.record_count
            record_bytes += stats.record_bytes
        journal_bytes = 0
        try:
            for node in await self._engine.nodes():
                journal_bytes += int((await told(node.wire)).get("aof_current_size", 0))
        except (WireLost, CommandError) as error:
            raise unavailable() from error
        return StoreTotals(
            spaces,
            spaces,
            records,
            record_bytes,
            self._commit_count,
            # How many of them Redis has synced at once, it does not tell.
            self._commit_count,
            journal_bytes,
        )

    def export(self, namespace: NamespaceRef) -> AsyncGenerator[NamespaceImage | ImageRecords, None]:
        """Yields an image and its records, all as they were in one step."""
        return self.images.export(namespace)

    def heads(self) -> AsyncIterator[HeadMoved]:
        """Streams moved heads of followed namespaces, the newest of each; all of them again after a gap."""
        return self._feeds.open()

    async def follow(self, namespace: NamespaceRef) -> None:
        """Has ``heads`` tell of a namespace's moves; returns once no later move can be missed. Counted."""
        self._engine.check()
        await self._tidings.follow(namespace)

    def unfollow(self, namespace: NamespaceRef) -> None:
        """Takes one ``follow`` back."""
        self._tidings.unfollow(namespace)

    async def close(self) -> None:
        """Lets calls under way end, and disconnects."""
        if self._closed:
            return
        self._closed = True
        if self._finishing is not None:
            self._finishing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._finishing
        await self._tidings.stop()
        # So that the next process begins no earlier, even on a machine whose clock is behind. Not at any price.
        with contextlib.suppress(WireLost, CommandError):
            if (node := self._engine.present(META)) is not None:
                await node.wire.call("HSET", META, "t", self._time.told_ms)
        await self._engine.close()
        self._feeds.close()

    async def _call(
        self, script: Script, ref: NamespaceRef, *arguments: str | bytes | int, harmless: bool = True
    ) -> tuple[int, Reply]:
        given = (*common(ref, self._time.told_ms), *arguments)
        return await self._engine.call(script, stem_of(ref), *given, harmless=harmless)

    def _view(self, text: bytes) -> View:
        view = view_of(text)
        self._time.heard(view.now_ms)
        return view

    async def _stats(self, ref: NamespaceRef) -> tuple[NamespaceStats, int]:
        """Returns what a namespace holds, and when its first key is due."""
        epoch, reply = await self._call(Script.STATS, ref)
        text, count, own, record_bytes, log_count, first, log_total, calls, due_ms = reply
        stats = NamespaceStats(
            self._view(text).under(epoch),
            count - own,
            record_bytes,
            log_count,
            # Each entry says how much was logged before it.
            log_total - int(first[16:], 16) if first is not None else 0,
            int(first[:16], 16) if first is not None else 0,
            calls,
            own,
        )
        return stats, NEVER_MS if due_ms is None else int(float(due_ms))

    async def _each(self, prefix: str, after: str) -> AsyncIterator[tuple[NamespaceStats, int, NamespaceRef]]:
        """Goes over the newest generation of each namespace that exists, in the order of names."""
        async for page in self._catalogue.pages(prefix, after):
            refs = list(chain.from_iterable(page))
            told_of = dict(zip(refs, await asyncio.gather(*map(self._stats, refs)), strict=True))
            for generations in page:
                # A noted generation may not have come to be; the one before it then is the newest.
                for ref in generations:
                    stats, due_ms = told_of[ref]
                    if stats.view.exists:
                        yield stats, due_ms, ref
                        break

    async def _head_of(self, ref: NamespaceRef) -> int:
        return (await self.read(ref, ())).view.head

    async def _finish_erasing(self) -> None:
        """Ends what an earlier process has begun."""
        try:
            await self._rewriter.rewrite()
        except Refusal as refusal:
            log.error("an erasure that was begun earlier could not be ended: %s", refusal.message)


def _bounds(collection: str, after: str | None, before: str | None) -> tuple[bytes, bytes]:
    """Returns the bounds, for Redis, of the keys of a collection strictly between two keys."""
    low = collection.encode()
    # A collection ends in "/", and "0" is the character after it.
    high = low[:-1] + b"0" if low else b""
    if after is not None:
        low = max(low, after.encode())
    if before is not None:
        high = min(high, before.encode()) if high else before.encode()
    return b"(" + low if low or after is not None else b"-", b"(" + high if high or before is not None else b"+"
