"""A server in this process that asks who calls, reached over a socket, and tokens for it that nobody had to ask for."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc

from noosphere.server.app import serve
from noosphere.server.config import Settings
from noosphere.server.ports.runtime import SystemClock
from noosphere.server.security.minting import ApiTokens, Made, Wanted
from noosphere.server.storage.embedded import DataFolder, EmbeddedCoordinator

SECONDS_MAX = 60


async def mint_offline(data: Path, *wanted: Wanted) -> list[Made]:
    """Makes tokens in a data folder that no server uses."""
    with DataFolder.lock(data):
        coordinator = await EmbeddedCoordinator.open(data, clock=SystemClock())
        try:
            tokens = ApiTokens(coordinator, SystemClock(), os.urandom)
            return [await tokens.create(one, "test") for one in wanted]
        finally:
            await coordinator.close()


@asynccontextmanager
async def serving(data: Path, **settings: Any) -> AsyncIterator[str]:
    """Serves a data folder; gives the address."""
    stop, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
    options: dict[str, Any] = {"listen": "127.0.0.1:0", "data": data, "durability": "os", "drain_seconds": 0.1}
    server = asyncio.create_task(serve(Settings(**options | settings), ready=ready.set_result, stop=stop))
    try:
        async with asyncio.timeout(SECONDS_MAX):
            await asyncio.wait((ready, server), return_when=asyncio.FIRST_COMPLETED)
        if server.done():
            server.result()
        yield ready.result()
    finally:
        stop.set()
        await asyncio.wait((server,))


def open_channel(address: str) -> grpc.aio.Channel:
    """Returns a connection that nobody shares."""
    return grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])


def bearer(token: str) -> tuple[tuple[str, str], ...]:
    """Returns the metadata that present a token."""
    return (("authorization", f"Bearer {token}"),)
