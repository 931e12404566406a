"""The coordinator on etcd: what all processes of a fleet agree on."""

from __future__ import annotations

from collections.abc import Sequence

from noosphere.consistency import NamePattern, NamespacePolicy, Refusal
from noosphere.consistency.limits import AGENT_LEASE_MS

from ...ports.coordinator import EpochRecord, Incarnation, PolicyTable
from ...ports.grants import GrantKey, Verb
from ...ports.runtime import Clock
from ...ports.tables import ANY, Expected, Table
from . import wire_pb2 as wire
from .access import Access, UnfitFiles
from .agents import Agents
from .client import ACCESS, EtcdClient
from .epochs import Epochs
from .feed import Feed
from .holdings import Holdings
from .keys import FORMAT, Layout, put, unchanged
from .locks import EtcdLocks
from .numbering import NumberedLocks, NumberedPresence, Numbering
from .presence import EtcdPresence
from .renewing import Renewer
from .rules import Rules
from .tables import EtcdTables
from .view import View

ROOT = "noosphere/"
AGENTS_OPEN_MAX = 100_000
"""Agents that were opened and not closed. Above it, opening one ends one whose lease has lapsed."""


class UnfitEtcd(Exception):
    """What is in etcd cannot be used by this version."""


class EtcdCoordinator:
    """See :class:`~noosphere.server.ports.coordinator.Coordinator`. Lives on one event loop.

    A call that changes something is a transaction, and returns once the watch has brought the change back, so what
    :meth:`touch` and :meth:`policies` show then includes it. What others change they show as soon as the watch brings
    it. Leases are etcd's: they outlive this process, and another one may renew them.
    """

    def __init__(
        self, client: EtcdClient, layout: Layout, view: View, clock: Clock, agent_lease_ms: int, agents_open_max: int
    ) -> None:
        self._client = client
        self._view = view
        self._feed = Feed(client, layout.live, view, clock)
        self._renewer = Renewer(client, layout, view, clock, agent_lease_ms)
        holdings = Holdings(client, layout)
        self._agents = Agents(
            client, layout, view, self._feed, self._renewer, holdings, clock, agent_lease_ms, agents_open_max
        )
        self._rules = Rules(client, layout, view, self._feed)
        self._tables = EtcdTables(client, layout, view, self._feed)
        self._epochs = Epochs(client, layout, clock)
        self._closed = False
        self._layout = layout
        self._numbering = Numbering()
        self.locks = NumberedLocks(EtcdLocks(client, layout, view, holdings, clock), self._numbering)
        self.presence = NumberedPresence(EtcdPresence(client, layout, holdings), self._numbering)

    @classmethod
    async def open(
        cls,
        endpoints: Sequence[str],
        *,
        clock: Clock,
        root: str = ROOT,
        agent_lease_ms: int = AGENT_LEASE_MS,
        agents_open_max: int = AGENTS_OPEN_MAX,
        access: Access = ACCESS,
    ) -> EtcdCoordinator:
        """Connects, and reads what is there.

        Args:
            endpoints: ``host:port`` of each member of the etcd cluster.
            clock: times of epochs, and lapses of leases as this process sees them.
            root: before all keys, ending in a slash.
            agent_lease_ms: rounded up to whole seconds, which is what etcd counts in.
            agents_open_max: agents that were opened and not closed.
            access: how members are reached.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
            UnfitEtcd: of another format, or not readable; or files for TLS are not.
            ValueError: an endpoint or the root is not of this form.
        """
        if not endpoints:
            raise ValueError("endpoints: must not be empty")
        for endpoint in endpoints:
            host, _, port = endpoint.rpartition(":")
            if not host or "/" in endpoint or not port.isdecimal():
                raise ValueError(f"endpoints: {endpoint!r} is not of the form host:port")
        if not root.endswith("/"):
            raise ValueError(f"root: {root!r} does not end in a slash")
        layout = Layout(root)
        try:
            client = EtcdClient(endpoints, access)
        except UnfitFiles as error:
            raise UnfitEtcd(str(error)) from None
        coordinator = cls(client, layout, View(layout), clock, agent_lease_ms, agents_open_max)
        try:
            await coordinator._start(layout)
        except Refusal as refusal:
            problem = await client.handshake_problem()
            await coordinator.close()
            if problem:
                hint = "etcd_tls_*" if access.ca is not None else "does it expect TLS (etcd_tls_ca)?"
                raise UnfitEtcd(f"no connection is made ({hint}): {problem}") from refusal
            raise
        except BaseException:
            await coordinator.close()
            raise
        return coordinator

    async def _start(self, layout: Layout) -> None:
        stamp = await self._client.read(layout.format)
        if stamp is None:
            # Two processes may do so at the same time.
            await self._client.write([unchanged(layout.format, 0)], [put(layout.format, FORMAT)])
        elif stamp.value != FORMAT:
            found = stamp.value.decode(errors="replace")
            raise UnfitEtcd(f"etcd holds format {found}, this version knows {FORMAT.decode()}")
        if (base := await self._client.read(layout.base)) is not None:
            self._numbering.base = int(base.value)
        try:
            await self._feed.start()
        except ValueError as error:
            raise UnfitEtcd(f"etcd holds what this version cannot read: {error}") from error
        self._renewer.start()

    async def open_agent(self, agent_id: str, takeover: bool, request_id: str = "") -> Incarnation:
        """Begins an incarnation, ending any earlier one; a retry under the same id returns the one it began.

        Raises:
            Refusal: AGENT_ACTIVE; LIMIT_EXCEEDED with too many active agents; CONTENTION; ENGINE_UNAVAILABLE.
        """
        return self._numbering.shown(await self._agents.open(agent_id, takeover, request_id))

    async def keep_agent(self, incarnation: Incarnation) -> None:
        """Renews a lease.

        Raises:
            Refusal: STALE_INCARNATION, ENGINE_UNAVAILABLE.
        """
        await self._agents.keep(self._numbering.kept(incarnation))

    async def close_agent(self, incarnation: Incarnation) -> None:
        """Ends an incarnation.

        Raises:
            Refusal: STALE_INCARNATION, ENGINE_UNAVAILABLE.
        """
        await self._agents.close(self._numbering.kept(incarnation))

    def touch(self, incarnation: Incarnation) -> bool:
        """Renews the lease if the incarnation is current as far as is known here; returns whether it is."""
        return self._agents.touch(self._numbering.kept(incarnation))

    async def latest(self, agent_id: str) -> int:
        """Returns the number of the agent's newest incarnation, 0 if it was never opened.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        newest = await self._agents.latest(agent_id)
        return newest and newest + self._numbering.base

    def is_active(self, incarnation: Incarnation) -> bool:
        """Tells whether an incarnation has not ended and its lease lives, as is known here."""
        return self._agents.is_active(incarnation)

    def active_count(self) -> int:
        """Returns how many agents have a living lease."""
        return self._agents.active_count()

    def policies(self) -> PolicyTable:
        """Returns the rules as this process knows them."""
        return self._view.table

    async def refresh(self) -> PolicyTable:
        """Returns the rules as they are in etcd now.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        return await self._rules.refresh()

    async def set_policy(self, pattern: NamePattern, policy: NamespacePolicy | None) -> int:
        """Sets or (None) removes a pattern's rules; returns the new configuration version.

        Raises:
            Refusal: LIMIT_EXCEEDED, above 10,000 patterns; CONTENTION; ENGINE_UNAVAILABLE.
        """
        return await self._rules.set(pattern, policy)

    async def set_grant(self, key: GrantKey, verbs: frozenset[Verb]) -> int:
        """Grants these verbs and no others, or (none) takes a grant back; returns the new configuration version.

        Raises:
            Refusal: LIMIT_EXCEEDED, above 10,000 grants; CONTENTION; ENGINE_UNAVAILABLE.
        """
        return await self._rules.grant(key, verbs)

    def table(self, name: str) -> Table:
        """Returns a table as this process knows it."""
        return self._view.table_of(name)

    async def put_entry(self, table: str, key: str, value: bytes | None, *, expected: Expected = ANY) -> None:
        """Writes an entry or (None) removes it.

        Raises:
            Refusal: INVALID_FIELD, LIMIT_EXCEEDED, CONTENTION or ENGINE_UNAVAILABLE.
        """
        await self._tables.put(table, key, value, expected)

    async def epochs(self) -> tuple[EpochRecord, ...]:
        """Returns every epoch, oldest first.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        return await self._epochs.all()

    async def begin_epoch(self, cause: str, recovered: str, at_least: int, expected: int | None = None) -> int:
        """Begins an epoch above every earlier one and not below ``at_least``; returns it.

        Raises:
            Refusal: CONTENTION, also if the newest is not ``expected``; ENGINE_UNAVAILABLE.
        """
        return await self._epochs.begin(cause, recovered, at_least, expected)

    async def counted(self) -> int:
        """Returns the present revision, as a number.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        read = await self._client.range(wire.RangeRequest(key=self._layout.format))
        return read.header.revision + self._numbering.base

    async def resume(self, number: int, table: PolicyTable) -> None:
        """Goes on where another coordinator was; see the port.

        Raises:
            Refusal: CONTENTION or ENGINE_UNAVAILABLE.
        """
        base = max(self._numbering.base, number)
        await self._client.write([], [put(self._layout.base, str(base).encode())])
        self._numbering.base = base
        await self._rules.take_over(table)

    async def close(self) -> None:
        """Disconnects. Agents' leases are left, because the agents go on elsewhere; otherwise they lapse."""
        if self._closed:
            return
        self._closed = True
        await self._renewer.close()
        await self._feed.close()
        await self._client.close()
