"""The server's own handlers, with the test's faults before and after each call."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from noosphere.consistency import Refusal
from noosphere.server.memory import Memory
from noosphere.server.rpc.calls import Context, streaming, unary
from noosphere.server.rpc.memory import MemoryRpc
from noosphere.v1 import memory_service_pb2 as pb

from ._calls import Call, Calls
from ._plan import METHODS, Plan
from ._streams import Streams


class ObservedMemory(MemoryRpc):
    """MemoryService as it is served to tests: alone or in a pipeline, every call goes through the plan."""

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


def _observed(name: str) -> Any:
    execute = getattr(MemoryRpc, name).__wrapped__

    async def method(self: ObservedMemory, request: Any, context: Context | None) -> Any:
        call = Call(name, _agent_of(request))
        with self.calls.entered(call, own_task=context is not None):
            await self.plan.before(call, request)
            try:
                response = await execute(self, request, context)
            except Refusal:
                self.plan.after(call)
                raise
            self.plan.after(call)
            return response

    method.__name__ = name
    return unary(method)


def _agent_of(request: Any) -> str:
    fields = request.DESCRIPTOR.fields_by_name
    if "call" in fields:
        request = request.call
    elif "actor" not in fields:
        return str(request.agent_id) if "agent_id" in fields else ""
    return str(request.actor.agent_id)


for _name in METHODS:
    setattr(ObservedMemory, _name, _observed(_name))
