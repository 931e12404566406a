"""The listening server: services, health, reflection, and a shutdown that ends streams with a resume hint."""

from __future__ import annotations

import math

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from noosphere.v1 import (
    admin_service_pb2,
    context_service_pb2,
    coordination_service_pb2,
    fact_service_pb2,
    memory_service_pb2,
    session_service_pb2,
)
from noosphere.v1.admin_service_pb2_grpc import add_AdminServiceServicer_to_server
from noosphere.v1.context_service_pb2_grpc import add_ContextServiceServicer_to_server
from noosphere.v1.coordination_service_pb2_grpc import add_CoordinationServiceServicer_to_server
from noosphere.v1.fact_service_pb2_grpc import add_FactServiceServicer_to_server
from noosphere.v1.memory_service_pb2_grpc import add_MemoryServiceServicer_to_server
from noosphere.v1.session_service_pb2_grpc import add_SessionServiceServicer_to_server

from ..context.service import ContextService
from ..coordination import Coordination
from ..facts.service import Facts
from ..memory import Memory
from ..ports.runtime import Clock
from ..sessions import Sessions
from ..transitions import Transitions
from .admin import AdminRpc
from .context import ContextRpc
from .coordination import CoordinationRpc
from .facts import FactRpc
from .health import Health
from .memory import MemoryRpc
from .sessions import SessionRpc

MESSAGE_BYTES_MAX = 1024 * 1024
RESPONSE_BYTES_MAX = 32 * 1024 * 1024
CONCURRENT_STREAMS_MAX = 10_000
SERVICES = (
    memory_service_pb2.DESCRIPTOR.services_by_name["MemoryService"].full_name,
    admin_service_pb2.DESCRIPTOR.services_by_name["AdminService"].full_name,
    session_service_pb2.DESCRIPTOR.services_by_name["SessionService"].full_name,
    context_service_pb2.DESCRIPTOR.services_by_name["ContextService"].full_name,
    fact_service_pb2.DESCRIPTOR.services_by_name["FactService"].full_name,
    coordination_service_pb2.DESCRIPTOR.services_by_name["CoordinationService"].full_name,
)
SERVER_OPTIONS = (
    # A second server on the port must fail loudly instead of sharing it.
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", RESPONSE_BYTES_MAX),
    # Decompressed first and measured then, one message could take a thousand times its limit.
    ("grpc.compression_enabled_algorithms_bitset", 1),
    ("grpc.max_metadata_size", 16 * 1024),
    ("grpc.max_concurrent_streams", CONCURRENT_STREAMS_MAX),
    # Clients of ours ping idle connections; the default would disconnect them for it.
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
)


class RpcServer:
    """A gRPC server on one address.

    Args:
        memory: the services of shared memory.
        sessions: the services of sessions.
        transitions: the controller of sessions, and their health.
        contexts: assembles contexts.
        facts: long-term facts.
        coordination: locks, elections and presence.
        clock: the source of time.
        enable_reflection: whether to describe the API to tools.
        watch_stall_seconds: how long a watcher may leave a message untaken; infinite for ever.
        service: what answers calls of MemoryService, for a test that looks over its shoulder.
        session_service: the same for SessionService.
        context_service: the same for ContextService.
        fact_service: the same for FactService.
        coordination_service: the same for CoordinationService.
    """

    def __init__(
        self,
        memory: Memory,
        sessions: Sessions,
        transitions: Transitions,
        contexts: ContextService,
        facts: Facts,
        coordination: Coordination,
        clock: Clock,
        *,
        enable_reflection: bool,
        watch_stall_seconds: float = math.inf,
        service: MemoryRpc | None = None,
        session_service: SessionRpc | None = None,
        context_service: ContextRpc | None = None,
        fact_service: FactRpc | None = None,
        coordination_service: CoordinationRpc | None = None,
    ) -> None:
        self._memory = memory
        self._server = grpc.aio.server(options=SERVER_OPTIONS)
        self._health = Health()
        add_MemoryServiceServicer_to_server(service or MemoryRpc(memory, watch_stall_seconds), self._server)
        add_AdminServiceServicer_to_server(AdminRpc(memory, clock), self._server)
        add_SessionServiceServicer_to_server(session_service or SessionRpc(sessions, transitions), self._server)
        add_ContextServiceServicer_to_server(context_service or ContextRpc(contexts), self._server)
        add_FactServiceServicer_to_server(fact_service or FactRpc(facts), self._server)
        add_CoordinationServiceServicer_to_server(coordination_service or CoordinationRpc(coordination), self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        if enable_reflection:
            reflection.enable_server_reflection((*SERVICES, reflection.SERVICE_NAME), self._server)

    async def start(self, address: str) -> int:
        """Listens; returns the port.

        Raises:
            OSError: the address cannot be used.
        """
        try:
            port = self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise OSError(str(error)) from error
        if port == 0:
            raise OSError(f"{address} cannot be used")
        await self._server.start()
        for service in ("", *SERVICES):
            await self._health.set(service, health_pb2.HealthCheckResponse.SERVING)
        return port

    async def stop(self, grace_seconds: float) -> None:
        """Reports NOT_SERVING, ends watches with a resume hint, lets running calls finish, closes."""
        await self._health.enter_graceful_shutdown()
        self._memory.signals.drain()
        await self._server.stop(grace_seconds)

    async def abort(self) -> None:
        """Breaks every connection without a word, as the end of the process does."""
        await self._server.stop(None)
