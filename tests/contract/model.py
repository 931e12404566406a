"""The store port in a hundred lines: no overlay, no journal, no caches, everything recomputed from what was written."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

from noosphere.consistency import Cut, Reason, Remembered, RequestRef
from noosphere.consistency.limits import CLIENT_REQUEST_AGE_MS, UUID_REQUEST_AGE_MS
from noosphere.server.ports.store import (
    CollectionCheck,
    Commit,
    Failure,
    FailureKind,
    LoggedBatch,
    LoggedChange,
    NamespaceRef,
    StampMode,
    StoredEntry,
)


@dataclass
class Space:
    """One namespace."""

    ref: NamespaceRef
    exists: bool = False
    deleted: bool = False
    head: int = 0
    config_version: int = 0
    floor_context: int = 0
    floor: int = 0
    entries: dict[str, StoredEntry] = field(default_factory=dict)
    due: dict[str, int] = field(default_factory=dict)
    changes: list[tuple[int, str, bool]] = field(default_factory=list)
    log: list[LoggedBatch] = field(default_factory=list)
    fences: dict[str, int] = field(default_factory=dict)
    requests: dict[RequestRef, Remembered] = field(default_factory=dict)
    clients: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Through which sequence a client has its answers, and the time of its newest call."""
    cuts: list[Cut] = field(default_factory=list)

    def stamp(self, collection: str, mode: StampMode) -> int:
        """Returns when a collection last changed, from the list of every change."""
        inside = [r for r, key, members in self.changes if key.startswith(collection)
                  and (members or mode is StampMode.CHANGED)]  # fmt: skip
        return max(inside, default=0)

    def is_empty(self, collection: str) -> bool:
        """Tells whether nothing is stored in a collection, not even a tombstone."""
        return not any(key.startswith(collection) for key in self.entries)

    def find(self, ref: RequestRef, awake_ms: int) -> Remembered | None:
        """Returns a remembered call."""
        found = self.requests.get(ref._replace(answered_through=0))
        age_ms = UUID_REQUEST_AGE_MS if ref.uuid else CLIENT_REQUEST_AGE_MS
        return found if found is not None and found.time_ms + age_ms > awake_ms else None


Outcome = tuple[str, object]


class Model:
    """All namespaces, by reference."""

    def __init__(self) -> None:
        self._spaces: dict[NamespaceRef, Space] = {}

    def space(self, ref: NamespaceRef) -> Space:
        """Returns a namespace, existing or not."""
        if ref not in self._spaces:
            self._spaces[ref] = Space(ref, head=ref.origin, floor=ref.origin, floor_context=ref.origin)
        return self._spaces[ref]

    def copy(self) -> Model:
        """Returns an independent copy."""
        return copy.deepcopy(self)

    def commit(self, ref: NamespaceRef, commit: Commit, epoch: int, now_ms: int, awake_ms: int) -> Outcome:
        """Makes a commit at a store time, of which calls take ``awake_ms``; returns ``(kind, detail)``."""
        space = self.space(ref)
        if space.deleted:
            return "failed", (Failure(FailureKind.DELETED, ref.name, space.head),)
        if commit.epoch != epoch:
            return "failed", (Failure(FailureKind.EPOCH, "", epoch),)
        if commit.request is not None and (found := space.find(commit.request.ref, awake_ms)) is not None:
            return "replayed", found
        for lock, token in commit.fences:
            if token < space.fences.get(lock, 0):
                return "failed", (Failure(FailureKind.FENCE, lock, space.fences[lock]),)
        if commit.request is not None and not commit.request.ref.uuid:
            ref_ = commit.request.ref
            if ref_.sequence <= max(ref_.answered_through, space.clients.get(ref_.client, (0, 0))[0]):
                return "refused", Reason.REQUEST_ID_REUSED
        if commit.config_version < space.config_version:
            return "failed", (Failure(FailureKind.CONFIG, "", space.config_version),)
        if commit.not_after_ms is not None and now_ms >= commit.not_after_ms:
            return "failed", (Failure(FailureKind.NOT_AFTER, "", now_ms),)
        if failures := self._failures(space, commit, now_ms):
            return "failed", failures
        return "committed", self._apply(space, commit, epoch, now_ms, awake_ms)

    def _failures(self, space: Space, commit: Commit, now_ms: int) -> tuple[Failure, ...]:
        found = []
        for check in commit.checks:
            if isinstance(check, CollectionCheck):
                stamp = space.stamp(check.collection, check.mode)
                if stamp != check.stamp:
                    found.append(Failure(FailureKind.COLLECTION, check.collection, stamp))
                continue
            entry = space.entries.get(check.key)
            stored = entry.revision if entry is not None else 0
            if stored != check.revision or (entry is not None and entry.live_until_ms > now_ms) != check.live:
                found.append(Failure(FailureKind.KEY, check.key, stored))
        return tuple(found)

    def _apply(self, space: Space, commit: Commit, epoch: int, now_ms: int, awake_ms: int) -> int:
        revision = space.head
        if commit.mutations:
            if not space.exists or space.head >> 40 < epoch:
                space.cuts.append(Cut(epoch, space.head))
            revision = max(space.head, epoch << 40) + 1
        logged = []
        for index, m in enumerate(commit.mutations):
            key = f"{m.key}{revision:016x}-{index:04x}" if m.rev_slot else m.key
            space.entries.pop(key, None)
            space.due.pop(key, None)
            if m.data is not None:
                space.entries[key] = StoredEntry(key, revision, m.data, m.live_until_ms)
                space.due[key] = m.due_ms
            if m.event:
                space.changes.append((revision, key, m.members))
                logged.append(LoggedChange(key, m.data, m.event))
            space.floor_context = max(space.floor_context, m.raise_floor_context)
        if logged:
            space.log.append(LoggedBatch(revision, now_ms, tuple(logged)))
        if commit.mutations:
            space.config_version = commit.config_version
            space.fences.update({fence.lock: fence.token for fence in commit.fences})
        if commit.request is not None:
            call = Remembered(revision, commit.request.fingerprint, commit.request.reply, awake_ms)
            self._remember(space, commit.request.ref, call)
        space.exists, space.head = True, revision
        return revision

    def _remember(self, space: Space, ref: RequestRef, call: Remembered) -> None:
        if not ref.uuid:
            answered = max(ref.answered_through, space.clients.get(ref.client, (0, 0))[0])
            space.clients[ref.client] = (answered, call.time_ms)
            for old in [r for r in space.requests if r.client == ref.client and 0 < r.sequence <= answered]:
                del space.requests[old]
        space.requests[ref._replace(answered_through=0)] = call
        for client in [c for c, (_, newest) in space.clients.items() if newest + CLIENT_REQUEST_AGE_MS <= call.time_ms]:
            del space.clients[client]

    def drop(self, ref: NamespaceRef) -> tuple[int, int]:
        """Drops a namespace that exists."""
        space = self.space(ref)
        count = sum(not key.startswith("\0") for key in space.entries)
        fresh = Space(ref, True, True, space.head, space.config_version, space.floor_context, space.head)
        fresh.cuts = space.cuts
        self._spaces[ref] = fresh
        return space.head, count

    def compact(self, ref: NamespaceRef, floor: int) -> None:
        """Cuts the log."""
        space = self.space(ref)
        if space.exists and not space.deleted:
            space.floor = max(space.floor, min(floor, space.head))
            space.log = [b for b in space.log if b.revision > space.floor]

    def erase(self, ref: NamespaceRef) -> tuple[int, int, int]:
        """Leaves records and the ids of calls; returns the head and what went."""
        space = self.space(ref)
        if not space.exists or space.deleted:
            return space.head, 0, 0
        logged, told = len(space.log), sum(not call.erased for call in space.requests.values())
        space.floor, space.log = space.head, []
        space.requests = {r: Remembered(c.revision, b"", b"", c.time_ms) for r, c in space.requests.items()}
        return space.head, logged, told
