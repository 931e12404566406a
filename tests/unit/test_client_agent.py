"""An agent's incarnation: opened, kept alive while idle, closed, and never mistaken for another's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.unit.client_support import QUICK, Fault, ManualTime, ScriptedServer, got, manual_transport, scripted_server

from noosphere.client import AgentActive, InvalidArgument, NamespacePolicy, StaleIncarnation, connect
from noosphere.client._agent import keep_agent
from noosphere.client._space import Space
from noosphere.client._values import JSON
from noosphere.consistency import ConflictPolicy
from noosphere.v1 import memory_service_pb2 as ms

LEASE = 15.0


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as script:
        yield script


async def test_a_client_is_one_incarnation(server: ScriptedServer) -> None:
    server.script("Get", got("k", b"1"))
    async with connect(server.address, agent="planner-0") as client:
        assert (client.agent, client.actor, client.server) == ("planner-0", "planner-0#1", server.address)
        assert client.private.name == "agents/planner-0"
        assert client.shared("launch").name == "shared/launch"
        assert client.namespace("sessions/s1").name == "sessions/s1"
        await client.private.get("k")
    request = server.requests["OpenAgent"][0]
    assert (request.agent_id, request.takeover) == ("planner-0", False)
    assert server.requests["Get"][0].call.actor.incarnation == 1
    assert [request.actor.incarnation for request in server.requests["CloseAgent"]] == [1]


async def test_without_a_name_the_agent_is_a_new_one(server: ScriptedServer) -> None:
    async with connect(server.address) as one, connect(server.address) as other:
        assert one.agent.startswith("client/")
        assert one.agent != other.agent


async def test_a_random_agent_survives_a_lost_reply_to_its_opening(server: ScriptedServer) -> None:
    """The first opening was executed; nobody else can hold a random name, so the retry takes it over."""
    server.script("OpenAgent", Fault("UNAVAILABLE"))
    async with connect(server.address, retry=QUICK):
        pass
    assert [request.takeover for request in server.requests["OpenAgent"]] == [True, True]


async def test_a_living_agent_is_not_taken_over_unasked(server: ScriptedServer) -> None:
    server.script("OpenAgent", Fault(reason="AGENT_ACTIVE"))
    with pytest.raises(AgentActive):
        async with connect(server.address, agent="planner-0"):
            pass
    assert not server.requests["CloseAgent"]
    async with connect(server.address, agent="planner-0", takeover=True):
        assert server.requests["OpenAgent"][-1].takeover


async def test_the_incarnation_is_closed_also_after_an_error(server: ScriptedServer) -> None:
    with pytest.raises(ZeroDivisionError):
        async with connect(server.address, agent="planner-0"):
            raise ZeroDivisionError
    assert len(server.requests["CloseAgent"]) == 1


async def test_closing_an_ended_incarnation_is_no_error(server: ScriptedServer) -> None:
    server.script("CloseAgent", Fault(reason="STALE_INCARNATION"))
    async with connect(server.address, agent="planner-0"):
        pass
    assert len(server.requests["CloseAgent"]) == 1


async def test_the_server_comes_from_the_environment(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOOSPHERE_SERVER", server.address)
    async with connect(agent="planner-0") as client:
        assert client.server == server.address


@pytest.mark.parametrize("agent", ["", "a#1", "x" * 129, "a//b", "tab\t"])
async def test_bad_names_are_refused_before_anything_is_sent(agent: str) -> None:
    with pytest.raises(InvalidArgument, match="agent"):
        async with connect("127.0.0.1:1", agent=agent):
            pass


@pytest.mark.parametrize("name", ["launch", "shared", "shared/", "other/x", "shared//x"])
async def test_bad_namespaces_are_refused(server: ScriptedServer, name: str) -> None:
    async with connect(server.address, agent="a") as client:
        with pytest.raises(InvalidArgument, match="namespace"):
            client.namespace(name)


@pytest.mark.parametrize("key", ["", "/a", "a//b", "a\nb", "x" * 513, 7])
async def test_bad_keys_are_refused(server: ScriptedServer, key: str) -> None:
    async with connect(server.address, agent="a") as client:
        with pytest.raises(InvalidArgument, match="key"):
            client.shared("x").key(key)


async def test_an_idle_client_keeps_its_lease(server: ScriptedServer) -> None:
    time = ManualTime()
    async with manual_transport(server, time) as transport:
        transport.renewed_at = time.clock()
        keeper = asyncio.create_task(keep_agent(transport, LEASE))
        for _ in range(3):
            assert await time.sleeper() == pytest.approx(LEASE / 3)
            time.advance(LEASE / 3)
            await server.arrival("KeepAgent")
        keeper.cancel()
        await asyncio.wait([keeper])


async def test_a_busy_client_sends_no_keepalives(server: ScriptedServer) -> None:
    time = ManualTime()
    server.script("Get", *[got("k", b"1")] * 10)
    async with manual_transport(server, time) as transport:
        transport.renewed_at = time.clock()
        keeper = asyncio.create_task(keep_agent(transport, LEASE))
        space = Space(transport, "shared/x")
        for _ in range(10):
            await time.sleeper()
            time.advance(LEASE / 6)
            await space.read(JSON, "k", None)
        keeper.cancel()
        await asyncio.wait([keeper])
    assert not server.requests["KeepAgent"]


async def test_a_failed_keepalive_is_tried_again_and_an_ended_incarnation_is_not(server: ScriptedServer) -> None:
    time = ManualTime()
    server.script("KeepAgent", Fault("INTERNAL"), Fault(reason="STALE_INCARNATION"))
    async with manual_transport(server, time) as transport:
        keeper = asyncio.create_task(keep_agent(transport, LEASE))
        await server.arrival("KeepAgent")
        time.advance(await time.sleeper())
        await keeper
    assert len(server.requests["KeepAgent"]) == 2


async def test_an_ended_incarnation_is_told_to_the_caller(server: ScriptedServer) -> None:
    server.script("Put", Fault(reason="STALE_INCARNATION"))
    async with connect(server.address, agent="a", retry=QUICK) as client:
        with pytest.raises(StaleIncarnation):
            await client.private.put("k", 1)
    assert len(server.requests["Put"]) == 1


async def test_rules_of_a_namespace_go_there_and_back(server: ScriptedServer) -> None:
    policy = NamespacePolicy(
        conflict_policy=ConflictPolicy.SIBLINGS,
        prefix_policies=(("log/", ConflictPolicy.LAST_WRITER_WINS),),
        item_bytes_max=4096,
        records_max=10,
        tombstone_retention_ms=7_200_000,
        log_age_ms_max=5_000,
        log_revisions_max=50,
        log_bytes_max=1_000_000,
    )

    def echo(request: ms.EnsureNamespaceRequest) -> ms.EnsureNamespaceResponse:
        return ms.EnsureNamespaceResponse(generation=3, policy=request.policy, head=9, created=True)

    server.script("EnsureNamespace", echo, ms.EnsureNamespaceResponse(generation=1))
    async with connect(server.address, agent="a") as client:
        state = await client.ensure_namespace("shared/x", policy)
        assert (state.generation, state.policy, state.head, state.created) == (3, policy, 9, True)
        assert (await client.ensure_namespace("shared/x")).policy == NamespacePolicy()
    assert not server.requests["EnsureNamespace"][1].HasField("policy")
