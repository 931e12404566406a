"""The server's own handlers, with the test's faults before and after each call."""

from __future__ import annotations

from typing import Any

from noosphere.consistency import Refusal
from noosphere.server.memory import Memory
from noosphere.server.rpc.calls import Context, unary
from noosphere.server.rpc.memory import MemoryRpc

from ._calls import Call, Calls
from ._plan import METHODS, Plan


class ObservedMemory(MemoryRpc):
    """MemoryService as it is served to tests: alone or in a pipeline, every call goes through the plan."""

    def __init__(self, memory: Memory, calls: Calls, plan: Plan) -> None:
        super().__init__(memory)
        self.calls = calls
        self.plan = plan


def _observed(name: str) -> Any:
    execute = getattr(MemoryRpc, name).__wrapped__

    async def method(self: ObservedMemory, request: Any, context: Context) -> Any:
        call = Call(name, _agent_of(request))
        with self.calls.entered(call):
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
