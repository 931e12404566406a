"""Fact queues whose Redis or whose workers die: no lease is two workers', and what was synced is worked on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from tests.contract.factlab import job, job_ids
from tests.contract.lab import until
from tests.support.etcd import EtcdProcess, needs_etcd
from tests.support.redis import RedisProcess, needs_redis
from tests.support.redis_pair import cut_off, fail_over

from noosphere.consistency import Reason, Refusal
from noosphere.server.ports.runtime import SystemClock
from noosphere.server.storage.embedded import EmbeddedCoordinator
from noosphere.server.storage.etcd import EtcdCoordinator
from noosphere.server.storage.redis import RedisFactQueue, RedisStore
from noosphere.server.storage.redis.scripts import Script
from noosphere.server.storage.redis.wire import Address, Wire

pytestmark = needs_redis

T = TypeVar("T")

LEASE_MS = 30_000
SHORT_MS = 300
SECONDS_MAX = 120.0
"""A bound against hanging."""

STEM = "noosphere:{queue}"


@pytest.fixture
def primary(tmp_path: Path) -> Iterator[RedisProcess]:
    """A Redis that answers when it has synced."""
    server = RedisProcess(tmp_path / "primary", appendfsync="always")
    server.start()
    yield server
    server.kill()


@contextlib.asynccontextmanager
async def opened(coordinator: EmbeddedCoordinator, *servers: RedisProcess) -> AsyncIterator[RedisFactQueue]:
    store = await RedisStore.open([server.url for server in servers], coordinator, clock=SystemClock())
    yield RedisFactQueue.beside(store)
    await store.close()


async def test_a_lease_that_was_lost_is_not_the_one_that_was_granted_after(
    primary: RedisProcess, replica: RedisProcess, coordinator: EmbeddedCoordinator
) -> None:
    """Both are of the same attempt at the same job; the first worker must not finish what the second one holds."""
    async with opened(coordinator, primary, replica) as queue:
        await queue.put([job("a"), job("b"), job("c")])
        cut_off(primary, replica)
        lost = await queue.take("first", 2, LEASE_MS)
        await queue.put([job("lost")])
        fail_over(primary, replica)
        await queue.put([job("late")])
        again = await queue.take("second", 4, LEASE_MS)
        assert [(one.job.id, one.attempt) for one in again] == [("a", 1), ("b", 1), ("c", 1), ("late", 1)]
        assert [one.attempt for one in lost] == [1, 1]
        assert await queue.extend([one.lease for one in lost], LEASE_MS) == (False, False)
        assert await queue.done([one.lease for one in lost]) == (False, False)
        assert await queue.fail(lost[0].lease, "late", retry_after_ms=0) is False
        assert await queue.done([one.lease for one in again]) == (True,) * 4


async def test_a_lease_that_was_not_lost_outlives_a_failover(
    primary: RedisProcess, replica: RedisProcess, coordinator: EmbeddedCoordinator
) -> None:
    async with opened(coordinator, primary, replica) as queue:
        await queue.put([job("a"), job("b"), job("dead")])
        a, b, dead = await queue.take("worker", 3, LEASE_MS)
        await queue.fail(dead.lease, "bad", retry_after_ms=None)
        cut_off(primary, replica)
        fail_over(primary, replica)
        assert await queue.take("other", 3, LEASE_MS) == ()
        assert await queue.done([a.lease]) == (True,)
        assert await queue.fail(b.lease, "again", retry_after_ms=0) is True
        assert job_ids(await queue.take("other", 3, LEASE_MS)) == ["b"]
        assert [one.job.id for one in await queue.dead("", 9)] == ["dead"]


async def test_a_job_is_never_given_the_number_of_one_that_was_lost(
    primary: RedisProcess, replica: RedisProcess, coordinator: EmbeddedCoordinator
) -> None:
    async with opened(coordinator, primary, replica) as queue:
        cut_off(primary, replica)
        await queue.put([job("lost")])
        (held,) = await queue.take("first", 1, LEASE_MS)
        fail_over(primary, replica)
        await queue.put([job("new")])
        (new,) = await queue.take("second", 1, LEASE_MS)
        assert new.lease.partition(".")[0] != held.lease.partition(".")[0]
        assert await queue.done([held.lease]) == (False,)
        assert await queue.find(["lost"]) == (None,)


async def test_whoever_is_in_an_earlier_epoch_queues_and_takes_nothing(
    primary: RedisProcess, coordinator: EmbeddedCoordinator
) -> None:
    """As a server that has not noticed a restart: its scripts are loaded once more, and still refuse."""
    async with opened(coordinator, primary) as queue:
        await queue.put([job("a")])
        scripts = (await queue._engine.ready()).scripts
        primary.restart()
        assert (await queue.stats()).waiting == 1
        wire = await Wire.connect(Address.parse(primary.url))
        for script, text in zip(Script, scripts.texts, strict=False):
            if script.value.startswith("queue_"):
                digest = await wire.call("SCRIPT", "LOAD", text)
                assert await wire.call("EVALSHA", digest, 1, STEM, "0" * 16) == [b"E"], script
        await wire.close()


async def test_a_primary_that_lives_on_beside_a_new_one_executes_nothing_for_those_who_know_the_new_one(
    primary: RedisProcess, replica: RedisProcess, coordinator: EmbeddedCoordinator
) -> None:
    async with opened(coordinator, primary, replica) as queue:
        await queue.put([job("a")])
        cut_off(primary, replica)
        replica.promote()
        async with opened(coordinator, replica) as ahead:
            assert job_ids(await ahead.take("worker", 1, LEASE_MS)) == ["a"]
            # The old primary still answers; it is another process than the newest epoch's.
            before = primary.ask("XINFO", "STREAM", f"{STEM}:s5")
            (await queue._engine.ready()).nodes[0].wire.abort("as a network does")
            primary.kill()
            assert await queue.take("worker", 1, LEASE_MS) == ()
            assert before[1] == 1
            assert queue._engine.epoch >= ahead._engine.epoch


async def test_everything_acknowledged_outlives_kills_of_redis(
    primary: RedisProcess, coordinator: EmbeddedCoordinator
) -> None:
    """Queued with `appendfsync always`: each of these jobs is handed to a worker, whatever is killed meanwhile."""
    acknowledged: set[str] = set()
    taken: set[str] = set()

    async def insisting(call: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await call()
            except Refusal as refusal:
                if refusal.reason is not Reason.ENGINE_UNAVAILABLE:
                    raise

    async with opened(coordinator, primary) as queue:

        async def put(producer: int) -> None:
            for number in range(60):
                one = job(f"{producer}-{number}", priority=number % 10)
                await insisting(lambda one=one: queue.put([one]))  # type: ignore[misc]
                acknowledged.add(one.id)

        async def work() -> None:
            while len(acknowledged) < 120 or (await insisting(queue.stats))[:2] != (0, 0):
                for leased in await insisting(lambda: queue.take("worker", 3, SHORT_MS)):
                    taken.add(leased.job.id)
                    with contextlib.suppress(Refusal):
                        await queue.done([leased.lease])

        working = asyncio.gather(put(1), put(2), work(), work())
        for _ in range(2):
            reached = len(acknowledged) + 20
            await until(lambda reached=reached: len(acknowledged) >= reached)  # type: ignore[misc]
            await asyncio.to_thread(primary.restart)
        await working
        assert len(acknowledged) == 120
        assert taken >= acknowledged
        assert await queue.stats() == (0, 0, 0, 0)
    assert len(await coordinator.epochs()) == 4


WORK = textwrap.dedent(
    """
    import asyncio, os, random, sys
    from noosphere.server.ports.runtime import SystemClock
    from noosphere.server.storage.etcd import EtcdCoordinator
    from noosphere.server.storage.redis import RedisFactQueue, RedisStore

    async def main(url, endpoint, root, name, holds_at):
        clock = SystemClock()
        coordinator = await EtcdCoordinator.open([endpoint], root=root, clock=clock)
        queue = RedisFactQueue.beside(await RedisStore.open([url], coordinator, clock=clock))
        def tell(word, leased):
            os.write(1, f"{word} {leased.job.id} {leased.attempt}\\n".encode())
        takes = 0
        while True:
            taken = await queue.take(name, 3, 500)
            for leased in taken:
                tell("TAKE", leased)
            takes += len(taken)
            if takes >= int(holds_at) and taken:
                # It holds these until it is killed.
                await asyncio.Event().wait()
            for leased in taken:
                await asyncio.sleep(random.random() * 0.01)
                (held,) = await queue.done([leased.lease])
                if held:
                    tell("DONE", leased)
            await asyncio.sleep(0.005)

    asyncio.run(main(*sys.argv[1:]))
    """
)


class Worker:
    """A process that takes jobs and finishes them, and says so, line by line.

    Args:
        redis: where the queue is.
        etcd: where the coordinator is.
        name: its own.
        holds_at: having taken so many, it finishes no more.
    """

    def __init__(self, redis: RedisProcess, etcd: EtcdProcess, name: str, holds_at: int = 1_000_000) -> None:
        command = [sys.executable, "-c", WORK, redis.url, etcd.endpoint, "queue/", name, str(holds_at)]
        root = Path(__file__).resolve().parents[2]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root)
        self.output = bytearray()
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self.process.poll() is not None

    def takes(self) -> int:
        """Returns how many jobs it has taken."""
        return sum(line.startswith("TAKE") for line in self.read())

    def read(self) -> list[str]:
        """Returns its whole lines so far."""
        assert self.process.stdout is not None
        if not self.process.stdout.closed:
            self.output += self.process.stdout.read() or b""
        return bytes(self.output[: self.output.rfind(b"\n") + 1]).decode().splitlines()

    def kill(self) -> None:
        """Ends it without warning; what it has said can still be read."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.read()
        assert self.process.stdout is not None
        self.process.stdout.close()


@needs_etcd
async def test_of_several_processes_those_that_are_killed_lose_no_job_and_share_no_lease(
    tmp_path: Path, primary: RedisProcess
) -> None:
    etcd = EtcdProcess(tmp_path / "etcd")
    etcd.start()
    workers: list[Worker] = []
    try:
        coordinator = await EtcdCoordinator.open([etcd.endpoint], clock=SystemClock(), root="queue/")
        store = await RedisStore.open([primary.url], coordinator, clock=SystemClock())
        queue = RedisFactQueue.beside(store)
        names: set[str] = set()

        async def more() -> None:
            new = [f"j{len(names) + at:05}" for at in range(100)]
            names.update(new)
            await queue.put([job(name, priority=int(name[1:]) % 10) for name in new])

        workers += (Worker(primary, etcd, f"w{at}", *([20] if at < 2 else [])) for at in range(3))
        for kill in range(2):
            victim = workers[kill]
            # In the middle of its work: it holds what it has not told the end of. The others may be quicker than it.
            async with asyncio.timeout(SECONDS_MAX):
                while victim.takes() < 20:
                    assert not victim.ended
                    if (await queue.stats()).waiting < 50:
                        await more()
                    await asyncio.sleep(0.01)
            victim.kill()
            workers.append(Worker(primary, etcd, f"w{3 + kill}"))
        await more()
        while (await queue.stats())[:2] != (0, 0):
            for worker in workers:
                worker.read()
        for worker in workers:
            worker.kill()
        told = [line.split() for worker in workers for line in worker.read()]
        takes = [(name, attempt) for word, name, attempt in told if word == "TAKE"]
        assert {name for name, _ in takes} == names
        assert len(set(takes)) == len(takes), "no attempt at a job was two workers'"
        dones = [name for word, name, _ in told if word == "DONE"]
        assert len(set(dones)) == len(dones), "no job was finished twice"
        assert any(attempt != "1" for _, attempt in takes), "or nothing was held by those that were killed"
        assert await queue.stats() == (0, 0, 0, 0)
        await store.close()
        await coordinator.close()
    finally:
        for worker in workers:
            worker.kill()
        etcd.kill()
