"""A client with several servers: it stays with one until that fails, and goes on with another."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import grpc
import pytest
from tests.unit.client_support import (
    QUICK,
    SILENCE,
    Fault,
    ScriptedServer,
    got,
    put_applied,
    scripted_server,
)

from noosphere.client import InvalidArgument, Unavailable, connect
from noosphere.client._channel import CHANNEL_OPTIONS, CONNECTIONS_PER_NAME, ServersChannel, open_channel
from noosphere.client.sync import connect as connect_sync
from noosphere.consistency import Reason
from noosphere.v1 import memory_service_pb2 as ms
from noosphere.v1.memory_service_pb2_grpc import MemoryServiceStub

NOBODY = "127.0.0.1:1"


@asynccontextmanager
async def servers(count: int = 2) -> AsyncIterator[list[ScriptedServer]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(scripted_server()) for _ in range(count)]


def addresses(*scripts: ScriptedServer) -> str:
    return ",".join(script.address for script in scripts)


def used(scripts: list[ScriptedServer], method: str) -> tuple[ScriptedServer, ScriptedServer]:
    """Returns the server that got the first such call, and the other."""
    (first,) = (script for script in scripts if script.requests[method])
    (other,) = (script for script in scripts if script is not first)
    return first, other


async def test_calls_stay_with_one_server() -> None:
    async with servers() as pair, connect(addresses(*pair), coalesce=False, retry=QUICK) as client:
        first, other = used(pair, "OpenAgent")
        for _ in range(20):
            await client.server_info()
        assert len(first.requests["GetServerInfo"]) == 20
        assert not any(other.requests.values())
        assert client.server == addresses(*pair)


async def test_clients_spread_over_the_servers() -> None:
    async with servers() as pair:
        for _ in range(40):
            async with connect(addresses(*pair), coalesce=False, retry=QUICK):
                pass
        assert min(len(script.requests["OpenAgent"]) for script in pair) > 0


async def test_a_client_may_prefer_one() -> None:
    async with servers(3) as three:
        first, second, third = three
        for _ in range(8):
            async with connect(addresses(first, second, third), coalesce=False, retry=QUICK, in_order=True):
                pass
        assert [len(script.requests["OpenAgent"]) for script in three] == [8, 0, 0]
        async with connect(addresses(first, second, third), coalesce=False, retry=QUICK, in_order=True) as client:
            first.script("GetServerInfo", Fault("UNAVAILABLE"))
            await client.server_info()
        assert [len(script.requests["GetServerInfo"]) for script in three] == [1, 1, 0]


@pytest.mark.parametrize("coalesce", [True, False])
@pytest.mark.parametrize(
    "failure",
    [Fault(reason=Reason.ENGINE_UNAVAILABLE), Fault("CANCELLED"), Fault("UNAVAILABLE", message="shut down")],
)
async def test_a_server_that_cannot_is_left_for_good(failure: Fault, coalesce: bool) -> None:
    async with servers() as pair, connect(addresses(*pair), coalesce=coalesce, retry=QUICK) as client:
        first, other = used(pair, "OpenAgent")
        first.script("Get", failure)
        other.script("Get", got("plan", b"1"), got("plan", b"2"))
        for value in (1, 2):
            record = await client.shared("x").get("plan")
            assert record is not None
            assert record.value == value
        assert [len(script.requests["Get"]) for script in (first, other)] == [1, 2]


async def test_a_refusal_is_no_reason_to_leave() -> None:
    async with servers() as pair, connect(addresses(*pair), coalesce=False, retry=QUICK) as client:
        first, other = used(pair, "OpenAgent")
        first.script("Get", Fault(reason=Reason.NAMESPACE_DELETED), Fault("RESOURCE_EXHAUSTED", retry_delay=0.001))
        first.script("Get", got("plan", b"1"))
        with pytest.raises(Exception, match="scripted"):
            await client.shared("x").get("plan")
        assert await client.shared("x").get("plan") is not None
        assert not other.requests["Get"]


@pytest.mark.parametrize("coalesce", [True, False])
async def test_a_write_goes_on_elsewhere_under_its_id(coalesce: bool) -> None:
    async with servers() as pair, connect(addresses(*pair), coalesce=coalesce, retry=QUICK) as client:
        first, other = used(pair, "OpenAgent")
        first.script("Put", SILENCE)
        other.script("Put", put_applied(8, replayed=True))
        written = await client.private.put("plan", 1, timeout=1.0)
        assert written.version == 8
        (sent,), (again,) = first.requests["Put"], other.requests["Put"]
        assert sent.call.request_id == again.call.request_id


async def test_calls_that_fail_together_move_on_once() -> None:
    async with servers(3) as three, connect(addresses(*three), coalesce=False, retry=QUICK) as client:
        (first,) = (script for script in three if script.requests["OpenAgent"])
        together = asyncio.Barrier(8)

        async def fail(_: Any) -> Fault:
            await together.wait()
            return Fault(reason=Reason.ENGINE_UNAVAILABLE)

        first.script("Get", *[fail] * 8)
        for script in three:
            if script is not first:
                script.script("Get", *[got("plan", b"1")] * 8)
        await asyncio.gather(*(client.shared("x").get("plan") for _ in range(8)))
        assert sorted(len(script.requests["Get"]) for script in three) == [0, 8, 8]


async def test_a_server_that_drains_its_streams_is_left_before_it_fails() -> None:
    async with servers() as pair, connect(addresses(*pair), retry=QUICK) as client:
        first, other = used(pair, "OpenAgent")

        def answer_and_drain(batch: ms.PipelineRequest) -> ms.PipelineResponse:
            (call,) = batch.calls
            return ms.PipelineResponse(replies=[ms.PipelineReply(id=call.id, get=got("plan", b"1"))], draining=True)

        first.script("Pipeline", answer_and_drain)
        other.script("Get", got("plan", b"2"))
        for value in (1, 2):
            record = await client.shared("x").get("plan")
            assert record is not None
            assert record.value == value
        assert [script.streams for script in (first, other)] == [1, 1]


async def test_a_stream_to_a_server_that_hangs_does_not_stay() -> None:
    async with servers() as pair, connect(addresses(*pair), retry=QUICK) as client:
        first, other = used(pair, "OpenAgent")
        first.script("Pipeline", SILENCE, SILENCE)
        other.script("Get", got("plan", b"1"), got("plan", b"1"))
        await asyncio.gather(*(client.shared("x").get("plan", timeout=1.0) for _ in range(2)))
        pipeline = client._transport._pipeline
        assert pipeline is not None
        assert len(pipeline._streams) == 1


async def test_a_watch_goes_on_elsewhere_where_it_has_got_to() -> None:
    def changed(revision: int) -> ms.WatchResponse:
        message = ms.WatchResponse(head=revision, resume_token=str(revision).encode())
        message.changes.revision = revision
        return message

    async with servers() as pair, connect(addresses(*pair), coalesce=False, retry=QUICK) as client:
        first, other = used(pair, "OpenAgent")
        first.script_watch([changed(8), Fault("UNAVAILABLE", message="gone")])
        other.script_watch([changed(9), SILENCE])
        async with client.shared("x").watch(after=7) as batches:
            assert [(await anext(batches)).revision for _ in range(2)] == [8, 9]
        (resumed,) = other.requests["Watch"]
        assert resumed.resume_token == b"8"
        await client.server_info()
        assert other.requests["GetServerInfo"], "calls have moved on with it"


async def test_a_server_that_is_away_is_passed_over() -> None:
    async with scripted_server() as script:
        for _ in range(8):
            async with connect(f"{NOBODY}, {script.address}", coalesce=False, retry=QUICK) as client:
                await client.server_info()
        assert len(script.requests["OpenAgent"]) == 8


async def test_what_was_tried_is_named() -> None:
    with pytest.raises(Unavailable) as caught:
        async with connect(f"{NOBODY},127.0.0.1:2", timeout=0.4, retry=QUICK):
            pass
    named = caught.value.message.split(" within")[0].removeprefix("cannot reach ")
    assert sorted(named.split(", ")) == [NOBODY, "127.0.0.1:2"]


async def test_interceptors_see_the_calls_to_every_server() -> None:
    seen: list[str] = []

    class Listener(grpc.aio.UnaryUnaryClientInterceptor):  # type: ignore[misc, unused-ignore] # depends on the stubs
        async def intercept_unary_unary(self, continuation: Callable[..., Any], details: Any, request: Any) -> Any:
            seen.append(type(request).__name__.removesuffix("Request"))
            return await continuation(details, request)

    async with (
        servers() as pair,
        connect(addresses(*pair), interceptors=[Listener()], coalesce=False, retry=QUICK) as client,
    ):
        first, _ = used(pair, "OpenAgent")
        first.script("GetServerInfo", Fault("UNAVAILABLE"))
        await client.server_info()
    assert seen == ["OpenAgent", "GetServerInfo", "GetServerInfo", "CloseAgent"]


async def test_a_channel_that_is_given_has_its_interceptors() -> None:
    async with grpc.aio.insecure_channel(NOBODY) as channel:
        with pytest.raises(InvalidArgument, match="interceptors: a channel that is given has its own"):
            async with connect(channel=channel, interceptors=[object()]):  # type: ignore[list-item] # never used
                pass


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("a:1,b", "'b' is not host:port"),
        ("a:1,,b:2", "'' is not host:port"),
        (",", "'' is not host:port"),
        (",".join(f"host-{number}:7443" for number in range(33)), "33 addresses, the limit is 32"),
    ],
)
async def test_addresses_that_are_none_are_named(given: str, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidArgument, match=f"server: {problem}"):
        async with connect(given):
            pass
    monkeypatch.setenv("NOOSPHERE_SERVER", given)
    with pytest.raises(InvalidArgument, match=f"NOOSPHERE_SERVER: {problem}"):
        async with connect():
            pass


async def test_a_name_has_several_connections() -> None:
    async with open_channel("dns:///localhost:7443") as channel:
        assert isinstance(channel, ServersChannel)
        for turn in range(CONNECTIONS_PER_NAME):
            assert channel.address(turn) == "dns:///localhost:7443"
    async with open_channel("localhost:7443, localhost:7443") as channel:
        assert not isinstance(channel, ServersChannel), "the same server twice is one server"


async def test_a_name_that_stands_for_several_servers_spreads_its_clients() -> None:
    """As ``dns:///`` does with what a resolver answers; here gRPC is given the addresses."""
    async with servers(3) as three:
        target = "ipv4:" + addresses(*three)
        found: Counter[int] = Counter()
        for _ in range(60):
            async with grpc.aio.insecure_channel(target, options=CHANNEL_OPTIONS) as channel:
                await MemoryServiceStub(channel).GetServerInfo(ms.GetServerInfoRequest())
        for number, script in enumerate(three):
            found[number] = len(script.requests["GetServerInfo"])
        assert len(+found) == 3


def test_the_sync_client_goes_on_elsewhere() -> None:
    ready, stop = asyncio.Event(), asyncio.Event()
    pair: list[ScriptedServer] = []

    async def serve() -> None:
        async with servers() as found:
            pair.extend(found)
            ready.set()
            await stop.wait()

    async def main() -> None:
        serving = asyncio.create_task(serve())
        await ready.wait()
        await asyncio.to_thread(use)
        stop.set()
        await serving

    def use() -> None:
        with connect_sync(addresses(*pair), coalesce=False, retry=QUICK) as client:
            first, other = used(pair, "OpenAgent")
            first.script("Get", Fault(reason=Reason.ENGINE_UNAVAILABLE))
            other.script("Get", got("plan", b"1"))
            record = client.shared("x").get("plan")
            assert record is not None
            assert record.value == 1

    asyncio.run(main())
