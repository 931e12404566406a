"""Every rpc called with random messages: none of them is an internal error, and the server goes on."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.support.fuzzing import broken, random_message
from tests.support.process import ServerProcess

from noosphere.server.rpc.faces import SERVICES
from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1 import types_pb2 as types
from noosphere.v1.memory_service_pb2_grpc import MemoryServiceStub

SHORT_CALLS = 6
LONG_CALLS = 400
CALL_SECONDS = 2.0
TOGETHER = 24
GROWTH_BYTES_MAX = 400 * 1024 * 1024
BROKEN_WRITE = "Internal error from Core"
"""What the client's own library says where it goes on to send on a stream that the server has ended."""
WRONG = {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN}


def _methods() -> list[MethodDescriptor]:
    pool = descriptor_pool.Default()
    return [method for name in SERVICES for method in pool.FindServiceByName(name).methods]


class Fuzz:
    """Calls one server.

    Attributes:
        wrong: calls that ended as none may.
    """

    def __init__(self, channel: grpc.aio.Channel, seed: int) -> None:
        self._channel = channel
        self._rng = random.Random(seed)
        self._known: list[Message] = []
        self._limit = asyncio.Semaphore(TOGETHER)
        self.wrong: list[str] = []

    async def know(self) -> None:
        """Opens an agent, in whose name most calls come."""
        stub = MemoryServiceStub(self._channel)
        actor = (await stub.OpenAgent(pb.OpenAgentRequest(agent_id="fuzz", takeover=True))).actor
        self._known = [types.CallContext(actor=actor), actor]

    async def run(self, calls: int) -> None:
        """Makes so many calls of each rpc, in any order."""
        made = [method for method in _methods() for _ in range(calls)]
        self._rng.shuffle(made)
        await asyncio.gather(*(self._one(method, self._requests(method)) for method in made))

    def _requests(self, method: MethodDescriptor) -> list[bytes]:
        count = self._rng.randint(0, 3) if method.client_streaming else 1
        found = [random_message(self._rng, method.input_type, self._known).SerializeToString() for _ in range(count)]
        return [broken(self._rng, data) if self._rng.random() < 0.1 else data for data in found]

    async def _one(self, method: MethodDescriptor, requests: list[bytes]) -> None:
        name = f"/{method.containing_service.full_name}/{method.name}"
        async with self._limit:
            try:
                async with asyncio.timeout(CALL_SECONDS):
                    await self._call(method, name, requests)
            except TimeoutError:
                pass
            except grpc.aio.AioRpcError as error:
                if error.code() in WRONG and not (method.client_streaming and error.details() == BROKEN_WRITE):
                    self.wrong.append(f"{name}: {error.code().name}: {error.details()} for {requests!r:.300}")

    async def _call(self, method: MethodDescriptor, name: str, requests: list[bytes]) -> None:
        # Without serialisers its methods take and give bytes, which their types do not know.
        channel: Any = self._channel

        async def stream() -> Any:
            for request in requests:
                yield request

        if method.client_streaming and method.server_streaming:
            async for _ in channel.stream_stream(name)(stream(), timeout=CALL_SECONDS):
                pass
        elif method.client_streaming:
            await channel.stream_unary(name)(stream(), timeout=CALL_SECONDS)
        elif method.server_streaming:
            async for _ in channel.unary_stream(name)(requests[0], timeout=CALL_SECONDS / 8):
                pass
        else:
            await channel.unary_unary(name)(requests[0], timeout=CALL_SECONDS)


async def _fuzzed(folder: Path, seed: int, calls: int) -> None:
    server = ServerProcess(folder / "data", ("--durability", "os"))
    server.start()
    try:
        options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.insecure_channel(server.address, options=options) as channel:
            fuzz = Fuzz(channel, seed)
            await fuzz.know()
            before = server.resident_bytes()
            await fuzz.run(calls)
            assert not fuzz.wrong, "\n".join(fuzz.wrong[:20])
            assert server.resident_bytes() - before < GROWTH_BYTES_MAX
            health = health_pb2_grpc.HealthStub(channel)
            assert (
                await health.Check(health_pb2.HealthCheckRequest())
            ).status == health_pb2.HealthCheckResponse.SERVING
        assert server.terminate() == 0
        assert "Traceback" not in server.stderr
        assert "internal error" not in server.stderr
    finally:
        server.close()


async def test_random_messages_are_no_internal_errors(tmp_path: Path) -> None:
    await _fuzzed(tmp_path, seed=1, calls=SHORT_CALLS)


@pytest.mark.campaign
@pytest.mark.timeout(900)
@pytest.mark.parametrize("round_", range(3))
async def test_many_random_messages_are_no_internal_errors(tmp_path: Path, round_: int) -> None:
    seed = int(os.environ.get("NOOSPHERE_TEST_SEED", "1000")) + round_
    await _fuzzed(tmp_path, seed, LONG_CALLS)
