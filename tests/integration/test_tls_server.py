"""TLS towards clients: what connections get and need, and files that are replaced while a server runs."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import socket
import ssl
import warnings
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
import structlog
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.support.authority import Files, TestAuthority, channel_credentials
from tests.support.health import SERVING, health
from tests.support.process import ServerProcess
from tests.support.waiting import SECONDS_MAX

from noosphere.server.fleet.processes import free_address
from noosphere.server.ports.runtime import SystemClock
from noosphere.server.rpc.credentials import ReloadedCredentials, TlsFiles
from noosphere.server.rpc.server import RpcServer
from noosphere.server.security import peer_identity
from noosphere.server.security.issuing import Issued


@pytest.fixture
def authority(tmp_path: Path) -> TestAuthority:
    return TestAuthority(tmp_path / "own")


class Real(NamedTuple):
    """A server process under TLS for all tests of this module. Raw connections go to it: gRPC does not survive, in one
    process, that a server stops in the moment in which somebody hangs up."""

    address: str
    authority: TestAuthority
    files: Files
    probe: str = ""


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    folder = tmp_path_factory.mktemp("tls")
    authority = TestAuthority(folder / "authority")
    files, probe = authority.server(), free_address()
    options = ["--tls-certificate", str(files.certificate), "--tls-key", str(files.key), "--health-listen", probe]
    server = ServerProcess(folder / "data", options)
    try:
        yield Real(server.start(), authority, files, probe)
    finally:
        server.close()


@contextlib.asynccontextmanager
async def serving(files: TlsFiles) -> AsyncIterator[str]:
    credentials = ReloadedCredentials(files, SystemClock())
    server = RpcServer(enable_reflection=False, credentials=credentials.grpc)
    port = await server.start("127.0.0.1:0")
    yield f"127.0.0.1:{port}"
    await server.abort()


async def check_health(channel: grpc.aio.Channel) -> int:
    call = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=SECONDS_MAX)
    return int((await call).status)


async def new_connection(address: str, authority: TestAuthority, own: Issued | None = None) -> str:
    """Returns how a call on a connection of its own ends."""
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]
    async with grpc.aio.secure_channel(address, channel_credentials(authority, own), options=options) as channel:
        try:
            await check_health(channel)
        except grpc.aio.AioRpcError as error:
            return f"{error.code().name}: {error.details()}"
        return "OK"


def handshake(address: str, **limits: ssl.TLSVersion) -> tuple[str | None, bytes | None]:
    """Returns the protocol of a connection, and the digest of the certificate that it was shown."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        # Old protocols have to be offered, for the server to refuse them.
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version = ssl.TLSVersion.TLSv1
        for name, version in limits.items():
            setattr(context, name, version)
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port))) as plain, context.wrap_socket(plain) as wrapped:
        found = wrapped.getpeercert(binary_form=True)
        return wrapped.version(), found and hashlib.sha256(found).digest()


def digest(certificate: Path) -> bytes:
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate.read_text())).digest()


async def test_a_replaced_certificate_is_shown_to_new_connections_while_old_ones_live(real: Real) -> None:
    address, authority, files, _ = real
    first = digest(files.certificate)
    async with grpc.aio.secure_channel(address, channel_credentials(authority)) as old:
        await check_health(old)
        assert (await asyncio.to_thread(handshake, address))[1] == first
        authority.server()
        assert digest(files.certificate) != first
        assert (await asyncio.to_thread(handshake, address))[1] == digest(files.certificate)
        await check_health(old)
        assert await new_connection(address, authority) == "OK"


def test_new_files_that_cannot_be_used_are_told_once_and_the_old_ones_stay(authority: TestAuthority) -> None:
    files = authority.server()
    with structlog.testing.capture_logs() as lines:
        credentials = ReloadedCredentials(TlsFiles(*files), SystemClock())
        assert credentials.looked() is None
        other = authority.server("other")
        files.certificate.write_bytes(other.certificate.read_bytes())
        assert [credentials.looked() for _ in range(3)] == [None] * 3
        assert [line["problem"] for line in lines if line["log_level"] == "error"] == [
            f"{files.key} is not the key of the certificate in {files.certificate}"
        ]
        files.key.write_bytes(other.key.read_bytes())
        assert credentials.looked() is not None
        files.certificate.unlink()
        assert credentials.looked() is None
    assert lines[-1]["problem"] == f"{files.certificate} cannot be read: No such file or directory"
    assert other.key.read_text() not in str(lines)


async def test_files_that_cannot_be_used_leave_a_server_as_it_is(real: Real) -> None:
    address, authority, files, _ = real
    shown = digest(files.certificate)
    key = files.key.read_bytes()
    files.key.write_text("half of it")
    assert (await asyncio.to_thread(handshake, address))[1] == shown
    assert await new_connection(address, authority) == "OK"
    files.key.write_bytes(key)
    assert (await asyncio.to_thread(handshake, address))[1] == shown


async def test_with_an_authority_of_clients_only_those_with_its_certificate_get_in(
    authority: TestAuthority, tmp_path: Path
) -> None:
    other = TestAuthority(tmp_path / "other", "another authority")
    async with serving(TlsFiles(*authority.server(), authority.ca)) as address:
        assert await new_connection(address, authority, authority.issue("planner")) == "OK"
        assert (await new_connection(address, authority)).startswith("UNAVAILABLE: ")
        assert (await new_connection(address, authority, other.issue("planner"))).startswith("UNAVAILABLE: ")
        assert (await new_connection(address, authority, authority.issue("planner", days=-1))).startswith("UNAVAILABLE")
        # A certificate that says it is for servers proves no client.
        assert (await new_connection(address, authority, authority.issue("planner", server=True))).startswith("UNAVAIL")
        authority.ca.write_bytes(other.pem)
        assert await new_connection(address, authority, other.issue("planner")) == "OK"
        assert (await new_connection(address, authority, authority.issue("planner"))).startswith("UNAVAILABLE: ")


@pytest.mark.parametrize(
    ("names", "identity"),
    [
        (["planner", "other"], "planner"),
        (["planner", "spiffe://cluster.local/ns/team/sa/planner"], "spiffe://cluster.local/ns/team/sa/planner"),
        (["planner", "https://planner.example"], "planner"),
        (["spiffe://a/x", "spiffe://a/y", "planner"], None),
        (["*.team"], None),
        (["127.0.0.1"], None),
    ],
)
async def test_the_identity_of_a_connection_is_that_of_its_certificate(
    authority: TestAuthority, names: list[str], identity: str | None
) -> None:
    class Who(grpc.GenericRpcHandler):
        def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any]:
            async def answer(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
                return repr(peer_identity(context.auth_context())).encode()

            return grpc.unary_unary_rpc_method_handler(answer)

    credentials = ReloadedCredentials(TlsFiles(*authority.server(), authority.ca), SystemClock())
    server = grpc.aio.server(handlers=[Who()])
    port = server.add_secure_port("127.0.0.1:0", credentials.grpc)
    await server.start()
    own = channel_credentials(authority, authority.issue(*names))
    async with grpc.aio.secure_channel(f"127.0.0.1:{port}", own) as channel:
        # Nothing is generated for it, so its types are not known.
        call: Any = channel.unary_unary("/who/Who")
        assert await call(b"") == repr(identity).encode()
    await server.stop(None)


async def test_protocols_before_tls_1_2_are_refused(real: Real) -> None:
    for version in (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.to_thread(handshake, real.address, maximum_version=version)
    assert (await asyncio.to_thread(handshake, real.address, maximum_version=ssl.TLSVersion.TLSv1_2))[0] == "TLSv1.2"
    assert (await asyncio.to_thread(handshake, real.address))[0] == "TLSv1.3"


async def test_nobody_gets_in_without_tls_but_probes_where_they_may(real: Real) -> None:
    async with grpc.aio.insecure_channel(real.address) as plain:
        with pytest.raises(grpc.aio.AioRpcError, match="UNAVAILABLE"):
            await check_health(plain)
    assert await health(real.probe) == SERVING
