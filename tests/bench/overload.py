"""A process that overloads a server, with callers of ours that heed it or a flood that does not, or asks for health."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from noosphere.client import NoosphereError
from noosphere.v1 import admin_overview_pb2, types_pb2
from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1.admin_service_pb2_grpc import AdminServiceStub
from noosphere.v1.memory_service_pb2_grpc import MemoryServiceStub

from .commands import WrongAnswer, main, obey
from .stats import percentile
from .through_client import ClientCaller, ClientTarget
from .workloads import CALL_TIMEOUT, NAMESPACE, value_of

if TYPE_CHECKING:
    # Exists for type checkers only; at run time a stub is asynchronous if its channel is.
    from noosphere.v1.admin_service_pb2_grpc import AdminServiceAsyncStub
    from noosphere.v1.memory_service_pb2_grpc import MemoryServiceAsyncStub

_OWN = (("grpc.use_local_subchannel_pool", 1),)
_CALLERS_PER_CLIENT = 8
"""As an agent has that does some things at a time; a fleet is many clients, each with a connection of its own."""
_FLOOD_CONNECTIONS = 2
_REFUSED = (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
"""What a server may say that has too much to do."""


class Overload:
    """The commands."""

    def __init__(self) -> None:
        self._stack = contextlib.AsyncExitStack()
        self._clients: list[ClientTarget] = []
        self._callers: list[ClientCaller] = []
        self._flood: _Flood | None = None
        self._health: health_pb2_grpc.HealthStub
        self._admin: AdminServiceAsyncStub

    async def open(self, name: str, address: str, callers: int) -> dict[str, Any]:
        """Connects clients for at least so many callers, who write their keys once."""
        self._clients = await asyncio.gather(
            *(
                ClientTarget.open(address, _CALLERS_PER_CLIENT, None, name=f"{name}-{number}", coalesce=True)
                for number in range(-(-callers // _CALLERS_PER_CLIENT))
            )
        )
        # The first of each client, then the second of each: a part of the callers is of all clients.
        self._callers = [caller for each in zip(*(c.callers for c in self._clients), strict=True) for caller in each]
        return {}

    async def span(self, callers: int, seconds: float) -> dict[str, Any]:
        """Has so many callers write for so long; counts what was acknowledged within it."""
        end = time.perf_counter() + seconds
        cpu = time.process_time()
        told = await asyncio.gather(*(_write_until(end, caller) for caller in self._callers[:callers]))
        latencies_ns = [latency for latencies, _ in told for latency in latencies]
        return {
            "acked": len(latencies_ns),
            "failed": sum(failed for _, failed in told),
            "cpu_s": time.process_time() - cpu,
            "p50_ms": percentile(latencies_ns, 0.5) / 1e6 if latencies_ns else seconds * 1e3,
            "p99_ms": percentile(latencies_ns, 0.99) / 1e6 if latencies_ns else seconds * 1e3,
        }

    async def close(self) -> dict[str, Any]:
        """Reads back what every caller wrote last, and disconnects."""
        await asyncio.gather(*(client.verify() for client in self._clients))
        await asyncio.gather(*(client.close() for client in self._clients))
        return {}

    async def flood_open(self, name: str, address: str, calls: int) -> dict[str, Any]:
        """Connects for so many Puts at a time."""
        self._flood = _Flood(address, calls)
        await self._flood.open(f"bench/{name}")
        return {}

    async def flood_start(self) -> dict[str, Any]:
        """Keeps the Puts under way from now on; returns when as many have been answered."""
        assert self._flood is not None
        await self._flood.start()
        return {}

    async def flood_stop(self) -> dict[str, Any]:
        """Ends them; returns how many were acknowledged and refused, and in how many seconds."""
        assert self._flood is not None
        return await self._flood.stop()

    async def watch(self, address: str) -> dict[str, Any]:
        """Connects for questions about health and about the server's own counters."""
        channel = await self._stack.enter_async_context(grpc.aio.insecure_channel(address, options=_OWN))
        self._health = health_pb2_grpc.HealthStub(channel)
        self._admin = AdminServiceStub(channel)
        return {}

    async def health(self, checks: int) -> dict[str, Any]:
        """Asks for health, one question after the other."""
        latencies_ns: list[int] = []
        for _ in range(checks):
            start = time.perf_counter_ns()
            answer = await self._health.Check(health_pb2.HealthCheckRequest(), timeout=CALL_TIMEOUT)
            latencies_ns.append(time.perf_counter_ns() - start)
            if answer.status != health_pb2.HealthCheckResponse.SERVING:
                raise WrongAnswer(f"health is {answer.status} instead of SERVING")
        return {"p50_ms": percentile(latencies_ns, 0.5) / 1e6, "p99_ms": percentile(latencies_ns, 0.99) / 1e6}

    async def refused(self) -> dict[str, Any]:
        """Returns how many calls the server says that it has refused."""
        found = await self._admin.GetOverview(admin_overview_pb2.GetOverviewRequest(), timeout=CALL_TIMEOUT)
        return {"calls": found.refusal_count}

    async def unwatch(self) -> dict[str, Any]:
        """Disconnects."""
        await self._stack.aclose()
        return {}


async def _write_until(end: float, caller: ClientCaller) -> tuple[Sequence[int], int]:
    latencies_ns: list[int] = []
    failed = 0
    doubt = False
    while time.perf_counter() < end:
        taken: list[int] = []
        try:
            if doubt:
                await _learn(caller)
                doubt = False
            await caller.put(1, taken)
        except NoosphereError:
            # Told to come back later than its deadline: that is no goodput, but no wrong answer either.
            failed += 1
            doubt = True
        if time.perf_counter() < end:
            latencies_ns += taken
    if doubt:
        await _learn(caller)
    return latencies_ns, failed


async def _learn(caller: ClientCaller) -> None:
    # A single put is always of the first key.
    record = await caller.keys[0].get()
    if record is None:
        raise WrongAnswer(f"{caller.keys[0].name!r} is gone")
    caller.records[0], caller.sent[0] = record, record.value


class _Flood:
    """Callers that ask again at once, whatever they are told."""

    def __init__(self, address: str, calls: int) -> None:
        self._channels = [grpc.aio.insecure_channel(address, options=_OWN) for _ in range(_FLOOD_CONNECTIONS)]
        self._stubs: list[MemoryServiceAsyncStub] = [MemoryServiceStub(channel) for channel in self._channels]
        self._actor: types_pb2.Actor
        self._calls = calls
        self._tasks: list[asyncio.Task[None]] = []
        self._answered = asyncio.Event()
        self._begun = 0.0
        self.acked = 0
        self.refused = 0

    async def open(self, agent: str) -> None:
        request = pb.OpenAgentRequest(agent_id=agent, takeover=True)
        self._actor = (await self._stubs[0].OpenAgent(request, timeout=CALL_TIMEOUT)).actor

    async def start(self) -> None:
        self._begun = time.perf_counter()
        self._tasks = [
            asyncio.create_task(self._put(self._stubs[number % len(self._stubs)], f"{self._actor.agent_id}/{number}"))
            for number in range(self._calls)
        ]
        told = asyncio.create_task(self._answered.wait())
        await asyncio.wait([told, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
        self._check()
        told.cancel()

    async def stop(self) -> dict[str, Any]:
        seconds = time.perf_counter() - self._begun
        self._check()
        found = {"acked": self.acked, "refused": self.refused, "seconds": seconds}
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        for channel in self._channels:
            await channel.close()
        return found

    def _check(self) -> None:
        for task in self._tasks:
            if task.done():
                task.result()

    async def _put(self, stub: MemoryServiceAsyncStub, key: str) -> None:
        request = pb.PutRequest(
            namespace=NAMESPACE,
            put=pb.PutOperation(
                key=key,
                value=types_pb2.Value(data=value_of(0), encoding=types_pb2.ENCODING_JSON),
                precondition=types_pb2.Precondition(blind=True),
            ),
            call=types_pb2.CallContext(actor=self._actor),
        )
        while True:
            try:
                await stub.Put(request, timeout=CALL_TIMEOUT)
                self.acked += 1
            except grpc.aio.AioRpcError as error:
                if error.code() not in _REFUSED:
                    raise
                self.refused += 1
            if self.acked + self.refused >= self._calls:
                self._answered.set()


async def run() -> None:
    overload = Overload()
    names = ("open", "span", "close", "flood_open", "flood_start", "flood_stop")
    more = ("watch", "health", "refused", "unwatch")
    await obey({name: getattr(overload, name) for name in (*names, *more)})


if __name__ == "__main__":
    main(run)
