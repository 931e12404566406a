"""Writes that were answered with "not applied": the conflict that each of them met, as an object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from noosphere.consistency import CODE_OF, Reason
from noosphere.v1 import memory_service_pb2 as ms
from noosphere.v1 import types_pb2 as pb

from ._conflict import Conflict
from ._errors import FailedPart, NoosphereError, ServerError, TransactionFailed
from ._mapping import CONFLICTS, to_error
from ._operations import Seen
from ._record import Record
from ._status import Failure
from ._values import Codec, Payload
from ._wire import to_dots

if TYPE_CHECKING:
    from ._space import Space


@dataclass(frozen=True, slots=True)
class Attempt:
    """What a conflict about a write shows of it.

    Attributes:
        key: the key.
        operation: ``put``, ``delete`` or ``compare``.
        codec: how to read the values.
        seen: what the writer had seen.
        mine: what it wanted to write.
    """

    key: str
    operation: str
    codec: Codec[Any]
    seen: Seen | None = None
    mine: Payload | None = None


def refused(
    space: Space, attempt: Attempt, reply: ms.PutResponse | ms.DeleteResponse, request_id: str
) -> NoosphereError:
    """Returns the error for a single write that was not applied."""
    if reply.WhichOneof("outcome") is None:
        return _no_outcome(request_id, reply.head)
    return _part(space, attempt, reply.not_applied, request_id, reply.head)


def transaction_failed(
    space: Space,
    compares: Sequence[Attempt],
    operations: Sequence[Attempt],
    reply: ms.TransactResponse,
    request_id: str,
) -> NoosphereError:
    """Returns the error for a transaction that was not applied."""
    parts = []
    for failure in reply.not_applied.failures:
        attempt = (operations if failure.is_operation else compares)[failure.index]
        error = _part(space, attempt, failure.detail, request_id, reply.head)
        parts.append(FailedPart(failure.index, failure.is_operation, attempt.key, error))
    if not parts:
        return _no_outcome(request_id, reply.head)
    first = parts[0]
    kind = "operation" if first.is_operation else "compare"
    return TransactionFailed(
        f"{kind} {first.index} on {first.key!r}: {first.error.message}",
        parts,
        reason=first.error.reason,
        code=first.error.code,
        request_id=request_id,
        head=reply.head,
    )


def _part(space: Space, attempt: Attempt, found: pb.NotApplied, request_id: str, head: int) -> NoosphereError:
    reason = found.reason
    code = CODE_OF[Reason(reason)].value if reason in set(Reason) else "ABORTED"
    if (kind := CONFLICTS.get(reason)) is None:
        failure = Failure(code, found.message, reason)
        return to_error(failure, request_id=request_id, outcome="not_applied", namespace=space.name)
    theirs: Record[Any] | None = None
    if found.HasField("current"):
        theirs = Record(space, attempt.codec, found.current, found.as_of or head)
    conflict: Conflict[Any] = kind(
        found.message,
        namespace=space.name,
        key=attempt.key,
        operation=attempt.operation,
        codec=attempt.codec,
        base=attempt.seen if isinstance(attempt.seen, Record) else None,
        mine=attempt.mine,
        theirs=theirs,
        unseen=to_dots(found.unseen),
        reason=reason,
        code=code,
        request_id=request_id,
        head=found.as_of or head,
    )
    return conflict


def _no_outcome(request_id: str, head: int) -> NoosphereError:
    return ServerError("the server's answer has no outcome", request_id=request_id, outcome="unknown", head=head)
