"""AdminService: namespaces, rules, statistics, epochs."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

from noosphere.consistency import decode_page, encode_page, fingerprint
from noosphere.v1 import admin_service_pb2 as pb
from noosphere.v1.admin_service_pb2_grpc import AdminServiceServicer

from .. import __version__
from ..config.limits import LimitSettings
from ..coordination import ServerInfo, Servers
from ..dumping import Dumper
from ..memory import Memory
from ..memory.grants import Grants
from ..memory.namespaces import NamespaceDescription
from ..memory.reads import check_page_size
from ..metrics.overview import Overview
from ..owners import AgentKeeper
from ..ports.runtime import Clock
from ..security import Usage
from ..security.limit_rules import LimitRules
from ..security.minting import ApiTokens
from . import decode, encode
from .admin_agents import AgentMethods
from .admin_dump import DumpMethods
from .admin_grants import GrantMethods
from .admin_limits import LimitMethods
from .admin_overview import OverviewMethods
from .admin_tokens import TokenMethods
from .admin_usage import UsageMethods
from .calls import Context, unary
from .pages import pattern_at, position_of, revision_at
from .process import resident_bytes
from .times import timestamp


class AdminRpc(
    AgentMethods,
    DumpMethods,
    GrantMethods,
    LimitMethods,
    OverviewMethods,
    TokenMethods,
    UsageMethods,
    AdminServiceServicer,
):
    """The gRPC face of administration.

    Args:
        memory: the services.
        clock: the source of time.
        started_ms: monotonic time at which the process began to serve; None: now.
        servers: knows the servers of the fleet; None: there is only this one, which has no address.
        usage: counts what callers do; None: nobody does.
        overview: tells how the server is doing; None: nobody does.
        tokens: makes and ends API tokens; None: nobody is asked for one.
        dumper: takes dumps; None: nobody does.
        agents: shows and fences agents; None: nobody does.
        limits: what operators have set; None: over the default settings.
    """

    def __init__(
        self,
        memory: Memory,
        clock: Clock,
        started_ms: int | None = None,
        servers: Servers | None = None,
        *,
        usage: Usage | None = None,
        overview: Callable[[], Awaitable[Overview]] | None = None,
        tokens: ApiTokens | None = None,
        dumper: Dumper | None = None,
        agents: AgentKeeper | None = None,
        limits: LimitRules | None = None,
    ) -> None:
        self._memory = memory
        self._clock = clock
        self._started_ms = clock.monotonic_ms() if started_ms is None else started_ms
        own = ServerInfo("", "", __version__, clock.wall_ms(), leads=True)
        self._servers = servers or Servers(memory.core.coordinator, own, shared=False)
        self._overview = overview
        self._usage = usage or Usage(clock.wall_ms)
        self._tokens = tokens or ApiTokens(memory.core.coordinator, clock, os.urandom, taken=False)
        self._dumper = dumper
        self._grants = Grants(memory.core)
        self._agents = agents
        self._limits = limits or LimitRules(memory.core.coordinator, LimitSettings())

    @unary
    async def ListNamespaces(self, request: pb.ListNamespacesRequest, context: Context) -> pb.ListNamespacesResponse:
        """See the proto."""
        query = fingerprint("namespaces", request.prefix, request.show_deleted)
        found, following = await self._memory.namespaces.list(
            request.prefix,
            page_size=request.page_size,
            after=decode_page(request.page_token, query) if request.page_token else "",
            show_deleted=request.show_deleted,
        )
        return pb.ListNamespacesResponse(
            namespaces=[_info(described) for described in found],
            next_page_token="" if following is None else encode_page(query, following),
        )

    @unary
    async def GetNamespace(self, request: pb.GetNamespaceRequest, context: Context) -> pb.GetNamespaceResponse:
        """See the proto."""
        return pb.GetNamespaceResponse(namespace=_info(await self._memory.namespaces.get(request.namespace)))

    @unary
    async def DeleteNamespace(self, request: pb.DeleteNamespaceRequest, context: Context) -> pb.DeleteNamespaceResponse:
        """See the proto."""
        expected = request.expected_head if request.HasField("expected_head") else None
        dropped = await self._memory.namespaces.delete(request.namespace, expected)
        return pb.DeleteNamespaceResponse(head=dropped.head, record_count=dropped.record_count)

    @unary
    async def SetPolicy(self, request: pb.SetPolicyRequest, context: Context) -> pb.SetPolicyResponse:
        """See the proto."""
        policy = decode.policy(request.policy) if request.HasField("policy") else None
        version = await self._memory.namespaces.set_policy(decode.pattern(request.pattern), policy)
        return pb.SetPolicyResponse(config_version=version)

    @unary
    async def ListPolicies(self, request: pb.ListPoliciesRequest, context: Context) -> pb.ListPoliciesResponse:
        """See the proto."""
        query = fingerprint("policies")
        page = self._memory.namespaces.policies(
            page_size=request.page_size,
            after=pattern_at(decode_page(request.page_token, query)) if request.page_token else None,
        )
        return pb.ListPoliciesResponse(
            entries=[
                pb.PolicyEntry(pattern=encode.pattern(pattern), policy=encode.policy(policy))
                for pattern, policy in page.entries
            ],
            config_version=page.config_version,
            next_page_token="" if page.following is None else encode_page(query, position_of(page.following)),
        )

    @unary
    async def GetStats(self, request: pb.GetStatsRequest, context: Context) -> pb.GetStatsResponse:
        """See the proto."""
        core = self._memory.core
        totals = await core.store.totals()
        return pb.GetStatsResponse(
            namespace_count=totals.namespace_count,
            loaded_count=totals.loaded_count,
            record_count=totals.record_count,
            record_bytes=totals.record_bytes,
            commit_count=totals.commit_count,
            sync_count=totals.sync_count,
            refusals={reason.value: count for reason, count in core.refusals.items()},
            watch_count=self._memory.watches.open_count,
            agent_count=core.coordinator.active_count(),
            uptime_seconds=(self._clock.monotonic_ms() - self._started_ms) / 1000,
            resident_bytes=resident_bytes(),
            epoch=core.store.epoch,
            journal_bytes=totals.journal_bytes,
        )

    @unary
    async def ListEpochs(self, request: pb.ListEpochsRequest, context: Context) -> pb.ListEpochsResponse:
        """See the proto."""
        query = fingerprint("epochs")
        found, following = await self._memory.namespaces.epochs(
            page_size=request.page_size,
            after=revision_at(decode_page(request.page_token, query)) if request.page_token else 0,
        )
        return pb.ListEpochsResponse(
            epochs=[
                pb.EpochInfo(
                    epoch=record.epoch,
                    start_time=timestamp(record.started_ms),
                    cause=record.cause,
                    recovered=record.recovered,
                )
                for record in found
            ],
            next_page_token="" if following is None else encode_page(query, str(following)),
        )

    @unary
    async def ListServers(self, request: pb.ListServersRequest, context: Context) -> pb.ListServersResponse:
        """See the proto."""
        query = fingerprint("servers")
        size = check_page_size(request.page_size)
        after = decode_page(request.page_token, query) if request.page_token else ""
        later = [server for server in await self._servers.list() if server.id > after or not after]
        return pb.ListServersResponse(
            servers=[
                pb.ServerInfo(
                    server_id=server.id,
                    address=server.address,
                    version=server.version,
                    start_time=timestamp(server.started_ms) if server.started_ms else None,
                    leader=server.leads,
                )
                for server in later[:size]
            ],
            next_page_token=encode_page(query, later[size - 1].id) if len(later) > size else "",
            answered_by=self._servers.own.id,
        )


def _info(described: NamespaceDescription) -> pb.NamespaceInfo:
    ref, stats = described.ref, described.stats
    view = stats.view
    return pb.NamespaceInfo(
        namespace=ref.name,
        generation=ref.generation,
        deleted=view.deleted,
        head=view.head,
        floor=view.floor,
        record_count=stats.record_count,
        record_bytes=stats.record_bytes,
        log_count=stats.log_count,
        log_bytes=stats.log_bytes,
        request_count=stats.request_count,
        policy=encode.policy(described.policy),
        cuts=[pb.EpochCut(epoch=cut.epoch, cut=cut.cut) for cut in view.cuts],
    )
