"""What a server tells of its health, as whoever balances load or restarts processes asks for it."""

from __future__ import annotations

import asyncio

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.support.waiting import PAUSE_SECONDS, SECONDS_MAX

SERVING: int = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING: int = health_pb2.HealthCheckResponse.NOT_SERVING


async def health(address: str, service: str = "") -> int:
    """Returns the status that a server reports of itself, or of one of its services."""
    async with grpc.aio.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        return int((await stub.Check(health_pb2.HealthCheckRequest(service=service))).status)


async def until_health(address: str, status: int, *services: str) -> None:
    """Returns once a server reports a status of itself and of some services, asking again and again."""
    for service in ("", *services):
        await until_service(address, status, service)


async def until_service(address: str, status: int, service: str) -> None:
    """Returns once a server reports a status of one service, asking again and again."""
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            if await health(address, service) == status:
                return
            await asyncio.sleep(PAUSE_SECONDS)
