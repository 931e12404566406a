"""The servers of a fleet: each is a member of a group of the coordinator as long as it serves."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

import msgspec
import structlog

from noosphere.consistency import Reason, Refusal

from ..ports.coordinator import Coordinator
from ..ports.locks import Member
from ..ports.runtime import Clock
from .leadership import UPKEEP

log = structlog.get_logger(__name__)

GROUP = "~servers"
LEASE_MS = 10_000
RENEWALS_PER_LEASE = 3
PAUSE_SECONDS = 1.0
"""Between two tries while the coordinator does not answer."""

ADDRESS_CHARS_MAX = 1_024
"""Longer addresses are cut where others see them: what a member tells of itself has a limit."""


class ServerInfo(NamedTuple):
    """A server.

    Attributes:
        id: tells two lives of a server at one address apart.
        address: where it serves; empty if it is called in its own process.
        version: of the program.
        started_ms: wall-clock time of its start, in milliseconds since the Unix epoch.
        leads: whether it is the one that does what one has to do for all.
    """

    id: str
    address: str
    version: str
    started_ms: int
    leads: bool


class _Told(msgspec.Struct):
    address: str
    version: str
    started_ms: int


class Servers:
    """Lists the servers of a fleet. One that shares its working store with nobody is the only one, and leads.

    Args:
        coordinator: where the group is.
        own: this server.
        shared: whether there may be others.
    """

    def __init__(self, coordinator: Coordinator, own: ServerInfo, *, shared: bool) -> None:
        self._coordinator = coordinator
        self._shared = shared
        self.own = own

    def serves_on(self, address: str) -> None:
        """Notes where this server serves."""
        self.own = self.own._replace(address=address)

    async def list(self) -> tuple[ServerInfo, ...]:
        """Returns who is there, by id.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        if not self._shared:
            return (self.own._replace(leads=True),)
        members = await self._coordinator.presence.members(GROUP)
        leader = await self._coordinator.locks.holder(UPKEEP)
        return tuple(_info(member, leader.owner if leader is not None else "") for member in members)


class Membership:
    """Keeps this server in the group.

    Args:
        coordinator: where the group is.
        servers: knows what to tell of it.
        clock: the source of time.
    """

    def __init__(self, coordinator: Coordinator, servers: Servers, clock: Clock) -> None:
        self._presence = coordinator.presence
        self._servers = servers
        self._clock = clock
        self._member: Member | None = None

    async def run(self) -> None:
        """Joins, and stays until it is cancelled; joins again if the coordinator has taken it for gone."""
        failing = False
        while True:
            try:
                if self._member is None:
                    self._member = await self._join()
                else:
                    await self._presence.keep(GROUP, self._member.name, self._member.number)
                failing = False
            except Refusal as refusal:
                if refusal.reason is Reason.STALE_FENCE:
                    self._member = None
                    continue
                if not failing:
                    failing = True
                    log.warning("others may take this server for gone", reason=refusal.reason, message=refusal.message)
            await self._clock.sleep(PAUSE_SECONDS if failing else LEASE_MS / RENEWALS_PER_LEASE / 1000)

    async def close(self) -> None:
        """Leaves: to be called after :meth:`run` has ended."""
        member, self._member = self._member, None
        if member is not None:
            # If the coordinator does not answer, the lease lapses.
            with contextlib.suppress(Refusal):
                await self._presence.leave(GROUP, member.name, member.number)

    async def _join(self) -> Member:
        own = self._servers.own
        told = _Told(own.address[:ADDRESS_CHARS_MAX], own.version, own.started_ms)
        return await self._presence.join(GROUP, own.id, LEASE_MS, msgspec.json.encode(told))


def _info(member: Member, leader: str) -> ServerInfo:
    try:
        told = msgspec.json.decode(member.data, type=_Told)
    except (msgspec.DecodeError, msgspec.ValidationError):
        # Of a version that tells otherwise: that it is there is still worth knowing.
        told = _Told("", "", 0)
    return ServerInfo(member.name, told.address, told.version, told.started_ms, member.name == leader)
