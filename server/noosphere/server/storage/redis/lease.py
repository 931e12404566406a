"""The epoch lease: who has not heard for a while that its epoch is the newest neither reads nor writes.

A process that is cut off from the coordinator may be cut off from a failover too, and go on with a primary that others
have left. This bounds for how long.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from noosphere.consistency import Reason, Refusal

from ...ports.coordinator import Coordinator
from ...ports.runtime import Clock

TTL_SECONDS = 5.0
"""How often the coordinator is asked. What it has said counts for twice as long, from before it was asked."""

AGAIN_SECONDS = 1.0
"""How often it is asked while it does not answer."""

ANSWER_SECONDS_MAX = 3.0
CALLER_SECONDS_MAX = 0.5
"""How long a call waits, at most, for a lease that has run out to be renewed."""

ASKS_MAX = 16
"""How often a call asks for that."""

log = logging.getLogger("noosphere.storage.redis")


class EpochLease:
    """See the module.

    Args:
        coordinator: knows the newest epoch.
        clock: on which the lease runs out.
        present: returns the epoch that is used here.
        on_newer: is told of a newer one.
    """

    def __init__(
        self, coordinator: Coordinator, clock: Clock, present: Callable[[], int], on_newer: Callable[[int], None]
    ) -> None:
        self._coordinator = coordinator
        self._clock = clock
        self._present = present
        self._on_newer = on_newer
        self._ends_ms = clock.monotonic_ms()
        self._asking: asyncio.Task[bool] | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._answered = True

    @property
    def held(self) -> bool:
        """Whether the present epoch was the newest not too long ago."""
        return self._clock.monotonic_ms() <= self._ends_ms

    def start(self) -> None:
        """Renews the lease from now on."""
        if self._renewing is None:
            self._renewing = asyncio.create_task(self._renew(), name="noosphere-epoch-lease")

    async def stop(self) -> None:
        """Renews it no longer."""
        for task in (self._renewing, self._asking):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    def confirmed(self, asked_ms: int) -> None:
        """Notes that the present epoch is the newest, as an answer says that was asked for at ``asked_ms``."""
        self._ends_ms = max(self._ends_ms, asked_ms + int(2_000 * TTL_SECONDS))

    async def require(self) -> None:
        """Returns if the lease is held, at once or when it soon is.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        if self.held:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CALLER_SECONDS_MAX):
                for _ in range(ASKS_MAX):
                    # An answer can be too old already: the process may have stood still while it was on its way.
                    if not await asyncio.shield(self._ask()) or self.held:
                        break
        if not self.held:
            raise Refusal(
                Reason.ENGINE_UNAVAILABLE,
                f"the coordinator has not confirmed for {2 * TTL_SECONDS:g} s that epoch {self._present()} is the "
                "newest; nothing is read or written until it does",
            )

    async def _renew(self) -> None:
        while True:
            await self._clock.sleep(TTL_SECONDS if self.held else AGAIN_SECONDS)
            await asyncio.wait((self._ask(),))

    def _ask(self) -> asyncio.Task[bool]:
        """Asks; whoever wants to know at once shares the answer."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._confirm())
        return self._asking

    async def _confirm(self) -> bool:
        """Returns whether the present epoch is the newest; notes since when that was so."""
        present, asked_ms = self._present(), self._clock.monotonic_ms()
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                newest = (await self._coordinator.epochs())[-1].epoch
        except (Refusal, TimeoutError) as error:
            # Once: without a lease every call asks.
            if self._answered:
                log.warning("the coordinator does not say which epoch is the newest: %s", error or "no answer")
            self._answered = False
            return False
        except Exception:
            # Nobody would ask again if this ended the task that asks.
            log.exception("the coordinator could not be asked for the newest epoch")
            return False
        if not self._answered:
            log.info("the coordinator says which epoch is the newest again")
        self._answered = True
        if newest == present:
            self.confirmed(asked_ms)
        elif present == self._present():
            self._on_newer(newest)
        return newest == present
