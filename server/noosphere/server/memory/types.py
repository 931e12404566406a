"""What goes into and comes out of the memory services: plain values, no gRPC."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from noosphere.consistency import (
    EVERYTHING,
    NOTHING_SEEN,
    CausalContext,
    CausalToken,
    Dot,
    Event,
    Guard,
    Precondition,
    Put,
    ReadSet,
    Record,
    RequestRef,
    Resolution,
    StaleEntry,
    seen_by_reader,
)
from noosphere.consistency.merge import MergeOp

from ..ports.coordinator import Incarnation
from ..ports.store import CollectionStamps, Fence
from ..security import OPEN, Principal


class Tokens(NamedTuple):
    """What a call presents of what its caller has seen, and what it wants to be told.

    Attributes:
        causal: the presented causal tokens, merged.
        presented: the same, each by itself: merging leaves out what an incomplete token may have dropped.
        read_set: what the caller's model saw.
        guards: what of it must not have changed; everything, if none is named.
        warn: write all the same and report what changed.
        allow_checked: guards outside the written namespace may be checked just before the commit.
        record: extend the read set by what this call reads.
        want_causal: return a causal token.
    """

    causal: CausalToken = NOTHING_SEEN
    presented: tuple[CausalToken, ...] = ()
    read_set: ReadSet | None = None
    guards: tuple[Guard, ...] = EVERYTHING
    warn: bool = False
    allow_checked: bool = False
    record: bool = False
    want_causal: bool = False


class Call(NamedTuple):
    """Who calls, and under which id."""

    incarnation: Incarnation | None = None
    request: RequestRef | None = None
    fences: tuple[Fence, ...] = ()
    tokens: Tokens | None = None
    fleet: int = 0
    """Where the agent was opened, 0 if the caller does not say."""
    principal: Principal = OPEN
    """The identity that the call comes from, which may act as its agent."""

    def presents(self, namespace: str) -> Iterator[int]:
        """Yields every revision of ``namespace`` that the call's tokens name."""
        if self.tokens is None:
            return
        for token in self.tokens.presented:
            yield from token.named(namespace)
        if self.tokens.read_set is not None:
            yield from self.tokens.read_set.revisions_of(namespace)

    @property
    def agent_id(self) -> str:
        """The calling agent, empty for an anonymous reader."""
        return "" if self.incarnation is None else self.incarnation.agent_id

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
    """Views of one head, and the caller's read set extended by them if that was asked for."""

    records: tuple[RecordView, ...]
    head: int
    read_set: ReadSet | None = None


class ListReply(NamedTuple):
    """One page of a list; ``next_key`` is where the next page begins after, None at the end."""

    records: tuple[RecordView, ...]
    head: int
    next_key: str | None
    stamps: CollectionStamps
    read_set: ReadSet | None = None


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


class ResolveOp(NamedTuple):
    """Put one value, or none, in the place of the siblings that the resolver has seen."""

    key: str
    resolution: Resolution
    seen: CausalContext


WriteOp = PutOp | DeleteOp | MergeOperation | ResolveOp


class AppendOp(NamedTuple):
    """Append to what a kind of namespace keeps in order, as sessions keep messages.

    Attributes:
        message: what to append; known to the extension of that kind of namespace.
        size: its bytes.
    """

    message: object
    size: int


Operation = WriteOp | AppendOp


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
    read_set: ReadSet | None = None
    """The caller's read set, advanced over what was written."""
    stale: tuple[StaleEntry, ...] = ()
    """What was stale and was overruled."""


class ClaimReply(NamedTuple):
    """A claimed (or renewed, released, completed) record; None if no task was free."""

    record: RecordView | None
    head: int
    replayed: bool
    read_set: ReadSet | None = None
    stale: tuple[StaleEntry, ...] = ()


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
