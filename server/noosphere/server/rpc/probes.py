"""Health on an address of its own, in plain text, for probes that speak neither TLS nor credentials. Nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
from grpc_health.v1 import health_pb2_grpc

from .health import Health

CALLS_MAX = 256
"""Most calls, and watches, at a time; others are refused."""

_OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", 1024),
    ("grpc.max_metadata_size", 4 * 1024),
    ("grpc.compression_enabled_algorithms_bitset", 1),
    ("grpc.max_connection_idle_ms", 5 * 60 * 1000),
)


@asynccontextmanager
async def health_served(health: Health, address: str) -> AsyncIterator[int]:
    """Tells the same health on another address for the length of the block; yields its port.

    Raises:
        OSError: the address cannot be used.
    """
    server = grpc.aio.server(options=_OPTIONS, maximum_concurrent_rpcs=CALLS_MAX)
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise OSError(str(error)) from error
    if port == 0:
        raise OSError(f"{address} cannot be used")
    await server.start()
    try:
        yield port
    finally:
        await server.stop(0)
