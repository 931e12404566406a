"""Certificates and tokens together: what counts when a call has both, or what one of them does not prove."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.support.authority import TestAuthority, channel_credentials
from tests.support.closed import bearer, mint_offline, serving
from tests.support.issuer import AUDIENCE, ISSUER, claims, crafted, jwk, key_set, signed

from noosphere.client import Tls, Unauthenticated, connect
from noosphere.server.security.minting import Wanted
from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1 import types_pb2 as types
from noosphere.v1.memory_service_pb2_grpc import MemoryServiceStub


async def acts_as(stub: Any, agent: str, metadata: tuple[tuple[str, str], ...] = ()) -> str:
    """Returns how a call in the name of an agent ends."""
    request = pb.KeepAgentRequest(actor=types.Actor(agent_id=agent, incarnation=1))
    try:
        await stub.KeepAgent(request, metadata=metadata)
    except grpc.aio.AioRpcError as error:
        return error.code().name
    return "OK"


async def test_a_token_counts_before_the_certificate_and_a_bad_one_is_not_made_up_for_by_it(tmp_path: Path) -> None:
    authority, data, keys = TestAuthority(tmp_path / "own"), tmp_path / "data", tmp_path / "jwks.json"
    keys.write_bytes(key_set(jwk("EdDSA", "k")))
    (token,) = await mint_offline(data, Wanted("worker"))
    server = authority.server()
    settings: dict[str, Any] = {
        "tls_certificate": server.certificate,
        "tls_key": server.key,
        "tls_client_ca": authority.ca,
    }
    settings |= {"jwt_issuer": ISSUER, "jwt_audience": AUDIENCE, "jwt_jwks": str(keys)}
    async with serving(data, tokens=True, **settings) as address:
        credentials = channel_credentials(authority, authority.issue("planner"))
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.secure_channel(address, credentials, options=options) as channel:
            stub = MemoryServiceStub(channel)
            # Whoever may act as an agent is told that its incarnation is not the present one.
            assert await acts_as(stub, "planner") == "FAILED_PRECONDITION"
            assert await acts_as(stub, "worker") == "PERMISSION_DENIED"
            assert await acts_as(stub, "worker", bearer(token.text)) == "FAILED_PRECONDITION"
            assert await acts_as(stub, "planner", bearer(token.text)) == "PERMISSION_DENIED"
            web = signed(claims(time.time(), sub="web"), "EdDSA")
            assert await acts_as(stub, "web", bearer(web)) == "FAILED_PRECONDITION"
            assert await acts_as(stub, "planner", bearer(web)) == "PERMISSION_DENIED"
            for bad in (token.text[:-1] + "x", crafted({"alg": "none"}, claims(time.time(), sub="planner"))):
                assert await acts_as(stub, "planner", bearer(bad)) == "UNAUTHENTICATED"
            assert await acts_as(stub, "planner", (("authorization", ""),)) == "UNAUTHENTICATED"
        # Verified, but in nobody's name: the common name says nothing.
        nameless = channel_credentials(authority, authority.issue("*.example"))
        async with grpc.aio.secure_channel(address, nameless, options=options) as channel:
            assert await acts_as(MemoryServiceStub(channel), "planner") == "UNAUTHENTICATED"
        files = authority.client("planner")
        tls = Tls(authority.ca, files.certificate, files.key)
        async with connect(address, agent="planner", tls=tls) as client:
            await client.private.put("a", 1)
        async with connect(address, agent="worker", tls=tls, token=token.text) as client:
            await client.private.put("a", 1)
        with pytest.raises(Unauthenticated):
            async with connect(address, agent="planner", tls=tls, token="x"):
                pass
