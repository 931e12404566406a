"""A process whose client's channel ends with hundreds of streams under way: ``python -m tests.support.many_streams``.

With ``serve`` it is the server that has them, which prints its port.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc

from noosphere.client._channel import open_channel

STREAMS = 1_000
UNREAD_SECONDS = 0.3
"""For how long nobody reads what has become of them."""


async def serve() -> None:
    """Answers each stream three times, and then never again."""

    async def answer(request: bytes, context: Any) -> AsyncIterator[bytes]:
        for _ in range(3):
            yield request
        await asyncio.Event().wait()

    server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
    handlers: dict[str, Any] = {"Stream": grpc.unary_stream_rpc_method_handler(answer)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("many", handlers),))
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    await server.start()
    await server.wait_for_termination()


async def end_with_many(port: int) -> None:
    """Begins streams, cuts them while nobody reads, and closes."""
    channel = open_channel(f"127.0.0.1:{port}")
    method: Any = channel.unary_stream("/many/Stream")
    calls = [method(b"") for _ in range(STREAMS)]
    for call in calls:
        await call.read()
    reading = [asyncio.create_task(call.read()) for call in calls]
    await asyncio.sleep(0)
    for call in calls:
        call.cancel()
    # An agent may be busy with something else.
    time.sleep(UNREAD_SECONDS)  # noqa: ASYNC251 # the loop has to stand still
    await channel.close()
    del reading


def main() -> None:
    """Serves, or uses a server of its own."""
    if sys.argv[1:] == ["serve"]:
        asyncio.run(serve())
        return
    command = [sys.executable, "-m", "tests.support.many_streams", "serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            asyncio.run(end_with_many(int(server.stdout.readline())))
        finally:
            server.kill()
    print("ended")


if __name__ == "__main__":
    main()
