"""Gives up the collection of facts that a fleet has noted as its own, so that it goes on with what Weaviate has now."""

from __future__ import annotations

from noosphere.consistency import Refusal

from .config import Settings
from .drivers import StartupError, open_coordinator
from .ports.runtime import SystemClock
from .storage.weaviate.lineage import KEY, TABLE, Noted, decode, note


async def adopt(settings: Settings) -> Noted | None:
    """Forgets which collection is the fleet's; servers take whichever they find next, and make one where there is none.

    Args:
        settings: the configuration of the servers.

    Returns:
        What was noted before; None if nothing was.

    Raises:
        StartupError: the data folder is in use, or the coordinator cannot be used.
    """
    async with open_coordinator(settings, clock=SystemClock(), on_fatal=lambda error: None) as coordinator:
        try:
            noted = decode(coordinator.table(TABLE).get(KEY))
            await note(coordinator, None)
        except Refusal as error:
            raise StartupError(f"the coordinator cannot be used: {error}") from error
    return noted
