"""Standard gRPC health, whose watches end with the server instead of holding up its shutdown."""

from __future__ import annotations

from typing import Any

from grpc_health.v1 import health_pb2
from grpc_health.v1._async import HealthServicer

from .calls import Context

LIVENESS = "liveness"
"""The name under which a server is healthy as long as its process is, whatever it waits for."""


class Health(HealthServicer):  # type: ignore[misc] # the package has no types
    """The library's health service; NOT_SERVING is the last word of a watch during shutdown."""

    draining = False

    async def enter_graceful_shutdown(self) -> None:
        """Reports NOT_SERVING for good and ends the watches."""
        self.draining = True
        await super().enter_graceful_shutdown()

    async def Check(self, request: health_pb2.HealthCheckRequest, context: Context) -> health_pb2.HealthCheckResponse:
        """Tells the status; that of the process itself is not changed by a shutdown."""
        if request.service == LIVENESS:
            return health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)
        response: health_pb2.HealthCheckResponse = await super().Check(request, context)
        return response

    async def Watch(self, request: health_pb2.HealthCheckRequest, context: Context) -> None:
        """Streams changes of the status."""
        try:
            await super().Watch(request, _Writer(self, context))
        except _Drained:
            return


class _Drained(Exception):
    """The last status was sent."""


class _Writer:
    """What the library's watch uses of its context."""

    def __init__(self, health: Health, context: Context) -> None:
        self._health = health
        self._context = context

    async def write(self, response: Any) -> None:
        await self._context.write(response)
        if self._health.draining:
            raise _Drained
