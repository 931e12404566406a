"""The proxy does what it is told: tests of faults are worth no more than that."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from tests.contract.lab import until
from tests.support.proxy import Fault, Proxy, proxied


class Echo:
    """A server that answers each line with itself.

    Attributes:
        connections: for each connection, what has come over it.
    """

    def __init__(self) -> None:
        self.connections: list[bytes] = []
        self._writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = len(self.connections)
        self.connections.append(b"")
        self._writers.append(writer)
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                self.connections[number] += line
                writer.write(line)
                await writer.drain()
        writer.close()

    async def close(self) -> None:
        for writer in self._writers:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


class Caller:
    """A connection that asks and reads."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def ask(self, line: bytes) -> bytes:
        self.writer.write(line)
        await self.writer.drain()
        async with asyncio.timeout(60):
            return await self.reader.readline()


@pytest.fixture
async def echo() -> AsyncIterator[tuple[Echo, Proxy]]:
    """A server, and the proxy before it."""
    served = Echo()
    server = await asyncio.start_server(served.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    try:
        with proxied(f"{host}:{port}") as proxy:
            yield served, proxy
    finally:
        server.close()
        await served.close()


@contextlib.asynccontextmanager
async def caller(proxy: Proxy) -> AsyncIterator[Caller]:
    host, _, port = proxy.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield Caller(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def broken(one: Caller, line: bytes) -> bool:
    """Tells whether a connection has ended without an answer."""
    try:
        return await one.ask(line) == b""
    except ConnectionError:
        return True


async def test_a_reply_is_dropped_after_the_request_has_passed(echo: tuple[Echo, Proxy]) -> None:
    served, proxy = echo
    async with caller(proxy) as one, caller(proxy) as other:
        assert await one.ask(b"a\n") == b"a\n"
        with proxy.during(Fault.DROP_REPLIES, longer_than=2, times=1):
            assert await one.ask(b"b\n") == b"b\n", "too short to be a reply"
            assert await broken(one, b"long\n")
        assert await other.ask(b"long\n") == b"long\n"
    assert served.connections == [b"a\nb\nlong\n", b"long\n"]
    assert proxy.counts == {Fault.DROP_REPLIES: 1}


async def test_a_half_open_connection_swallows_and_ends_with_the_fault(echo: tuple[Echo, Proxy]) -> None:
    served, proxy = echo
    async with caller(proxy) as old:
        assert await old.ask(b"a\n") == b"a\n"
        with proxy.during(Fault.HALF_OPEN):
            async with caller(proxy) as new:
                asking = [asyncio.create_task(broken(one, b"b\n")) for one in (old, new)]
                await until(lambda: proxy.counts[Fault.HALF_OPEN] >= 2)
                assert not any(task.done() for task in asking)
                proxy.end()
                assert await asyncio.gather(*asking) == [True, True]
    assert served.connections == [b"a\n"]


async def test_what_was_frozen_goes_on(echo: tuple[Echo, Proxy]) -> None:
    _, proxy = echo
    async with caller(proxy) as old:
        assert await old.ask(b"a\n") == b"a\n"
        with proxy.during(Fault.FREEZE):
            async with caller(proxy) as new:
                asking = [asyncio.create_task(one.ask(b"b\n")) for one in (old, new)]
                await until(lambda: proxy.counts[Fault.FREEZE] >= 2)
                assert not any(task.done() for task in asking)
                proxy.end()
                assert await asyncio.gather(*asking) == [b"b\n", b"b\n"]


async def test_replies_that_are_held_arrive_later_or_never(echo: tuple[Echo, Proxy]) -> None:
    served, proxy = echo
    async with caller(proxy) as one:
        assert await one.ask(b"a\n") == b"a\n"
        with proxy.during(Fault.HOLD_REPLIES):
            asking = asyncio.create_task(one.ask(b"b\n"))
            await until(lambda: served.connections == [b"a\nb\n"])
            await proxy.happened()
            assert not asking.done()
            proxy.end()
            assert await asking == b"b\n"
        with proxy.during(Fault.HOLD_REPLIES):
            losing = asyncio.create_task(broken(one, b"c\n"))
            await proxy.happened()
            proxy.cut()
            assert await losing
    assert served.connections == [b"a\nb\nc\n"]


async def test_what_is_sent_twice_is_answered_once(echo: tuple[Echo, Proxy]) -> None:
    served, proxy = echo
    with proxy.during(Fault.DUPLICATE):
        async with caller(proxy) as one:
            assert await one.ask(b"a\n") == b"a\n"
            assert await one.ask(b"b\n") == b"b\n"
            await until(lambda: served.connections == [b"a\nb\n", b"a\nb\n"])
            proxy.end()
            assert await one.ask(b"c\n") == b"c\n"
    assert sorted(served.connections) == [b"a\nb\n", b"a\nb\nc\n"]


async def test_what_is_cut_is_served_again(echo: tuple[Echo, Proxy]) -> None:
    _, proxy = echo
    async with caller(proxy) as one:
        assert await one.ask(b"a\n") == b"a\n"
        with proxy.during(Fault.CUT):
            assert await broken(one, b"b\n")
            async with caller(proxy) as other:
                assert await broken(other, b"b\n")
    async with caller(proxy) as one:
        assert await one.ask(b"a\n") == b"a\n"
        proxy.cut()
        assert await broken(one, b"b\n")
    assert proxy.counts[Fault.CUT] == 3


async def test_a_delay_holds_up_either_way(echo: tuple[Echo, Proxy]) -> None:
    _, proxy = echo
    async with caller(proxy) as one:
        assert await one.ask(b"a\n") == b"a\n"
        before = asyncio.get_running_loop().time()
        with proxy.during(Fault.DELAY, seconds=0.1):
            assert await one.ask(b"b\n") == b"b\n"
        assert asyncio.get_running_loop().time() - before >= 0.19
    assert proxy.counts == {Fault.DELAY: 2}


async def test_a_fault_that_does_not_happen_fails_the_test(echo: tuple[Echo, Proxy]) -> None:
    _, proxy = echo
    with pytest.raises(AssertionError, match="the fault did not happen: half-open"), proxy.during(Fault.HALF_OPEN):
        pass
