"""The server's own handlers, with the test's faults before and after each call.

Alone or in a pipeline, every call goes through the plan.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from noosphere.consistency import Refusal
from noosphere.server.context.service import ContextService
from noosphere.server.coordination import Coordination
from noosphere.server.facts.service import Facts
from noosphere.server.memory import Memory
from noosphere.server.owners import OwnerEraser
from noosphere.server.rpc.calls import Context, certain, streaming, unary
from noosphere.server.rpc.context import ContextRpc
from noosphere.server.rpc.coordination import CoordinationRpc
from noosphere.server.rpc.facts import FactRpc
from noosphere.server.rpc.memory import MemoryRpc
from noosphere.server.rpc.sessions import SessionRpc
from noosphere.server.sessions import Sessions
from noosphere.server.transitions import Transitions
from noosphere.v1 import coordination_service_pb2 as cs
from noosphere.v1 import memory_service_pb2 as pb

from ._calls import Call, Calls
from ._plan import METHODS_OF, Plan
from ._streams import Streams


class ObservedMemory(MemoryRpc):
    """MemoryService as it is served to tests."""

    def __init__(self, memory: Memory, calls: Calls, plan: Plan, streams: Streams) -> None:
        super().__init__(memory)
        self.calls = calls
        self.plan = plan
        self.streams = streams

    @streaming
    async def Watch(self, request: pb.WatchRequest, context: Context) -> AsyncGenerator[pb.WatchResponse, None]:
        """See the proto."""
        execute: Any = MemoryRpc.Watch
        async with (
            aclosing(execute.__wrapped__(self, request, context)) as responses,
            aclosing(self.streams.serve(context.invocation_metadata(), responses)) as counted,
        ):
            async for response in counted:
                yield response


class ObservedSessions(SessionRpc):
    """SessionService as it is served to tests."""

    def __init__(self, sessions: Sessions, transitions: Transitions, calls: Calls, plan: Plan) -> None:
        super().__init__(sessions, transitions)
        self.calls = calls
        self.plan = plan


class ObservedContexts(ContextRpc):
    """ContextService as it is served to tests."""

    def __init__(self, contexts: ContextService, calls: Calls, plan: Plan) -> None:
        super().__init__(contexts)
        self.calls = calls
        self.plan = plan


class ObservedFacts(FactRpc):
    """FactService as it is served to tests."""

    def __init__(self, facts: Facts, owners: OwnerEraser, calls: Calls, plan: Plan) -> None:
        super().__init__(facts, owners)
        self.calls = calls
        self.plan = plan


class ObservedCoordination(CoordinationRpc):
    """CoordinationService as it is served to tests."""

    def __init__(self, coordination: Coordination, calls: Calls, plan: Plan, streams: Streams) -> None:
        super().__init__(coordination)
        self.calls = calls
        self.plan = plan
        self.streams = streams

    @streaming
    async def WatchMembers(
        self, request: cs.WatchMembersRequest, context: Context
    ) -> AsyncGenerator[cs.WatchMembersResponse, None]:
        """See the proto."""
        execute: Any = CoordinationRpc.WatchMembers
        async with (
            aclosing(execute.__wrapped__(self, request, context)) as responses,
            aclosing(self.streams.serve(context.invocation_metadata(), responses)) as counted,
        ):
            async for response in counted:
                yield response


def _observed(kind: type, name: str) -> Any:
    execute = getattr(kind, name).__wrapped__

    async def method(self: Any, request: Any, context: Context | None) -> Any:
        call = Call(name, _agent_of(request))
        with self.calls.entered(call, own_task=context is not None):
            await self.plan.before(call, request)
            try:
                response = await certain(lambda: execute(self, request, context))
            except Refusal:
                self.plan.after(call)
                raise
            self.plan.after(call)
            return response

    method.__name__ = name
    return unary(method)


def _agent_of(request: Any) -> str:
    fields = request.DESCRIPTOR.fields_by_name
    if "context" in fields:
        # PlanContext has the request of another call in it.
        request, fields = request.context, request.context.DESCRIPTOR.fields_by_name
    if "call" in fields:
        request = request.call
    elif "actor" not in fields:
        return str(request.agent_id) if "agent_id" in fields else ""
    return str(request.actor.agent_id)


for _service, _kind, _plain in (
    ("MemoryService", ObservedMemory, MemoryRpc),
    ("SessionService", ObservedSessions, SessionRpc),
    ("ContextService", ObservedContexts, ContextRpc),
    ("FactService", ObservedFacts, FactRpc),
    ("CoordinationService", ObservedCoordination, CoordinationRpc),
):
    for _name in METHODS_OF[_service]:
        setattr(_kind, _name, _observed(_plain, _name))
