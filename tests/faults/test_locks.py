"""Locks whose holders are stopped, and whose etcd is killed."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contract.build import logged, put, write
from tests.contract.lab import until
from tests.support.child import child_process, goes_back
from tests.support.etcd import EtcdProcess, needs_etcd
from tests.support.lock_holder import LOCK
from tests.support.redis import RedisProcess, needs_redis

from noosphere.consistency import Reason, Refusal
from noosphere.server.ports.runtime import SystemClock
from noosphere.server.ports.store import Fence
from noosphere.server.storage.etcd import EtcdCoordinator
from noosphere.server.storage.redis import RedisStore

pytestmark = [needs_etcd, needs_redis]

FLEET = "fleet/"
WAIT_MS = 60_000
LEASE_MS = 10_000
"""Long enough for nobody to lose a lock that he holds, however slow the machine is."""


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisProcess]:
    server = RedisProcess(tmp_path / "redis")
    server.start()
    yield server
    server.kill()


@pytest.mark.parametrize("kind", ["fenced", "unfenced"])
async def test_a_holder_that_was_stopped_past_its_lease_writes_nothing_under_its_fence(
    etcd: EtcdProcess, redis: RedisProcess, kind: str
) -> None:
    clock = SystemClock()
    coordinator = await EtcdCoordinator.open([etcd.endpoint], clock=clock, root=FLEET)
    store = await RedisStore.open([redis.url], coordinator, clock=clock)
    try:
        with child_process("lock_holder", etcd.endpoint, FLEET, redis.url, kind) as holder:
            assert holder.stdin is not None
            assert holder.stdout is not None
            token = int(holder.stdout.readline())
            holder.send_signal(signal.SIGSTOP)
            # Waits until the lease has lapsed, however long that takes here.
            held = await coordinator.locks.acquire(LOCK, "next", 15_000, WAIT_MS)
            assert held is not None
            await write(store, put("state", str(held.token).encode()), fences=(Fence(LOCK, held.token),))
            holder.send_signal(signal.SIGCONT)
            holder.stdin.write("go on\n")
            holder.stdin.flush()
            answer = (await asyncio.to_thread(holder.stdout.readline)).strip()
        written = [int(change.data or b"") for batch in await logged(store) for change in batch.changes]
        if kind == "fenced":
            assert (answer, written) == ("Failed", [held.token])
            assert not goes_back(written)
        else:
            assert (answer, written) == ("Committed", [held.token, token])
            assert goes_back(written), "who writes without a fence is found out"
    finally:
        await store.close()
        await coordinator.close()


async def test_an_etcd_that_is_killed_grants_no_lock_twice(etcd: EtcdProcess) -> None:
    clock = SystemClock()
    fleet = [await EtcdCoordinator.open([etcd.endpoint], clock=clock, root=FLEET) for _ in range(3)]
    inside: set[str] = set()
    tokens: list[int] = []
    unanswered = 0
    restarted = asyncio.Event()

    async def work(coordinator: EtcdCoordinator, owner: str) -> None:
        nonlocal unanswered
        after = 0
        while after < 3:
            try:
                # A seat whose owner was refused lapses by itself.
                held = await coordinator.locks.acquire("x", owner, LEASE_MS, WAIT_MS)
            except Refusal as refusal:
                if refusal.reason is not Reason.ENGINE_UNAVAILABLE:
                    raise
                unanswered += 1
                continue
            assert held is not None
            assert not inside
            inside.add(owner)
            tokens.append(held.token)
            with contextlib.suppress(Refusal):
                await coordinator.locks.renew("x", held.token)
            inside.remove(owner)
            after += restarted.is_set()
            with contextlib.suppress(Refusal):
                await coordinator.locks.release("x", held.token)

    try:
        async with asyncio.TaskGroup() as group:
            for i, coordinator in enumerate(fleet * 2):
                group.create_task(work(coordinator, f"w{i}"))
            await until(lambda: len(tokens) >= 20)
            etcd.kill()
            await until(lambda: unanswered > 0)
            await asyncio.to_thread(etcd.start)
            restarted.set()
        assert len(tokens) >= 20 + 3 * len(fleet)
        assert tokens == sorted(set(tokens))
        last = await fleet[0].locks.acquire("x", "last", LEASE_MS, WAIT_MS)
        assert last is not None
        assert last.token > tokens[-1]
    finally:
        for coordinator in fleet:
            await coordinator.close()
