"""Tokens that replicas agree on: made offline in etcd, and revoked by one server for all."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
from tests.support.cli import Cli
from tests.support.closed import bearer, open_channel
from tests.support.etcd import needs_etcd
from tests.support.fleet import OPTIONS, Fleet
from tests.support.redis import needs_redis
from tests.support.waiting import PAUSE_SECONDS

from noosphere.v1 import admin_tokens_pb2 as tokens_pb
from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1.admin_service_pb2_grpc import AdminServiceStub
from noosphere.v1.memory_service_pb2_grpc import MemoryServiceStub

pytestmark = [needs_redis, needs_etcd]

SECONDS_MAX = 60
INFO = pb.GetServerInfoRequest()


async def code_of(call: Any) -> grpc.StatusCode:
    """Returns how a call ends."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


async def until_taken(memory: Any, token: str) -> None:
    """Returns once another server has heard of a token."""
    while await code_of(memory.GetServerInfo(INFO, metadata=bearer(token))) is not grpc.StatusCode.OK:  # noqa: ASYNC110 # nothing tells when
        await asyncio.sleep(PAUSE_SECONDS)


async def test_a_token_that_one_replica_revokes_ends_on_the_other(tmp_path: Path) -> None:
    with Fleet(tmp_path / "fleet", servers=2, options=(*OPTIONS, "--tokens")) as fleet:
        config = str(tmp_path / "fleet" / "server-1.toml")
        made = await asyncio.to_thread(Cli().run, "token", "create", "--admin", "--offline", "--config", config)
        root = bearer(made.text.strip())
        async with open_channel(fleet.addresses[0]) as here, open_channel(fleet.addresses[1]) as there:
            request = tokens_pb.CreateTokenRequest(principal="planner")
            planner = await AdminServiceStub(here).CreateToken(request, metadata=root)
            narrowed = await AdminServiceStub(here).CreateScopedToken(
                tokens_pb.CreateScopedTokenRequest(agent="planner"), metadata=bearer(planner.token)
            )
            memory = MemoryServiceStub(there)
            async with asyncio.timeout(SECONDS_MAX):
                for token in (planner.token, narrowed.token):
                    await until_taken(memory, token)
                streams = [memory.Pipeline(metadata=bearer(token)) for token in (planner.token, narrowed.token)]
                for stream in streams:
                    await stream.write(pb.PipelineRequest(calls=[pb.PipelineCall(id=1, get=pb.GetRequest())]))
                    await stream.read()
                revoke = tokens_pb.RevokeTokenRequest(token_id=planner.info.token_id)
                assert (await AdminServiceStub(here).RevokeToken(revoke, metadata=root)).revoked_count == 2
                for stream in streams:
                    assert await code_of(stream.read()) is grpc.StatusCode.UNAUTHENTICATED
                for token in (planner.token, narrowed.token):
                    for channel in (here, there):
                        call = MemoryServiceStub(channel).GetServerInfo(INFO, metadata=bearer(token))
                        assert await code_of(call) is grpc.StatusCode.UNAUTHENTICATED
                assert await code_of(memory.GetServerInfo(INFO, metadata=root)) is grpc.StatusCode.OK
        # What only the issuer and its holder know is in no key of etcd.
        kept = fleet.etcd.kvs("noosphere/")
        assert any(b"/table/tokens/" in kv.key for kv in kept)
        for text in (made.text.strip(), planner.token, narrowed.token):
            assert not [kv for kv in kept if text.rpartition("_")[2].encode() in kv.value]
