"""The whole API as typed methods over whichever transport, and an agent that calls it.

Nothing here remembers anything between calls, retries, or fills in a precondition: tests see the contract raw.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypedDict, Unpack

from google.protobuf.duration_pb2 import Duration
from tests.support.transport import ADMIN, MEMORY, Stream, Transport

from noosphere.v1 import admin_service_pb2 as admin
from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1 import types_pb2 as types

JSON = types.ENCODING_JSON
SEEN_NOTHING = types.CausalContext()

Scalar = str | int | float | bool


class When(TypedDict, total=False):
    """What must hold for a put or delete."""

    expected: int
    context: types.CausalContext
    blind: bool


class PutOptions(When, total=False):
    """What a put may carry besides key and value."""

    ttl_ms: int
    attributes: Mapping[str, Scalar]
    encoding: types.Encoding.ValueType


class Listing(TypedDict, total=False):
    """Fields of ListRequest."""

    page_size: int
    reverse: bool
    where: Mapping[str, types.Scalar]
    keys_only: bool
    claimed_only: bool


class Api:
    """MemoryService and AdminService."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    async def get(self, request: pb.GetRequest) -> pb.GetResponse:
        return await self.transport.unary(MEMORY, "Get", request, pb.GetResponse)

    async def batch_get(self, request: pb.BatchGetRequest) -> pb.BatchGetResponse:
        return await self.transport.unary(MEMORY, "BatchGet", request, pb.BatchGetResponse)

    async def list_records(self, request: pb.ListRequest) -> pb.ListResponse:
        return await self.transport.unary(MEMORY, "List", request, pb.ListResponse)

    async def list_history(self, request: pb.ListHistoryRequest) -> pb.ListHistoryResponse:
        return await self.transport.unary(MEMORY, "ListHistory", request, pb.ListHistoryResponse)

    async def put(self, request: pb.PutRequest) -> pb.PutResponse:
        return await self.transport.unary(MEMORY, "Put", request, pb.PutResponse)

    async def delete(self, request: pb.DeleteRequest) -> pb.DeleteResponse:
        return await self.transport.unary(MEMORY, "Delete", request, pb.DeleteResponse)

    async def merge(self, request: pb.MergeRequest) -> pb.MergeResponse:
        return await self.transport.unary(MEMORY, "Merge", request, pb.MergeResponse)

    async def transact(self, request: pb.TransactRequest) -> pb.TransactResponse:
        return await self.transport.unary(MEMORY, "Transact", request, pb.TransactResponse)

    def watch(self, request: pb.WatchRequest) -> Stream[pb.WatchResponse]:
        return self.transport.stream(MEMORY, "Watch", request, pb.WatchResponse)

    async def claim_next(self, request: pb.ClaimNextRequest) -> pb.ClaimNextResponse:
        return await self.transport.unary(MEMORY, "ClaimNext", request, pb.ClaimNextResponse)

    async def renew(self, request: pb.RenewRequest) -> pb.RenewResponse:
        return await self.transport.unary(MEMORY, "Renew", request, pb.RenewResponse)

    async def release(self, request: pb.ReleaseRequest) -> pb.ReleaseResponse:
        return await self.transport.unary(MEMORY, "Release", request, pb.ReleaseResponse)

    async def complete(self, request: pb.CompleteRequest) -> pb.CompleteResponse:
        return await self.transport.unary(MEMORY, "Complete", request, pb.CompleteResponse)

    async def commit(self, request: pb.CommitRequest) -> pb.CommitResponse:
        return await self.transport.unary(MEMORY, "Commit", request, pb.CommitResponse)

    async def refresh_read_set(self, request: pb.RefreshReadSetRequest) -> pb.RefreshReadSetResponse:
        return await self.transport.unary(MEMORY, "RefreshReadSet", request, pb.RefreshReadSetResponse)

    async def reserve(self, request: pb.ReserveRequest) -> pb.ReserveResponse:
        return await self.transport.unary(MEMORY, "Reserve", request, pb.ReserveResponse)

    async def cancel_reservation(self, request: pb.CancelReservationRequest) -> pb.CancelReservationResponse:
        return await self.transport.unary(MEMORY, "CancelReservation", request, pb.CancelReservationResponse)

    async def list_conflicts(self, request: pb.ListConflictsRequest) -> pb.ListConflictsResponse:
        return await self.transport.unary(MEMORY, "ListConflicts", request, pb.ListConflictsResponse)

    async def resolve_conflict(self, request: pb.ResolveConflictRequest) -> pb.ResolveConflictResponse:
        return await self.transport.unary(MEMORY, "ResolveConflict", request, pb.ResolveConflictResponse)

    async def open_agent(self, agent_id: str, *, takeover: bool = False) -> types.Actor:
        request = pb.OpenAgentRequest(agent_id=agent_id, takeover=takeover)
        return (await self.transport.unary(MEMORY, "OpenAgent", request, pb.OpenAgentResponse)).actor

    async def keep_agent(self, actor: types.Actor) -> pb.KeepAgentResponse:
        return await self.transport.unary(MEMORY, "KeepAgent", pb.KeepAgentRequest(actor=actor), pb.KeepAgentResponse)

    async def close_agent(self, actor: types.Actor) -> pb.CloseAgentResponse:
        return await self.transport.unary(
            MEMORY, "CloseAgent", pb.CloseAgentRequest(actor=actor), pb.CloseAgentResponse
        )

    async def ensure_namespace(self, request: pb.EnsureNamespaceRequest) -> pb.EnsureNamespaceResponse:
        return await self.transport.unary(MEMORY, "EnsureNamespace", request, pb.EnsureNamespaceResponse)

    async def info(self) -> pb.GetServerInfoResponse:
        return await self.transport.unary(MEMORY, "GetServerInfo", pb.GetServerInfoRequest(), pb.GetServerInfoResponse)

    async def list_namespaces(self, request: admin.ListNamespacesRequest) -> admin.ListNamespacesResponse:
        return await self.transport.unary(ADMIN, "ListNamespaces", request, admin.ListNamespacesResponse)

    async def get_namespace(self, namespace: str) -> admin.NamespaceInfo:
        request = admin.GetNamespaceRequest(namespace=namespace)
        return (await self.transport.unary(ADMIN, "GetNamespace", request, admin.GetNamespaceResponse)).namespace

    async def delete_namespace(self, namespace: str, expected_head: int | None = None) -> admin.DeleteNamespaceResponse:
        request = admin.DeleteNamespaceRequest(namespace=namespace, expected_head=expected_head)
        return await self.transport.unary(ADMIN, "DeleteNamespace", request, admin.DeleteNamespaceResponse)

    async def set_policy(self, pattern: types.NamePattern, policy: types.NamespacePolicy | None) -> int:
        request = admin.SetPolicyRequest(pattern=pattern, policy=policy)
        return (await self.transport.unary(ADMIN, "SetPolicy", request, admin.SetPolicyResponse)).config_version

    async def list_policies(self, page_size: int = 0, page_token: str = "") -> admin.ListPoliciesResponse:
        request = admin.ListPoliciesRequest(page_size=page_size, page_token=page_token)
        return await self.transport.unary(ADMIN, "ListPolicies", request, admin.ListPoliciesResponse)

    async def policies(self, page_size: int = 0) -> list[admin.PolicyEntry]:
        """Returns every pattern with rules."""
        found: list[admin.PolicyEntry] = []
        token = ""
        while True:
            page = await self.list_policies(page_size, token)
            found += page.entries
            if not (token := page.next_page_token):
                return found

    async def stats(self) -> admin.GetStatsResponse:
        return await self.transport.unary(ADMIN, "GetStats", admin.GetStatsRequest(), admin.GetStatsResponse)

    async def list_epochs(self, page_size: int = 0, page_token: str = "") -> admin.ListEpochsResponse:
        request = admin.ListEpochsRequest(page_size=page_size, page_token=page_token)
        return await self.transport.unary(ADMIN, "ListEpochs", request, admin.ListEpochsResponse)

    async def list_servers(self, page_token: str = "") -> admin.ListServersResponse:
        request = admin.ListServersRequest(page_token=page_token)
        return await self.transport.unary(ADMIN, "ListServers", request, admin.ListServersResponse)

    async def epochs(self, page_size: int = 0) -> list[admin.EpochInfo]:
        """Returns every epoch."""
        found: list[admin.EpochInfo] = []
        token = ""
        while True:
            page = await self.list_epochs(page_size, token)
            found += page.epochs
            if not (token := page.next_page_token):
                return found

    async def agent(self, agent_id: str, *, takeover: bool = False) -> Agent:
        """Opens an agent."""
        return Agent(self, await self.open_agent(agent_id, takeover=takeover))


class Agent:
    """An incarnation that calls the API. Keyword arguments are fields of the request, by their own names."""

    def __init__(self, api: Api, actor: types.Actor) -> None:
        self.api = api
        self.actor = actor

    @property
    def name(self) -> str:
        """How records show this writer."""
        return f"{self.actor.agent_id}#{self.actor.incarnation}"

    def call(
        self,
        *,
        sequence: int = 0,
        answered: int = 0,
        uuid: str = "",
        fences: Mapping[str, int] | None = None,
    ) -> types.CallContext:
        """Returns who calls, and under which id."""
        found = types.CallContext(actor=self.actor)
        if sequence:
            found.request_id.sequence.sequence = sequence
            found.request_id.sequence.answered_through = answered
        elif uuid:
            found.request_id.uuid = uuid
        found.fences.extend(types.Fence(lock=lock, token=token) for lock, token in (fences or {}).items())
        return found

    async def get(self, namespace: str, key: str) -> types.Record:
        """Reads one key."""
        return (await self.api.get(pb.GetRequest(namespace=namespace, key=key, call=self.call()))).record

    async def put(
        self,
        namespace: str,
        key: str,
        value: bytes | str | int,
        *,
        call: types.CallContext | None = None,
        **options: Unpack[PutOptions],
    ) -> types.Applied:
        """Writes one key; raises if the write is not applied."""
        request = pb.PutRequest(namespace=namespace, put=put_op(key, value, **options), call=call or self.call())
        return (await self.api.put(request)).applied

    async def delete(
        self, namespace: str, key: str, *, call: types.CallContext | None = None, **options: Unpack[When]
    ) -> types.Applied:
        """Deletes one key; raises if the delete is refused."""
        operation = pb.DeleteOperation(key=key, precondition=when(**options))
        request = pb.DeleteRequest(namespace=namespace, delete=operation, call=call or self.call())
        return (await self.api.delete(request)).applied

    async def merge(
        self, namespace: str, operation: pb.MergeOperation, *, call: types.CallContext | None = None
    ) -> types.Applied:
        """Applies a merge operation."""
        request = pb.MergeRequest(namespace=namespace, merge=operation, call=call or self.call())
        return (await self.api.merge(request)).applied

    async def add(
        self, namespace: str, key: str, delta: int = 1, *, call: types.CallContext | None = None
    ) -> types.Applied:
        """Adds to a counter."""
        return await self.merge(namespace, counter(key, delta), call=call)

    async def transact(
        self,
        namespace: str,
        *operations: pb.Operation,
        compares: Mapping[str, int] | None = None,
        call: types.CallContext | None = None,
    ) -> pb.TransactApplied:
        """Applies a transaction; raises if it is refused."""
        request = pb.TransactRequest(
            namespace=namespace,
            operations=operations,
            compares=[pb.Compare(key=key, expected_version=version) for key, version in (compares or {}).items()],
            call=call or self.call(),
        )
        return (await self.api.transact(request)).applied

    async def claim(
        self,
        namespace: str,
        collection: str = "",
        *,
        lease_ms: int = 30_000,
        wait_ms: int = 0,
        where: Mapping[str, Scalar] | None = None,
        call: types.CallContext | None = None,
    ) -> types.Record | None:
        """Claims the next task; None if none was free."""
        request = pb.ClaimNextRequest(
            namespace=namespace,
            collection=collection,
            where=scalars(where),
            lease=span(lease_ms),
            wait=span(wait_ms),
            call=call or self.call(),
        )
        response = await self.api.claim_next(request)
        return response.record if response.HasField("record") else None

    async def renew(self, namespace: str, task: types.Record, lease_ms: int = 30_000) -> types.Record:
        """Extends the claim that ``task`` shows."""
        return (
            await self.api.renew(
                pb.RenewRequest(
                    namespace=namespace,
                    key=task.key,
                    fence=task.claim.fence,
                    lease=span(lease_ms),
                    call=self.call(),
                )
            )
        ).record

    async def release(self, namespace: str, task: types.Record) -> types.Record:
        """Gives up the claim that ``task`` shows."""
        request = pb.ReleaseRequest(namespace=namespace, key=task.key, fence=task.claim.fence, call=self.call())
        return (await self.api.release(request)).record

    async def complete(
        self,
        namespace: str,
        task: types.Record,
        result: bytes | None = None,
        *,
        call: types.CallContext | None = None,
    ) -> pb.CompleteResponse:
        """Completes the task whose claim ``task`` shows."""
        return await self.api.complete(
            pb.CompleteRequest(
                namespace=namespace,
                key=task.key,
                fence=task.claim.fence,
                result=None if result is None else types.Value(data=result, encoding=JSON),
                call=call or self.call(),
            )
        )

    def watch(
        self,
        namespace: str,
        collection: str = "",
        *,
        after: int | None = None,
        resume: bytes | None = None,
        snapshot: bool = False,
    ) -> Stream[pb.WatchResponse]:
        """Begins a watch."""
        request = pb.WatchRequest(namespace=namespace, collection=collection, call=self.call())
        if after is not None:
            request.after = after
        elif resume is not None:
            request.resume_token = resume
        elif snapshot:
            request.snapshot = True
        return self.api.watch(request)

    async def listing(self, namespace: str, collection: str = "", **options: Unpack[Listing]) -> list[types.Record]:
        """Reads every page of a collection."""
        found: list[types.Record] = []
        token = ""
        while True:
            request = pb.ListRequest(
                namespace=namespace,
                collection=collection,
                page_token=token,
                call=self.call(),
                **options,
            )
            response = await self.api.list_records(request)
            found += response.records
            token = response.next_page_token
            if not token:
                return found

    async def history(self, namespace: str, key: str = "", page_size: int = 0) -> list[pb.ChangeBatch]:
        """Reads every page of the log."""
        found: list[pb.ChangeBatch] = []
        token = ""
        while True:
            request = pb.ListHistoryRequest(
                namespace=namespace, key=key, page_size=page_size, page_token=token, call=self.call()
            )
            response = await self.api.list_history(request)
            found += response.batches
            token = response.next_page_token
            if not token:
                return found

    async def ensure(self, namespace: str, policy: types.NamespacePolicy | None = None) -> pb.EnsureNamespaceResponse:
        """Makes a namespace live."""
        return await self.api.ensure_namespace(
            pb.EnsureNamespaceRequest(namespace=namespace, policy=policy, call=self.call())
        )


def when(**options: Unpack[When]) -> types.Precondition:
    """Returns a precondition."""
    return types.Precondition(
        expected_version=options.get("expected"), context=options.get("context"), blind=options.get("blind", False)
    )


def put_op(key: str, value: bytes | str | int, **options: Unpack[PutOptions]) -> pb.PutOperation:
    """Returns a put; text and numbers become JSON, bytes are taken as they are."""
    if isinstance(value, int):
        value = b"%d" % value
    elif isinstance(value, str):
        value = b'"' + value.encode() + b'"'
    ttl_ms = options.get("ttl_ms")
    return pb.PutOperation(
        key=key,
        value=types.Value(data=value, encoding=options.get("encoding", JSON)),
        precondition=_condition_of(options),
        attributes=scalars(options.get("attributes")),
        ttl=None if ttl_ms is None else span(ttl_ms),
    )


def _condition_of(options: PutOptions) -> types.Precondition:
    return types.Precondition(
        expected_version=options.get("expected"), context=options.get("context"), blind=options.get("blind", False)
    )


def put(key: str, value: bytes | str | int, **options: Unpack[PutOptions]) -> pb.Operation:
    """Returns a put as part of a transaction."""
    return pb.Operation(put=put_op(key, value, **options))


def delete(key: str, **options: Unpack[When]) -> pb.Operation:
    """Returns a delete as part of a transaction."""
    return pb.Operation(delete=pb.DeleteOperation(key=key, precondition=when(**options)))


def counter(key: str, delta: int = 1) -> pb.MergeOperation:
    """Returns an addition to a counter."""
    return pb.MergeOperation(key=key, counter_add=pb.CounterAdd(delta=delta))


def merge(operation: pb.MergeOperation) -> pb.Operation:
    """Returns a merge operation as part of a transaction."""
    return pb.Operation(merge=operation)


def scalars(values: Mapping[str, Scalar] | None) -> dict[str, types.Scalar]:
    """Returns attributes or a filter; bool before int, because Python's bool is one."""
    found = {}
    for name, value in (values or {}).items():
        match value:
            case bool():
                found[name] = types.Scalar(bool_value=value)
            case str():
                found[name] = types.Scalar(string_value=value)
            case int():
                found[name] = types.Scalar(int_value=value)
            case float():
                found[name] = types.Scalar(double_value=value)
    return found


def span(time_ms: int) -> Duration:
    """Returns a duration."""
    found = Duration()
    found.FromMilliseconds(time_ms)
    return found


def data(record: types.Record) -> bytes:
    """Returns the one value of a record."""
    (value,) = record.values
    return value.value.data


def contents(records: Iterable[types.Record]) -> dict[str, bytes]:
    """Returns the one value of each record by key."""
    return {record.key: data(record) for record in records}
