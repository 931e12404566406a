"""`noosphere limits`: set, shown, in force at once, and removed."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Iterator

import grpc
import pytest
from tests.support.api import Api
from tests.support.cli import Cli, holds
from tests.support.process import ServerProcess
from tests.support.statuses import Refused, refusal
from tests.support.transport import SocketTransport

from noosphere.consistency import Reason
from noosphere.server.cli import limit_shapes
from noosphere.v1 import session_service_pb2 as sessions_pb

SESSIONS = "noosphere.v1.SessionService"


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path_factory.mktemp("limited") / "data", ("--limits-namespace-records-max=50",))
    server.start()
    yield server
    server.close()


def test_limits_are_set_listed_shown_and_removed(limited: ServerProcess) -> None:
    cli = Cli(limited.address)
    cli.ok("limits", "set", "agent", "shown*", "--calls-per-second", "100", "--streams-max", "0")
    cli.ok("limits", "set", "agent", "shown-1", "--calls-per-second", "7")
    shown, listed, odd, none = cli.run_all(
        ["limits", "show", "agent", "shown-1", "--json"],
        ["limits", "list", "--json"],
        ["limits", "set", "namespace", "shared/x", "--streams-max", "1"],
        ["limits", "set", "agent", "x"],
    )
    (document,) = shown.json_lines
    holds(limit_shapes.LimitsShape, document)
    # For each limit the most specific rule that gives it, then the settings.
    assert (document["calls_per_second"], document["streams_max"], document["calls_burst"]) == (7, 0, 100_000)
    rules = [rule for rule in listed.json_lines if rule["name"].startswith("shown")]
    for rule in rules:
        holds(limit_shapes.LimitRuleShape, rule)
    assert [(rule["of"], rule["name"], rule["exact"]) for rule in rules] == [
        ("agent", "shown", False),
        ("agent", "shown-1", True),
    ]
    assert odd.code != 0
    assert "streams_max: is no limit of namespaces" in odd.error
    assert none.code == 2
    mistyped = cli.ok("limits", "remove", "agent", "shown-").text
    assert mistyped.startswith("agent shown-: nothing was set by this pattern; ")
    for name, words in (("shown*", "calls_per_second=100 streams_max=0"), ("shown-1", "calls_per_second=7")):
        assert cli.ok("limits", "remove", "agent", name).lines == [f"agent {name}: removed {words}"]
    assert "shown" not in cli.ok("limits", "list").text


async def test_a_limit_is_in_force_with_the_next_call_and_its_removal_too(limited: ServerProcess) -> None:
    cli = Cli(limited.address)
    async with grpc.aio.insecure_channel(limited.address) as channel:
        api = Api(SocketTransport(channel))
        agent = await api.agent("soon")
        await agent.put("shared/soon", "k", 1)
        cli.ok("limits", "set", "agent", "so*", "--calls-per-second", "1", "--calls-burst", "2")
        for number in range(2):
            await agent.put("shared/soon", f"k{number}", 1)
        with refusal(Reason.LIMIT_EXCEEDED) as refused:
            for _ in range(10):
                await agent.put("shared/soon", "k", 1, blind=True)
        assert refused.limit().field == "calls_per_second"
        cli.ok("limits", "remove", "agent", "so*")
        for number in range(20):
            await agent.put("shared/soon", f"l{number}", 1)


async def test_an_agent_makes_no_more_namespaces_than_it_may_until_some_are_deleted(limited: ServerProcess) -> None:
    Cli(limited.address).ok("limits", "set", "agent", "maker*", "--namespaces-max", "3")
    async with grpc.aio.insecure_channel(limited.address) as channel:
        api = Api(SocketTransport(channel))
        maker, other = await api.agent("maker"), await api.agent("maker-2")

        async def open_session(session_id: str) -> None:
            request = sessions_pb.OpenSessionRequest(session_id=session_id, call=maker.call())
            await api.transport.unary(SESSIONS, "OpenSession", request, sessions_pb.OpenSessionResponse)

        await maker.put("shared/made-1", "k", 1)
        await maker.ensure("shared/made-2")
        await open_session("made-3")
        ways: tuple[Callable[[], Awaitable[object]], ...] = (
            lambda: maker.put("shared/made-4", "k", 1),
            lambda: maker.ensure("shared/made-4"),
            lambda: open_session("made-4"),
        )
        for way in ways:
            with refusal(Reason.LIMIT_EXCEEDED) as refused:
                await way()
            assert (refused.limit().field, refused.limit().limit) == ("agent.namespaces", 3)
        # What is there is written to by everybody, and others make their own.
        await maker.put("shared/made-1", "more", 1)
        await other.put("shared/made-4", "k", 1)
        await maker.put("shared/made-4", "mine", 1)
        await api.delete_namespace("shared/made-2")
        await maker.put("shared/made-5", "k", 1)
        with refusal(Reason.LIMIT_EXCEEDED):
            await maker.ensure("shared/made-2")


async def test_a_namespace_has_no_more_room_than_it_may_and_what_makes_less_of_it_is_done(
    limited: ServerProcess,
) -> None:
    async with grpc.aio.insecure_channel(limited.address) as channel:
        api = Api(SocketTransport(channel))
        agent = await api.agent("filling")
        for number in range(50):
            await agent.put("shared/full", f"k{number}", 1)
        with refusal(Reason.LIMIT_EXCEEDED) as refused:
            await agent.put("shared/full", "one-more", 1)
        assert (refused.limit().field, refused.limit().limit) == ("namespace.records", 50)
        await agent.put("shared/full", "k0", 2, blind=True)
        await agent.put("shared/other", "k", 1)
        Cli(limited.address).ok("limits", "set", "namespace", "shared/byt*", "--bytes-max", "2000")
        written = 0
        for number in itertools.count():
            try:
                await agent.put("shared/bytes", f"k{number}", "x" * 300)
            except Refused as error:
                full = error
                break
            written += 300
        assert full.limit().field == "namespace.bytes"
        assert 1_000 < written < 2_000
        record = await agent.get("shared/bytes", "k0")
        await agent.delete("shared/bytes", "k0", expected=record.version)
        await agent.put("shared/bytes", "k1", "y", blind=True)
        info = await api.get_namespace("shared/bytes")
        assert info.record_bytes <= 2_000
