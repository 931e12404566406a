"""Connections to a simulated Redis: the bytes of its protocol, over whatever transport the event loop has."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import cast

import hiredis
from tests.simulation.world.engines.redis_commands import Reply, Status
from tests.simulation.world.engines.redis_process import SimulatedRedis
from tests.simulation.world.engines.redis_values import Refused

_SUBSCRIBED = (b"SSUBSCRIBE", b"SUNSUBSCRIBE", b"PING")


class RedisConnection(asyncio.Protocol):
    """One connection to one life of a process, which executes what comes, one command after the other."""

    def __init__(self, process: SimulatedRedis) -> None:
        self._process = process
        self._life = process.lives
        self._reader = hiredis.Reader()
        self._transport: asyncio.Transport | None = None
        self._unread: deque[list[bytes]] = deque()
        self._channels: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._process.on_life.append(self._look)
        # It may have ended while the connection was being made.
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._look in self._process.on_life:
            self._process.on_life.remove(self._look)
        for channel in self._channels:
            self._process.unsubscribe(channel, self._tell)

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (command := self._reader.gets()) is not False:
            self._unread.append(command)
        self._look()

    def _look(self) -> None:
        """Goes on with what has come, or ends with the process."""
        process = self._process
        if not process.up or process.lives != self._life:
            if self._transport is not None:
                self._transport.abort()
            return
        while self._unread and not process.paused and self._transport is not None:
            name, *arguments = self._unread.popleft()
            self._execute(name.upper(), arguments)

    def _execute(self, name: bytes, arguments: Sequence[bytes]) -> None:
        try:
            if self._channels and name not in _SUBSCRIBED:
                raise Refused(f"ERR Can't execute '{name.decode()}': only (P|S)SUBSCRIBE / PING are allowed")
            match name:
                case b"SSUBSCRIBE":
                    for channel in arguments:
                        if channel not in self._channels:
                            self._channels.append(channel)
                            self._process.subscribe(channel, self._tell)
                        self._tell([b"ssubscribe", channel, len(self._channels)])
                case b"SUNSUBSCRIBE":
                    for channel in arguments:
                        if channel in self._channels:
                            self._channels.remove(channel)
                            self._process.unsubscribe(channel, self._tell)
                        self._tell([b"sunsubscribe", channel, len(self._channels)])
                case b"PING" if self._channels:
                    self._tell([b"pong", b""])
                case _:
                    self._tell(self._process.execute(name, arguments))
        except Refused as refused:
            self._write(b"-%b\r\n" % str(refused).encode("utf-8", "surrogateescape").replace(b"\n", b" "))

    def _tell(self, reply: Reply) -> None:
        self._write(_packed(reply))

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)


def _packed(reply: Reply) -> bytes:
    match reply:
        case None:
            return b"$-1\r\n"
        case bytes():
            return b"$%d\r\n%b\r\n" % (len(reply), reply)
        case int():
            return b":%d\r\n" % reply
        case Status(text):
            return b"+%b\r\n" % text
        case _:
            return b"*%d\r\n%b" % (len(reply), b"".join(map(_packed, reply)))
