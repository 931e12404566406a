"""Quotas of principals: what all private namespaces of their agents hold together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.support.api import put_op
from tests.support.closed import bearer, mint_offline, open_channel, serving
from tests.support.statuses import Refused, refused

from noosphere.server.security.minting import Wanted
from noosphere.v1 import memory_service_pb2 as pb
from noosphere.v1 import types_pb2 as types
from noosphere.v1.memory_service_pb2_grpc import MemoryServiceStub

RECORDS_MAX = 10
NAMESPACES_MAX = 3


class Caller:
    """An agent with the credential of a principal."""

    def __init__(self, channel: grpc.aio.Channel, metadata: Any, agent_id: str) -> None:
        self._stub = MemoryServiceStub(channel)
        self._metadata = metadata
        self._agent_id = agent_id
        self._call = types.CallContext()

    async def open(self) -> Caller:
        """Begins the agent's life."""
        opened = await self._stub.OpenAgent(pb.OpenAgentRequest(agent_id=self._agent_id), metadata=self._metadata)
        self._call = types.CallContext(actor=opened.actor)
        return self

    async def put(self, key: str) -> Refused | None:
        """Writes to the agent's own namespace; returns the refusal."""
        request = pb.PutRequest(call=self._call, namespace=f"agents/{self._agent_id}", put=put_op(key, "x", blind=True))
        try:
            await self._stub.Put(request, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            return refused(error.code(), error.details(), error.trailing_metadata())
        return None


@pytest.fixture
async def callers(tmp_path: Path) -> AsyncIterator[list[Caller]]:
    data = tmp_path / "data"
    team, other = await mint_offline(data, Wanted("team"), Wanted("team-2"))
    async with (
        serving(
            data,
            tokens=True,
            limits_principal_records_max=RECORDS_MAX,
            limits_principal_namespaces_max=NAMESPACES_MAX,
        ) as address,
        open_channel(address) as channel,
    ):
        yield [
            await Caller(channel, bearer(token.text), name).open()
            for token, name in (
                *((team, f"team{below}") for below in ("", "/a", "/b", "/c")),
                (other, "team-2"),
            )
        ]


async def test_the_agents_of_a_principal_share_its_room_and_others_have_their_own(callers: list[Caller]) -> None:
    *own, _, other = callers
    ends = [await own[number % 3].put(f"k{number}") for number in range(RECORDS_MAX + 5)]
    refusals = [end for end in ends if end is not None]
    assert ends[:RECORDS_MAX] == [None] * RECORDS_MAX
    assert len(refusals) == 5
    assert {(end.reason, end.limit().field, end.limit().limit) for end in refusals} == {
        ("LIMIT_EXCEEDED", "principal.records", RECORDS_MAX)
    }
    # What is there may be written over, and a name that only begins alike is another's.
    assert await own[0].put("k0") is None
    for number in range(RECORDS_MAX):
        assert await other.put(f"k{number}") is None


async def test_the_agents_of_a_principal_share_how_many_namespaces_they_may_make(callers: list[Caller]) -> None:
    *own, last, other = callers
    assert [await one.put("k") for one in own] == [None] * NAMESPACES_MAX
    refusal = await last.put("k")
    assert refusal is not None
    assert (refusal.limit().field, refusal.limit().limit) == ("principal.namespaces", NAMESPACES_MAX)
    assert await own[0].put("k2") is None
    assert await other.put("k") is None
