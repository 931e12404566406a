"""Puts one value, or none, in the place of all live values of a record that somebody has read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from noosphere.v1 import memory_service_pb2 as ms
from noosphere.v1 import types_pb2 as pb

from ._conflict import Conflict
from ._errors import NoosphereError
from ._record import Record, to_applied
from ._transport import LOG
from ._values import Payload
from ._wire import from_context, from_payload, to_payload

if TYPE_CHECKING:
    from ._space import Space

T = TypeVar("T")

Resolution = Payload | int | None
"""A new value, the dot of the value to keep, or nothing."""


async def resolve(
    space: Space, record: Record[T], resolution: Resolution, request_id: str | None, timeout: float | None
) -> Record[T]:
    """Resolves; see ``Record.resolve``."""
    request = ms.ResolveConflictRequest(namespace=space.name, key=record.key, context=from_context(record.seen))
    left: pb.LiveValue | None = None
    match resolution:
        case None:
            request.delete = True
        case int():
            request.keep_dot = resolution
            left = next(value for value in record._proto.values if value.dot == resolution)
        case Payload():
            request.value.CopyFrom(from_payload(resolution))
            left = pb.LiveValue(value=request.value)
    reply: ms.ResolveConflictResponse
    try:
        reply, call_id = await space.tell(space.transport.stub.ResolveConflict, request, request_id, timeout)
    except Conflict as bare:
        raise await _with_records(space, bare, record, left) from None
    applied = to_applied(reply.applied)
    written = pb.Record(key=record.key, context=reply.applied.context)
    if left is not None:
        value = pb.LiveValue(dot=applied.revision, actor=space.transport.actor_name, value=left.value)
        if left.HasField("expire_time"):
            value.expire_time.CopyFrom(left.expire_time)
        written.values.append(value)
        written.version = applied.version or 0
        written.attributes.MergeFrom(record._proto.attributes)
    space.acked(_as_sent(space.name, written), applied.revision, call_id, applied.replayed)
    return Record(space, record._codec, written, reply.head, applied=applied)


async def _with_records(
    space: Space, bare: Conflict[Any], base: Record[Any], mine: pb.LiveValue | None
) -> Conflict[Any]:
    """Returns a conflict with the records that this call is not answered with."""
    theirs: Record[Any] | None = None
    try:
        theirs = await space.read(base._codec, base.key, None)
    except NoosphereError as error:
        LOG.debug("could not read %r after a conflict: %s", base.key, error)
    return Conflict(
        bare.message,
        namespace=space.name,
        key=base.key,
        operation="delete" if mine is None else "put",
        codec=base._codec,
        base=base,
        mine=to_payload(mine.value) if mine is not None else None,
        theirs=theirs,
        unseen=bare.unseen,
        reason=bare.reason,
        code=bare.code,
        request_id=bare.request_id,
        head=bare.head,
    )


def _as_sent(namespace: str, written: pb.Record) -> ms.PutRequest | ms.DeleteRequest:
    """Returns the plain write that does the same."""
    if not written.values:
        return ms.DeleteRequest(namespace=namespace, delete=ms.DeleteOperation(key=written.key))
    value = written.values[0]
    put = ms.PutOperation(key=written.key, value=value.value)
    put.attributes.MergeFrom(written.attributes)
    if value.HasField("expire_time"):
        put.expire_time.CopyFrom(value.expire_time)
    return ms.PutRequest(namespace=namespace, put=put)
