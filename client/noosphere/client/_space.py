"""Reads and writes of one namespace: what keys, records, boards and namespaces share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from noosphere.consistency import Refusal, Scalar, check_namespace
from noosphere.v1 import memory_service_pb2 as ms
from noosphere.v1 import types_pb2 as pb

from ._acked import Sent
from ._arguments import checked_revision, checked_text
from ._causal import Consistency
from ._errors import InvalidArgument
from ._operations import (
    Compare,
    Delete,
    MergeOperation,
    Operation,
    Put,
    Seen,
    checked_key,
    key_of,
    lower,
    lower_delete,
    lower_merge,
    lower_put,
)
from ._record import Applied, Record, to_applied
from ._refused import Attempt, refused, transaction_failed
from ._resolve import Resolution, resolve
from ._transport import Method, Transport
from ._values import JSON, Codec
from ._wire import from_payload, local_refusal

if TYPE_CHECKING:
    from ._cache import NearCache

T = TypeVar("T")
Reply = TypeVar("Reply")

KEYS_PER_READ_MAX = 256


class Carrier(Protocol):
    """Puts tokens of what somebody has seen into calls, and takes them from their answers."""

    def attach(self, call: pb.CallContext) -> None:
        """Adds what is to be sent."""
        ...

    def accept(self, reply: pb.CallReply) -> None:
        """Takes what came back."""
        ...


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
            check_namespace(checked_text("namespace", self.name))
        except Refusal as refusal:
            raise local_refusal(refusal) from None

    async def read(
        self,
        codec: Codec[T],
        key: str,
        timeout: float | None,
        consistency: Consistency = "linearizable",
        carrier: Carrier | None = None,
    ) -> Record[T]:
        """Reads a key, absent or not."""
        # What goes into a read set is asked of the server: a cache does not record what was read.
        if consistency != "linearizable" and carrier is None and (cache := self.cache) is not None:
            found = cache._find(codec, checked_key(key), consistency)
            if found is not None:
                return found
        request = ms.GetRequest(namespace=self.name, key=checked_key(key))
        reply: ms.GetResponse = await self.ask(self.transport.stub.Get, request, timeout, consistency, carrier)
        return Record(self, codec, reply.record, reply.head)

    @property
    def cache(self) -> NearCache | None:
        """The open near cache of this namespace."""
        return self.transport.caches.get(self.name)

    async def read_many(
        self,
        codec: Codec[T],
        keys: Sequence[str],
        timeout: float | None,
        consistency: Consistency = "linearizable",
        carrier: Carrier | None = None,
    ) -> tuple[Record[T], ...]:
        """Reads several keys at one head."""
        if len(keys) > KEYS_PER_READ_MAX:
            raise InvalidArgument(f"keys: {len(keys)} keys, the limit is {KEYS_PER_READ_MAX}")
        if not keys:
            return ()
        request = ms.BatchGetRequest(namespace=self.name, keys=[checked_key(key) for key in keys])
        reply: ms.BatchGetResponse = await self.ask(
            self.transport.stub.BatchGet, request, timeout, consistency, carrier
        )
        return tuple(Record(self, codec, record, reply.head) for record in reply.records)

    async def ask(
        self,
        method: Method[Reply],
        request: Any,
        timeout: float | None,
        consistency: Consistency,
        carrier: Carrier | None = None,
    ) -> Reply:
        """Sends a read, whose request has the fields ``consistency`` and ``call``, with the tokens that it needs.

        Raises:
            InvalidArgument: there is no such level of consistency.
        """
        causal = self.transport.progress.causal
        demand = causal.demand(consistency, self.name)
        request.consistency = demand.level
        # A request of several pages is sent several times.
        request.call.Clear()
        if demand.presented is not None:
            request.call.causal_tokens.append(demand.token)
        if carrier is not None:
            carrier.attach(request.call)
        reply: Any = await self.transport.read(method, request, timeout=timeout, namespace=self.name)
        if demand.presented is not None:
            causal.accepted(self.name, demand, reply.head)
        if carrier is not None:
            carrier.accept(reply.call)
        answered: Reply = reply
        return answered

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
        carrier: Carrier | None = None,
    ) -> Record[T]:
        """Writes a key; see ``Namespace.put``."""
        operation, payload = lower_put(
            self.name,
            Put(key, value, None, expected_version, seen, blind, ttl, expires_at, attributes),
            codec,
        )
        request = ms.PutRequest(namespace=self.name, put=operation, return_current=True)
        reply: ms.PutResponse
        reply, call_id = await self.tell(self.transport.stub.Put, request, request_id, timeout, carrier)
        if reply.WhichOneof("outcome") != "applied":
            raise refused(self, Attempt(key, "put", codec, seen, payload), reply, call_id)
        applied = to_applied(reply.applied)
        self.acked(request, applied.revision, call_id, applied.replayed)
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
        carrier: Carrier | None = None,
    ) -> Record[T]:
        """Deletes a key; see ``Namespace.delete``."""
        operation = lower_delete(self.name, Delete(key, expected_version, seen, blind))
        request = ms.DeleteRequest(namespace=self.name, delete=operation, return_current=True)
        reply: ms.DeleteResponse
        reply, call_id = await self.tell(self.transport.stub.Delete, request, request_id, timeout, carrier)
        if reply.WhichOneof("outcome") != "applied":
            raise refused(self, Attempt(key, "delete", codec, seen), reply, call_id)
        self.acked(request, reply.applied.revision, call_id, reply.applied.replayed)
        record = pb.Record(key=key, context=reply.applied.context)
        return Record(self, codec, record, reply.head, applied=to_applied(reply.applied))

    async def merge(
        self,
        operation: MergeOperation,
        request_id: str | None,
        timeout: float | None,
        carrier: Carrier | None = None,
    ) -> MergeResult:
        """Applies a merge operation, which cannot conflict."""
        request = ms.MergeRequest(namespace=self.name, merge=lower_merge(self.name, operation))
        reply: ms.MergeResponse
        reply, call_id = await self.tell(self.transport.stub.Merge, request, request_id, timeout, carrier)
        applied = to_applied(reply.applied)
        self.acked(request, applied.revision, call_id, applied.replayed)
        version = applied.version if applied.version is not None else applied.revision
        return MergeResult(version, applied.value, applied.trimmed, applied.replayed)

    async def resolve(
        self, record: Record[T], resolution: Resolution, request_id: str | None, timeout: float | None
    ) -> Record[T]:
        """Puts a value, or none, in the place of all of a record's; see ``Record.resolve``."""
        return await resolve(self, record, resolution, request_id, timeout)

    async def transact(
        self,
        compares: Sequence[Compare | Record[Any]],
        operations: Sequence[Operation],
        request_id: str | None,
        timeout: float | None,
    ) -> TransactResult:
        """Applies everything at one revision or nothing; see ``Namespace.transact``."""
        lowered = [lower(self.name, operation) for operation in operations]
        request = ms.TransactRequest(
            namespace=self.name,
            compares=[self.compare(compare) for compare in compares],
            operations=[operation for operation, _, _ in lowered],
        )
        conditions = [
            Attempt(compare.key, "compare", JSON, compare if isinstance(compare, Record) else None)
            for compare in compares
        ]
        attempts = [
            Attempt(
                key_of(operation),
                "delete" if isinstance(operation, Delete) else "put",
                codec,
                operation.seen if isinstance(operation, (Put, Delete)) else None,
                payload,
            )
            for operation, (_, codec, payload) in zip(operations, lowered, strict=True)
        ]
        return await self.send_transaction(request, conditions, attempts, request_id, timeout)

    async def send_transaction(
        self,
        request: ms.TransactRequest,
        compares: Sequence[Attempt],
        operations: Sequence[Attempt],
        request_id: str | None,
        timeout: float | None,
    ) -> TransactResult:
        """Sends a transaction; ``compares`` and ``operations`` are what conflicts show of its parts.

        Raises:
            TransactionFailed: a part was refused.
        """
        request.return_current = True
        reply: ms.TransactResponse
        reply, call_id = await self.tell(self.transport.stub.Transact, request, request_id, timeout)
        if reply.WhichOneof("outcome") != "applied":
            raise transaction_failed(self, compares, operations, reply, call_id)
        applied = reply.applied
        self.acked(request, applied.revision, call_id, applied.replayed)
        return TransactResult(applied.revision, tuple(map(to_applied, applied.results)), applied.replayed, reply.head)

    async def tell(
        self,
        method: Method[Reply],
        request: Any,
        request_id: str | None,
        timeout: float | None,
        carrier: Carrier | None = None,
    ) -> tuple[Reply, str]:
        """Sends a write with the tokens that it needs; returns the reply, and the request id for messages."""
        if carrier is not None:
            carrier.attach(request.call)
        reply: Any
        reply, call_id = await self.transport.write(
            method, request, request_id=request_id, timeout=timeout, namespace=self.name
        )
        if carrier is not None:
            carrier.accept(reply.call)
        return reply, call_id

    def saw(self, revision: int) -> None:
        """Takes note of a revision that was shown otherwise than by an answer."""
        self.transport.progress.causal.saw(self.name, revision)

    def acked(self, request: Sent, revision: int, request_id: str, replayed: bool = False) -> None:
        """Takes note of an acknowledged write, in case that it is lost."""
        self.transport.progress.acked.add(request, revision, request_id, self.transport.clock(), replayed=replayed)

    def compare(self, compare: Compare | Record[Any]) -> ms.Compare:
        """Returns a condition as sent.

        Raises:
            InvalidArgument: it is about another namespace, or about a record whose version is not known.
        """
        if isinstance(compare, Record):
            if compare.namespace != self.name:
                raise InvalidArgument(f"compares: {compare.key!r} was read from {compare.namespace}, not {self.name}")
            if compare.version is None:
                raise InvalidArgument(f"compares: {compare.key!r} has values that were not read; read it again")
            return ms.Compare(key=compare.key, expected_version=compare.version)
        expected = checked_revision("expected_version", compare.expected_version)
        return ms.Compare(key=checked_key(compare.key), expected_version=expected)
