"""What answers the calls of each service of ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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

from ..memory.signals import HeadSignals
from .admin import AdminRpc
from .context import ContextRpc
from .coordination import CoordinationRpc
from .facts import FactRpc
from .memory import MemoryRpc
from .sessions import SessionRpc
from .switchboard import Collected, Handlers

SERVICES = (
    memory_service_pb2.DESCRIPTOR.services_by_name["MemoryService"].full_name,
    admin_service_pb2.DESCRIPTOR.services_by_name["AdminService"].full_name,
    session_service_pb2.DESCRIPTOR.services_by_name["SessionService"].full_name,
    context_service_pb2.DESCRIPTOR.services_by_name["ContextService"].full_name,
    FACTS := fact_service_pb2.DESCRIPTOR.services_by_name["FactService"].full_name,
    COORDINATION := coordination_service_pb2.DESCRIPTOR.services_by_name["CoordinationService"].full_name,
)


@dataclass(frozen=True, slots=True)
class Faces:
    """The gRPC faces of one set of services.

    Attributes:
        signals: are told when those who wait should not wait any longer.
        memory: answers MemoryService.
        admin: answers AdminService.
        sessions: answers SessionService.
        contexts: answers ContextService.
        facts: answers FactService.
        coordination: answers CoordinationService.
    """

    signals: HeadSignals
    memory: MemoryRpc
    admin: AdminRpc
    sessions: SessionRpc
    contexts: ContextRpc
    facts: FactRpc
    coordination: CoordinationRpc

    def handlers(self) -> Handlers:
        """Returns what answers each method."""
        # It has as much of a server as the generated code uses.
        collected: Any = Collected()
        add_MemoryServiceServicer_to_server(self.memory, collected)
        add_AdminServiceServicer_to_server(self.admin, collected)
        add_SessionServiceServicer_to_server(self.sessions, collected)
        add_ContextServiceServicer_to_server(self.contexts, collected)
        add_FactServiceServicer_to_server(self.facts, collected)
        add_CoordinationServiceServicer_to_server(self.coordination, collected)
        found: Handlers = collected.handlers
        return found
