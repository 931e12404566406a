"""Bugs planted in what keeps several servers on one Redis right are caught by seeds.

Nothing here can be switched off in the product: each bug replaces a function of the server for one test. The worlds
have one kind of fault each, the one that the bug is about, so that few seeds are enough.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence

import pytest
from tests.simulation.test_simulated_worlds import EVERYDAY
from tests.simulation.world.course import simulate
from tests.simulation.world.fleet import FleetWorld

from noosphere.server.storage.redis.lease import EpochLease
from noosphere.server.storage.redis.record import History

SEEDS_MAX = 20


class _FailsOver(FleetWorld):
    """Redis fails over, again and again."""

    async def trouble(self, seconds: float, agents: Sequence[str]) -> None:
        loop = asyncio.get_running_loop()
        ends = loop.time() + seconds
        while loop.time() < ends:
            await asyncio.sleep(self._rng.uniform(0.2, 1.0))
            await self._fault(agents)

    async def _fault(self, agents: Sequence[str]) -> None:
        await self._fail_over(agents)


class _LeavesBehind(_FailsOver):
    """The network parts, again and again, and leaves the old primary and a server on one side."""

    async def _fault(self, agents: Sequence[str]) -> None:
        await self._leave_behind(agents)


def _caught(world: type[FleetWorld]) -> str:
    try:
        for seed in range(1, SEEDS_MAX + 1):
            if problems := simulate(seed, world, EVERYDAY).problems:
                return " ".join(problems)
    finally:
        gc.collect()
    raise AssertionError(f"no seed of {SEEDS_MAX} has caught it")


@pytest.mark.campaign
def test_that_no_epoch_begins_when_redis_fails_over_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(History, "has", lambda self, _: self.newest is not None)
    assert _caught(_FailsOver)


@pytest.mark.campaign
def test_that_the_epoch_lease_is_not_checked_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EpochLease, "held", property(lambda _: True))
    assert "after the next one had begun" in _caught(_LeavesBehind)
