"""Waiting in real time for what has no event."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

SECONDS_MAX = 60.0
"""A bound against hanging."""

PAUSE_SECONDS = 0.05


async def until(holds: Callable[[], bool], seconds: float = SECONDS_MAX) -> None:
    """Returns once something holds, looking again and again."""
    async with asyncio.timeout(seconds):
        while True:
            if holds():
                return
            await asyncio.sleep(PAUSE_SECONDS)
