"""A TCP forwarder with one target at a time: what stands in front of a Redis pair, so that clients keep one address."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Self

_CHUNK_BYTES = 65_536


class Switch:
    """Forwards until its block ends.

    Args:
        target: ``host:port``.

    Attributes:
        address: where clients connect.
    """

    def __init__(self, target: str) -> None:
        self.address = ""
        self._target = target
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.address = f"{host}:{port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self._cut()
        await self._server.wait_closed()

    def turn(self, target: str) -> None:
        """Forwards to another target from now on; connections to the old one end."""
        self._target = target
        self._cut()

    def _cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self._target.rpartition(":")
        try:
            answers, onward = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, onward}
        try:
            await asyncio.gather(_pump(reader, onward), _pump(answers, writer))
        finally:
            self._writers -= {writer, onward}
            for end in (writer, onward):
                end.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(_CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
    # The other way ends with this one.
    writer.transport.abort()
