"""Whether Redis still keeps what it is given: its `maxmemory-policy` can be changed while servers run."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence

from noosphere.consistency import Reason, Refusal

from ...ports.runtime import Clock
from .instance import NOEVICTION, Identity, told
from .survey import Node
from .wire import CommandError, WireLost

LOOK_SECONDS = 5.0
"""Time between two looks; in between, records may vanish unnoticed."""

log = logging.getLogger("noosphere.storage.redis")


class Fitness:
    """Looks from time to time, and has calls refused as long as Redis may throw records away.

    Args:
        clock: the source of time.
        nodes: returns the primaries that are connected.
    """

    def __init__(self, clock: Clock, nodes: Callable[[], Sequence[Node]]) -> None:
        self._clock = clock
        self._nodes = nodes
        self._looking: asyncio.Task[None] | None = None
        self._evicting = ""

    def start(self) -> None:
        """Looks from now on."""
        if self._looking is None:
            self._looking = asyncio.create_task(self._run(), name="noosphere-redis-fitness")

    async def stop(self) -> None:
        """Looks no longer."""
        if self._looking is not None:
            self._looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._looking

    def require(self) -> None:
        """Returns if nothing is known to vanish.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        if self._evicting:
            raise Refusal(
                Reason.ENGINE_UNAVAILABLE,
                f"Redis may throw records away (maxmemory-policy {self._evicting}): nothing is read or written until "
                f"it is {NOEVICTION} again",
            )

    async def _run(self) -> None:
        while True:
            await self._clock.sleep(LOOK_SECONDS)
            try:
                await self._look()
            except (WireLost, CommandError):
                # Whoever calls next finds out, and looks at everything when it connects.
                continue
            except Exception:
                # Nobody would look again if this ended the task.
                log.exception("Redis could not be asked for its maxmemory-policy")

    async def _look(self) -> None:
        for node in self._nodes():
            if node.wire.lost:
                continue
            info = await told(node.wire, "server", "replication", "memory")
            if info["role"] != "master" or Identity.told_by(info) != node.instance.identity:
                # This answer makes the connection look alive, and nobody else would ask what it was in between.
                node.wire.abort("was a replica in between")
                continue
            policy = info["maxmemory_policy"]
            if policy != NOEVICTION:
                if policy != self._evicting:
                    log.error(
                        "maxmemory-policy of Redis has become %s: records may have vanished already; nothing is read "
                        "or written until it is %s again",
                        policy,
                        NOEVICTION,
                    )
                self._evicting = policy
                return
        if self._evicting:
            log.warning("maxmemory-policy of Redis is %s again; work goes on", NOEVICTION)
        self._evicting = ""
