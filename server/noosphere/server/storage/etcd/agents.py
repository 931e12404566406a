"""Agents on etcd: whose turn it is, and whose lease lives."""

from __future__ import annotations

from noosphere.consistency import Reason, Refusal, exhausted

from ...ports.coordinator import Incarnation
from ...ports.runtime import Clock
from ..leasing import ended
from . import wire_pb2 as wire
from .client import EtcdClient
from .feed import Feed
from .holdings import Holdings
from .keys import Layout, delete, get, put, unchanged
from .renewing import Renewer
from .turns import Turns
from .view import View

TRIES_MAX = 16
"""How often another process may be faster."""

NUMBER_MAX = (1 << 63) - 1


class Agents:
    """Opens, keeps and closes incarnations. Their numbers are etcd's revisions, so one counter orders all of them."""

    def __init__(
        self,
        client: EtcdClient,
        layout: Layout,
        view: View,
        feed: Feed,
        renewer: Renewer,
        holdings: Holdings,
        clock: Clock,
        lease_ms: int,
        open_max: int,
    ) -> None:
        self._client = client
        self._layout = layout
        self._view = view
        self._feed = feed
        self._renewer = renewer
        self._holdings = holdings
        self._clock = clock
        self._lease_ms = lease_ms
        self._open_max = open_max
        self._turns = Turns()

    async def open(self, agent_id: str, takeover: bool, request_id: str) -> Incarnation:
        """Begins an incarnation, or returns the present one to a retry of the call that began it.

        Raises:
            Refusal: AGENT_ACTIVE, LIMIT_EXCEEDED, CONTENTION or ENGINE_UNAVAILABLE.
        """
        async with self._turns.of(agent_id):
            incarnation = Incarnation(agent_id, await self._begin(agent_id, takeover, request_id.encode()))
            await self._feed.reach(incarnation.number)
            self.touch(incarnation)
            return incarnation

    async def _begin(self, agent_id: str, takeover: bool, request: bytes) -> int:
        layout, lease, over = self._layout, 0, None
        for _ in range(TRIES_MAX):
            present, leased = await self._look(agent_id)
            if present is not None and request and present.value == request:
                # Kept, if it was this very transaction that has arrived before.
                if leased is None or leased.lease != lease:
                    await self._give_back(lease)
                return present.mod_revision
            try:
                if present is not None and not takeover and (leased is not None or self._touched(agent_id, present)):
                    raise _active(agent_id, present.mod_revision)
                conditions, changes, over = self._room(agent_id, present)
            except Refusal:
                await self._give_back(lease)
                raise
            lease = lease or await self._client.grant(self._renewer.ttl_seconds)
            written = await self._client.write(
                [
                    *conditions,
                    unchanged(layout.open(agent_id), present.mod_revision if present is not None else 0),
                    # Somebody may revive the lease at this moment.
                    unchanged(layout.lease(agent_id), leased.mod_revision if leased is not None else 0),
                ],
                [
                    *changes,
                    put(layout.last(agent_id)),
                    put(layout.open(agent_id), request),
                    put(layout.lease(agent_id), lease=lease),
                ],
            )
            if written.succeeded:
                await self._give_back(leased.lease if leased is not None else 0)
                if over is not None:
                    await self._holdings.end(over)
                return written.revision
        await self._give_back(lease)
        raise Refusal(Reason.CONTENTION, f"agent {agent_id!r} is being opened by others; try again")

    def _room(
        self, agent_id: str, present: wire.KeyValue | None
    ) -> tuple[list[wire.Compare], list[wire.RequestOp], Incarnation | None]:
        """Returns the conditions and changes that make room for one more agent, and which incarnation they end.

        Raises:
            Refusal: LIMIT_EXCEEDED, if the lease of every agent lives.
        """
        if present is not None:
            return [], [], Incarnation(agent_id, present.mod_revision)
        count = len(self._view.agents)
        if count < self._open_max:
            return [], [], None
        lapsed = self._first_lapsed()
        if lapsed is None:
            raise exhausted("agent_id", count + 1, self._open_max, "too many active agents")
        opened, lease = self._layout.open(lapsed.agent_id), self._layout.lease(lapsed.agent_id)
        return [unchanged(opened, lapsed.number), unchanged(lease, 0)], [delete(opened)], lapsed

    async def keep(self, incarnation: Incarnation) -> None:
        """Renews a lease, after a look at etcd whether the incarnation is still the present one.

        Raises:
            Refusal: STALE_INCARNATION or ENGINE_UNAVAILABLE.
        """
        agent_id, number = _plausible(incarnation)
        known = self._view.agents.get(agent_id)
        if known is not None and known.number > number:
            # What the watch has brought may be late, but it is true: this need not be asked.
            raise ended(incarnation)
        lease = self._layout.lease(agent_id)
        looked = await self._client.write([unchanged(self._layout.open(agent_id), number)], [get(lease)])
        if not looked.succeeded:
            raise ended(incarnation)
        if not looked.responses[0].response_range.kvs:
            number = max(number, await self._renewer.revive(agent_id, number))
        await self._feed.reach(number)
        if not self.touch(incarnation):
            raise ended(incarnation)

    async def close(self, incarnation: Incarnation) -> None:
        """Ends an incarnation.

        Raises:
            Refusal: STALE_INCARNATION or ENGINE_UNAVAILABLE.
        """
        agent_id, number = _plausible(incarnation)
        layout = self._layout
        closed = await self._client.write(
            [unchanged(layout.open(agent_id), number)],
            [get(layout.lease(agent_id)), delete(layout.open(agent_id)), delete(layout.lease(agent_id))],
        )
        if not closed.succeeded:
            raise ended(incarnation)
        for kv in closed.responses[0].response_range.kvs:
            await self._give_back(kv.lease)
        await self._holdings.end(incarnation)
        await self._feed.reach(closed.revision)

    def touch(self, incarnation: Incarnation) -> bool:
        """Renews the lease if the incarnation is current as far as is known here; returns whether it is."""
        agent = self._view.agents.get(incarnation.agent_id)
        if agent is None or agent.number != incarnation.number:
            return False
        agent.ends_ms = self._clock.monotonic_ms() + self._lease_ms
        self._renewer.note(incarnation.agent_id)
        return True

    async def latest(self, agent_id: str) -> int:
        """Returns the number of the agent's newest incarnation, 0 if it was never opened.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        kv = await self._client.read(self._layout.last(agent_id))
        return kv.mod_revision if kv is not None else 0

    def is_active(self, incarnation: Incarnation) -> bool:
        """Tells whether an incarnation has not ended and its lease lives, as is known here."""
        agent = self._view.agents.get(incarnation.agent_id)
        if agent is None or agent.number != incarnation.number:
            return False
        return incarnation.agent_id in self._view.leases or agent.ends_ms > self._clock.monotonic_ms()

    def active_count(self) -> int:
        """Returns how many agents have a living lease."""
        now_ms = self._clock.monotonic_ms()
        view = self._view
        return sum(agent_id in view.leases or agent.ends_ms > now_ms for agent_id, agent in view.agents.items())

    async def _look(self, agent_id: str) -> tuple[wire.KeyValue | None, wire.KeyValue | None]:
        """Returns the present incarnation and its lease, as both are at one revision."""
        looked = await self._client.write([], [get(self._layout.open(agent_id)), get(self._layout.lease(agent_id))])
        present, leased = (response.response_range.kvs for response in looked.responses)
        return (present[0] if present else None), (leased[0] if leased else None)

    def _touched(self, agent_id: str, present: wire.KeyValue) -> bool:
        """Tells whether a lease lives by a call that etcd may not know of yet."""
        agent = self._view.agents.get(agent_id)
        now_ms = self._clock.monotonic_ms()
        return agent is not None and agent.number == present.mod_revision and agent.ends_ms > now_ms

    def _first_lapsed(self) -> Incarnation | None:
        now_ms = self._clock.monotonic_ms()
        for agent_id, agent in self._view.agents.items():
            if agent_id not in self._view.leases and agent.ends_ms <= now_ms:
                return Incarnation(agent_id, agent.number)
        return None

    async def _give_back(self, lease: int) -> None:
        if lease:
            await self._client.drop(lease)


def _plausible(incarnation: Incarnation) -> Incarnation:
    """Checks that a number can be a revision of a key that is there.

    Raises:
        Refusal: STALE_INCARNATION.
    """
    if not 0 < incarnation.number <= NUMBER_MAX:
        raise ended(incarnation)
    return incarnation


def _active(agent_id: str, number: int) -> Refusal:
    message = f"agent {agent_id!r} is active as incarnation {number}; takeover ends it"
    return Refusal(Reason.AGENT_ACTIVE, message)
