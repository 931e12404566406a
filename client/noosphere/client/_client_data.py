"""What a client is told about its server."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from noosphere.consistency import NamespacePolicy


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """What a server is.

    Attributes:
        version: as ``major.minor.patch``.
        api_version: ``noosphere.v1``.
        epoch: the store's present epoch.
        store_time: the store's clock, in UTC.
        engine: the storage engine, ``embedded`` or ``redis``.
        durability: what an acknowledgement means: ``fsync`` or ``os``.
        agent_lease: how long an agent's lease lasts without a call.
    """

    version: str
    api_version: str
    epoch: int
    store_time: datetime
    engine: str
    durability: str
    agent_lease: timedelta


@dataclass(frozen=True, slots=True)
class NamespaceState:
    """A namespace that is live.

    Attributes:
        generation: from 1; a deleted namespace comes back with the next one.
        policy: the rules in force.
        head: the newest visible revision.
        created: whether the call made it live.
    """

    generation: int
    policy: NamespacePolicy
    head: int
    created: bool
