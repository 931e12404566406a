"""A drain of outboxes that rests: what it would hand over is for the test to see, or to hand over itself."""

from __future__ import annotations

import asyncio

from noosphere.server.sessions.draining import OutboxDrain


class Resting(OutboxDrain):
    """In place of the server's own drain."""

    async def run(self) -> None:
        """Rests."""
        await asyncio.Event().wait()
