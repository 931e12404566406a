"""Locks with fencing tokens, elections and presence, as agents use them.

These services know the coordinator's port and who calls, neither drivers nor gRPC.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..memory.core import Core
from ..memory.signals import HeadSignals
from .groups import GroupService
from .leadership import AlwaysLeads, Leadership, Leads
from .locks import LockService
from .servers import Membership, ServerInfo, Servers

__all__ = ["AlwaysLeads", "Coordination", "Leadership", "Leads", "Membership", "ServerInfo", "Servers"]


@dataclass(frozen=True)
class Coordination:
    """The services of one process."""

    locks: LockService
    groups: GroupService

    @classmethod
    def build(cls, core: Core, signals: HeadSignals) -> Coordination:
        """Returns the services on a core's coordinator; ``signals`` tell of the shutdown."""
        return cls(LockService(core, signals), GroupService(core, signals))
