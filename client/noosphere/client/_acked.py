"""The last writes that were acknowledged, so that a client can say which of its own a crash has lost.

An acknowledged write survives a crash unless the disk or a failover lied. If one did, the server says which
revisions are gone; this memory says what stood in them, and keeps what was sent so that it can be sent again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from noosphere.consistency import LostRange
from noosphere.v1 import memory_service_pb2 as ms

from ._sequence import RequestTicket
from ._values import JSON, Payload
from ._wire import to_payload

WRITES_MAX = 256
BYTES_PER_WRITE_MAX = 4096
"""A request that is larger than this for each of its writes is remembered without its content."""

WriteKind = Literal["put", "delete", "merge", "complete"]

Sent = ms.PutRequest | ms.DeleteRequest | ms.MergeRequest | ms.TransactRequest | ms.CommitRequest | ms.CompleteRequest
"""A request that changed something, as it was sent."""

Part = ms.PutOperation | ms.DeleteOperation | ms.MergeOperation


@dataclass(frozen=True, slots=True)
class AckedWrite:
    """A write of this client that was acknowledged.

    Attributes:
        namespace: the namespace.
        key: the key.
        revision: the commit's revision; the writes of one transaction share it.
        operation: ``put``, ``delete``, ``merge`` or ``complete`` (of a task).
        request_id: the call's id.
        kept: whether what was written is still known, so that it can be written again.
    """

    namespace: str
    key: str
    revision: int
    operation: WriteKind
    request_id: str
    kept: bool
    _payload: Payload | None = field(default=None, repr=False)

    @property
    def value(self) -> Any:
        """What was put (a JSON value or bytes), as a fresh object; None for anything else, or if it is not kept."""
        return None if self._payload is None else JSON.decode(self._payload)


@dataclass(slots=True, eq=False)
class AckedCommit:
    """One acknowledged call.

    Attributes:
        namespace: the namespace.
        revision: the commit's revision.
        request_id: the call's id.
        wrote: what it did to which keys, in the order of the request.
        request: what was sent; None if that was too large to keep.
        acked_at: when it was acknowledged, in seconds of the client's clock.
        lost: the lost range that holds the revision; None as long as nobody has said that it is lost.
        again: the request that writes it again, and its id, once that was tried and as long as its outcome is
            unknown.
    """

    namespace: str
    revision: int
    request_id: str
    wrote: tuple[tuple[str, WriteKind], ...]
    request: Sent | None
    acked_at: float
    lost: LostRange | None = None
    again: tuple[ms.TransactRequest | ms.CommitRequest, RequestTicket] | None = None

    @property
    def parts(self) -> tuple[Part, ...]:
        """The writes as they were sent; empty if they are not kept, or cannot be sent again (a completed task)."""
        return () if self.request is None else tuple(_parts(self.request))

    @property
    def writes(self) -> tuple[AckedWrite, ...]:
        """The writes as callers see them."""
        payloads = [to_payload(part.value) if isinstance(part, ms.PutOperation) else None for part in self.parts]
        kept = bool(payloads)
        return tuple(
            AckedWrite(self.namespace, key, self.revision, kind, self.request_id, kept, payload)
            for (key, kind), payload in zip(self.wrote, payloads or [None] * len(self.wrote), strict=True)
        )

    def settle(self) -> None:
        """Ends the attempt to write it again: its outcome is known, or nobody will ask for it any more."""
        if self.again is not None:
            self.again[1].close()
            self.again = None


class AckedWrites:
    """The last 256 acknowledged writes, with at most 1 MiB of content. Not thread-safe."""

    def __init__(self) -> None:
        self._commits: deque[AckedCommit] = deque()
        self._writes = 0

    def __len__(self) -> int:
        return self._writes

    def add(self, request: Sent, revision: int, request_id: str, now: float) -> None:
        """Takes note of an acknowledged call.

        Args:
            request: what was sent; it must not be changed afterwards.
            revision: the commit's revision; 0, when nothing had to change, is not noted.
            request_id: the call's id.
            now: the client's clock, in seconds.
        """
        if not revision:
            return
        wrote = tuple(_wrote(request))
        kept = request if request.ByteSize() <= BYTES_PER_WRITE_MAX * len(wrote) else None
        self._commits.append(AckedCommit(request.namespace, revision, request_id, wrote, kept, now))
        self._writes += len(wrote)
        while self._writes > WRITES_MAX:
            self.drop(self._commits[0])

    def mark_lost(self, namespace: str, lost: LostRange) -> tuple[AckedWrite, ...]:
        """Returns the writes whose revisions are in a lost range, oldest first."""
        found: list[AckedWrite] = []
        for commit in self._commits:
            if commit.namespace == namespace and lost.after < commit.revision <= lost.through:
                commit.lost = lost
                found += commit.writes
        return tuple(found)

    def lost_commits(self, writes: Iterable[AckedWrite]) -> Iterator[AckedCommit]:
        """Yields the lost calls that made ``writes``, oldest first."""
        wanted = {(write.namespace, write.revision) for write in writes}
        for commit in tuple(self._commits):
            if commit.lost is not None and (commit.namespace, commit.revision) in wanted:
                yield commit

    def drop(self, commit: AckedCommit) -> None:
        """Forgets a call."""
        if commit in self._commits:
            self._commits.remove(commit)
            self._writes -= len(commit.wrote)
            commit.settle()


def _wrote(request: Sent) -> Iterator[tuple[str, WriteKind]]:
    if isinstance(request, ms.CompleteRequest):
        yield request.key, "complete"
        return
    for part in _parts(request):
        match part:
            case ms.PutOperation():
                yield part.key, "put"
            case ms.DeleteOperation():
                yield part.key, "delete"
            case _:
                yield part.key, "merge"


def _parts(request: Sent) -> Iterator[Part]:
    match request:
        case ms.PutRequest():
            yield request.put
        case ms.DeleteRequest():
            yield request.delete
        case ms.MergeRequest():
            yield request.merge
        case ms.CompleteRequest():
            return
        case _:
            for operation in request.operations:
                match operation.WhichOneof("kind"):
                    case "put":
                        yield operation.put
                    case "delete":
                        yield operation.delete
                    case _:
                        yield operation.merge
