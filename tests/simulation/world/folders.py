"""Where the disks of a simulation are: a folder in memory that is gone afterwards, also when the process was killed.

A killed process cleans nothing up. Each folder names its process, and whoever runs simulations next removes those
whose process is gone.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

_NAME = re.compile(r"noosphere-sim-(\d+)-")


@contextmanager
def folder() -> Iterator[Path]:
    """Makes a folder for one run, in memory if the system has a place for that, and removes it in the end."""
    place = _memory()
    _swept(place)
    with tempfile.TemporaryDirectory(prefix=f"noosphere-sim-{os.getpid()}-", dir=place) as made:
        yield Path(made)


def sweep(place: Path) -> list[str]:
    """Removes the folders in ``place`` whose process is gone; returns their names."""
    gone = []
    for found in sorted(place.glob("noosphere-sim-*-*")):
        named = _NAME.match(found.name)
        if named is not None and not _runs(int(named[1])):
            # Another process may be removing it as well, and one of another user is not ours to remove.
            shutil.rmtree(found, ignore_errors=True)
            gone.append(found.name)
    return gone


@cache
def _swept(place: Path) -> None:
    """Does so once in each process: a run takes a fifth of a second."""
    sweep(place)


def _memory() -> Path:
    """Returns where files are in memory, or, where the system has no such place, where temporary files are."""
    place = Path("/dev/shm")  # made by tempfile, with a name of its own
    return place if place.is_dir() else Path(tempfile.gettempdir())


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
