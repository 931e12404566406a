"""The seams to the outside world that are not storage: time, randomness and ids.

Everything that the server takes from its surroundings comes through these, so that a simulation can
run the real code under its own time and chance.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any, Protocol


class Clock(Protocol):
    """A source of time."""

    def wall_ms(self) -> int:
        """Returns milliseconds since the Unix epoch; may jump."""
        ...

    def monotonic_ms(self) -> int:
        """Returns milliseconds since some fixed moment; never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Suspends the caller."""
        ...

    async def wait(self, future: asyncio.Future[Any], seconds: float) -> None:
        """Suspends the caller until ``future`` is done, at most for some time; never cancels the future."""
        ...


class SystemClock:
    """The machine's clock."""

    def wall_ms(self) -> int:
        """Returns milliseconds since the Unix epoch; may jump."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Returns milliseconds since some fixed moment; never goes back."""
        return time.monotonic_ns() // 1_000_000

    async def sleep(self, seconds: float) -> None:
        """Suspends the caller."""
        await asyncio.sleep(seconds)

    async def wait(self, future: asyncio.Future[Any], seconds: float) -> None:
        """Suspends the caller until ``future`` is done, at most for some time; never cancels the future."""
        await asyncio.wait((future,), timeout=seconds)


def system_random() -> random.Random:
    """Returns a generator seeded from the operating system."""
    return random.Random()
