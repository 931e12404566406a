"""The last writes that were acknowledged, so that a client can say which of its own a crash has lost.

An acknowledged write survives a crash unless the disk or a failover lied. If one did, the server says which
revisions are gone; this memory says what stood in them, and keeps what was sent so that it can be sent again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from noosphere.consistency import LostRange
from noosphere.v1 import memory_service_pb2 as ms
from noosphere.v1.session_service_pb2 import Message

from ._values import JSON
from ._wire import to_payload

WRITES_MAX = 256
BYTES_PER_WRITE_MAX = 4096
"""A request that is larger than this for each of its writes is remembered without its content."""

WriteKind = Literal["put", "delete", "merge", "complete", "append"]

Sent = ms.PutRequest | ms.DeleteRequest | ms.MergeRequest | ms.TransactRequest | ms.CommitRequest | ms.CompleteRequest
"""A request that changed something, as it was sent."""

Part = ms.PutOperation | ms.DeleteOperation | ms.MergeOperation | ms.AppendOperation


@dataclass(slots=True, eq=False)
class AckedCommit:
    """One acknowledged call.

    Attributes:
        request: what was sent; without its content if that was too large to keep.
        kept: whether the content was kept.
        revision: the commit's revision.
        request_id: the call's id.
        acked_at: when it was acknowledged, in seconds of the client's clock.
        lost: the lost range that holds the revision; None as long as nobody has said that it is lost.
        again: how it is being written again, once that was tried, as long as the outcome is unknown.
        done: the revision at which it was written again, 0 if there was nothing left to do; None before.
    """

    request: Sent
    kept: bool
    revision: int
    request_id: str
    acked_at: float
    lost: LostRange | None = None
    again: Again | None = None
    done: int | None = None

    @property
    def namespace(self) -> str:
        """The namespace."""
        return self.request.namespace

    @property
    def parts(self) -> tuple[Part, ...]:
        """The writes as they were sent; empty if they are not kept, or cannot be sent again (a completed task)."""
        return tuple(_parts(self.request)) if self.kept else ()

    @property
    def wrote(self) -> tuple[tuple[str, WriteKind], ...]:
        """What it did to which keys, in the order of the request."""
        return tuple(_wrote(self.request))

    @property
    def writes(self) -> tuple[AckedWrite, ...]:
        """The writes as callers see them."""
        return tuple(AckedWrite(self, index) for index in range(len(self.wrote)))


class Again(NamedTuple):
    """One attempt to write a lost call again.

    Attributes:
        request: what is sent.
        request_id: its id, the same until the outcome is known.
        sent_at: when it was first sent, in seconds of the client's clock.
    """

    request: ms.TransactRequest | ms.CommitRequest
    request_id: str
    sent_at: float


@dataclass(frozen=True, slots=True, repr=False)
class AckedWrite:
    """A write of this client that was acknowledged."""

    _commit: AckedCommit
    _index: int

    @property
    def namespace(self) -> str:
        """The namespace."""
        return self._commit.namespace

    @property
    def key(self) -> str:
        """The key; of an appended message its own id, empty if it had none."""
        return self._commit.wrote[self._index][0]

    @property
    def operation(self) -> WriteKind:
        """What was done: ``put``, ``delete``, ``merge``, ``append`` (of a message) or ``complete`` (of a task)."""
        return self._commit.wrote[self._index][1]

    @property
    def revision(self) -> int:
        """The commit's revision; the writes of one transaction share it."""
        return self._commit.revision

    @property
    def request_id(self) -> str:
        """The call's id."""
        return self._commit.request_id

    @property
    def kept(self) -> bool:
        """Whether what was written is still known, so that it can be written again."""
        return bool(self._commit.parts)

    @property
    def value(self) -> Any:
        """What was put (a JSON value or bytes), as a fresh object; None for anything else, or if it is not kept."""
        parts = self._commit.parts
        part = parts[self._index] if parts else None
        return JSON.decode(to_payload(part.value)) if isinstance(part, ms.PutOperation) else None

    def __repr__(self) -> str:
        return f"AckedWrite({self.operation} {self.key!r} in {self.namespace!r}, revision={self.revision})"


class AckedWrites:
    """The last 256 acknowledged writes, with at most 1 MiB of content. Not thread-safe."""

    def __init__(self) -> None:
        self._commits: deque[AckedCommit] = deque()
        self._writes = 0

    def __len__(self) -> int:
        return self._writes

    def add(self, request: Sent, revision: int, request_id: str, now: float, *, replayed: bool = False) -> None:
        """Takes note of an acknowledged call.

        Args:
            request: what was sent; it must not be changed afterwards.
            revision: the commit's revision; 0, when nothing had to change, is not noted.
            request_id: the call's id.
            now: the client's clock, in seconds.
            replayed: whether it may have been acknowledged before.
        """
        if not revision or (replayed and self._knows(request.namespace, revision)):
            return
        count = _count(request)
        kept = request.ByteSize() <= BYTES_PER_WRITE_MAX * count
        if not kept:
            request = _without_content(request)
        self._commits.append(AckedCommit(request, kept, revision, request_id, now))
        self._writes += count
        while self._writes > WRITES_MAX:
            self._writes -= _count(self._commits.popleft().request)

    def _knows(self, namespace: str, revision: int) -> bool:
        return any((commit.namespace, commit.revision) == (namespace, revision) for commit in self._commits)

    def mark_lost(self, namespace: str, lost: LostRange) -> tuple[AckedWrite, ...]:
        """Returns the writes whose revisions are in a lost range, oldest first."""
        found: list[AckedWrite] = []
        for commit in self._commits:
            if commit.namespace == namespace and lost.after < commit.revision <= lost.through:
                commit.lost = lost
                found += commit.writes
        return tuple(found)

    def drop(self, commit: AckedCommit) -> None:
        """Forgets a call."""
        if commit in self._commits:
            self._commits.remove(commit)
            self._writes -= _count(commit.request)


def _count(request: Sent) -> int:
    return len(request.operations) if isinstance(request, (ms.TransactRequest, ms.CommitRequest)) else 1


def _without_content(request: Sent) -> Sent:
    """Returns a small request that wrote to the same keys."""
    operations: list[ms.Operation] = []
    for key, kind in _wrote(request):
        match kind:
            case "put":
                operations.append(ms.Operation(put=ms.PutOperation(key=key)))
            case "delete":
                operations.append(ms.Operation(delete=ms.DeleteOperation(key=key)))
            case "merge":
                operations.append(ms.Operation(merge=ms.MergeOperation(key=key)))
            case "append":
                operations.append(ms.Operation(append=ms.AppendOperation(message=Message(id=key))))
            case "complete":
                return ms.CompleteRequest(namespace=request.namespace, key=key)
    return ms.TransactRequest(namespace=request.namespace, operations=operations)


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
            case ms.AppendOperation():
                yield part.message.id, "append"
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
                    case "append":
                        yield operation.append
                    case _:
                        yield operation.merge
