"""A process that holds a lock by the client and, when told to, writes under it, without heeding that it was ended.

Run as ``python -m tests.support.client_lock_holder ADDRESS SPACE LOCK fenced|unfenced``. It prints the token, waits for
a line on its standard input, writes its token and prints ``written`` or the reason of the refusal; then how its block
ended: ``LOST`` or ``kept``.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys

from noosphere.client import Client, Lock, LockLost, NoosphereError, connect

LEASE_SECONDS = 1.0
KEY = "state"


async def _write(client: Client, space: str, lock: Lock, kind: str) -> str:
    writer = client.fenced(lock.fence) if kind == "fenced" else client
    try:
        await writer.shared(space).put(KEY, lock.token, blind=True)
    except NoosphereError as error:
        return error.reason
    return "written"


async def _hold(client: Client, space: str, name: str, kind: str) -> None:
    async with client.lock(name, lease=LEASE_SECONDS) as lock:
        print(lock.token, flush=True)
        told = asyncio.create_task(asyncio.to_thread(sys.stdin.readline))
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(told)
        # The block may have been cancelled by now, which a program can fail to heed.
        await told
        writing = asyncio.create_task(_write(client, space, lock, kind))
        while not writing.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(writing)
        print(writing.result(), flush=True)
        if lock.is_held:
            await asyncio.Event().wait()


async def _main() -> None:
    address, space, name, kind = sys.argv[1:]
    async with connect(address, agent="holder", timeout=30) as client:
        try:
            await _hold(client, space, name, kind)
        except LockLost:
            print("LOST", flush=True)
        else:
            print("kept", flush=True)


if __name__ == "__main__":
    asyncio.run(_main())
