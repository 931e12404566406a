"""Servers that share nothing, in one list of addresses: no client goes on at the second as if it were the first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from tests.support.process import ServerProcess

from noosphere.client import StaleIncarnation, connect
from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1.memory_service_pb2_grpc import MemoryServiceStub


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    """Two by themselves."""
    made = (ServerProcess(tmp_path / "here"), ServerProcess(tmp_path / "there"))
    try:
        for server in made:
            server.start()
        yield made
    finally:
        for server in made:
            server.close()


@pytest.mark.campaign
@pytest.mark.parametrize("coalesce", [False, True])
async def test_a_client_does_not_go_on_at_a_server_that_shares_nothing(
    servers: tuple[ServerProcess, ServerProcess], coalesce: bool
) -> None:
    here, there = servers
    # The same agent with the same number lives there.
    async with connect(there.address, agent="mixed") as left_behind:
        addresses = f"{here.address},{there.address}"
        async with connect(addresses, agent="mixed", in_order=True, coalesce=coalesce) as client:
            assert client.actor == left_behind.actor
            space = client.shared("mixed")
            record = await space.key("plan").put({"at": "here"})
            here.kill()
            with pytest.raises(StaleIncarnation, match="shares nothing with this one"):
                await space.get("plan")
            with pytest.raises(StaleIncarnation, match="shares nothing with this one"):
                await record.replace({"at": "there"})
        assert await left_behind.shared("mixed").get("plan") is None
        await left_behind.shared("mixed").key("plan").put({"at": "there"})


@pytest.mark.campaign
async def test_an_agent_is_neither_kept_nor_closed_by_what_was_opened_elsewhere(
    servers: tuple[ServerProcess, ServerProcess],
) -> None:
    actors = []
    for server in servers:
        async with grpc.aio.insecure_channel(server.address) as channel:
            opened = await MemoryServiceStub(channel).OpenAgent(pb.OpenAgentRequest(agent_id="mixed"))
            actors.append(opened.actor)
    mine, others = actors
    assert mine.incarnation == others.incarnation
    assert mine.fleet != others.fleet
    async with grpc.aio.insecure_channel(servers[0].address) as channel:
        stub = MemoryServiceStub(channel)
        for call in (
            stub.KeepAgent(pb.KeepAgentRequest(actor=others)),
            stub.CloseAgent(pb.CloseAgentRequest(actor=others)),
        ):
            with pytest.raises(grpc.aio.AioRpcError, match="shares nothing with this one"):
                await call
        await stub.KeepAgent(pb.KeepAgentRequest(actor=mine))
        # Clients of before say nothing of it.
        mine.ClearField("fleet")
        await stub.KeepAgent(pb.KeepAgentRequest(actor=mine))
