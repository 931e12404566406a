"""Weaviate as a process: how one of a single node is started here, and when it is ready."""

from __future__ import annotations

import http.client
import os
import secrets
import socket
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from .engines import ASK_SECONDS_MAX, await_ready, program
from .processes import Identity, free_address, spawn, split, undisturbed

PROGRAM = "weaviate-server"

_INHERITED = ("PATH", "HOME", "TMPDIR", "LANG")
"""What of its starter's surroundings it sees: whatever else is there might configure it by accident."""


class WeaviateSeat(NamedTuple):
    """Where a Weaviate listens and what it is on.

    Attributes:
        address: of its REST interface, as ``host:port``.
        grpc: of its gRPC interface. Weaviate binds the port on all interfaces, whatever the host.
        folder: where its files are.
        certificate: what both interfaces prove themselves with; None for plain text.
        key: the private key of the certificate.
    """

    address: str
    grpc: str
    folder: Path
    certificate: Path | None = None
    key: Path | None = None


def weaviate_command(seat: WeaviateSeat) -> list[str]:
    """Returns the command line.

    Raises:
        FleetError: it is not installed.
    """
    host, port = split(seat.address)
    if seat.certificate is None:
        listening = ["--scheme", "http", "--host", host, "--port", str(port)]
    else:
        tls = ["--tls-certificate", str(seat.certificate), "--tls-key", str(seat.key)]
        listening = ["--scheme", "https", "--tls-host", host, "--tls-port", str(port), *tls]
    return [program(PROGRAM), *listening]


def weaviate_environment(seat: WeaviateSeat, settings: Mapping[str, str] | None = None) -> dict[str, str]:
    """Returns its environment, which is where Weaviate takes its settings from.

    What the node says to itself goes over ports that are free now: its files do not depend on them.

    Args:
        seat: where it listens and what it is on.
        settings: further ones, and these win.
    """
    gossip, data, raft, rpc = (split(free_address())[1] for _ in range(4))
    options = {
        "PERSISTENCE_DATA_PATH": str(seat.folder / "data"),
        "GRPC_PORT": str(split(seat.grpc)[1]),
        "AUTHENTICATION_ANONYMOUS_ACCESS_ENABLED": "true",
        "DEFAULT_VECTORIZER_MODULE": "none",
        "API_BASED_MODULES_DISABLED": "true",
        # A collection that is gone is not made again by a write that comes late, without what it says of itself.
        "AUTOSCHEMA_ENABLED": "false",
        "DISABLE_TELEMETRY": "true",
        "GO_PROFILING_DISABLE": "true",
        "LOG_LEVEL": "warning",
        "CLUSTER_HOSTNAME": "one",
        "CLUSTER_BIND_ADDR": "127.0.0.1",
        "CLUSTER_ADVERTISE_ADDR": "127.0.0.1",
        "CLUSTER_GOSSIP_BIND_PORT": str(gossip),
        # This one listens on all interfaces and takes everything from its like, so nobody else may be that.
        "CLUSTER_DATA_BIND_PORT": str(data),
        "CLUSTER_BASIC_AUTH_USERNAME": "node",
        "CLUSTER_BASIC_AUTH_PASSWORD": secrets.token_hex(16),
        "RAFT_PORT": str(raft),
        "RAFT_INTERNAL_RPC_PORT": str(rpc),
        "RAFT_BOOTSTRAP_EXPECT": "1",
        # It comes back although its ports are others than those that it has noted.
        "RAFT_ENABLE_ONE_NODE_RECOVERY": "true",
        # An election of one node needs no patience.
        "RAFT_TIMEOUTS_MULTIPLIER": "1",
        **({} if seat.certificate is None else {"GRPC_CERT_FILE": str(seat.certificate)}),
        **({} if seat.key is None else {"GRPC_KEY_FILE": str(seat.key)}),
        **(settings or {}),
    }
    return {**{name: os.environ[name] for name in _INHERITED if name in os.environ}, **options}


def start_weaviate(
    seat: WeaviateSeat, log: Path, started: Callable[[Identity], None], settings: Mapping[str, str] | None = None
) -> None:
    """Starts a Weaviate of a single node; returns once it takes writes.

    Args:
        seat: where it listens and what it is on.
        log: the file for its output.
        started: is told of the process at once: whoever is interrupted while it loads must not lose sight of it.
        settings: further settings, as its environment has them.

    Raises:
        FleetError: it is not installed, or not ready in time.
    """
    seat.folder.mkdir(parents=True, exist_ok=True)
    with undisturbed():
        process = spawn(weaviate_command(seat), log, weaviate_environment(seat, settings))
        started(process)
    await_ready(lambda: weaviate_is_ready(seat), process, f"Weaviate at {seat.address}", log)


def weaviate_is_ready(seat: WeaviateSeat) -> bool:
    """Tells whether a Weaviate has elected itself and loaded its files, so that both interfaces serve."""
    host, port = split(seat.address)
    try:
        if seat.certificate is None:
            connection = http.client.HTTPConnection(host, port, timeout=ASK_SECONDS_MAX)
        else:
            trust = ssl.create_default_context(cafile=str(seat.certificate))
            # It is known by its very certificate; whom that names is the business of those who use it.
            trust.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            trust.check_hostname = False
            connection = http.client.HTTPSConnection(host, port, timeout=ASK_SECONDS_MAX, context=trust)
        try:
            connection.request("GET", "/v1/.well-known/ready")
            ready = connection.getresponse().status == http.client.OK
        finally:
            connection.close()
        if ready:
            socket.create_connection(split(seat.grpc), timeout=ASK_SECONDS_MAX).close()
        return ready
    except (OSError, http.client.HTTPException):
        return False
