"""The simulated Redis and etcd under the contract suites, which prove that drivers find in them what the real ones do.

Here they listen on real sockets, in real time. What is simulated is what answers; in a simulation of whole servers the
same code stands behind a simulated network.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, TypeVar

import grpc
import pytest
from tests.contract.redislab import RedisPairLab, RedisQueueLab
from tests.simulation.world.engines.etcd_member import EtcdMember
from tests.simulation.world.engines.etcd_state import EtcdState
from tests.simulation.world.engines.redis_process import SimulatedRedis
from tests.simulation.world.engines.redis_wire import RedisConnection
from tests.support.etcd import EtcdProcess
from tests.support.ports import free_port
from tests.support.redis import RedisProcess

from noosphere.server.storage.etcd import wire_pb2 as wire
from noosphere.server.storage.etcd.keys import end_of


class SimulatedServer(RedisProcess):
    """A simulated process in place of a real one, for as long as the event loop runs on which it was made."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.redis = SimulatedRedis(
            asyncio.get_running_loop(), random.Random(self.port), lambda: time.time_ns() // 10**6
        )
        self._listener: asyncio.Server | None = None

    async def listen(self) -> None:
        """Takes connections; those to a process that is down end at once."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(lambda: RedisConnection(self.redis), "127.0.0.1", self.port)

    def close(self) -> None:
        """Ends it."""
        self.redis.kill()
        if self._listener is not None:
            self._listener.close()

    def ask(self, *command: str | bytes | int) -> Any:
        name, *arguments = (part if isinstance(part, bytes) else str(part).encode() for part in command)
        return self.redis.execute(name, arguments)

    def kill(self) -> None:
        self.redis.kill()

    def start(self) -> None:
        self.redis.start()


class SimulatedRedisLab(RedisPairLab):
    """A simulated primary, with a simulated replica or without; with one a crash is a failover that loses nothing."""

    async def crash(self) -> None:
        first, *others = (server for server in self.servers if isinstance(server, SimulatedServer))
        for replica in others:
            replica.redis.mend()
        first.kill()
        if others:
            others[0].redis.follow(None)
        await self.store.close()
        await self.coordinator.close()
        first.start()
        if others:
            first.redis.follow(others[0].redis)
            self.servers = [*others, first]
        await self.open()
        if self.store._finishing is not None:
            await self.store._finishing

    def bytes_at_rest(self) -> bytes:
        pytest.skip("nothing of a simulated Redis is on disk")


class SimulatedQueueLab(RedisQueueLab, SimulatedRedisLab):
    """The fact queue on a simulated Redis."""


L = TypeVar("L", bound=SimulatedRedisLab)


@contextlib.asynccontextmanager
async def simulated(lab: type[L], folder: Path, count: int) -> AsyncIterator[L]:
    """Opens a lab on so many processes, of which those after the first are replicas."""
    servers = [SimulatedServer(folder) for _ in range(count)]
    for server in servers:
        await server.listen()
        if server is not servers[0]:
            server.redis.follow(servers[0].redis)
    made = lab(folder, *servers)
    await made.open()
    try:
        yield made
    finally:
        await made.close()
        for server in servers:
            server.close()


class SimulatedEtcdServer(EtcdProcess):
    """A simulated etcd of one member in place of a real one, for as long as the event loop runs."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.state = EtcdState(loop, random.Random(1))
        self._member = EtcdMember(self.state, loop, random.Random(2))
        self._server = grpc.aio.server()
        self.endpoint = ""

    async def serve(self) -> None:
        self._server.add_generic_rpc_handlers((self._member,))
        self.endpoint = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        await self._server.start()

    async def end(self) -> None:
        await self._server.stop(0)
        self.state.close()

    def start(self) -> None:
        self._member.find_leader()
        self.state.elect()

    def kill(self) -> None:
        # Its address stays; what comes is refused, and what was being answered ends.
        self._member.lose_leader()

    def pause(self) -> None:
        self._member.pause()

    def resume(self) -> None:
        self._member.resume()

    def lapse(self, lease: int) -> None:
        self.state.revoke(lease)

    def leases(self, seconds: float = 0) -> set[int]:
        return set(self.state.leases())

    def kvs(self, prefix: str) -> list[wire.KeyValue]:
        start = prefix.encode()
        return list(self.state.range(wire.RangeRequest(key=start, range_end=end_of(start))).kvs)

    def put(self, key: str, value: bytes) -> int:
        put = wire.RequestOp(request_put=wire.PutRequest(key=key.encode(), value=value))
        return self.state.transact(wire.TxnRequest(success=[put])).header.revision

    def compact(self, revision: int) -> None:
        self.state.compact(revision)

    def ask(self, method: str, request: bytes, seconds: float = 0) -> bytes:
        raise NotImplementedError(f"{method}: this one is asked directly")
