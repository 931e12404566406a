"""The switchboard: one listener, whatever answers behind it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from noosphere.consistency import Reason, Refusal
from noosphere.server.rpc.errors import STATUS_KEY
from noosphere.server.rpc.switchboard import Collected, Switchboard

WHY = Refusal(Reason.ENGINE_UNAVAILABLE, "an epoch has begun")
SECONDS_MAX = 30


class Service:
    """Answers at once, never, or with a stream of which only the first message comes."""

    def __init__(self, name: str) -> None:
        self.name = name.encode()
        self.waiting = asyncio.Event()
        self.left = 0

    async def at_once(self, request: bytes, _: object) -> bytes:
        """Answers."""
        return self.name + request

    async def never(self, _: bytes, __: object) -> bytes:
        """Does not."""
        self.waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.left += 1
        return b""

    async def stream(self, _: bytes, __: object) -> AsyncIterator[bytes]:
        """Answers once, and then no more."""
        yield self.name
        try:
            await asyncio.Event().wait()
        finally:
            self.left += 1

    async def both(self, requests: AsyncIterator[bytes], __: object) -> AsyncIterator[bytes]:
        """Answers each."""
        async for request in requests:
            yield self.name + request

    def handlers(self) -> Any:
        """What a generated function would register."""
        collected = Collected()
        collected.add_registered_method_handlers(
            "s",
            {
                "AtOnce": grpc.unary_unary_rpc_method_handler(self.at_once),
                "Never": grpc.unary_unary_rpc_method_handler(self.never),
                "Stream": grpc.unary_stream_rpc_method_handler(self.stream),
                "Both": grpc.stream_stream_rpc_method_handler(self.both),
            },
        )
        return collected.handlers


@contextlib.asynccontextmanager
async def running(switchboard: Switchboard) -> AsyncIterator[Any]:
    """Serves, and connects; a channel of which no types are known, as nothing is generated for it."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((switchboard,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel
    await server.stop(0)


async def refused(call: Any) -> str:
    """Returns code and reason of a call that is refused."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async with asyncio.timeout(SECONDS_MAX):
            await call
    details: dict[Any, Any] = {name: value for name, value in caught.value.trailing_metadata() or ()}
    reason = "ENGINE_UNAVAILABLE" if b"ENGINE_UNAVAILABLE" in details.get(STATUS_KEY, b"") else "?"
    return f"{caught.value.code().name}/{reason}"


UNAVAILABLE = "UNAVAILABLE/ENGINE_UNAVAILABLE"


async def test_who_answers_can_change_under_one_connection() -> None:
    switchboard = Switchboard()
    first, second = Service("first"), Service("second")
    async with running(switchboard) as channel:
        at_once = channel.unary_unary("/s/AtOnce")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await at_once(b"!")
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        switchboard.connect(first.handlers(), may_end=True)
        assert await at_once(b"!") == b"first!"
        switchboard.disconnect(WHY)
        assert await refused(at_once(b"!")) == UNAVAILABLE
        assert await refused(channel.unary_stream("/s/Stream")(b"").read()) == UNAVAILABLE
        assert await refused(channel.stream_stream("/s/Both")([b"a"]).read()) == UNAVAILABLE
        switchboard.connect(second.handlers(), may_end=False)
        assert await at_once(b"!") == b"second!"
        assert await channel.stream_stream("/s/Both")([b"a"]).read() == b"seconda"


async def test_calls_under_way_are_broken_off_with_a_reason() -> None:
    switchboard, service = Switchboard(), Service("first")
    async with running(switchboard) as channel:
        switchboard.connect(service.handlers(), may_end=True)
        never = asyncio.ensure_future(refused(channel.unary_unary("/s/Never")(b"")))
        stream = channel.unary_stream("/s/Stream")(b"")
        both = channel.stream_stream("/s/Both")()
        assert await stream.read() == b"first"
        await both.write(b"a")
        assert await both.read() == b"firsta"
        await service.waiting.wait()
        switchboard.disconnect(WHY)
        async with asyncio.timeout(SECONDS_MAX):
            await switchboard.break_off(WHY, 0.01)
        assert await never == UNAVAILABLE
        assert await refused(stream.read()) == UNAVAILABLE
        assert await refused(both.read()) == UNAVAILABLE
        assert service.left == 2, "whatever is behind a broken call was closed"
        assert not switchboard._under_way


async def test_calls_that_end_by_themselves_are_answered() -> None:
    switchboard, service = Switchboard(), Service("first")
    async with running(switchboard) as channel:
        switchboard.connect(service.handlers(), may_end=True)
        both = channel.stream_stream("/s/Both")()
        await both.write(b"a")
        assert await both.read() == b"firsta"
        breaking = asyncio.ensure_future(switchboard.break_off(WHY, SECONDS_MAX))
        await both.write(b"b")
        assert await both.read() == b"firstb"
        await both.done_writing()
        assert await both.read() is grpc.aio.EOF
        await asyncio.wait_for(breaking, SECONDS_MAX)
