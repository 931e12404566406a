"""The conflict queue: records with several live values that wait for somebody to join them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Generic, NamedTuple, TypeVar

from noosphere.v1 import memory_service_pb2 as ms

from ._conflict import SiblingConflict, sibling_conflict
from ._listing import PAGE_SIZE, checked_collection, checked_page_size
from ._record import Record
from ._space import Space
from ._values import Codec
from ._wire import to_time

T = TypeVar("T")


class PendingConflict(NamedTuple, Generic[T]):
    """A record that waits for somebody to resolve it.

    Attributes:
        record: the record; ``record.values`` are its values, ``record.resolve`` puts one in their place.
        since: the revision at which it began to have several values.
        since_time: store time of that revision, in UTC.
    """

    record: Record[T]
    since: int
    since_time: datetime

    @property
    def conflict(self) -> SiblingConflict[T]:
        """The same for a model: ``conflict.explain()``."""
        return sibling_conflict(self.record)


def list_conflicts(
    space: Space, codec: Codec[T], collection: str, *, page_size: int = PAGE_SIZE, timeout: float | None = None
) -> AsyncIterator[PendingConflict[T]]:
    """Returns the conflicts below a collection; arguments are checked at once, pages fetched as needed."""
    request = ms.ListConflictsRequest(
        namespace=space.name,
        collection=checked_collection(collection),
        page_size=checked_page_size(page_size),
    )
    return _conflicts(space, codec, request, timeout)


async def _conflicts(
    space: Space, codec: Codec[T], request: ms.ListConflictsRequest, timeout: float | None
) -> AsyncIterator[PendingConflict[T]]:
    while True:
        reply: ms.ListConflictsResponse = await space.transport.read(
            space.transport.stub.ListConflicts, request, timeout=timeout, namespace=space.name
        )
        for found in reply.conflicts:
            record = Record(space, codec, found.record, reply.head)
            yield PendingConflict(record, found.since, to_time(found.since_time))
        if not reply.next_page_token:
            return
        request.page_token = reply.next_page_token
