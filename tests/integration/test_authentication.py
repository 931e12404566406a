"""A server that asks who calls: which credentials it takes, until when, and what it says of them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.support.api import put_op
from tests.support.closed import bearer, mint_offline, open_channel, serving
from tests.support.issuer import AUDIENCE, ISSUER, claims, crafted, jwk, key_set, signed, signed_with_the_public_key
from tests.support.statuses import Refused, refused

from noosphere.server.app import StartupError
from noosphere.server.security.minting import Made, Wanted
from noosphere.v1 import admin_grants_pb2 as grants_pb
from noosphere.v1 import admin_tokens_pb2 as tokens_pb
from noosphere.v1 import fact_service_pb2 as facts_pb
from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1 import types_pb2 as types
from noosphere.v1.admin_service_pb2_grpc import AdminServiceStub
from noosphere.v1.fact_service_pb2_grpc import FactServiceStub
from noosphere.v1.memory_service_pb2_grpc import MemoryServiceStub

SECONDS_MAX = 30
SPACE = "agents/planner"


class World(NamedTuple):
    """A server, a connection to it, and tokens for it."""

    memory: Any
    admin: Any
    channel: grpc.aio.Channel
    planner: Made
    root: Made
    data: Path


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    data = tmp_path / "data"
    planner, root = await mint_offline(data, Wanted("planner"), Wanted("root", admin=True))
    async with serving(data, tokens=True) as address, open_channel(address) as channel:
        yield World(MemoryServiceStub(channel), AdminServiceStub(channel), channel, planner, root, data)


async def refusal(call: Any) -> Refused:
    """Returns what a call was refused with."""
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    return refused(error.value.code(), error.value.details(), error.value.trailing_metadata())


async def as_planner(world: World) -> types.CallContext:
    """Opens the agent whose token there is."""
    opened = await world.memory.OpenAgent(pb.OpenAgentRequest(agent_id="planner"), metadata=bearer(world.planner.text))
    return types.CallContext(actor=opened.actor)


def put(call: types.CallContext, key: str) -> pb.PutRequest:
    """Returns a write."""
    return pb.PutRequest(call=call, namespace=SPACE, put=put_op(key, "x", blind=True))


def keep(agent_id: str) -> pb.KeepAgentRequest:
    """Returns a call in the name of an agent."""
    return pb.KeepAgentRequest(actor=types.Actor(agent_id=agent_id, incarnation=1))


WRONG = {
    "none": (),
    "an empty one": (("authorization", ""),),
    "no scheme": (("authorization", "noo_0123456789abcdef_" + "0" * 64),),
    "another scheme": (("authorization", "Basic cm9vdDpyb290"),),
    "a scheme alone": (("authorization", "Bearer "),),
    "nobody's": bearer("noo_0123456789abcdef_" + "0" * 64),
    "no token at all": bearer("x" * 20),
    "a web token, of which none are taken": bearer("eyJhbGciOiJub25lIn0.eyJzdWIiOiJyb290In0."),
    "a long one": bearer("x" * 9_000),
}


async def test_a_call_without_a_valid_credential_does_nothing(world: World) -> None:
    for how, metadata in WRONG.items():
        for call in (
            world.memory.OpenAgent(pb.OpenAgentRequest(agent_id="planner"), metadata=metadata),
            world.memory.GetServerInfo(pb.GetServerInfoRequest(), metadata=metadata),
            world.admin.ListTokens(tokens_pb.ListTokensRequest(), metadata=metadata),
            world.memory.Watch(pb.WatchRequest(namespace=SPACE), metadata=metadata).read(),
            world.memory.Pipeline(iter(()), metadata=metadata).read(),
        ):
            error = await refusal(call)
            assert (how, error.code, error.reason) == (how, grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED")


async def test_of_two_credentials_none_is_taken(world: World) -> None:
    metadata = bearer(world.planner.text) + bearer(world.root.text)
    error = await refusal(world.memory.GetServerInfo(pb.GetServerInfoRequest(), metadata=metadata))
    assert error.code is grpc.StatusCode.UNAUTHENTICATED


async def test_a_token_lets_its_principal_in_and_nobody_in_its_name(world: World) -> None:
    call = await as_planner(world)
    metadata = bearer(world.planner.text)
    assert (await world.memory.Put(put(call, "a"), metadata=metadata)).HasField("applied")
    error = await refusal(world.memory.KeepAgent(keep("other"), metadata=metadata))
    assert error.code is grpc.StatusCode.PERMISSION_DENIED
    for request, method in (
        (tokens_pb.CreateTokenRequest(principal="mine"), world.admin.CreateToken),
        (tokens_pb.ListTokensRequest(), world.admin.ListTokens),
        (tokens_pb.RevokeTokenRequest(token_id=world.root.token_id), world.admin.RevokeToken),
    ):
        assert (await refusal(method(request, metadata=metadata))).code is grpc.StatusCode.PERMISSION_DENIED


async def test_health_asks_nobody(world: World) -> None:
    health = health_pb2_grpc.HealthStub(world.channel)
    answer = await health.Check(health_pb2.HealthCheckRequest())
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_an_administrator_makes_lists_and_revokes_tokens(world: World) -> None:
    root = bearer(world.root.text)
    request = tokens_pb.CreateTokenRequest(
        principal="worker",
        agents=[types.NamePattern(prefix="agents/team/")],
        owners=["user/1"],
        verbs=["write", "read"],
        ttl=Duration(seconds=60),
        note="for tests",
    )
    made = await world.admin.CreateToken(request, metadata=root)
    worker = bearer(made.token)
    await world.memory.OpenAgent(pb.OpenAgentRequest(agent_id="team/a"), metadata=worker)
    listed = await world.admin.ListTokens(tokens_pb.ListTokensRequest(), metadata=root)
    assert {one.token_id for one in listed.tokens} == {
        world.planner.token_id,
        world.root.token_id,
        made.info.token_id,
    }
    shown = next(one for one in listed.tokens if one.token_id == made.info.token_id)
    assert shown == made.info
    assert (shown.creator, list(shown.verbs), shown.note) == ("root", ["read", "write"], "for tests")
    assert shown.expire_time.ToMilliseconds() - shown.create_time.ToMilliseconds() == 60_000
    first = await world.admin.ListTokens(tokens_pb.ListTokensRequest(page_size=2), metadata=root)
    rest = await world.admin.ListTokens(
        tokens_pb.ListTokensRequest(page_size=2, page_token=first.next_page_token), metadata=root
    )
    assert [*first.tokens, *rest.tokens] == list(listed.tokens)
    revoke = tokens_pb.RevokeTokenRequest(token_id=made.info.token_id)
    assert (await world.admin.RevokeToken(revoke, metadata=root)).revoked_count == 1
    error = await refusal(world.memory.GetServerInfo(pb.GetServerInfoRequest(), metadata=worker))
    assert error.code is grpc.StatusCode.UNAUTHENTICATED
    assert (await refusal(world.admin.RevokeToken(revoke, metadata=root))).reason == "ENTRY_NOT_FOUND"
    error = await refusal(
        world.admin.CreateToken(tokens_pb.CreateTokenRequest(principal="a", verbs=["rule"]), metadata=root)
    )
    assert (error.reason, "'rule'" in error.message) == ("INVALID_FIELD", True)


async def test_a_holder_narrows_its_own_token(world: World) -> None:
    metadata = bearer(world.planner.text)
    request = tokens_pb.CreateScopedTokenRequest(agent="planner/a", verbs=["read"])
    made = await world.admin.CreateScopedToken(request, metadata=metadata)
    assert made.info.parent_token_id == world.planner.token_id
    narrowed = bearer(made.token)
    await world.memory.OpenAgent(pb.OpenAgentRequest(agent_id="planner/a"), metadata=narrowed)
    error = await refusal(world.memory.KeepAgent(keep("planner"), metadata=narrowed))
    assert error.code is grpc.StatusCode.PERMISSION_DENIED
    wider = tokens_pb.CreateScopedTokenRequest(agent="planner")
    error = await refusal(world.admin.CreateScopedToken(wider, metadata=narrowed))
    assert error.code is grpc.StatusCode.PERMISSION_DENIED


async def test_a_token_is_narrowed_to_one_of_the_owners_that_a_grant_is_about(world: World) -> None:
    root, metadata = bearer(world.root.text), bearer(world.planner.text)
    facts = FactServiceStub(world.channel)

    async def of(owner: str, metadata: Any) -> str:
        try:
            await facts.SearchFacts(facts_pb.SearchFactsRequest(query="tea", owners=[owner]), metadata=metadata)
        except grpc.aio.AioRpcError as error:
            return error.code().name
        return "OK"

    async def granted(*verbs: str) -> None:
        resource = types.NamePattern(prefix="facts/user/")
        grant = grants_pb.Grant(principal=types.NamePattern(exact="planner"), resource=resource, verbs=verbs)
        await world.admin.SetGrant(grants_pb.SetGrantRequest(grant=grant), metadata=root)

    request = tokens_pb.CreateScopedTokenRequest(owner="user/42")
    error = await refusal(world.admin.CreateScopedToken(request, metadata=metadata))
    assert error.code is grpc.StatusCode.PERMISSION_DENIED
    await granted("read")
    assert [await of(owner, metadata) for owner in ("user/42", "user/43")] == ["OK", "OK"]
    made = await world.admin.CreateScopedToken(request, metadata=metadata)
    assert (list(made.info.owners), made.info.only_owners) == (["user/42"], True)
    narrowed = bearer(made.token)
    assert [await of(owner, narrowed) for owner in ("user/42", "user/43")] == ["OK", "PERMISSION_DENIED"]
    again = await world.admin.CreateScopedToken(request, metadata=narrowed)
    other = tokens_pb.CreateScopedTokenRequest(owner="user/43")
    error = await refusal(world.admin.CreateScopedToken(other, metadata=narrowed))
    assert error.code is grpc.StatusCode.PERMISSION_DENIED
    await granted()
    assert [await of("user/42", one) for one in (narrowed, bearer(again.token))] == ["PERMISSION_DENIED"] * 2


async def test_streams_end_with_the_credential_that_they_were_begun_with(world: World) -> None:
    metadata = bearer(world.planner.text)
    call = await as_planner(world)
    await world.memory.Put(put(call, "a"), metadata=metadata)
    watch = world.memory.Watch(pb.WatchRequest(call=call, namespace=SPACE), metadata=metadata)
    await watch.read()
    pipeline = world.memory.Pipeline(metadata=metadata)
    await pipeline.write(pb.PipelineRequest(calls=[pb.PipelineCall(id=1, put=put(call, "b"))]))
    assert (await pipeline.read()).replies[0].put.HasField("applied")
    same = tokens_pb.CreateTokenRequest(principal="planner")
    made = await world.admin.CreateToken(same, metadata=bearer(world.root.text))
    other = world.memory.Pipeline(metadata=bearer(made.token))
    revoke = tokens_pb.RevokeTokenRequest(token_id=world.planner.token_id)
    await world.admin.RevokeToken(revoke, metadata=bearer(world.root.text))
    # Before the stream is ended, and it will be, what comes on it is refused already.
    await pipeline.write(pb.PipelineRequest(calls=[pb.PipelineCall(id=2, put=put(call, "c"))]))
    async with asyncio.timeout(SECONDS_MAX):
        for stream in (watch, pipeline):
            error = await refusal(_rest(stream))
            assert (error.code, error.message) == (
                grpc.StatusCode.UNAUTHENTICATED,
                "the credential has expired or was revoked",
            )
    listing = pb.ListRequest(call=call, namespace=SPACE)
    await other.write(pb.PipelineRequest(calls=[pb.PipelineCall(id=1, list=listing)]))
    records = (await other.read()).replies[0].list.records
    assert [record.key for record in records] == ["a", "b"], "nothing was written after the token had ended"
    other.cancel()


async def _rest(stream: Any) -> None:
    while (message := await stream.read()) is not grpc.aio.EOF:
        if isinstance(message, pb.PipelineResponse):
            assert [reply.WhichOneof("response") for reply in message.replies] == ["status"]


async def test_streams_end_when_the_time_of_their_credential_is_over(world: World) -> None:
    request = tokens_pb.CreateTokenRequest(principal="planner", ttl=Duration(seconds=1))
    made = await world.admin.CreateToken(request, metadata=bearer(world.root.text))
    pipeline = world.memory.Pipeline(metadata=bearer(made.token))
    async with asyncio.timeout(SECONDS_MAX):
        error = await refusal(_rest(pipeline))
    assert error.code is grpc.StatusCode.UNAUTHENTICATED


async def test_no_file_and_no_log_line_has_a_secret(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    data = tmp_path / "data"
    (root,) = await mint_offline(data, Wanted("root", admin=True))
    texts = [root.text]
    caplog.set_level("DEBUG")
    async with serving(data, tokens=True, log_level="debug") as address, open_channel(address) as channel:
        admin, memory = AdminServiceStub(channel), MemoryServiceStub(channel)
        made = await admin.CreateToken(tokens_pb.CreateTokenRequest(principal="p"), metadata=bearer(root.text))
        scoped = await admin.CreateScopedToken(tokens_pb.CreateScopedTokenRequest(), metadata=bearer(made.token))
        texts += [made.token, scoped.token]
        for text in (*texts, made.token + "x", made.token[:-1]):
            with contextlib.suppress(grpc.aio.AioRpcError):
                await memory.OpenAgent(pb.OpenAgentRequest(agent_id="p"), metadata=bearer(text))
    told = capsys.readouterr()
    everything = [path.read_bytes() for path in data.rglob("*") if path.is_file()]
    everything += [told.out.encode(), told.err.encode(), caplog.text.encode()]
    assert made.info.token_id.encode() in b"".join(everything), "the id is there, the secret is not"
    for text in texts:
        secret = text.rpartition("_")[2].encode()
        assert not [found for found in everything if secret in found]


async def test_a_server_that_asks_nobody_makes_tokens_but_narrows_none(tmp_path: Path) -> None:
    async with serving(tmp_path / "data") as address, open_channel(address) as channel:
        admin = AdminServiceStub(channel)
        made = await admin.CreateToken(tokens_pb.CreateTokenRequest(principal="root", admin=True))
        error = await refusal(admin.CreateScopedToken(tokens_pb.CreateScopedTokenRequest()))
        assert (error.code, error.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "TOKENS_OFF")
    async with serving(tmp_path / "data", tokens=True) as address, open_channel(address) as channel:
        listed = await AdminServiceStub(channel).ListTokens(tokens_pb.ListTokensRequest(), metadata=bearer(made.token))
        assert [one.token_id for one in listed.tokens] == [made.info.token_id]


async def test_what_other_machines_reach_is_served_with_credentials(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="nothing tells who calls"):
        async with serving(tmp_path / "refused", listen="0.0.0.0:0"):
            pass
    with pytest.raises(StartupError, match="tokens would cross the network in plain text"):
        async with serving(tmp_path / "refused", listen="0.0.0.0:0", tokens=True):
            pass
    assert not (tmp_path / "refused").exists()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with (
        serving(tmp_path / "data", listen=f"0.0.0.0:{port}", tokens=True, insecure=True),
        open_channel(f"127.0.0.1:{port}") as channel,
    ):
        error = await refusal(MemoryServiceStub(channel).GetServerInfo(pb.GetServerInfoRequest()))
        assert error.code is grpc.StatusCode.UNAUTHENTICATED


async def test_web_tokens_are_taken_beside_api_tokens_until_their_key_is_withdrawn(tmp_path: Path) -> None:
    data, keys = tmp_path / "data", tmp_path / "jwks.json"
    keys.write_bytes(key_set(jwk("ES256", "k")))
    (api,) = await mint_offline(data, Wanted("planner"))
    settings = {"jwt_issuer": ISSUER, "jwt_audience": AUDIENCE, "jwt_jwks": str(keys), "jwt_admins": "root, other"}
    now_s = time.time()
    planner = bearer(signed(claims(now_s), "ES256"))
    root = bearer(signed(claims(now_s, sub="root"), "ES256"))
    async with serving(data, tokens=True, **settings) as address, open_channel(address) as channel:
        memory, admin = MemoryServiceStub(channel), AdminServiceStub(channel)
        for metadata in (planner, bearer(api.text)):
            await memory.OpenAgent(pb.OpenAgentRequest(agent_id="planner", takeover=True), metadata=metadata)
        await admin.ListTokens(tokens_pb.ListTokensRequest(), metadata=root)
        error = await refusal(admin.ListTokens(tokens_pb.ListTokensRequest(), metadata=planner))
        assert error.code is grpc.StatusCode.PERMISSION_DENIED
        scoped = await admin.CreateScopedToken(tokens_pb.CreateScopedTokenRequest(agent="planner"), metadata=planner)
        await memory.OpenAgent(pb.OpenAgentRequest(agent_id="planner", takeover=True), metadata=bearer(scoped.token))
        for forged in (
            crafted({"alg": "none"}, claims(now_s, sub="root")),
            signed_with_the_public_key(claims(now_s, sub="root"), "ES256"),
            signed(claims(now_s, sub="root", aud="elsewhere"), "ES256"),
        ):
            error = await refusal(admin.ListTokens(tokens_pb.ListTokensRequest(), metadata=bearer(forged)))
            assert (error.code, error.message) == (grpc.StatusCode.UNAUTHENTICATED, "the credential is not valid")
        pipeline = memory.Pipeline(metadata=planner)
        keys.write_bytes(key_set(jwk("ES256", "k", 1)))
        async with asyncio.timeout(SECONDS_MAX):
            error = await refusal(_rest(pipeline))
        assert error.code is grpc.StatusCode.UNAUTHENTICATED


async def test_a_key_set_that_cannot_be_used_stops_the_start(tmp_path: Path) -> None:
    settings = {"jwt_issuer": ISSUER, "jwt_audience": AUDIENCE, "jwt_jwks": str(tmp_path / "jwks.json")}
    with pytest.raises(StartupError, match=r"jwt_jwks: .* cannot be read: No such file"):
        async with serving(tmp_path / "data", **settings):
            pass
