"""Agents' incarnations: who is alive, and who was followed by a later self."""

from __future__ import annotations

from noosphere.consistency import actor_name, check_agent_id

from ..ports.coordinator import Incarnation
from .core import Core
from .fencing import require_unfenced


class Agents:
    """Opens, keeps and closes incarnations."""

    def __init__(self, core: Core, lease_ms: int) -> None:
        self._core = core
        self.lease_ms = lease_ms

    async def open(self, agent_id: str, takeover: bool, request_id: str = "") -> Incarnation:
        """Begins an incarnation; what the earlier one had remembered is dropped.

        Raises:
            Refusal: INVALID_FIELD, AGENT_ACTIVE; PERMISSION_DENIED, if the agent is fenced.
        """
        check_agent_id(agent_id)
        require_unfenced(self._core.coordinator, agent_id)
        earlier = await self._core.coordinator.latest(agent_id)
        incarnation = await self._core.coordinator.open_agent(agent_id, takeover, request_id)
        if earlier and earlier != incarnation.number:
            await self._core.store.forget_client(actor_name(agent_id, earlier))
        return incarnation

    async def keep(self, incarnation: Incarnation) -> None:
        """Renews a lease.

        Raises:
            Refusal: STALE_INCARNATION.
        """
        await self._core.coordinator.keep_agent(incarnation)

    async def close(self, incarnation: Incarnation) -> None:
        """Ends an incarnation and drops what the store remembers of its requests.

        Raises:
            Refusal: STALE_INCARNATION.
        """
        await self._core.coordinator.close_agent(incarnation)
        await self._core.store.forget_client(actor_name(incarnation.agent_id, incarnation.number))
