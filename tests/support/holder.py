"""A process that claims a task and, when told to, completes it, without looking at the clock.

Run as ``python -m tests.support.holder ADDRESS NAMESPACE``. It prints ``claimed``, waits for a line on its
standard input, completes the task and prints ``done`` or the reason of the refusal.
"""

from __future__ import annotations

import asyncio
import sys

import grpc
from tests.support.api import Api
from tests.support.statuses import Refused
from tests.support.transport import SocketTransport


async def _main() -> None:
    address, space = sys.argv[1:]
    async with grpc.aio.insecure_channel(address) as channel:
        agent = await Api(SocketTransport(channel)).agent("holder")
        task = await agent.claim(space, lease_ms=1_000)
        assert task is not None
        print("claimed", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        try:
            await agent.complete(space, task, b'"late"')
        except Refused as refused:
            print(refused.reason, flush=True)
        else:
            print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(_main())
