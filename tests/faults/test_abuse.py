"""Clients that mean no good, or know no better: the server lives, answers others, and its memory stays bounded."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.support.process import ServerProcess

import noosphere.client
from noosphere.v1.memory_service_pb2_grpc import MemoryServiceStub

HUGE_BYTES = 100 * 1024 * 1024
IDLE_STREAMS = 10_000
CONNECTIONS = 4
SLOW = 150
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
OWN = [("grpc.use_local_subchannel_pool", 1)]
PUT = "/noosphere.v1.MemoryService/Put"
MIB = 1024 * 1024


async def _serves(server: ServerProcess) -> None:
    """Checks that others are served."""
    async with grpc.aio.insecure_channel(server.address, options=OWN) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        answer = await health.Check(health_pb2.HealthCheckRequest())
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    # Asked to come back later, a client of ours does.
    async with noosphere.client.connect(server.address, agent="honest", timeout=60) as client:
        await client.shared("abuse").put("k", 1, blind=True)


async def test_messages_of_a_hundred_mebibytes_are_refused_and_not_kept(server: ServerProcess) -> None:
    before = server.resident_bytes()
    options = [*OWN, ("grpc.max_send_message_length", -1)]
    async with grpc.aio.insecure_channel(server.address, options=options) as channel:
        # Without serialisers it takes bytes, which its type does not know.
        method: Any = channel.unary_unary(PUT)
        for _ in range(4):
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await method(b"\x0a" + bytes(HUGE_BYTES), timeout=60)
            assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    # What gRPC had read of the last one may still be there, but not what it had of all.
    assert server.resident_bytes() - before < 2 * HUGE_BYTES
    await _serves(server)


async def test_connections_that_say_little_do_not_keep_others_out(server: ServerProcess) -> None:
    host, _, port = server.address.rpartition(":")
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(SLOW)]
        for sent in range(len(PREFACE)):
            for one in slow:
                # Bit by bit, as somebody does who wants to hold a place for long.
                with contextlib.suppress(OSError):
                    one.send(PREFACE[sent : sent + 1])
            if sent % 8 == 0:
                await _serves(server)
        await _serves(server)


async def test_garbage_instead_of_http_is_shut_out(server: ServerProcess) -> None:
    host, _, port = server.address.rpartition(":")
    for garbage in (b"GET / HTTP/1.1\r\n\r\n", bytes(4_096), PREFACE + b"\xff" * 4_096, PREFACE + bytes(9) * 500):
        with socket.create_connection((host, int(port)), timeout=30) as one, contextlib.suppress(OSError):
            one.sendall(garbage)
            while one.recv(4_096):
                pass
    await _serves(server)
    assert "Traceback" not in server.stderr


async def _idle(server: ServerProcess, count: int) -> tuple[grpc.aio.Channel, list[Any]]:
    channel = grpc.aio.insecure_channel(server.address, options=OWN)
    stub: Any = MemoryServiceStub(channel)
    return channel, [stub.Pipeline() for _ in range(count)]


@pytest.mark.campaign
async def test_ten_thousand_idle_streams_cost_memory_that_is_given_back(server: ServerProcess) -> None:
    await _serves(server)
    before = server.resident_bytes()
    opened = [await _idle(server, IDLE_STREAMS // CONNECTIONS) for _ in range(CONNECTIONS)]
    try:
        await asyncio.gather(*(call.wait_for_connection() for _, calls in opened for call in calls))
        await _serves(server)
        assert server.resident_bytes() - before < 1_024 * MIB
    finally:
        for channel, calls in opened:
            for call in calls:
                call.cancel()
            await channel.close()
    await _serves(server)
    opened = [await _idle(server, IDLE_STREAMS // CONNECTIONS) for _ in range(CONNECTIONS)]
    for channel, _ in opened:
        await channel.close()
    await _serves(server)
