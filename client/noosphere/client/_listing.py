"""Listing by pages: records of a collection, and the log's changes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from typing import Any, Generic, NamedTuple, TypeVar

from noosphere.consistency import ChangeKind, Refusal, Scalar, check_collection
from noosphere.v1 import memory_service_pb2 as ms

from ._arguments import shown
from ._causal import Consistency, checked_consistency
from ._errors import InvalidArgument
from ._operations import checked_key
from ._record import Record
from ._space import Carrier, Space
from ._values import Codec
from ._wire import Dot, from_scalars, local_refusal, to_dots, to_time

T = TypeVar("T")

PAGE_SIZE = 100
PAGE_SIZE_MAX = 1_000


class ChangeEvent(NamedTuple, Generic[T]):
    """One change of one key.

    Attributes:
        key: the key.
        kind: ``put``, ``delete``, ``expire``, ``merge``, ``claim``, ``renew``, ``release`` or
            ``complete``; ``put`` for every record of a snapshot.
        record: the record after the change; None for an expiry that the same commit overwrote.
        actor: who did it, as ``agent#incarnation``; empty for an expiry.
        overwritten: what was replaced unseen.
    """

    key: str
    kind: str
    record: Record[T] | None
    actor: str
    overwritten: tuple[Dot, ...] = ()


class HistoryEntry(NamedTuple):
    """One revision of the log.

    Attributes:
        revision: the revision.
        time: store time of the commit, in UTC.
        events: what changed, in the order of the commit.
        floor: the log holds every change after this revision and none before it.
        head: the namespace's newest visible revision when the page was read.
    """

    revision: int
    time: datetime
    events: tuple[ChangeEvent[Any], ...]
    floor: int
    head: int


def checked_collection(collection: str) -> str:
    """Returns ``collection``.

    Raises:
        InvalidArgument: it is no collection.
    """
    try:
        check_collection(collection)
    except Refusal as refusal:
        raise local_refusal(refusal) from None
    return collection


def checked_page_size(page_size: int) -> int:
    """Returns ``page_size``.

    Raises:
        InvalidArgument: it is outside 1 to 1,000.
    """
    if isinstance(page_size, bool) or not isinstance(page_size, int) or not 1 <= page_size <= PAGE_SIZE_MAX:
        raise InvalidArgument(f"page_size: {shown(page_size)} is not between 1 and {PAGE_SIZE_MAX}")
    return page_size


def list_records(
    space: Space,
    codec: Codec[T],
    collection: str,
    *,
    where: Mapping[str, Scalar] | None = None,
    reverse: bool = False,
    keys_only: bool = False,
    claimed_only: bool = False,
    page_size: int = PAGE_SIZE,
    consistency: Consistency = "linearizable",
    timeout: float | None = None,
    carrier: Carrier | None = None,
) -> AsyncIterator[Record[T]]:
    """Returns the records of a collection; arguments are checked at once, pages fetched as needed."""
    checked_consistency(consistency)
    request = ms.ListRequest(
        namespace=space.name,
        collection=checked_collection(collection),
        page_size=checked_page_size(page_size),
        reverse=reverse,
        where=from_scalars("where", where),
        keys_only=keys_only,
        claimed_only=claimed_only,
    )
    return _records(space, codec, request, timeout, consistency, carrier)


async def _records(
    space: Space,
    codec: Codec[T],
    request: ms.ListRequest,
    timeout: float | None,
    consistency: Consistency,
    carrier: Carrier | None,
) -> AsyncIterator[Record[T]]:
    while True:
        reply: ms.ListResponse = await space.ask(space.transport.stub.List, request, timeout, consistency, carrier)
        for record in reply.records:
            yield Record(space, codec, record, reply.head, keys_only=request.keys_only)
        if not reply.next_page_token:
            return
        request.page_token = reply.next_page_token


def list_history(
    space: Space, codec: Codec[Any], key: str | None, *, page_size: int = PAGE_SIZE, timeout: float | None = None
) -> AsyncIterator[HistoryEntry]:
    """Returns the logged changes, oldest first; arguments are checked at once."""
    request = ms.ListHistoryRequest(
        namespace=space.name,
        key="" if key is None else checked_key(key),
        page_size=checked_page_size(page_size),
    )
    return _history(space, codec, request, timeout)


async def _history(
    space: Space, codec: Codec[Any], request: ms.ListHistoryRequest, timeout: float | None
) -> AsyncIterator[HistoryEntry]:
    while True:
        reply: ms.ListHistoryResponse = await space.transport.read(
            space.transport.stub.ListHistory, request, timeout=timeout, namespace=space.name
        )
        for batch in reply.batches:
            events = to_events(space, codec, batch, reply.head)
            yield HistoryEntry(batch.revision, to_time(batch.commit_time), events, reply.floor, reply.head)
        if not reply.next_page_token:
            return
        request.page_token = reply.next_page_token


def to_events(space: Space, codec: Codec[T], batch: ms.ChangeBatch, head: int) -> tuple[ChangeEvent[T], ...]:
    """Returns the changes of one revision."""
    return tuple(
        ChangeEvent(
            change.key,
            _kind(change.kind),
            Record(space, codec, change.record, head) if change.HasField("record") else None,
            change.actor,
            to_dots(change.overwritten),
        )
        for change in batch.changes
    )


_KINDS = {kind.value: kind.name.lower() for kind in ChangeKind}


def _kind(kind: int) -> str:
    # A newer server may know kinds that this client does not: the record tells what is there now.
    return _KINDS.get(kind, "unknown")
