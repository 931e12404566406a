"""Whether a server of ours answers where one is to listen, and whether others are in its way."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import grpc

from noosphere.v1.memory_service_pb2 import GetServerInfoRequest
from noosphere.v1.memory_service_pb2_grpc import MemoryServiceStub

from .. import __version__
from ..addresses import split_address
from ..config import Settings
from .findings import Finding, problem, warning

ANSWER_SECONDS_MAX = 3.0

_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class Running(NamedTuple):
    """A server that answers.

    Attributes:
        version: of its program; empty if it tells nobody without a credential.
    """

    version: str


async def running_at(settings: Settings) -> Running | None:
    """Returns the server that answers at the configured address, None if none of ours does."""
    host, port = split_address(settings.listen)
    if port == 0:
        return None
    host = _EVERYWHERE.get(host, host)
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if settings.tls_certificate is not None:
        shows = await asyncio.to_thread(_shows, settings.tls_certificate, host, port)
        return Running("") if shows else None
    async with grpc.aio.insecure_channel(address) as channel:
        try:
            # The generated code has no types for the asynchronous stub.
            info = await MemoryServiceStub(channel).GetServerInfo(GetServerInfoRequest(), timeout=ANSWER_SECONDS_MAX)
        except grpc.aio.AioRpcError as error:
            # Whoever wants a credential for this method is one of ours.
            return Running("") if error.code() is grpc.StatusCode.UNAUTHENTICATED else None
    return Running(info.version)


def _shows(certificate: Path, host: str, port: int) -> bool:
    """Tells whether who listens shows the configured certificate."""
    context = ssl.create_default_context()
    # It is compared, not trusted.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        with (
            socket.create_connection((host, port), timeout=ANSWER_SECONDS_MAX) as plain,
            context.wrap_socket(plain, server_hostname=host) as wrapped,
        ):
            shown = wrapped.getpeercert(binary_form=True)
        return shown is not None and ssl.DER_cert_to_PEM_cert(shown).split() == _first(certificate)
    except (OSError, ValueError):
        return False


def _first(certificate: Path) -> list[str]:
    text = certificate.read_text("ascii")
    end = "-----END CERTIFICATE-----"
    return (text[text.index("-----BEGIN CERTIFICATE-----") : text.index(end)] + end).split()


def examine_addresses(settings: Settings, running: Running | None) -> Iterator[Finding]:
    """Looks for others at the addresses that a server is to listen at."""
    if running is not None:
        if running.version and running.version.split(".")[:2] != __version__.split(".")[:2]:
            yield warning(
                "server_version",
                "the server that runs is of another version than this program",
                f"{running.version} answers at {settings.listen}, this is {__version__}",
                "use the program of the server's version, or restart the server with this one",
            )
        return
    for key in ("listen", "health_listen", "metrics_listen"):
        address = getattr(settings, key)
        if not address:
            continue
        host, port = split_address(address)
        if (trouble := _in_the_way(host, port)) is not None:
            name = "port_in_use" if trouble.errno in _IN_USE else "address_unusable"
            yield problem(
                name,
                f"{key} cannot be listened on",
                f"{address}: {trouble.strerror}",
                "stop what listens there, or configure another address; a server of ours is found by the options "
                "that it was started with",
            )


_IN_USE = {errno.EADDRINUSE}


def _in_the_way(host: str, port: int) -> OSError | None:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        return error
    first: OSError | None = None
    for family, kind, protocol, _, address in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
            return None
        except OSError as error:
            first = first or error
    return first
