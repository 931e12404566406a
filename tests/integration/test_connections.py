"""Connections that a server ends when they are old, and health on an address of its own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.support.health import NOT_SERVING, SERVING, health
from tests.support.waiting import SECONDS_MAX

from noosphere.client import connect
from noosphere.server.app import Engine, open_engine
from noosphere.server.config import Settings
from noosphere.server.ports.runtime import SystemClock
from noosphere.server.rpc.admin import AdminRpc
from noosphere.server.rpc.context import ContextRpc
from noosphere.server.rpc.coordination import CoordinationRpc
from noosphere.server.rpc.faces import Faces
from noosphere.server.rpc.facts import FactRpc
from noosphere.server.rpc.health import LIVENESS
from noosphere.server.rpc.memory import MemoryRpc
from noosphere.server.rpc.probes import health_served
from noosphere.server.rpc.server import RpcServer
from noosphere.server.rpc.sessions import SessionRpc
from noosphere.v1 import memory_service_pb2 as ms
from noosphere.v1.memory_service_pb2_grpc import MemoryServiceStub

STALL_SECONDS = 30.0


def faces_of(engine: Engine) -> Faces:
    return Faces(
        engine.memory.signals,
        MemoryRpc(engine.memory, STALL_SECONDS),
        AdminRpc(engine.memory, SystemClock(), dumper=engine.dumper),
        SessionRpc(engine.sessions, engine.transitions),
        ContextRpc(engine.contexts),
        FactRpc(engine.facts, engine.owners),
        CoordinationRpc(engine.coordination, STALL_SECONDS),
    )


@contextlib.asynccontextmanager
async def serving(
    folder: Path, connection_age_seconds: float = 0, connection_grace_seconds: float = 0
) -> AsyncIterator[tuple[RpcServer, str]]:
    settings = Settings(data=folder, durability="os", embedder="none")
    failed: list[BaseException] = []
    async with open_engine(settings, on_fatal=failed.append) as engine:
        server = RpcServer(
            enable_reflection=False,
            connection_age_seconds=connection_age_seconds,
            connection_grace_seconds=connection_grace_seconds,
        )
        server.serve(faces_of(engine))
        port = await server.start("127.0.0.1:0")
        try:
            yield server, f"127.0.0.1:{port}"
        finally:
            await server.stop(0)
    assert failed == []


@pytest.mark.parametrize("coalesce", [True, False])
async def test_a_client_gets_no_error_while_its_connections_are_ended_for_their_age(
    tmp_path: Path, coalesce: bool
) -> None:
    async with serving(tmp_path, connection_age_seconds=0.1, connection_grace_seconds=0.1) as (_, address):
        async with (
            connect(address, agent="writer", coalesce=coalesce, timeout=60) as writer,
            connect(address, agent="reader", timeout=60) as reader,
            grpc.aio.insecure_channel(address) as channel,
        ):
            first = (await writer.shared("s").put("k", 0)).version
            written = [first]
            async with reader.shared("s").watch("", after=first) as batches:
                for _ in range(3):
                    # A stream on a connection of its own tells by its end that connections are ended.
                    stream: Any = MemoryServiceStub(channel).Pipeline()
                    ended = asyncio.ensure_future(stream.read())
                    while not ended.done():
                        written.append((await writer.shared("s").put("k", len(written), blind=True)).version)
                    with contextlib.suppress(grpc.aio.AioRpcError):
                        await ended
                seen = [first]
                async with asyncio.timeout(SECONDS_MAX):
                    async for batch in batches:
                        seen += [batch.revision] if batch.events else []
                        if seen[-1] == written[-1]:
                            break
        assert len(written) > 3
        assert seen == written, "each was written once, and seen once, in its order"


async def test_health_is_told_on_an_address_of_its_own_and_nothing_else(tmp_path: Path) -> None:
    async with (
        serving(tmp_path) as (server, address),
        health_served(server.health, "127.0.0.1:0") as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        probe = f"127.0.0.1:{port}"
        assert [await health(probe, name) for name in ("", "noosphere.v1.MemoryService", LIVENESS)] == [SERVING] * 3
        await server.set_ready(False)
        assert [await health(probe), await health(address), await health(probe, LIVENESS)] == [
            NOT_SERVING,
            NOT_SERVING,
            SERVING,
        ]
        await server.set_ready(True)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await MemoryServiceStub(channel).Get(ms.GetRequest(), timeout=SECONDS_MAX)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        await server.drain()
        assert [await health(probe), await health(probe, LIVENESS)] == [NOT_SERVING, SERVING]


async def test_an_address_for_health_that_is_taken_is_told(tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, address):
        with pytest.raises(OSError, match=address.replace(".", r"\.")):
            async with health_served(server.health, address):
                pass
