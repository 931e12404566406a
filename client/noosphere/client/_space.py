"""Reads and writes of one namespace: what keys, records, boards and namespaces share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from noosphere.consistency import CODE_OF, Reason, Refusal, Scalar, check_namespace
from noosphere.v1 import memory_service_pb2 as ms
from noosphere.v1 import types_pb2 as pb

from ._causal import Consistency
from ._conflict import Conflict
from ._errors import FailedPart, InvalidArgument, NoosphereError, ServerError, TransactionFailed
from ._mapping import CONFLICTS, to_error
from ._operations import (
    Compare,
    Delete,
    MergeOperation,
    Operation,
    Put,
    Seen,
    checked_key,
    lower,
    lower_delete,
    lower_merge,
    lower_put,
)
from ._record import Applied, Record, to_applied
from ._status import Failure
from ._transport import Transport
from ._values import JSON, Codec, Payload
from ._wire import from_payload, local_refusal, to_dots

if TYPE_CHECKING:
    from ._cache import NearCache

T = TypeVar("T")

KEYS_PER_READ_MAX = 256


class MergeResult(NamedTuple):
    """What a merge operation did.

    Attributes:
        version: the record's version, the revision of this operation.
        value: the value after the operation if it has at most 128 bytes as JSON, else None.
        trimmed: logs: entries dropped to make room, since the log began.
        replayed: whether an earlier, remembered execution is being reported.
    """

    version: int
    value: Any
    trimmed: int
    replayed: bool


class TransactResult(NamedTuple):
    """What an applied transaction did.

    Attributes:
        revision: the one revision of the commit; 0 if nothing had to change.
        results: one per operation, in order.
        replayed: whether an earlier, remembered execution is being reported.
        head: the namespace's newest visible revision.
    """

    revision: int
    results: tuple[Applied, ...]
    replayed: bool
    head: int


@dataclass(frozen=True, slots=True)
class _Attempt:
    """What a conflict about a write shows."""

    request_id: str
    key: str
    operation: str
    codec: Codec[Any]
    seen: Seen | None = None
    mine: Payload | None = None


@dataclass(frozen=True, slots=True)
class Space:
    """One namespace as seen through one client.

    Attributes:
        transport: the client's way to the server.
        name: the namespace's full name.
    """

    transport: Transport
    name: str

    def __post_init__(self) -> None:
        try:
            check_namespace(self.name)
        except Refusal as refusal:
            raise local_refusal(refusal) from None

    async def read(
        self, codec: Codec[T], key: str, timeout: float | None, consistency: Consistency = "linearizable"
    ) -> Record[T]:
        """Reads a key, absent or not."""
        if consistency != "linearizable" and (cache := self.cache) is not None:
            found = cache.find(codec, checked_key(key), consistency)
            if found is not None:
                return found
        request = ms.GetRequest(namespace=self.name, key=checked_key(key))
        reply: ms.GetResponse = await self.transport.read(
            self.transport.stub.Get, request, timeout=timeout, namespace=self.name
        )
        return Record(self, codec, reply.record, reply.head)

    @property
    def cache(self) -> NearCache | None:
        """The open near cache of this namespace."""
        return self.transport.caches.get(self.name)

    async def read_many(self, codec: Codec[T], keys: Sequence[str], timeout: float | None) -> tuple[Record[T], ...]:
        """Reads several keys at one head."""
        if len(keys) > KEYS_PER_READ_MAX:
            raise InvalidArgument(f"keys: {len(keys)} keys, the limit is {KEYS_PER_READ_MAX}")
        if not keys:
            return ()
        request = ms.BatchGetRequest(namespace=self.name, keys=[checked_key(key) for key in keys])
        reply: ms.BatchGetResponse = await self.transport.read(
            self.transport.stub.BatchGet, request, timeout=timeout, namespace=self.name
        )
        return tuple(Record(self, codec, record, reply.head) for record in reply.records)

    async def put(
        self,
        codec: Codec[T],
        key: str,
        value: T,
        *,
        expected_version: int | None = None,
        seen: Seen | None = None,
        blind: bool = False,
        ttl: timedelta | float | None = None,
        expires_at: datetime | None = None,
        attributes: Mapping[str, Scalar] | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> Record[T]:
        """Writes a key; see ``Namespace.put``."""
        operation, payload = lower_put(
            self.name,
            Put(key, value, None, expected_version, seen, blind, ttl, expires_at, attributes),
            codec,
        )
        reply: ms.PutResponse
        reply, call_id = await self.transport.write(
            self.transport.stub.Put,
            ms.PutRequest(namespace=self.name, put=operation, return_current=True),
            request_id=request_id,
            timeout=timeout,
            namespace=self.name,
        )
        if reply.WhichOneof("outcome") != "applied":
            raise self._refused(_Attempt(call_id, key, "put", codec, seen, payload), reply)
        applied = to_applied(reply.applied)
        live = pb.LiveValue(dot=applied.revision, actor=self.transport.actor_name, value=from_payload(payload))
        if operation.HasField("expire_time"):
            live.expire_time.CopyFrom(operation.expire_time)
        record = pb.Record(
            key=key,
            version=applied.version or 0,
            context=reply.applied.context,
            values=[live],
            attributes=operation.attributes,
            merge_type=pb.MergeType.ValueType(seen.merge_type if isinstance(seen, Record) else 0),
        )
        return Record(self, codec, record, reply.head, applied=applied)

    async def delete(
        self,
        codec: Codec[T],
        key: str,
        *,
        expected_version: int | None = None,
        seen: Seen | None = None,
        blind: bool = False,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> Record[T]:
        """Deletes a key; see ``Namespace.delete``."""
        operation = lower_delete(self.name, Delete(key, expected_version, seen, blind))
        reply: ms.DeleteResponse
        reply, call_id = await self.transport.write(
            self.transport.stub.Delete,
            ms.DeleteRequest(namespace=self.name, delete=operation, return_current=True),
            request_id=request_id,
            timeout=timeout,
            namespace=self.name,
        )
        if reply.WhichOneof("outcome") != "applied":
            raise self._refused(_Attempt(call_id, key, "delete", codec, seen), reply)
        record = pb.Record(key=key, context=reply.applied.context)
        return Record(self, codec, record, reply.head, applied=to_applied(reply.applied))

    async def merge(self, operation: MergeOperation, request_id: str | None, timeout: float | None) -> MergeResult:
        """Applies a merge operation, which cannot conflict."""
        reply: ms.MergeResponse
        reply, _ = await self.transport.write(
            self.transport.stub.Merge,
            ms.MergeRequest(namespace=self.name, merge=lower_merge(self.name, operation)),
            request_id=request_id,
            timeout=timeout,
            namespace=self.name,
        )
        applied = to_applied(reply.applied)
        version = applied.version if applied.version is not None else applied.revision
        return MergeResult(version, applied.value, applied.trimmed, applied.replayed)

    async def transact(
        self,
        compares: Sequence[Compare | Record[Any]],
        operations: Sequence[Operation],
        request_id: str | None,
        timeout: float | None,
    ) -> TransactResult:
        """Applies everything at one revision or nothing; see ``Namespace.transact``."""
        checks = [self._compare(compare) for compare in compares]
        lowered = [lower(self.name, operation) for operation in operations]
        reply: ms.TransactResponse
        reply, call_id = await self.transport.write(
            self.transport.stub.Transact,
            ms.TransactRequest(
                namespace=self.name,
                compares=checks,
                operations=[operation for operation, _, _ in lowered],
                return_current=True,
            ),
            request_id=request_id,
            timeout=timeout,
            namespace=self.name,
        )
        if reply.WhichOneof("outcome") == "applied":
            results = tuple(to_applied(result) for result in reply.applied.results)
            return TransactResult(reply.applied.revision, results, reply.applied.replayed, reply.head)
        parts = []
        for failure in reply.not_applied.failures:
            if failure.is_operation:
                named = operations[failure.index]
                _, codec, payload = lowered[failure.index]
                seen = named.seen if isinstance(named, (Put, Delete)) else None
                verb = "delete" if isinstance(named, Delete) else "put"
                attempt = _Attempt(call_id, named.key, verb, codec, seen, payload)
            else:
                base = compares[failure.index]
                seen = base if isinstance(base, Record) else None
                attempt = _Attempt(call_id, base.key, "compare", JSON, seen)
            error = self._error(attempt, failure.detail, reply.head)
            parts.append(FailedPart(failure.index, failure.is_operation, attempt.key, error))
        raise _transaction_failed(parts, call_id, reply.head)

    def _compare(self, compare: Compare | Record[Any]) -> ms.Compare:
        if isinstance(compare, Record):
            if compare.namespace != self.name:
                raise InvalidArgument(f"compares: {compare.key!r} was read from {compare.namespace}, not {self.name}")
            if compare.version is None:
                raise InvalidArgument(f"compares: {compare.key!r} has values that were not read; read it again")
            return ms.Compare(key=compare.key, expected_version=compare.version)
        return ms.Compare(key=checked_key(compare.key), expected_version=compare.expected_version)

    def _refused(self, attempt: _Attempt, reply: ms.PutResponse | ms.DeleteResponse) -> NoosphereError:
        if reply.WhichOneof("outcome") is None:
            return _no_outcome(attempt.request_id, reply.head)
        return self._error(attempt, reply.not_applied, reply.head)

    def _error(self, attempt: _Attempt, refused: pb.NotApplied, head: int) -> NoosphereError:
        reason = refused.reason
        code = CODE_OF[Reason(reason)].value if reason in set(Reason) else "ABORTED"
        if (kind := CONFLICTS.get(reason)) is None:
            failure = Failure(code, refused.message, reason)
            return to_error(failure, request_id=attempt.request_id, outcome="not_applied", namespace=self.name)
        theirs: Record[Any] | None = None
        if refused.HasField("current"):
            theirs = Record(self, attempt.codec, refused.current, refused.as_of or head)
        conflict: Conflict[Any] = kind(
            refused.message,
            namespace=self.name,
            key=attempt.key,
            operation=attempt.operation,
            codec=attempt.codec,
            base=attempt.seen if isinstance(attempt.seen, Record) else None,
            mine=attempt.mine,
            theirs=theirs,
            unseen=to_dots(refused.unseen),
            reason=reason,
            code=code,
            request_id=attempt.request_id,
            head=refused.as_of or head,
        )
        return conflict


def _no_outcome(request_id: str, head: int) -> NoosphereError:
    return ServerError("the server's answer has no outcome", request_id=request_id, outcome="unknown", head=head)


def _transaction_failed(parts: Sequence[FailedPart], request_id: str, head: int) -> NoosphereError:
    if not parts:
        return _no_outcome(request_id, head)
    first = parts[0]
    kind = "operation" if first.is_operation else "compare"
    return TransactionFailed(
        f"{kind} {first.index} on {first.key!r}: {first.error.message}",
        parts,
        reason=first.error.reason,
        code=first.error.code,
        request_id=request_id,
        head=head,
    )
