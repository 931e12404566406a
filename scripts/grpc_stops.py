"""Stops gRPC servers while calls arrive, until the time is over or the process dies of it (``make grpc-stops``).

Asked before another version of grpcio is taken: 1.78 dies, see docs/adr/0034-grpcio-before-1-78.md.
"""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import logging
import os
import random
import time
from typing import Any

os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc

ROUNDS = 20
"""Servers that one event loop sees: what a loop leaves behind is a part of what is tried."""


async def one_server(chance: random.Random) -> None:
    """Starts a server, lets calls come, and stops it before they are answered."""

    async def answer(request: bytes, context: Any) -> bytes:
        return request

    async def stay_silent(request: bytes, context: Any) -> bytes:
        await asyncio.Event().wait()
        return request

    server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
    handlers: dict[str, Any] = {
        "Answered": grpc.unary_unary_rpc_method_handler(answer),
        "Silent": grpc.unary_unary_rpc_method_handler(stay_silent),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("stops", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        methods: list[Any] = [channel.unary_unary(f"/stops/{name}") for name in handlers]
        await methods[0](b"connected", wait_for_ready=True)

        async def call() -> None:
            await chance.choice(methods)(b"late")

        calls = [asyncio.create_task(call()) for _ in range(chance.randrange(1, 6))]
        # What crashes depends on how far the calls are.
        for _ in range(chance.randrange(8)):
            await asyncio.sleep(0)
        if chance.random() < 0.7:
            for task in calls:
                task.cancel()
        else:
            await server.stop(None)
        await asyncio.wait(calls)
    await server.stop(None)


async def some_servers(chance: random.Random) -> None:
    """Starts and stops servers on one event loop."""
    for _ in range(ROUNDS):
        await one_server(chance)


def main() -> None:
    """Runs until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    faulthandler.enable()
    # That calls were cut off is what was asked for.
    logging.disable(logging.CRITICAL)
    chance, servers = random.Random(options.seed), 0
    end = time.monotonic() + options.seconds
    while time.monotonic() < end:
        asyncio.run(some_servers(chance))
        servers += ROUNDS
    print(f"grpcio {grpc.__version__}, seed {options.seed}: {servers} servers were stopped while calls arrived")


if __name__ == "__main__":
    main()
