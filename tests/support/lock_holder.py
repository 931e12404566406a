"""A process that takes a lock and, when told to, writes under it, without looking at the clock.

Run as ``python -m tests.support.lock_holder ETCD ROOT REDIS fenced|unfenced``. It prints the token, waits for a line on
its standard input, writes its token and prints what the store has answered.
"""

from __future__ import annotations

import asyncio
import sys

from tests.contract.build import commit, put

from noosphere.server.ports.runtime import SystemClock
from noosphere.server.ports.store import Fence
from noosphere.server.storage.etcd import EtcdCoordinator
from noosphere.server.storage.redis import RedisStore

LOCK = "deploy"
LEASE_MS = 1_000


async def _main() -> None:
    endpoint, root, url, kind = sys.argv[1:]
    clock = SystemClock()
    coordinator = await EtcdCoordinator.open([endpoint], clock=clock, root=root)
    store = await RedisStore.open([url], coordinator, clock=clock)
    held = await coordinator.locks.acquire(LOCK, "holder", LEASE_MS)
    assert held is not None
    print(held.token, flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    fences = (Fence(LOCK, held.token),) if kind == "fenced" else ()
    result = await commit(store, put("state", str(held.token).encode()), fences=fences)
    print(type(result).__name__, flush=True)
    await store.close()
    await coordinator.close()


if __name__ == "__main__":
    asyncio.run(_main())
