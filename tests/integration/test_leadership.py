"""Leadership: of several servers one works for all, and stops before another one begins."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from tests.support.engine import local_server
from tests.support.sessions import caller, proposed, refusal, session_name, space
from tests.support.waiting import until
from tests.support.worlds import LocalWorld

from noosphere.consistency import Reason, Refusal
from noosphere.consistency.limits import AGENT_LEASE_MS
from noosphere.server.coordination import AlwaysLeads, Leadership
from noosphere.server.coordination.leadership import LEASE_MS, UPKEEP
from noosphere.server.ports.locks import Held
from noosphere.server.storage.embedded import EmbeddedCoordinator
from noosphere.testing import ManualClock
from noosphere.v1.memory_service_pb2 import CHANGE_KIND_EXPIRE
from noosphere.v1.session_service_pb2 import SESSION_STATUS_CLOSED, SessionSettings

SPACE = "shared/sweeps"


class Server:
    """One that stands for election, with work that knows whether it is being done."""

    def __init__(self, locks: Any, name: str, clock: ManualClock) -> None:
        self.leadership = Leadership(locks, name, clock)
        self.working = False
        self.begun = 0
        self._tasks = (
            asyncio.create_task(self.leadership.run()),
            asyncio.create_task(self.leadership.do(self._work)),
        )

    async def _work(self) -> None:
        self.begun += 1
        self.working = True
        try:
            await asyncio.Event().wait()
        finally:
            self.working = False

    async def close(self) -> None:
        """Ends as a server does that is told to stop: it no longer stands, hands over, and then closes services."""
        self._tasks[0].cancel()
        await asyncio.gather(self._tasks[0], return_exceptions=True)
        await self.leadership.close()
        self._tasks[1].cancel()
        await asyncio.gather(self._tasks[1], return_exceptions=True)


class Unreachable:
    """Locks of a coordinator that can be told not to answer."""

    def __init__(self, locks: Any) -> None:
        self._locks = locks
        self.away = False

    async def acquire(self, *arguments: Any, **options: Any) -> Held | None:
        """See the port."""
        self._check()
        held: Held | None = await self._locks.acquire(*arguments, **options)
        return held

    async def renew(self, name: str, token: int) -> None:
        """See the port."""
        self._check()
        await self._locks.renew(name, token)

    async def release(self, name: str, token: int) -> bool:
        """See the port."""
        self._check()
        return bool(await self._locks.release(name, token))

    def _check(self) -> None:
        if self.away:
            raise Refusal(Reason.ENGINE_UNAVAILABLE, "away")


@pytest.fixture
def clock() -> ManualClock:
    """Stands still."""
    return ManualClock()


@pytest.fixture
async def coordinator(tmp_path: Path, clock: ManualClock) -> AsyncIterator[EmbeddedCoordinator]:
    """Where leaders are elected."""
    made = await EmbeddedCoordinator.open(
        tmp_path, clock=clock, agent_lease_ms=AGENT_LEASE_MS, on_fatal=lambda error: None
    )
    yield made
    await made.close()


async def test_one_leads_and_hands_over_when_it_is_told_to_stop(
    coordinator: EmbeddedCoordinator, clock: ManualClock
) -> None:
    first = Server(coordinator.locks, "first", clock)
    await until(lambda: first.working)
    second = Server(coordinator.locks, "second", clock)
    await until(lambda: len(coordinator.locks._locks[UPKEEP].queue) == 1)
    assert first.leadership.leads
    assert not second.leadership.leads
    await first.close()
    assert not first.working
    await until(lambda: second.working)
    assert second.leadership.leads
    await second.close()
    assert await coordinator.locks.holder(UPKEEP) is None


async def test_a_lease_is_renewed_for_as_long_as_it_takes(coordinator: EmbeddedCoordinator, clock: ManualClock) -> None:
    server = Server(coordinator.locks, "first", clock)
    await until(lambda: server.working)
    for _ in range(12):
        clock.advance(LEASE_MS // 3)
        await until(lambda: server.leadership._ends_ms == clock.monotonic_ms() + LEASE_MS)
    assert server.begun == 1, "the work was never interrupted"
    await server.close()


async def test_a_leader_that_cannot_renew_has_stopped_before_another_one_begins(
    coordinator: EmbeddedCoordinator, clock: ManualClock
) -> None:
    locks = Unreachable(coordinator.locks)
    first = Server(locks, "first", clock)
    await until(lambda: first.working)
    second = Server(coordinator.locks, "second", clock)
    await until(lambda: len(coordinator.locks._locks[UPKEEP].queue) == 1)
    locks.away = True
    both = False
    for _ in range(2 * LEASE_MS // 500):
        clock.advance(500)
        for _ in range(20):
            await asyncio.sleep(0)
            both |= first.leadership.leads and second.leadership.leads
            both |= first.working and second.working
        if second.working:
            break
        await asyncio.sleep(0.005)
    await until(lambda: second.working)
    assert not both
    assert not first.working
    locks.away = False
    await second.close()
    # It stands again.
    async with asyncio.timeout(60):
        while not first.working:
            clock.advance(1_000)
            await asyncio.sleep(0.01)
    assert first.begun == 2
    await first.close()


async def test_a_leader_whose_lock_is_gone_stops_when_it_is_told(
    coordinator: EmbeddedCoordinator, clock: ManualClock
) -> None:
    server = Server(coordinator.locks, "first", clock)
    await until(lambda: server.working)
    held = await coordinator.locks.holder(UPKEEP)
    assert held is not None
    await coordinator.locks.release(UPKEEP, held.token)
    taken = await coordinator.locks.acquire(UPKEEP, "other", LEASE_MS)
    assert taken is not None
    clock.advance(LEASE_MS // 3 + 1)
    await until(lambda: not server.working)
    assert not server.leadership.leads
    await coordinator.locks.release(UPKEEP, taken.token)
    await until(lambda: server.working)
    await server.close()


async def test_work_that_ends_by_itself_is_not_begun_again_in_silence(
    coordinator: EmbeddedCoordinator, clock: ManualClock
) -> None:
    async def fails() -> None:
        raise ValueError("a mistake of ours")

    leadership = Leadership(coordinator.locks, "first", clock)
    standing = asyncio.create_task(leadership.run())
    for leads in (leadership, AlwaysLeads()):
        with pytest.raises(ValueError, match="a mistake of ours"):
            await leads.do(fails)
    standing.cancel()
    await asyncio.gather(standing, return_exceptions=True)
    await leadership.close()


async def test_two_that_both_think_they_lead_do_what_one_would(tmp_path: Path) -> None:
    """One may have been stopped by the system after it had looked at its lease."""
    async with local_server(tmp_path, replicas=2) as local:
        world = LocalWorld(local)
        a = await caller(world)
        short = SessionSettings(idle_timeout=Duration(seconds=60), purge_after=Duration(seconds=120))
        session = (await a.open(session_name(a), settings=short)).id
        await a.agent.put(space(session), "item", "kept as a candidate")
        for number in range(20):
            await a.agent.put(SPACE, f"k{number}", number, ttl_ms=1_000)

        async def both_sweep() -> None:
            rounds = [part.upkeep.round() for one in local.engines for part in (one.memory, one.sessions)]
            await asyncio.gather(*rounds, *(one.memory.upkeep.round() for one in local.engines))

        await local.elapse(1_001)
        await both_sweep()
        ends = [
            change.record.key
            for batch in await a.agent.history(SPACE)
            for change in batch.changes
            if change.kind == CHANGE_KIND_EXPIRE
        ]
        assert sorted(ends) == sorted(f"k{number}" for number in range(20)), "each has ended once"
        await local.elapse(60_000)
        await both_sweep()
        assert (await a.get(session)).status == SESSION_STATUS_CLOSED
        assert len(await proposed(a, session)) == 1, "it was archived once"
        await local.elapse(120_001)
        await both_sweep()
        with refusal("SESSION_NOT_FOUND"):
            await a.get(session)
        # Tombstones are reaped once, and the log is trimmed to the same place.
        await local.elapse(25 * 3600 * 1000)
        await both_sweep()
        assert await a.agent.listing(SPACE) == []
        await a.agent.put(SPACE, "k0", "again")
        assert not local.fatal
