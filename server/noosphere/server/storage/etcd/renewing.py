"""Renewal of agents' leases: of those that have called since the last round, together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection

from noosphere.consistency import Refusal

from ...ports.runtime import Clock
from .client import EtcdClient
from .keys import Layout, put, unchanged
from .view import View

ROUNDS_PER_LEASE = 3
REVIVALS_AT_ONCE = 16
PAUSE_SECONDS = 1.0
"""After a round that failed."""

log = logging.getLogger("noosphere.storage.etcd")


class Renewer:
    """Tells etcd in the background which agents have called.

    A call is noted and waits for nothing. Renewals are no writes for etcd, so they cost no disk there.
    """

    def __init__(self, client: EtcdClient, layout: Layout, view: View, clock: Clock, lease_ms: int) -> None:
        self._client = client
        self._layout = layout
        self._view = view
        self._clock = clock
        self._interval_seconds = lease_ms / 1000 / ROUNDS_PER_LEASE
        # In the order of their calls, whatever their names hash to.
        self._touched: dict[str, None] = {}
        self._wake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None
        self.ttl_seconds = -(-lease_ms // 1000)

    def start(self) -> None:
        """Begins with the rounds."""
        self._task = asyncio.create_task(self._run())

    def note(self, agent_id: str) -> None:
        """Notes that an agent, which is open, has called."""
        self._touched[agent_id] = None
        if agent_id not in self._view.leases and not self._wake.done():
            # It has lapsed: until it is there again, other processes take the agent for gone.
            self._wake.set_result(None)

    async def revive(self, agent_id: str, number: int) -> int:
        """Gives an incarnation whose lease has lapsed a new one, if it is still the present one and nobody has.

        Returns:
            The revision at which it has; 0 if it was not given one.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        layout = self._layout
        lease = await self._client.grant(self.ttl_seconds)
        revived = await self._client.write(
            [unchanged(layout.open(agent_id), number), unchanged(layout.lease(agent_id), 0)],
            [put(layout.lease(agent_id), lease=lease)],
        )
        if revived.succeeded:
            return revived.revision
        await self._client.drop(lease)
        return 0

    async def close(self) -> None:
        """Ends the rounds. Leases are left: their agents go on elsewhere, or they lapse."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _run(self) -> None:
        failing = False
        while True:
            await self._clock.wait(self._wake, self._interval_seconds)
            touched, self._touched = self._touched, {}
            self._wake = asyncio.get_running_loop().create_future()
            try:
                await self._round(touched)
                failing = False
            except Exception as error:
                self._touched |= {agent_id: None for agent_id in touched if agent_id in self._view.agents}
                if not isinstance(error, Refusal):
                    # Nobody would renew any more if this ended the task that does.
                    log.exception("agents' leases could not be renewed")
                elif not failing:
                    log.warning("agents' leases cannot be renewed, they may lapse: %s", error)
                failing = True
            await self._clock.sleep(PAUSE_SECONDS if failing else 0)

    async def _round(self, touched: Collection[str]) -> None:
        leases = self._view.leases
        known = {agent_id: leases[agent_id] for agent_id in touched if agent_id in leases}
        alive = await self._client.renew(list(known.values())) if known else set()
        now_ms = self._clock.monotonic_ms()
        lapsed = [
            (agent_id, agent.number)
            for agent_id in touched
            # An old call, which could not be told in time, gives nobody a new lease.
            if known.get(agent_id) not in alive
            and (agent := self._view.agents.get(agent_id))
            and agent.ends_ms > now_ms
        ]
        for first in range(0, len(lapsed), REVIVALS_AT_ONCE):
            batch = lapsed[first : first + REVIVALS_AT_ONCE]
            await asyncio.gather(*(self.revive(agent_id, number) for agent_id, number in batch))
