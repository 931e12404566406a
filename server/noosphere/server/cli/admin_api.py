"""The admin service as the commands use it: calls through a client's connection, answers as documents."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC
from typing import TYPE_CHECKING

import grpc

from noosphere.client import Client, ConflictPolicy
from noosphere.v1 import admin_dump_pb2, types_pb2
from noosphere.v1 import admin_overview_pb2 as overview_pb
from noosphere.v1 import admin_service_pb2 as pb
from noosphere.v1 import admin_usage_pb2 as usage_pb
from noosphere.v1.admin_service_pb2_grpc import AdminServiceStub

from .exits import CliError, ExitCode
from .shapes import (
    DeletedShape,
    EpochShape,
    NamespaceShape,
    PolicyShape,
    RulesShape,
    ServerShape,
    StatsShape,
    UsageShape,
)
from .views import time_text

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp

PAGE_SIZE = 1_000


class AdminApi:
    """Administration of the server that a client is connected to. Methods raise ``NoosphereError``."""

    def __init__(self, client: Client) -> None:
        self._call = client.call
        self._stub = AdminServiceStub(client.channel)

    async def namespaces(self, prefix: str, *, show_deleted: bool) -> AsyncIterator[NamespaceShape]:
        """Yields namespaces by name."""
        request = pb.ListNamespacesRequest(prefix=prefix, page_size=PAGE_SIZE, show_deleted=show_deleted)
        while True:
            reply = await self._call(self._stub.ListNamespaces, request)
            for info in reply.namespaces:
                yield namespace_data(info)
            if not reply.next_page_token:
                return
            request.page_token = reply.next_page_token

    async def namespace(self, name: str) -> NamespaceShape:
        """Returns a namespace, deleted or not."""
        reply = await self._call(self._stub.GetNamespace, pb.GetNamespaceRequest(namespace=name))
        return namespace_data(reply.namespace)

    async def rules(self) -> AsyncIterator[RulesShape]:
        """Yields the rules that were set, by the names to which they apply."""
        request = pb.ListPoliciesRequest(page_size=PAGE_SIZE)
        while True:
            reply = await self._call(self._stub.ListPolicies, request)
            for entry in reply.entries:
                yield rules_data(entry)
            if not reply.next_page_token:
                return
            request.page_token = reply.next_page_token

    async def delete(self, name: str, expected_head: int | None) -> DeletedShape:
        """Deletes a namespace; with ``expected_head`` only if that is its newest revision."""
        request = pb.DeleteNamespaceRequest(namespace=name, expected_head=expected_head)
        reply = await self._call(self._stub.DeleteNamespace, request, changes=True)
        return {"namespace": name, "head": str(reply.head), "record_count": reply.record_count}

    async def stats(self) -> StatsShape:
        """Returns how much is stored and how the server is doing."""
        return stats_data(await self._call(self._stub.GetStats, pb.GetStatsRequest()))

    async def usage(self, by: str, order: str, top: int) -> list[UsageShape]:
        """Returns who uses the server most.

        Args:
            by: ``principal``, ``agent`` or ``namespace``.
            order: ``calls``, ``refusals``, ``conflicts``, ``bytes`` or ``recent``.
            top: most names.
        """
        request = usage_pb.GetUsageRequest(
            by=usage_pb.UsageBy.Value(f"USAGE_BY_{by.upper()}"),
            order=usage_pb.UsageOrder.Value(f"USAGE_ORDER_{order.upper()}"),
            top=top,
        )
        return [usage_data(entry) for entry in (await self._call(self._stub.GetUsage, request)).entries]

    async def dump(self, *, tokens: bool) -> AsyncIterator[bytes]:
        """Yields a dump in pieces.

        Raises:
            CliError: the stream has ended before its end; it cannot be resumed.
        """
        try:
            async for reply in self._stub.Dump(admin_dump_pb2.DumpRequest(tokens=tokens)):
                yield reply.lines
        except grpc.aio.AioRpcError as error:
            gone = error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
            code = ExitCode.UNREACHABLE if gone else ExitCode.REFUSED
            raise CliError(code, error.details() or error.code().name, error.code().name) from None

    async def overview(self, top: int) -> overview_pb.GetOverviewResponse:
        """Returns how the server is doing, with the ``top`` agents and namespaces that called last."""
        return await self._call(self._stub.GetOverview, overview_pb.GetOverviewRequest(top=top))

    async def epochs(self) -> list[EpochShape]:
        """Returns the epochs, oldest first."""
        request = pb.ListEpochsRequest(page_size=PAGE_SIZE)
        found: list[EpochShape] = []
        while True:
            reply = await self._call(self._stub.ListEpochs, request)
            found += [epoch_data(epoch) for epoch in reply.epochs]
            if not reply.next_page_token:
                return found
            request.page_token = reply.next_page_token

    async def servers(self) -> list[ServerShape]:
        """Returns the servers that share one working store, by address."""
        request = pb.ListServersRequest(page_size=PAGE_SIZE)
        found: list[ServerShape] = []
        while True:
            reply = await self._call(self._stub.ListServers, request)
            found += [server_data(server, reply.answered_by) for server in reply.servers]
            if not reply.next_page_token:
                # By id, as pages come, a restart would shuffle them.
                return sorted(found, key=lambda one: (one["address"], one["server_id"]))
            request.page_token = reply.next_page_token


def policy_name(number: int) -> str:
    """Returns a policy as commands take and print it, e.g. ``last-writer-wins``; a newer server's as a number."""
    known = ConflictPolicy._value2member_map_
    return ConflictPolicy(number).name.lower().replace("_", "-") if number in known else str(number)


def policy_data(policy: types_pb2.NamespacePolicy) -> PolicyShape:
    """Returns a namespace's rules, which the server sends with every default filled in."""
    return {
        "conflict_policy": policy_name(policy.conflict_policy),
        "prefix_policies": {
            override.prefix: policy_name(override.conflict_policy) for override in policy.prefix_policies
        },
        "item_bytes_max": policy.item_bytes_max,
        "records_max": policy.records_max,
        "tombstone_retention_seconds": policy.tombstone_retention.ToMilliseconds() / 1000,
        "log_age_seconds_max": policy.log_age_max.ToMilliseconds() / 1000,
        "log_revisions_max": policy.log_revisions_max,
        "log_bytes_max": policy.log_bytes_max,
    }


def rules_data(entry: pb.PolicyEntry) -> RulesShape:
    """Returns rules with the names to which they apply."""
    exact = entry.pattern.WhichOneof("kind") == "exact"
    return {
        "name": entry.pattern.exact if exact else entry.pattern.prefix,
        "exact": exact,
        "policy": policy_data(entry.policy),
    }


def namespace_data(info: pb.NamespaceInfo) -> NamespaceShape:
    """Returns a namespace."""
    return {
        "namespace": info.namespace,
        "generation": info.generation,
        "deleted": info.deleted,
        "head": str(info.head),
        "floor": str(info.floor),
        "record_count": info.record_count,
        "record_bytes": info.record_bytes,
        "log_count": info.log_count,
        "log_bytes": info.log_bytes,
        "request_count": info.request_count,
        "policy": policy_data(info.policy),
        "cuts": [{"epoch": cut.epoch, "cut": str(cut.cut)} for cut in info.cuts],
    }


def stats_data(stats: pb.GetStatsResponse) -> StatsShape:
    """Returns how much is stored and how the server is doing."""
    return {
        "namespace_count": stats.namespace_count,
        "loaded_count": stats.loaded_count,
        "record_count": stats.record_count,
        "record_bytes": stats.record_bytes,
        "commit_count": stats.commit_count,
        "sync_count": stats.sync_count,
        "journal_bytes": stats.journal_bytes,
        "refusals": dict(sorted(stats.refusals.items())),
        "watch_count": stats.watch_count,
        "agent_count": stats.agent_count,
        "uptime_seconds": round(stats.uptime_seconds, 3),
        "resident_bytes": stats.resident_bytes,
        "epoch": stats.epoch,
    }


def usage_data(entry: usage_pb.UsageEntry) -> UsageShape:
    """Returns what a principal, an agent or a namespace has done."""
    return {
        "name": entry.name,
        "call_count": entry.call_count,
        "call_count_over": entry.call_count_over,
        "conflict_count": entry.conflict_count,
        "refusals": dict(sorted(entry.refusals.items())),
        "bytes_in": entry.bytes_in,
        "bytes_out": entry.bytes_out,
        "start_time": stamp_text(entry.start_time),
        "last_time": stamp_text(entry.last_time),
    }


def epoch_data(epoch: pb.EpochInfo) -> EpochShape:
    """Returns an epoch."""
    return {
        "epoch": epoch.epoch,
        "start_time": stamp_text(epoch.start_time),
        "cause": epoch.cause,
        "recovered": epoch.recovered,
    }


def server_data(server: pb.ServerInfo, answered_by: str) -> ServerShape:
    """Returns a server."""
    return {
        "server_id": server.server_id,
        "address": server.address,
        "version": server.version,
        "start_time": stamp_text(server.start_time) if server.HasField("start_time") else None,
        "leader": server.leader,
        "answered": server.server_id == answered_by,
    }


def stamp_text(stamp: Timestamp) -> str | None:
    """Returns a timestamp as RFC 3339."""
    return time_text(stamp.ToDatetime(UTC))
