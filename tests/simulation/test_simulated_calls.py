"""gRPC over the simulated network: calls, streams, deadlines, cancellations, broken connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import grpc
import pytest
from tests.simulation.test_simulated_loop import simulate
from tests.simulation.world.channel import SimChannel
from tests.simulation.world.network import GIVE_UP_SECONDS, Network, host
from tests.simulation.world.serving import Endpoint

CODE = grpc.StatusCode


class Server:
    """Upper-cases, or does what it is asked to do instead."""

    def __init__(self) -> None:
        self.ran: list[bytes] = []
        self.cancelled = 0
        self.where = ""

    def service(self, details: Any) -> Any:
        made: Any = {
            "/unary": grpc.unary_unary_rpc_method_handler(self.unary),
            "/count": grpc.unary_stream_rpc_method_handler(self.count),
            "/sum": grpc.stream_unary_rpc_method_handler(self.sum),
            "/echo": grpc.stream_stream_rpc_method_handler(self.echo),
        }
        return made.get(details.method)

    async def unary(self, request: bytes, context: Any) -> bytes:
        self.where = host.get()
        self.ran.append(request)
        if request == b"refuse":
            await context.abort(CODE.ABORTED, "no", trailing_metadata=(("why", "because"),))
        if request == b"wait":
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        return request.upper()

    async def count(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        try:
            for number in range(int(request)):
                await asyncio.sleep(1)
                yield b"%d" % number
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def sum(self, requests: AsyncIterator[bytes], context: Any) -> bytes:
        return b"".join([request async for request in requests])

    async def echo(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        async for request in requests:
            yield request.upper()


def call(main: Callable[[Network, Server, SimChannel], Coroutine[Any, Any, None]]) -> None:
    async def inside(network: Network) -> None:
        server = Server()
        network.listen("server", 1, Endpoint(network.loop, server.service))
        await main(network, server, SimChannel(network, "server:1"))
        await asyncio.sleep(GIVE_UP_SECONDS + 60)

    for seed in range(5):
        simulate(seed, inside)


def test_each_kind_of_call() -> None:
    async def main(network: Network, server: Server, channel: SimChannel) -> None:
        assert await channel.unary_unary("/unary")(b"x") == b"X"
        assert server.where == "server"
        assert host.get() == "nowhere"
        assert [message async for message in channel.unary_stream("/count")(b"3")] == [b"0", b"1", b"2"]
        assert await channel.stream_unary("/sum")([b"a", b"b"]) == b"ab"
        both = channel.stream_stream("/echo")()
        await both.write(b"a")
        assert await both.read() == b"A"
        await both.done_writing()
        assert await both.read() is grpc.aio.EOF
        assert await both.code() is CODE.OK
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await channel.unary_unary("/unary")(b"refuse")
        assert (refused.value.code(), refused.value.details()) == (CODE.ABORTED, "no")
        assert tuple(refused.value.trailing_metadata()) == (("why", "because"),)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await channel.unary_unary("/nothing")(b"")
        assert refused.value.code() is CODE.UNIMPLEMENTED

    call(main)


def test_a_deadline_and_a_cancellation_reach_the_server() -> None:
    async def main(network: Network, server: Server, channel: SimChannel) -> None:
        with pytest.raises(grpc.aio.AioRpcError) as late:
            await channel.unary_unary("/unary")(b"wait", timeout=2)
        assert late.value.code() is CODE.DEADLINE_EXCEEDED
        waiting = asyncio.ensure_future(channel.unary_unary("/unary")(b"wait"))
        stream = channel.unary_stream("/count")(b"9")
        await stream.read()
        waiting.cancel()
        stream.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with pytest.raises(asyncio.CancelledError):
            await stream.read()
        await asyncio.sleep(1)
        assert server.cancelled == 3

    call(main)


def test_a_crash_breaks_calls_and_the_next_ones_connect_anew() -> None:
    async def main(network: Network, server: Server, channel: SimChannel) -> None:
        waiting = asyncio.ensure_future(channel.unary_unary("/unary")(b"wait"))
        await asyncio.sleep(1)
        network.crash("server")
        with pytest.raises(grpc.aio.AioRpcError) as broken:
            await waiting
        assert broken.value.code() is CODE.UNAVAILABLE
        with pytest.raises(grpc.aio.AioRpcError) as broken:
            await channel.unary_unary("/unary")(b"x")
        assert (broken.value.code(), broken.value.details()) == (CODE.UNAVAILABLE, "connection refused")
        network.listen("server", 1, Endpoint(network.loop, server.service))
        assert await channel.unary_unary("/unary")(b"x") == b"X"

    call(main)


def test_all_calls_of_a_connection_that_is_refused_hear_of_it() -> None:
    async def main(network: Network, server: Server, channel: SimChannel) -> None:
        running = channel.unary_stream("/count")(b"9")
        assert await running.read() == b"0"
        # As a server that stops: nobody new comes in, and some are still there.
        listener = network.listener("server", 1)
        assert listener is not None
        listener.close()
        streams = [channel.unary_stream("/count")(b"9") for _ in range(2)]
        single = asyncio.ensure_future(channel.unary_unary("/unary")(b"x"))
        reads = [single, *(asyncio.ensure_future(stream.read()) for stream in (running, *streams))]
        await asyncio.wait(reads, timeout=GIVE_UP_SECONDS)
        # None of them has a deadline: whoever is not told waits for ever.
        assert all(read.done() for read in reads)
        for read in reads:
            error = read.exception()
            assert isinstance(error, grpc.aio.AioRpcError)
            assert (error.code(), error.details()) == (CODE.UNAVAILABLE, "connection refused")
        await asyncio.sleep(1)
        assert server.cancelled == 1

    call(main)


def test_an_answer_that_is_cut_off_leaves_the_call_executed_and_in_doubt() -> None:
    async def main(network: Network, server: Server, channel: SimChannel) -> None:
        network.cut("server", "nowhere", both=False)
        with pytest.raises(grpc.aio.AioRpcError) as late:
            await channel.unary_unary("/unary")(b"x", timeout=5)
        assert late.value.code() is CODE.DEADLINE_EXCEEDED
        assert server.ran == [b"x"]

    call(main)


def test_a_call_that_is_delivered_twice_is_answered_once() -> None:
    async def main(network: Network, server: Server, channel: SimChannel) -> None:
        network.weather.twice = 1.0
        assert await channel.unary_unary("/unary")(b"x") == b"X"
        await asyncio.sleep(1)
        assert server.ran == [b"x", b"x"]

    call(main)
