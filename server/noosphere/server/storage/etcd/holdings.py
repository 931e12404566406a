"""What incarnations hold on etcd: locks and memberships that end with them."""

from __future__ import annotations

import asyncio
import logging

from noosphere.consistency import Refusal

from ...ports.coordinator import Incarnation
from ..leasing import check_holdings
from . import wire_pb2 as wire
from .client import EtcdClient
from .keys import Layout, put, unchanged

AT_ONCE = 16

log = logging.getLogger("noosphere.storage.etcd")


class Holdings:
    """Notes leases with the incarnations that hold something by them.

    A thing is taken only while its incarnation is the present one, in the same transaction. So whoever ends an
    incarnation finds everything that it holds, and nothing is added any more.
    """

    def __init__(self, client: EtcdClient, layout: Layout) -> None:
        self._client = client
        self._layout = layout

    async def check_room(self, life: Incarnation | None, kind: str) -> None:
        """Checks that an incarnation may hold one more thing. Calls at the same time may exceed the limit.

        Raises:
            Refusal: LIMIT_EXCEEDED or ENGINE_UNAVAILABLE.
        """
        if life is not None:
            check_holdings(kind, await self._client.count(self._layout.mine(life, kind)))

    def conditions(self, life: Incarnation | None) -> list[wire.Compare]:
        """Returns the conditions under which an incarnation takes something."""
        return [] if life is None else [unchanged(self._layout.open(life.agent_id), life.number)]

    def changes(self, life: Incarnation | None, kind: str, lease: int) -> list[wire.RequestOp]:
        """Returns what is written with the thing, under the same lease."""
        return [] if life is None else [put(self._layout.holding(life, kind, lease), lease=lease)]

    async def is_current(self, life: Incarnation) -> bool:
        """Tells whether an incarnation has not ended.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        present = await self._client.read(self._layout.open(life.agent_id))
        return present is not None and present.mod_revision == life.number

    async def end(self, life: Incarnation) -> None:
        """Gives back everything that an incarnation holds, which has ended; what is left lapses by itself."""
        try:
            _, kvs = await self._client.read_all(self._layout.mine(life))
        except Refusal as refusal:
            log.debug("what %s#%d held is left to lapse: %s", *life, refusal)
            return
        leases = [kv.lease for kv in kvs]
        for first in range(0, len(leases), AT_ONCE):
            await asyncio.gather(*(self._client.drop(lease) for lease in leases[first : first + AT_ONCE]))
