"""What an examination sees of the machine; tests give other ones."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple, Protocol

from ..ports.runtime import SystemClock


class Room(NamedTuple):
    """How much room a file system has left for whoever asks."""

    free_bytes: int
    size_bytes: int
    free_files: int
    files: int


class Surroundings(Protocol):
    """The machine."""

    def wall_ms(self) -> int:
        """Returns the clock of the machine, in milliseconds since 1970."""
        ...

    def room(self, path: Path) -> Room:
        """Returns how much room there is where a path is, which exists."""
        ...


class Machine:
    """The real one."""

    def wall_ms(self) -> int:
        """Returns the clock of the machine."""
        return SystemClock().wall_ms()

    def room(self, path: Path) -> Room:
        """Asks the file system."""
        found = os.statvfs(path)
        return Room(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize, found.f_favail, found.f_files)
