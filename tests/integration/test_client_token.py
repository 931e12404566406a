"""Clients and commands that say who they are, to a server that asks."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.support.cli import Cli
from tests.support.closed import bearer, mint_offline, open_channel, serving
from tests.support.process import ServerProcess
from tests.support.waiting import until

from noosphere.client import (
    FailedPrecondition,
    PermissionDenied,
    Unauthenticated,
    connect,
)
from noosphere.client import sync as blocking
from noosphere.server.security.minting import Made, Wanted
from noosphere.v1 import admin_tokens_pb2 as pb
from noosphere.v1.admin_service_pb2_grpc import AdminServiceStub


class World(NamedTuple):
    """A server, and tokens for it."""

    address: str
    planner: Made
    root: Made
    folder: Path


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    planner, root = await mint_offline(
        tmp_path / "data", Wanted("planner", owners=("user/1", "user/2")), Wanted("root", admin=True)
    )
    async with serving(tmp_path / "data", tokens=True) as address:
        yield World(address, planner, root, tmp_path)


async def revoke(world: World, token_id: str) -> None:
    """Ends a token."""
    async with open_channel(world.address) as channel:
        request = pb.RevokeTokenRequest(token_id=token_id)
        await AdminServiceStub(channel).RevokeToken(request, metadata=bearer(world.root.text))


async def create(world: World, principal: str) -> pb.CreateTokenResponse:
    """Makes a token."""
    async with open_channel(world.address) as channel:
        request = pb.CreateTokenRequest(principal=principal)
        made: pb.CreateTokenResponse = await AdminServiceStub(channel).CreateToken(
            request, metadata=bearer(world.root.text)
        )
        return made


@pytest.mark.parametrize("coalesce", [True, False])
async def test_a_client_with_a_token_works_and_one_without_is_told(world: World, coalesce: bool) -> None:
    async with connect(world.address, agent="planner", token=world.planner.text, coalesce=coalesce) as client:
        await asyncio.gather(*(client.private.put(f"k{n}", n, blind=True) for n in range(5)))
        found = await client.private.get("k3")
        assert found is not None
        assert found.value == 3
    for token in (None, "noo_0123456789abcdef_" + "0" * 64):
        with pytest.raises(Unauthenticated) as refused:
            async with connect(world.address, agent="planner", token=token, coalesce=coalesce):
                pass
        assert (refused.value.reason, refused.value.code, refused.value.outcome) == (
            "UNAUTHENTICATED",
            "UNAUTHENTICATED",
            "not_applied",
        )


async def test_a_token_that_is_revoked_ends_what_is_under_way(world: World) -> None:
    async with connect(world.address, agent="planner", token=world.planner.text) as client:
        await client.private.put("a", 1)
        async with client.private.watch() as batches:
            await revoke(world, world.planner.token_id)
            with pytest.raises(Unauthenticated):
                async for _ in batches:
                    pass
        for _ in range(2):
            with pytest.raises(Unauthenticated):
                await client.private.put("b", 1, blind=True)


async def test_a_client_goes_on_with_the_next_token_of_its_file(world: World) -> None:
    file = world.folder / "token"
    file.write_text(world.planner.text)
    async with connect(world.address, agent="planner", token_file=str(file)) as client:
        await client.private.put("a", 1)
        seen: list[str] = []

        async def follow() -> None:
            async with client.private.watch(after=0) as batches:
                async for batch in batches:
                    seen.extend(event.key for event in batch.events)

        following = asyncio.create_task(follow())
        await until(lambda: seen == ["a"])
        made = await create(world, "planner")
        (world.folder / "next").write_text(made.token)
        os.replace(world.folder / "next", file)
        await revoke(world, world.planner.token_id)
        await client.private.put("b", 1)
        await until(lambda: seen == ["a", "b"])
        following.cancel()
        await asyncio.wait((following,))
        file.unlink()
        await revoke(world, made.info.token_id)
        with pytest.raises(Unauthenticated):
            await client.private.put("c", 1)


async def test_a_client_narrows_its_token_for_others(world: World) -> None:
    async with connect(world.address, agent="planner", token=lambda: world.planner.text) as client:
        scoped = await client.scoped_token(agent="planner/helper", owner="user/1", verbs=["read", "write"], ttl=60)
        assert scoped.token not in repr(scoped)
        with pytest.raises(PermissionDenied, match="user/3"):
            await client.scoped_token(owner="user/3")
        async with connect(world.address, agent="planner/helper", token=scoped.token) as helper:
            await helper.private.put("a", 1)
            with pytest.raises(PermissionDenied):
                await helper.scoped_token(agent="planner")


async def test_the_sync_client_says_who_it_is(world: World) -> None:
    def work() -> int:
        with blocking.connect(world.address, agent="planner", token=lambda: world.planner.text) as client:
            client.private.put("a", 7)
            found = client.private.get("a")
            assert found is not None
            assert client.scoped_token(ttl=1.0).token
            value: int = found.value
            return value

    assert await asyncio.to_thread(work) == 7


async def test_a_server_without_credentials_takes_a_client_with_a_token(tmp_path: Path) -> None:
    async with (
        serving(tmp_path / "open") as address,
        connect(address, agent="planner", token="noo_0123456789abcdef_" + "0" * 64) as client,
    ):
        await client.private.put("a", 1)
        with pytest.raises(FailedPrecondition) as refused:
            await client.scoped_token()
        assert refused.value.reason == "TOKENS_OFF"


@pytest.mark.campaign
def test_the_first_administrator_is_made_offline_and_makes_the_rest(tmp_path: Path) -> None:
    data, offline = tmp_path / "data", Cli()
    made = offline.run("token", "create", "--admin", "--data", str(data))
    assert (made.code, made.text.startswith("noo_"), "it is not shown again" in made.err) == (0, True, True)
    root = {"NOOSPHERE_TOKEN": made.text.strip()}
    server = ServerProcess(data, ("--tokens",))
    try:
        cli = Cli(server.start())
        busy = offline.run("token", "create", "--admin", "--data", str(data))
        assert (busy.code, "is already in use by process" in busy.error, "--server" in busy.error) == (3, True, True)
        nobody = cli.run("token", "list")
        assert (nobody.code, nobody.error.startswith("UNAUTHENTICATED: ")) == (1, True)
        assert nobody.error.endswith("(--token-file, NOOSPHERE_TOKEN_FILE or NOOSPHERE_TOKEN give a token)")
        worker = cli.run(
            *("token", "create", "worker", "--act-as", "team/*", "--owner", "user/1", "--verb", "read"),
            *("--ttl", "1h", "--note", "for tests", "--json"),
            environment=root,
        ).json
        (tmp_path / "worker").write_text(worker["token"])
        as_worker = ("--token-file", str(tmp_path / "worker"), "--agent", "team/a")
        unnamed = cli.run(*as_worker[:2], "token", "list")
        assert (unnamed.code, unnamed.error.endswith("--agent names another")) == (1, True)
        denied = cli.run(*as_worker, "token", "list")
        assert (denied.code, denied.error.startswith("PERMISSION_DENIED")) == (1, True)
        listed = cli.run("token", "list", "--json", environment=root).json_lines
        assert sorted(one["principal"] for one in listed) == ["admin", "worker"]
        assert {**next(one for one in listed if one["principal"] == "worker"), "token": worker["token"]} == worker
        assert worker["agents"] == ["team/*"]
        ended = cli.run("token", "revoke", worker["token"], environment=root)
        assert ended.text == f"token noo_{worker['token_id']} has ended\n"
        assert server.terminate() == 0
        for secret in (made.text.strip(), worker["token"]):
            assert secret.rpartition("_")[2] not in server.stderr
    finally:
        server.close()
