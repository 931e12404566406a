"""A server with all protection on, as an operator has it: credentials, grants, limits, audit log, metrics, traces."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import grpc
from tests.support.authority import TestAuthority
from tests.support.collector import Collector
from tests.support.issuer import AUDIENCE, ISSUER, claims, jwk, key_set, signed

from noosphere.v1 import admin_grants_pb2 as grants
from noosphere.v1 import types_pb2
from noosphere.v1.admin_service_pb2_grpc import AdminServiceStub

from .workloads import CALL_TIMEOUT, NAMESPACE

PRINCIPAL, ADMIN = "bench", "root"
ChannelOptions = Sequence[tuple[str, int | str]]

_VALID_SECONDS = 24 * 3600
_KEY = "ES256"


class Guarded(NamedTuple):
    """How to start such a server, and how to call it.

    Attributes:
        environment: its configuration.
        token: what callers present: a JSON web token.
        admin_token: that of an administrator.
        collector: takes the traces.
        tls: files of the authority, and of the callers' certificate and key, under mTLS; else nothing.
    """

    environment: Mapping[str, str]
    token: str
    admin_token: str
    collector: Collector
    tls: tuple[str, ...] = ()

    async def permit(self, address: str) -> None:
        """Grants callers what they do, while the server runs."""
        grant = grants.Grant(
            principal=types_pb2.NamePattern(exact=PRINCIPAL),
            resource=types_pb2.NamePattern(exact=NAMESPACE),
            verbs=("read", "write"),
        )
        async with channel_to(address, self.tls) as channel:
            await AdminServiceStub(channel).SetGrant(
                grants.SetGrantRequest(grant=grant),
                timeout=CALL_TIMEOUT,
                metadata=(("authorization", f"Bearer {self.admin_token}"),),
            )


def channel_to(address: str, tls: Sequence[str], options: ChannelOptions = ()) -> grpc.aio.Channel:
    """Returns a channel, under mTLS if there are the files for it; see ``Guarded.tls``."""
    if not tls:
        return grpc.aio.insecure_channel(address, options=options)
    ca, certificate, key = (Path(file).read_bytes() for file in tls)
    credentials = grpc.ssl_channel_credentials(ca, key, certificate)
    return grpc.aio.secure_channel(address, credentials, options=options)


@contextlib.contextmanager
def guarded(work: Path, *, tls: bool = False) -> Iterator[Guarded]:
    """Makes an issuer of tokens, and listens for traces.

    Args:
        work: where keys, certificates and audit log are.
        tls: whether connections are encrypted, and both sides show certificates.
    """
    keys, now_s = work / "keys.json", time.time()
    keys.write_bytes(key_set(jwk(_KEY, "k")))
    with Collector() as collector:
        environment = {
            "NOOSPHERE_JWT_ISSUER": ISSUER,
            "NOOSPHERE_JWT_AUDIENCE": AUDIENCE,
            "NOOSPHERE_JWT_JWKS": str(keys),
            "NOOSPHERE_JWT_ADMINS": ADMIN,
            "NOOSPHERE_TOKENS": "true",
            "NOOSPHERE_AUDIT_LOG": str(work / "audit.jsonl"),
            "NOOSPHERE_METRICS_LISTEN": "127.0.0.1:0",
            "NOOSPHERE_TRACE_ENDPOINT": collector.url,
            "NOOSPHERE_TRACE_SAMPLE_RATIO": "0.01",
        }

        files: tuple[str, ...] = ()
        if tls:
            authority = TestAuthority(work / "tls")
            server, client = authority.server(), authority.client(PRINCIPAL)
            environment |= {
                "NOOSPHERE_TLS_CERTIFICATE": str(server.certificate),
                "NOOSPHERE_TLS_KEY": str(server.key),
                "NOOSPHERE_TLS_CLIENT_CA": str(authority.ca),
            }
            files = (str(authority.ca), str(client.certificate), str(client.key))

        def token(subject: str) -> str:
            return signed(claims(now_s, sub=subject, exp=now_s + _VALID_SECONDS), _KEY)

        yield Guarded(environment, token(PRINCIPAL), token(ADMIN), collector, files)
