"""A TCP proxy that loses what a test tells it to, for replies that never arrive."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


class LossyProxy:
    """Passes bytes on between clients and a server until told otherwise.

    Attributes:
        address: where clients connect.
        lose_replies: whether what the server says is dropped; the connection breaks as soon as it says something.
        lost: set once something was dropped.
    """

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self.address = ""
        self.lose_replies = False
        self.lost = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one connection."""
        upstream_reader, upstream_writer = await asyncio.open_connection(*self._target)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass(reader, upstream_writer, is_reply=False))
                group.create_task(self._pass(upstream_reader, writer, is_reply=True))
        except* (ConnectionError, EOFError):
            pass
        finally:
            for end in (writer, upstream_writer):
                end.close()
                with contextlib.suppress(ConnectionError):
                    await end.wait_closed()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_reply: bool) -> None:
        while data := await reader.read(65_536):
            # Small control frames (acknowledged settings, pings, window updates) are no reply.
            if is_reply and self.lose_replies and len(data) > 64:
                self.lost.set()
                raise ConnectionResetError
            writer.write(data)
            await writer.drain()
        raise EOFError


@contextlib.asynccontextmanager
async def lossy_proxy(target: str) -> AsyncIterator[LossyProxy]:
    """Runs a proxy in front of ``target`` (host:port)."""
    proxy = LossyProxy(target)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    proxy.address = f"{host}:{port}"
    try:
        yield proxy
    finally:
        server.close()
