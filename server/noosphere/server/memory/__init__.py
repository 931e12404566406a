"""Shared working memory: records, transactions, watches, task boards, agents and namespaces.

These services know the ports and the pure rules, neither drivers nor gRPC.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from ..ports.coordinator import Coordinator
from ..ports.runtime import Clock
from ..ports.store import WorkingStore
from .agents import Agents
from .conflicts import Conflicts
from .core import Core
from .extension import WriteExtension
from .namespaces import Namespaces
from .reads import Reads
from .reservations import Reservations
from .signals import HeadSignals
from .tasks import Tasks
from .upkeep import Upkeep
from .watches import Watches
from .writes import Writes

__all__ = ["Memory"]


@dataclass(frozen=True)
class Memory:
    """The services of one process, wired together."""

    core: Core
    reads: Reads
    writes: Writes
    tasks: Tasks
    conflicts: Conflicts
    reservations: Reservations
    watches: Watches
    agents: Agents
    namespaces: Namespaces
    upkeep: Upkeep
    signals: HeadSignals

    @classmethod
    def build(
        cls,
        store: WorkingStore,
        coordinator: Coordinator,
        *,
        clock: Clock,
        agent_lease_ms: int,
        sweep_interval_ms: int,
        extension: WriteExtension | None = None,
    ) -> Memory:
        """Returns the services on the given ports; ``extension`` adds to writes in some namespaces."""
        core = Core(store, coordinator, clock, extension)
        signals = HeadSignals()
        return cls(
            core=core,
            reads=Reads(core),
            writes=Writes(core),
            tasks=Tasks(core, signals, clock),
            conflicts=Conflicts(core),
            reservations=Reservations(core, signals, clock),
            watches=Watches(core, signals, clock),
            agents=Agents(core, agent_lease_ms),
            namespaces=Namespaces(core),
            upkeep=Upkeep(core, clock, sweep_interval_ms),
            signals=signals,
        )

    def start(self) -> tuple[asyncio.Task[None], ...]:
        """Starts the background work of each process, without upkeep; the caller cancels it."""
        return (asyncio.create_task(self.signals.run(self.core.store.heads()), name="noosphere-heads"),)
