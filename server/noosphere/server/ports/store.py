"""The working store port: the one atomic primitive on which all state rests.

A driver stores opaque records, compares stored revisions, assigns revisions and appends to a log. It
decides nothing: conflict policies, siblings, merges and clocks are settled before a commit, in
``noosphere.consistency``, and a failed check is decided again by the caller.

Terms. *Synced*: durable as configured. *Accepted*: committed in order, but possibly not synced yet
(the overlay). What a caller of the product receives is always synced; deciding, claims and replay
look-ups use the accepted state, otherwise two writers in one sync group would both win.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol

from noosphere.consistency import Cut, Remembered, RequestRef

# A word of the port that read sets need too; drivers take it from here.
from noosphere.consistency import StampMode as StampMode

# Words of the port, too.
from .tallies import Dropped as Dropped
from .tallies import Erased as Erased
from .tallies import StoreTotals as StoreTotals

if TYPE_CHECKING:
    from .images import ImageRecords, NamespaceImage

STORAGE_ID_BYTES = 10
FOLLOWED_MAX = 65_536
"""Most namespaces that a process follows at once (:meth:`WorkingStore.follow`)."""

VOLATILE_PREFIX = "sessions/~"
"""Namespaces whose names begin so are kept in memory only: nothing of them reaches a disk, and a restart ends them."""


@dataclass(frozen=True)
class NamespaceRef:
    """One generation of a namespace.

    Attributes:
        name: the full name, e.g. ``shared/launch``.
        generation: from 1; raised when a deleted namespace is opened again.
        origin: the head above which this generation begins (0 for the first).
    """

    name: str
    generation: int = 1
    origin: int = 0

    @cached_property
    def storage_id(self) -> bytes:
        """80 bits that stand for name and generation; user text never becomes a storage key."""
        text = f"{self.generation}\0{self.name}".encode()
        return hashlib.blake2b(text, digest_size=STORAGE_ID_BYTES).digest()

    @cached_property
    def volatile(self) -> bool:
        """Whether the namespace is kept in memory only."""
        return self.name.startswith(VOLATILE_PREFIX)


class StoredEntry(NamedTuple):
    """A stored record. ``revision`` is that of its last change; 0 inside ``data`` means the same."""

    key: str
    revision: int
    data: bytes
    live_until_ms: int


class NamespaceView(NamedTuple):
    """A namespace's state at the moment of a read.

    Attributes:
        exists: whether anything was ever committed to this generation.
        deleted: whether it was dropped; only ``head`` and ``cuts`` are then left.
        head: the newest revision (accepted or synced, as the read asked).
        epoch: the store's present epoch.
        now_ms: store time; never goes back.
        config_version: the highest configuration version that a commit here has carried.
        floor_context: contexts below it cannot judge an absent key.
        floor: the log holds every change after this revision.
        cuts: what survived each epoch change, oldest first, the present epoch's included.
    """

    exists: bool
    deleted: bool
    head: int
    epoch: int
    now_ms: int
    config_version: int
    floor_context: int
    floor: int
    cuts: tuple[Cut, ...]


class ReadResult(NamedTuple):
    """Entries in the order of the keys asked for, None where nothing is stored."""

    view: NamespaceView
    entries: tuple[StoredEntry | None, ...]
    remembered: Remembered | None
    fences: tuple[tuple[str, int], ...] = ()
    """Highest fencing token seen of each lock that was asked for."""
    record_count: int | None = None
    """As in :class:`NamespaceStats`; None unless it was asked for."""


class CollectionStamps(NamedTuple):
    """When a collection last changed: any record, and its membership. 0: never.

    Of a collection without records a store may say more than is so, up to the newest such change of any other;
    never less.
    """

    changed: int
    members: int


class ScanResult(NamedTuple):
    """One page of a scan, consistent at ``view.head``."""

    view: NamespaceView
    entries: tuple[StoredEntry, ...]
    more: bool
    stamps: CollectionStamps


class KeyCheck(NamedTuple):
    """Holds iff the key's stored revision is this (0: nothing stored) and it is (not) live at store time.

    The stored revision counts tombstones too, unlike a version: otherwise delete, create, delete
    would pass a check on 0 = 0.
    """

    key: str
    revision: int
    live: bool


class CollectionCheck(NamedTuple):
    """Holds iff the collection's stamp is this."""

    collection: str
    mode: StampMode
    stamp: int


Check = KeyCheck | CollectionCheck


class Mutation(NamedTuple):
    """One key's part of a commit; the store never looks into ``data``.

    Attributes:
        key: the key; with ``rev_slot`` a prefix to which the store appends the commit's revision as 16
            hex digits, ``-`` and the mutation's index in the commit as 4 hex digits.
        data: the record, None to remove the key.
        live_until_ms: when its last live value ends; 0 for a tombstone.
        due_ms: when the sweeper should look at it (next expiry, or reaping).
        members: whether the key came to life or ceased to live.
        event: what the log tells watchers beside the record; empty: no log entry at all (reaping).
        raise_floor_context: the namespace's ``floor_context`` rises to this, if higher.
        rev_slot: see ``key``.
    """

    key: str
    data: bytes | None
    live_until_ms: int
    due_ms: int
    members: bool
    event: bytes
    raise_floor_context: int = 0
    rev_slot: bool = False


class RequestRecord(NamedTuple):
    """What to remember of a call, in the same atomic step."""

    ref: RequestRef
    fingerprint: bytes
    reply: bytes


class Fence(NamedTuple):
    """A lock's name and the fencing token under which a commit is made."""

    lock: str
    token: int


class Commit(NamedTuple):
    """Everything that one atomic step does to one namespace.

    Without mutations nothing is written and no revision is used, except that a namespace that does
    not exist yet begins to.

    Attributes:
        epoch: the epoch under which the caller decided.
        config_version: the configuration under which the caller decided.
        checks: all must hold.
        mutations: at most 1,024, at most 1 MiB, at most one per key.
        request: what to remember.
        fences: tokens that must not be below the highest seen of their lock.
        not_after_ms: the commit fails at and after this store time.
    """

    epoch: int
    config_version: int
    checks: tuple[Check, ...] = ()
    mutations: tuple[Mutation, ...] = ()
    request: RequestRecord | None = None
    fences: tuple[Fence, ...] = ()
    not_after_ms: int | None = None


class Committed(NamedTuple):
    """The commit was made and is synced. Without mutations ``revision`` is the head."""

    revision: int
    now_ms: int


class Replayed(NamedTuple):
    """The request was applied before, and is synced."""

    remembered: Remembered


class FailureKind(Enum):
    """Why a commit was not made."""

    KEY = "key"
    COLLECTION = "collection"
    EPOCH = "epoch"
    CONFIG = "config"
    FENCE = "fence"
    NOT_AFTER = "not_after"
    DELETED = "deleted"
    REQUEST_ROOM = "request_room"


class Failure(NamedTuple):
    """One check that failed: its kind, the key, collection or lock, and the present value."""

    kind: FailureKind
    name: str = ""
    actual: int = 0


class Failed(NamedTuple):
    """Nothing was written."""

    failures: tuple[Failure, ...]


CommitResult = Committed | Replayed | Failed


class LoggedChange(NamedTuple):
    """One logged change: the record after it (None if the same commit wrote a later state)."""

    key: str
    data: bytes | None
    event: bytes


class LoggedBatch(NamedTuple):
    """The logged changes of one commit."""

    revision: int
    time_ms: int
    changes: tuple[LoggedChange, ...]


class Changes(NamedTuple):
    """Batches after a revision, oldest first; ``head`` is synced and covers them all."""

    batches: tuple[LoggedBatch, ...]
    head: int
    more: bool


class Compacted(NamedTuple):
    """The log no longer holds what was asked for."""

    floor: int
    head: int


class NamespaceSummary(NamedTuple):
    """A namespace in a listing, without loading it; ``loaded`` tells whether it is in memory anyway."""

    ref: NamespaceRef
    deleted: bool
    head: int
    next_due_ms: int
    loaded: bool = True


class NamespaceStats(NamedTuple):
    """How much a namespace holds; bytes count keys, records and log values.

    Keys that begin with NUL are those of the services' own records; wherever records are counted, these are
    not, except in ``own_count``.
    """

    view: NamespaceView
    record_count: int
    record_bytes: int
    log_count: int
    log_bytes: int
    log_first_ms: int
    request_count: int
    own_count: int = 0


class HeadMoved(NamedTuple):
    """A namespace's synced head has moved, or the namespace was dropped."""

    storage_id: bytes
    head: int


class WorkingStore(Protocol):
    """What every backend provides.

    Any method may raise ``Refusal`` with ENGINE_UNAVAILABLE. A cancelled ``commit`` may still be made;
    it never tears a commit apart.
    """

    @property
    def engine(self) -> str:
        """The driver's name: ``embedded`` or ``redis``."""
        ...

    @property
    def durability(self) -> str:
        """What synced means: ``fsync`` (survives power loss) or ``os`` (survives the process)."""
        ...

    @property
    def remote(self) -> bool:
        """Whether every call is a round trip, so that it pays to make fewer."""
        ...

    @property
    def epoch(self) -> int:
        """The present epoch."""
        ...

    def now_ms(self) -> int:
        """Returns store time, which never goes back, not even over restarts."""
        ...

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
        """Reads keys, a remembered request and fencing tokens at one head; ``counted`` also tells how many records.

        More than ``bytes_max`` bytes of records may be refused (LIMIT_EXCEEDED) before anything is moved; 0: never.
        """
        ...

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
        """Reads up to ``limit`` entries (tombstones too) of a collection in key order.

        ``after`` and ``before`` are exclusive keys; ``reverse`` begins at the upper end. Keys order by
        Unicode code point.
        """
        ...

    async def commit(self, namespace: NamespaceRef, commit: Commit) -> CommitResult:
        """Compares, assigns a revision, writes, logs and remembers, in one atomic step; returns when synced.

        Order of checks: dropped, epoch, known request (which replays, whatever else may fail), fences,
        room for the request, configuration, ``not_after_ms``, checks. All failed checks of the last
        group are listed.
        """
        ...

    async def settle(self, namespace: NamespaceRef) -> None:
        """Returns when everything accepted so far in this namespace is synced."""
        ...

    async def changes(self, namespace: NamespaceRef, after: int, limit: int) -> Changes | Compacted:
        """Returns up to ``limit`` logged batches after revision ``after`` (exclusive)."""
        ...

    async def namespaces(self, prefix: str, after: str, limit: int) -> tuple[NamespaceSummary, ...]:
        """Lists the newest generation of each namespace by name, after ``after`` (exclusive)."""
        ...

    async def drop(self, namespace: NamespaceRef, expected_head: int | None) -> Dropped | Failed:
        """Removes records, log and remembered requests; leaves a tombstone with the head."""
        ...

    async def due(self, namespace: NamespaceRef, now_ms: int, limit: int) -> tuple[str, ...]:
        """Returns keys whose ``due_ms`` has come, earliest first."""
        ...

    async def compact(self, namespace: NamespaceRef, floor: int) -> None:
        """Drops logged batches up to ``floor``; the floor never sinks and never passes the head."""
        ...

    async def erase(self, namespace: NamespaceRef) -> Erased:
        """Leaves no copy of what was overwritten, removed or dropped in a namespace before this call.

        Records stay as they are: what is to be forgotten has to be overwritten or removed first, by ordinary commits,
        or the namespace dropped. This ends whatever else still says it:

        - The log up to the head; the floor rises to it, so that watchers behind it begin anew.
        - Fingerprints and replies of remembered calls (:attr:`~noosphere.consistency.Remembered.erased`). That each
          was applied, and its revision, stays known as long as before: its retry is refused, not executed twice.
        - Every byte in files, caches and free space of the backend when the call returns. Blocks that a file system
          has freed, and backups, are beyond it.

        Commits go on meanwhile and are not touched. All or nothing is visible; if the call fails or is cut off, what
        it has begun is finished by another one, or soon after the store is next opened. Dropped namespaces (whose name
        and head stay) and those that a newer generation has replaced can be erased too; of one that never existed there
        is nothing to erase.

        Rewriting costs as much as the store is large, not the namespace; calls that are made at once share it.
        """
        ...

    async def forget_client(self, client: str) -> None:
        """Drops the remembered requests of an incarnation that has ended."""
        ...

    async def stats(self, namespace: NamespaceRef) -> NamespaceStats:
        """Returns how much a namespace holds."""
        ...

    async def totals(self) -> StoreTotals:
        """Returns how much the store holds."""
        ...

    def export(self, namespace: NamespaceRef) -> AsyncGenerator[NamespaceImage | ImageRecords, None]:
        """Yields a namespace's image, then its records by ascending key in pages, all as they were at the image's head.

        Commits go on meanwhile and are not in it. Yields nothing for a namespace that does not exist. To be closed.
        """
        ...

    def heads(self) -> AsyncIterator[HeadMoved]:
        """Streams moved heads of followed namespaces (or of all), at least the newest of each; registered when called.

        Where moves may have been missed, every followed namespace is told again.
        """
        ...

    async def follow(self, namespace: NamespaceRef) -> None:
        """Has ``heads`` tell of this namespace's moves; returns once no later move can be missed.

        Counted: each call needs its ``unfollow``, except one that is cancelled or raises: LIMIT_EXCEEDED if
        :data:`FOLLOWED_MAX` others are followed, or ENGINE_UNAVAILABLE.
        """
        ...

    def unfollow(self, namespace: NamespaceRef) -> None:
        """Takes one ``follow`` back, on a closed store too; ValueError if there is none."""
        ...

    async def close(self) -> None:
        """Syncs, folds and closes; later calls raise ENGINE_UNAVAILABLE."""
        ...
