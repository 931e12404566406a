"""Connections that nobody should have made: too many of them, and messages that grow when they are unpacked."""

from __future__ import annotations

import contextlib
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from tests.faults.conftest import connected
from tests.support.api import Agent
from tests.support.process import ServerProcess
from tests.support.statuses import refused

from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1 import types_pb2 as types
from noosphere.v1.memory_service_pb2_grpc import MemoryServiceStub

SPACES = [f"shared/s{number}" for number in range(3)]
SPARE_FILES = 20
BOMB_BYTES = 64 * 1024 * 1024


def _open_files(server: ServerProcess) -> int:
    return len(list(Path(f"/proc/{server.pid}/fd").iterdir()))


def _peak_bytes(server: ServerProcess) -> int:
    """Returns how much memory the process has ever had resident."""
    status = Path(f"/proc/{server.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


@contextlib.contextmanager
def _crowd(address: str, count: int) -> Iterator[None]:
    """Opens connections that say nothing."""
    host, _, port = address.rpartition(":")
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(socket.create_connection((host, int(port)), timeout=5))
        yield


@pytest.mark.campaign
async def test_more_connections_than_files_leave_the_store_whole(server: ServerProcess) -> None:
    async with connected(server) as api:
        agent = await api.agent("a")
        for space in SPACES:
            await agent.put(space, "k", 1)
    assert server.terminate() == 0
    server.restart()
    async with connected(server) as api:
        reader = await api.agent("reader")
        open_files = _open_files(server)
        limit = open_files + SPARE_FILES
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (limit, limit))
        with _crowd(server.address, SPARE_FILES * 4):
            # Each of them has to be loaded from the disk first.
            for space in SPACES:
                assert (await reader.get(space, "k")).version
                await reader.put(space, "k", 2, blind=True)
    async with connected(server) as api:
        assert (await Agent(api, reader.actor).get(SPACES[0], "k")).version
    assert server.terminate() == 0


async def test_a_compressed_message_is_refused_before_it_is_unpacked(server: ServerProcess) -> None:
    before = _peak_bytes(server)
    async with grpc.aio.insecure_channel(server.address) as channel:
        stub = MemoryServiceStub(channel)
        bomb = pb.PutRequest(
            namespace=SPACES[0],
            put=pb.PutOperation(key="k", value=types.Value(data=bytes(BOMB_BYTES), encoding=types.ENCODING_BYTES)),
        )
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Put(bomb, compression=grpc.Compression.Gzip)
        error = refused(caught.value.code(), caught.value.details(), caught.value.trailing_metadata())
        assert error.code in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.RESOURCE_EXHAUSTED)
        assert _peak_bytes(server) - before < BOMB_BYTES // 4
        await stub.GetServerInfo(pb.GetServerInfoRequest())
