"""Byte streams over the simulated network: what ``loop.create_connection`` and ``loop.create_server`` give.

Protocols and transports are asyncio's own, so programs notice nothing. Bytes arrive in order, in pieces that the seed
cuts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from .network import Link, Listener, Network, host


class SimTransport(asyncio.Transport):
    """One end of a connection.

    Args:
        network: what it goes through.
        send: has something happen at the other end.
        protocol: who reads here.
        where: on which host this end is.
        peer: on which the other.
    """

    def __init__(self, network: Network, link: Link, is_source: bool, protocol: Any) -> None:
        super().__init__()
        self._network = network
        self._link = link
        self._send = link.send if is_source else link.answer
        self._where = link.source if is_source else link.target
        self._peer = link.target if is_source else link.source
        self._protocol = protocol
        self._other: SimTransport | None = None
        self._closing = False
        self._lost = False
        self._paused = False
        self._unread: list[bytes] = []

    def join(self, other: SimTransport) -> None:
        """Makes two ends one connection."""
        self._other, other._other = other, self

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Returns addresses."""
        return {"peername": (self._peer, 0), "sockname": (self._where, 0)}.get(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Has somebody else read."""
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Returns who reads."""
        found: asyncio.BaseProtocol = self._protocol
        return found

    def is_closing(self) -> bool:
        """Tells whether it is closed, or will be."""
        return self._closing

    def is_reading(self) -> bool:
        """Tells whether what comes is handed on."""
        return not self._paused and not self._closing

    def pause_reading(self) -> None:
        """Keeps what comes."""
        self._paused = True

    def resume_reading(self) -> None:
        """Hands on what has come."""
        self._paused = False
        unread, self._unread = self._unread, []
        for data in unread:
            self._received(data)

    def get_write_buffer_size(self) -> int:
        """Returns 0: the network takes everything at once."""
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Does nothing."""

    def can_write_eof(self) -> bool:
        """Tells that the end can be told."""
        return True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Sends bytes, perhaps in two pieces."""
        if self._closing or not data:
            return
        assert self._other is not None, "the listener speaks only once it was spoken to"
        sent, other, rng = bytes(data), self._other, self._network.rng
        pieces = [sent]
        if len(sent) > 1 and rng.random() < 0.1:
            at = rng.randrange(1, len(sent))
            pieces = [sent[:at], sent[at:]]
        for piece in pieces:
            self._send(lambda piece=piece: other._received(piece))  # type: ignore[misc] # bound early

    def write_eof(self) -> None:
        """Tells the other end that nothing more comes."""
        if self._other is not None:
            self._send(self._other._ended)

    def close(self) -> None:
        """Closes this end; the other is told."""
        if self._closing:
            return
        self._closing = True
        if self._other is not None:
            self._send(self._other._ended)
        self._network.loop.call_soon(self.lost, None)

    def abort(self) -> None:
        """Closes this end at once."""
        self.close()

    def lost(self, error: Exception | None) -> None:
        """Tells whoever reads that the connection is no more."""
        self._closing = True
        if not self._lost:
            self._lost = True
            self._protocol.connection_lost(error)
        if self._other is not None and self._other._lost:
            self._link.close()

    def _received(self, data: bytes) -> None:
        if self._closing:
            return
        if self._paused:
            self._unread.append(data)
        else:
            self._protocol.data_received(data)

    def _ended(self) -> None:
        if not self._closing and not self._protocol.eof_received():
            self.close()


async def connect(network: Network, protocol_factory: Callable[[], Any], name: str, port: int) -> tuple[Any, Any]:
    """Connects the present host to a listener; returns transport and protocol.

    Raises:
        ConnectionRefusedError: nobody listens there.
        ConnectionResetError: the connection broke at once.
    """
    loop = network.loop
    ends: list[SimTransport] = []
    ready = loop.create_future()

    def broken(why: str) -> None:
        for end in ends[1:]:
            end.lost(ConnectionResetError(why))
        if not ready.done():
            ready.set_exception(ConnectionResetError(why))

    link = network.link(host.get(), name, broken)

    def arrive() -> None:
        listener = network.listener(name, port)
        if listener is None:
            link.answer(refuse)
            return
        server = SimTransport(network, link, False, listener.accept())
        ends.append(server)
        link.attend(lambda: server.lost(ConnectionResetError("the peer has gone")))
        server._protocol.connection_made(server)
        link.answer(lambda: accepted(server))

    def refuse() -> None:
        link.close()
        if not ready.done():
            ready.set_exception(ConnectionRefusedError(f"nobody listens on {name}:{port}"))

    def accepted(server: SimTransport) -> None:
        if ready.cancelled():
            link.close()
            server.lost(ConnectionResetError("the peer has gone"))
        elif not ready.done():
            protocol = protocol_factory()
            client = SimTransport(network, link, True, protocol)
            ends.append(client)
            client.join(server)
            protocol.connection_made(client)
            ready.set_result((client, protocol))

    link.send(arrive)
    found: tuple[Any, Any] = await ready
    return found


def listen(network: Network, protocol_factory: Callable[[], Any], name: str, port: int) -> Listener:
    """Has a host listen for byte streams."""
    return network.listen(name, port, protocol_factory)
