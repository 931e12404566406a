"""A server with all protection on, as an operator has it: credentials, grants, limits, audit log, metrics, traces."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import grpc
from tests.support.collector import Collector
from tests.support.issuer import AUDIENCE, ISSUER, claims, jwk, key_set, signed

from noosphere.v1 import admin_grants_pb2 as grants
from noosphere.v1 import types_pb2
from noosphere.v1.admin_service_pb2_grpc import AdminServiceStub

from .workloads import CALL_TIMEOUT, NAMESPACE

PRINCIPAL, ADMIN = "bench", "root"
_VALID_SECONDS = 24 * 3600
_KEY = "ES256"


class Guarded(NamedTuple):
    """How to start such a server, and how to call it.

    Attributes:
        environment: its configuration.
        token: what callers present: a JSON web token.
        admin_token: that of an administrator.
        collector: takes the traces.
    """

    environment: Mapping[str, str]
    token: str
    admin_token: str
    collector: Collector

    async def permit(self, address: str) -> None:
        """Grants callers what they do, while the server runs."""
        grant = grants.Grant(
            principal=types_pb2.NamePattern(exact=PRINCIPAL),
            resource=types_pb2.NamePattern(exact=NAMESPACE),
            verbs=("read", "write"),
        )
        async with grpc.aio.insecure_channel(address) as channel:
            await AdminServiceStub(channel).SetGrant(
                grants.SetGrantRequest(grant=grant),
                timeout=CALL_TIMEOUT,
                metadata=(("authorization", f"Bearer {self.admin_token}"),),
            )


@contextlib.contextmanager
def guarded(work: Path) -> Iterator[Guarded]:
    """Makes an issuer of tokens, and listens for traces.

    Args:
        work: where keys and audit log are.
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

        def token(subject: str) -> str:
            return signed(claims(now_s, sub=subject, exp=now_s + _VALID_SECONDS), _KEY)

        yield Guarded(environment, token(PRINCIPAL), token(ADMIN), collector)
