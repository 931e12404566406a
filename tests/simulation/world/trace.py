"""What has happened in a simulation, as one digest, and in words for whoever looks into a failure."""

from __future__ import annotations

import asyncio
import hashlib
import sys

LINES_MAX = 200_000


class Trace:
    """Events in their order.

    Args:
        shows: also print them as they happen.

    Attributes:
        count: how many.
    """

    def __init__(self, shows: bool = False) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._shows = shows
        self.count = 0

    def __call__(self, what: str, *about: object) -> None:
        """Takes note of an event.

        Args:
            what: the kind, e.g. ``deliver``.
            about: what distinguishes it; each must be shown the same in every process.
        """
        line = f"{_now():.6f} {what} {' '.join(map(str, about))}"
        self.count += 1
        self._hash.update(line.encode("utf-8", "backslashreplace"))
        if self._shows and self.count <= LINES_MAX:
            print(line, file=sys.stderr)

    @property
    def digest(self) -> str:
        """Names everything that has happened so far."""
        return f"{self.count}-{self._hash.hexdigest()}"


def _now() -> float:
    loop = asyncio._get_running_loop()
    return 0.0 if loop is None else loop.time()
