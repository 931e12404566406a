"""What goes into and comes out of the memory services: plain values, no gRPC."""

from __future__ import annotations

from typing import NamedTuple

from noosphere.consistency import (
    CausalContext,
    Dot,
    Event,
    Precondition,
    Put,
    Record,
    RequestRef,
    seen_by_reader,
)
from noosphere.consistency.merge import MergeOp

from ..ports.coordinator import Incarnation
from ..ports.store import CollectionStamps, Fence


class Call(NamedTuple):
    """Who calls, and under which id."""

    incarnation: Incarnation | None = None
    request: RequestRef | None = None
    fences: tuple[Fence, ...] = ()

    @property
    def actor(self) -> str:
        """The caller as ``agent#incarnation``, empty for an anonymous reader."""
        return "" if self.incarnation is None else f"{self.incarnation.agent_id}#{self.incarnation.number}"


ANONYMOUS = Call()


class RecordView(NamedTuple):
    """A key as it was at one head and store time; ``record`` is None where nothing is stored."""

    key: str
    record: Record | None
    now_ms: int
    head: int

    @property
    def version(self) -> int:
        """The optimistic lock, 0 without a live value."""
        return 0 if self.record is None else self.record.version(self.now_ms)

    @property
    def context(self) -> CausalContext:
        """What the reader of this view has seen."""
        return seen_by_reader(self.record, self.now_ms, self.head)


class ReadReply(NamedTuple):
    """Views of one head."""

    records: tuple[RecordView, ...]
    head: int


class ListReply(NamedTuple):
    """One page of a list; ``next_key`` is where the next page begins after, None at the end."""

    records: tuple[RecordView, ...]
    head: int
    next_key: str | None
    stamps: CollectionStamps


class PutOp(NamedTuple):
    """Write one key."""

    key: str
    put: Put


class DeleteOp(NamedTuple):
    """Delete one key."""

    key: str
    precondition: Precondition


class MergeOperation(NamedTuple):
    """Apply a merge operation to one key."""

    key: str
    op: MergeOp


WriteOp = PutOp | DeleteOp | MergeOperation


class Compare(NamedTuple):
    """A condition of a transaction: the key's version must be this."""

    key: str
    expected_version: int


class AppliedOp(NamedTuple):
    """What one operation of a commit did.

    Attributes:
        version: None while other live values that the caller did not read remain.
        merged: a merge's value as read, where it is small.
    """

    version: int | None
    context: CausalContext
    overwritten: tuple[Dot, ...] = ()
    concurrent_delete: bool = False
    merged: bytes | None = None
    trimmed: int = 0


class WriteReply(NamedTuple):
    """What a commit did; ``revision`` is 0 if nothing had to change."""

    revision: int
    results: tuple[AppliedOp, ...]
    head: int
    replayed: bool


class ClaimReply(NamedTuple):
    """A claimed (or renewed, released, completed) record; None if no task was free."""

    record: RecordView | None
    head: int
    replayed: bool


class ChangeView(NamedTuple):
    """One change as a watcher sees it."""

    key: str
    event: Event
    record: RecordView | None


class BatchView(NamedTuple):
    """The changes of one revision."""

    revision: int
    time_ms: int
    changes: tuple[ChangeView, ...]


class HistoryReply(NamedTuple):
    """Logged batches, oldest first; ``next_after`` is None at the end."""

    batches: tuple[BatchView, ...]
    floor: int
    head: int
    next_after: int | None
