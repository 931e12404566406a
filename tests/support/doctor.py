"""Examinations in tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from noosphere.server.doctor import Finding, examine
from noosphere.server.doctor.surroundings import Machine, Room


class Elsewhere(Machine):
    """The real machine, but for its clock and the room on its disk."""

    def __init__(self, *, ahead_ms: int = 0, room: Room | None = None) -> None:
        self._ahead_ms = ahead_ms
        self._room = room

    def wall_ms(self) -> int:
        return super().wall_ms() + self._ahead_ms

    def room(self, path: Path) -> Room:
        # Whatever the disk of the tests has.
        return self._room or Room(1 << 40, 1 << 41, 1 << 20, 1 << 21)


async def findings(config: Path | None = None, surroundings: Elsewhere | None = None, **flags: Any) -> list[Finding]:
    """Returns everything that is found."""
    return [found async for found in examine(config, flags, surroundings or Elsewhere())]


async def names(config: Path | None = None, surroundings: Elsewhere | None = None, **flags: Any) -> list[str]:
    """Returns the names of everything that is found."""
    return [found.name for found in await findings(config, surroundings, **flags)]
