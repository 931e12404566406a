"""What the demo can be told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

AGENTS_MAX = 32
THINK_MS_MAX = 2_000.0
LEASE_MS = 1_500
LOSE_DEFAULT, LOSE_MAX = 100, 500
FLEET_DEFAULT = Path(".run/fleet.json")


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """How to run the demo.

    Attributes:
        files: files and folders of text; none for the default, see :func:`.text.default_texts`.
        server: ``host:port`` of a running server, or several with commas between them; None starts one for the time
            of the demo.
        history: where to keep the recorded history; None keeps none.
        agents: how many agent processes, 2 to 32.
        seed: decides how long each agent thinks, and which one is killed.
        think_ms: median of a simulated thought in milliseconds, up to 2,000.
        lease_ms: for how long a section is claimed, at least 1,000.
        sections_max: work only on the first so many sections; None for all.
        conflicts_min: fewer conflicts than this and the demo fails, for it has shown nothing.
        limit_s: after so many seconds the demo gives up.
        lose: kill a server, and have a failover of Redis lose at least so many acknowledged writes, up to 500; None
            leaves everything in peace.
        fleet: the file that says where the processes to kill are.
    """

    files: tuple[Path, ...] = ()
    server: str | None = None
    history: Path | None = None
    agents: int = 8
    seed: int = 1
    think_ms: float = 60.0
    lease_ms: int = LEASE_MS
    sections_max: int | None = None
    conflicts_min: int = 100
    limit_s: float = 120.0
    lose: int | None = None
    fleet: Path = FLEET_DEFAULT

    def __post_init__(self) -> None:
        """Checks the limits.

        Raises:
            ValueError: one is not kept; the message names option, value and limit.
        """
        if not 2 <= self.agents <= AGENTS_MAX:
            raise ValueError(f"agents: {self.agents} is not between 2 and {AGENTS_MAX}")
        if not 0 <= self.think_ms <= THINK_MS_MAX:
            raise ValueError(f"think-ms: {self.think_ms:g} is not between 0 and {THINK_MS_MAX:g}")
        if not 1_000 <= self.lease_ms <= 60_000:
            raise ValueError(f"lease-ms: {self.lease_ms} is not between 1000 and 60000")
        if self.conflicts_min < 1:
            raise ValueError(f"min-conflicts: {self.conflicts_min} is less than 1")
        if self.lose is not None and not 1 <= self.lose <= LOSE_MAX:
            raise ValueError(f"lose: {self.lose} is not between 1 and {LOSE_MAX}")
        if self.sections_max is not None and self.sections_max < self.agents:
            raise ValueError(f"sections: {self.sections_max} is less than the number of agents, {self.agents}")
