"""A server's calls of itself: how long does a call wait before it is begun?

They come by a socket of the machine that nobody else knows by name, and wait with those that come by the network.
"""

from __future__ import annotations

import contextlib
import secrets
import sys

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from .health import LIVENESS

PROBE_SECONDS_MAX = 10.0


class SelfProbe:
    """Calls the server in whose process it is. Use it in a ``with`` that is left before the server stops.

    Args:
        server: the server, which is not started yet.
    """

    def __init__(self, server: grpc.aio.Server) -> None:
        # Elsewhere there are no sockets without a file; one in the file system would outlive a crash.
        self._address = f"unix-abstract:noosphere-{secrets.token_hex(16)}" if sys.platform == "linux" else ""
        self._channel: grpc.aio.Channel | None = None
        self._health: health_pb2_grpc.HealthAsyncStub | None = None
        self._closed = False
        if self._address:
            try:
                server.add_insecure_port(self._address)
            except RuntimeError:
                # A sandbox may forbid such sockets; then nothing is measured.
                self._address = ""

    async def call(self) -> None:
        """Makes a call, and returns once it is answered, or after some seconds."""
        if not self._address or self._closed:
            return
        if self._health is None:
            self._channel = grpc.aio.insecure_channel(self._address, options=[("grpc.use_local_subchannel_pool", 1)])
            self._health = health_pb2_grpc.HealthStub(self._channel)
        with contextlib.suppress(grpc.aio.AioRpcError, grpc.aio.UsageError):
            await self._health.Check(health_pb2.HealthCheckRequest(service=LIVENESS), timeout=PROBE_SECONDS_MAX)

    async def close(self) -> None:
        """Ends the connection; from here on nothing is measured."""
        self._closed = True
        if self._channel is not None:
            await self._channel.close()
