"""Watches: a namespace's changes as batches, in order, without gaps, across lost connections.

A watch remembers where it is by the resume token of the last batch that it *delivered*. After a lost
connection it continues there. Where the server cannot continue (the log was compacted, or revisions
were lost) it says so by a batch and delivers a new snapshot: it never goes on as if nothing were
missing. It reads one message ahead at most, so gRPC's flow control is its buffer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, Literal, TypeVar

import grpc

from noosphere.consistency import Reason
from noosphere.v1 import errors_pb2, types_pb2
from noosphere.v1 import memory_service_pb2 as ms

from ._arguments import checked_revision, shown
from ._errors import InvalidArgument, LimitExceeded
from ._listing import ChangeEvent, checked_collection, to_events
from ._mapping import to_error
from ._record import Record
from ._space import Space
from ._status import Failure
from ._stream import ResumedStream, is_passing
from ._values import Codec

T = TypeVar("T")

_Stream = grpc.aio.UnaryStreamCall[ms.WatchRequest, ms.WatchResponse]

BatchKind = Literal["snapshot", "changes", "reset", "epoch", "bookmark"]

SNAPSHOT_RECORDS_MAX = 100_000


@dataclass(frozen=True, slots=True)
class WatchBatch(Generic[T]):
    """What happened at one revision.

    Attributes:
        kind: ``snapshot``: all that was there when the watch began. ``changes``: one revision.
            ``reset``: forget everything, this is all that is there now. ``epoch``: revisions above
            ``revision`` were lost in a crash or failover; a ``reset`` follows. ``bookmark``: nothing
            here changed up to ``revision``.
        revision: everything up to this revision has been told.
        events: the changes, in the order of the commit; the records of a snapshot or reset by key.
        resume: give it to ``watch(resume=…)`` to continue after this batch; empty for ``epoch``.
        head: the namespace's newest visible revision.
    """

    kind: BatchKind
    revision: int
    events: tuple[ChangeEvent[T], ...]
    resume: bytes
    head: int


class Watch(Generic[T]):
    """A watch; made by ``Namespace.watch``, for one use.

    ::

        async with namespace.watch("plan/", resume=load()) as batches:
            async for batch in batches:
                ...
    """

    def __init__(
        self,
        space: Space,
        codec: Codec[T],
        collection: str,
        *,
        resume: bytes | None,
        after: int | None,
        snapshot: bool,
        patience: float,
        snapshot_records_max: int,
        snapshot_bytes_max: float = math.inf,
        on_failure: Callable[[], None] | None = None,
        on_revision: Callable[[int], None] | None = None,
    ) -> None:
        if sum((resume is not None, after is not None, snapshot)) > 1:
            raise InvalidArgument("resume: give one of resume, after and snapshot at most")
        if resume is not None and not isinstance(resume, bytes):
            raise InvalidArgument(f"resume: {shown(resume)} is {type(resume).__name__}, not bytes")
        if after is not None:
            checked_revision("after", after)
        if (
            isinstance(snapshot_records_max, bool)
            or not isinstance(snapshot_records_max, int)
            or snapshot_records_max < 1
        ):
            raise InvalidArgument(f"snapshot_records_max: {shown(snapshot_records_max)} is not a number of records")
        self._space = space
        self._codec = codec
        self._collection = checked_collection(collection)
        self._resume = resume
        self._after = after
        self._snapshot = snapshot
        self._snapshot_kind: Literal["snapshot", "reset"] = "snapshot"
        self._stream = ResumedStream(space.transport, self._open, space.name, patience=patience, on_failure=on_failure)
        self._snapshot_records_max = snapshot_records_max
        self._snapshot_bytes_max = snapshot_bytes_max
        self._on_revision = on_revision
        self._delivered = 0
        self._collected: list[types_pb2.Record] = []
        self._collected_bytes = 0
        self._entered = False
        self._closed = False

    async def __aenter__(self) -> Watch[T]:
        """Begins the watch. Without a start point, everything written from here on is delivered.

        Raises:
            NoosphereError: the start point could not be determined.
        """
        if self._entered:
            raise RuntimeError("a watch is for one use; call watch again")
        self._entered = True
        if self._resume is None and self._after is None and not self._snapshot:
            # "From now on" must be a revision: a connection lost before the first message would
            # otherwise begin again at a later now.
            self._after = await self._read_head()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends the watch."""
        self._closed = True
        await self._stream.close()

    def __aiter__(self) -> Watch[T]:
        """Returns the watch itself."""
        return self

    async def __anext__(self) -> WatchBatch[T]:
        """Returns the next batch, waiting for it. A cancelled wait loses nothing: ask again.

        Raises:
            StopAsyncIteration: the block was left.
            LimitExceeded: a snapshot is larger than this watch collects.
            Unavailable: the watch could not be resumed for ``patience`` seconds.
            StaleIncarnation: the agent's incarnation has ended; connect again and give ``resume``.
            NoosphereError: the watch cannot continue, see the tree.
        """
        if not self._entered:
            raise RuntimeError("the watch has not begun: enter its block first")
        while not self._closed:
            message = await self._stream.next()
            batch = self._after_failure(message) if isinstance(message, Failure) else self._told_by(message)
            if batch is not None:
                if self._on_revision is not None and batch.kind != "epoch":
                    self._on_revision(batch.revision)
                return batch
        raise StopAsyncIteration

    def _told_by(self, message: ms.WatchResponse) -> WatchBatch[T] | None:
        """Returns the batch that a message completes, None if more messages belong to it."""
        match message.WhichOneof("event"):
            case "snapshot":
                return self._collect(message)
            case "changes":
                revision = message.changes.revision
                if revision <= self._delivered:
                    return None
                self._delivered = revision
                self._move(message, revision)
                events = to_events(self._space, self._codec, message.changes, message.head)
                return WatchBatch("changes", revision, events, self._resume or b"", message.head)
            case "bookmark":
                self._move(message, message.head)
                return WatchBatch("bookmark", message.head, (), self._resume or b"", message.head)
            case "epoch":
                self._stream.abandon()
                self._begin_anew()
                return WatchBatch("epoch", message.epoch.cut, (), b"", message.head)
            case _:
                # A newer server may tell more than this client knows.
                return None

    def _collect(self, message: ms.WatchResponse) -> WatchBatch[T] | None:
        self._collected.extend(message.snapshot.records)
        self._collected_bytes += message.ByteSize()
        if self._collected_bytes > self._snapshot_bytes_max:
            raise LimitExceeded(
                f"snapshot: more than {self._snapshot_bytes_max} bytes below {self._collection!r} in {self._space.name}"
            )
        if len(self._collected) > self._snapshot_records_max:
            raise LimitExceeded(
                f"snapshot: more than {self._snapshot_records_max} records below {self._collection!r} in "
                f"{self._space.name}; watch a smaller collection or raise snapshot_records_max"
            )
        if not message.snapshot.last:
            return None
        records = self._collected
        self._forget_collected()
        events = tuple(
            ChangeEvent(
                record.key,
                "put",
                Record(self._space, self._codec, record, message.head),
                record.values[-1].actor if record.values else "",
            )
            for record in records
        )
        # Also backwards: after an epoch, new revisions may be lower than lost ones that were delivered.
        self._delivered = message.head
        self._move(message, message.head)
        return WatchBatch(self._snapshot_kind, message.head, events, self._resume or b"", message.head)

    def _move(self, message: ms.WatchResponse, revision: int) -> None:
        self._snapshot = False
        if message.resume_token:
            self._resume, self._after = message.resume_token, None
        else:
            self._resume, self._after = None, revision

    def _begin_anew(self) -> None:
        """Goes back to a snapshot, which will be delivered as ``reset``."""
        self._resume, self._after, self._snapshot = None, None, True
        self._snapshot_kind = "reset"
        self._forget_collected()

    def _forget_collected(self) -> None:
        self._collected, self._collected_bytes = [], 0

    def _after_failure(self, failure: Failure) -> WatchBatch[T] | None:
        """Prepares to continue after a failed stream.

        Returns:
            A batch to deliver first, or None.

        Raises:
            NoosphereError: the watch cannot continue.
        """
        self._forget_collected()
        if failure.reason == Reason.COMPACTED:
            self._begin_anew()
            return None
        if failure.reason == Reason.ACKED_WRITES_LOST:
            self._begin_anew()
            lost = failure.detail
            if not isinstance(lost, errors_pb2.LostRevisionsDetail):
                lost = errors_pb2.LostRevisionsDetail()
            # `from` is a keyword here.
            return WatchBatch("epoch", getattr(lost, "from"), (), b"", lost.head)
        if is_passing(failure) or failure.reason == Reason.SLOW_CONSUMER:
            return None
        raise to_error(failure, request_id=None, outcome="not_applied", namespace=self._space.name)

    def _open(self) -> _Stream:
        request = ms.WatchRequest(namespace=self._space.name, collection=self._collection)
        request.call.actor.CopyFrom(self._space.transport.actor)
        if self._resume is not None:
            request.resume_token = self._resume
        elif self._after is not None:
            request.after = self._after
        else:
            request.snapshot = True
        return self._space.transport.stub.Watch(request)

    async def _read_head(self) -> int:
        request = ms.ListRequest(namespace=self._space.name, page_size=1, keys_only=True)
        reply: ms.ListResponse = await self._space.transport.read(
            self._space.transport.stub.List, request, timeout=None, namespace=self._space.name
        )
        return reply.head
