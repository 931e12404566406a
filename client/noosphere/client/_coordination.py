"""The way of a client's calls about locks and groups, and what is asked of them without holding anything."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from noosphere.consistency.limits import FENCES_MAX, LOCK_NAME_BYTES_MAX
from noosphere.v1 import coordination_service_pb2 as pb
from noosphere.v1 import types_pb2
from noosphere.v1.coordination_service_pb2_grpc import CoordinationServiceStub

from ._arguments import checked_revision, checked_text, shown
from ._claim import LEASE_MAX, LEASE_MIN, between
from ._coordination_data import Fence, LockInfo, to_lock
from ._errors import InvalidArgument, ValueTooLarge
from ._listing import checked_page_size
from ._session_link import pages
from ._transport import Transport
from ._wire import to_seconds

if TYPE_CHECKING:
    # Exists for type checkers only; at run time a stub is asynchronous if its channel is.
    from noosphere.v1.coordination_service_pb2_grpc import CoordinationServiceAsyncStub

LEASE_DEFAULT = 15.0
OWN_MARK = "~"
"""What names of the server's own begin with."""


@dataclass(frozen=True, slots=True)
class CoordinationLink:
    """The calls of one client about locks and groups.

    Attributes:
        transport: the client's way to the server.
        stub: the stub of CoordinationService.
    """

    transport: Transport
    stub: CoordinationServiceAsyncStub

    @classmethod
    def on(cls, transport: Transport) -> CoordinationLink:
        """Returns the service on a client's channel."""
        return cls(transport, CoordinationServiceStub(transport.channel))

    async def holder(self, name: str, timeout: float | None) -> LockInfo | None:
        """Returns who holds a lock, None if nobody does."""
        reply: pb.GetLockResponse = await self.transport.read(
            self.stub.GetLock, pb.GetLockRequest(name=name), timeout=timeout, namespace=""
        )
        return to_lock(reply.lock) if reply.HasField("lock") else None

    def locks(self, prefix: str, page_size: int, timeout: float | None) -> AsyncIterator[LockInfo]:
        """Lists the locks that are held, page by page."""
        request = pb.ListLocksRequest(
            prefix=checked_text("prefix", prefix) if prefix else "", page_size=checked_page_size(page_size)
        )
        return pages(self.transport, self.stub.ListLocks, request, _locks_of, to_lock, timeout)


def _locks_of(reply: pb.ListLocksResponse) -> Any:
    return reply.locks


def checked_name(name: str) -> str:
    """Returns the name of a lock, an election or a group.

    Raises:
        InvalidArgument: it is none, or too long, or the server's own.
    """
    checked_text("name", name)
    if not name or "\0" in name or name.startswith(OWN_MARK):
        raise InvalidArgument(f"name: {shown(name)} is empty, has a NUL in it, or begins with {OWN_MARK!r}")
    if (size := len(name.encode())) > LOCK_NAME_BYTES_MAX:
        error = ValueTooLarge(f"name has {size} bytes, the limit is {LOCK_NAME_BYTES_MAX}")
        error.field, error.actual, error.limit = "name", size, LOCK_NAME_BYTES_MAX
        raise error
    return name


def checked_fences(fences: Iterable[Fence], more: int) -> tuple[types_pb2.Fence, ...]:
    """Returns fences as sent.

    Args:
        fences: what is given.
        more: how many there are beside them.

    Raises:
        InvalidArgument: there are too many, or one is none.
    """
    found = tuple(fences)
    if len(found) + more > FENCES_MAX:
        raise InvalidArgument(f"fences: {len(found) + more} fences, the limit is {FENCES_MAX}")
    for fence in found:
        if not isinstance(fence, Fence):
            raise InvalidArgument(f"fences: {shown(fence)} is {type(fence).__name__}, not a Fence; take lock.fence")
    return tuple(
        types_pb2.Fence(lock=checked_name(lock), token=checked_revision("fences", token)) for lock, token in found
    )


def checked_lease(lease: timedelta | float) -> float:
    """Returns a lease in seconds.

    Raises:
        InvalidArgument: it is not between 1 s and 1 h.
    """
    return between("lease", to_seconds("lease", lease), LEASE_MIN, LEASE_MAX)
