"""Incarnations that this process does not know: begun elsewhere a moment ago, or ended.

Whether one is current is looked up in what the process knows, without waiting. What it does not know has to be
asked of the coordinator, which takes a round trip; callers whose incarnations have ended must not make it a flood.
"""

from __future__ import annotations

import asyncio

from noosphere.consistency import Reason, Refusal

from ..ports.coordinator import Coordinator, Incarnation
from ..ports.runtime import Clock
from ..security import Unsettled

ASKED_MAX = 128
"""Incarnations that are asked for at a time; one more is refused."""

ENDED_MAX = 4_096
ENDED_MS = 5_000
"""How long it is remembered that an incarnation has ended, before it is asked for again."""


class Newcomers:
    """Asks the coordinator for incarnations, each once at a time, and remembers for a while which have ended.

    Args:
        coordinator: knows for certain.
        clock: on its monotonic time answers age.
    """

    def __init__(self, coordinator: Coordinator, clock: Clock) -> None:
        self._coordinator = coordinator
        self._clock = clock
        self._asked: dict[Incarnation, asyncio.Task[None]] = {}
        # Oldest first: each entry lives for the same time.
        self._ended: dict[Incarnation, int] = {}

    def has_ended(self, incarnation: Incarnation) -> bool:
        """Tells whether the coordinator has said lately that an incarnation has ended. Never waits."""
        until_ms = self._ended.get(incarnation)
        if until_ms is None:
            return False
        if until_ms > self._clock.monotonic_ms():
            return True
        del self._ended[incarnation]
        return False

    async def settle(self, incarnation: Incarnation) -> None:
        """Asks whether an incarnation is current; afterwards the coordinator's ``touch`` or ``has_ended`` knows.

        Raises:
            Refusal: ENGINE_UNAVAILABLE, also while too many others are asked for.
        """
        asking = self._asked.get(incarnation)
        if asking is None:
            if len(self._asked) >= ASKED_MAX:
                raise Refusal(
                    Reason.ENGINE_UNAVAILABLE,
                    f"incarnation {incarnation.number} of agent {incarnation.agent_id!r} is not known here, and "
                    f"{len(self._asked)} others are being asked for (the limit is {ASKED_MAX}); try again",
                )
            asking = self._asked[incarnation] = asyncio.create_task(self._ask(incarnation))
            asking.add_done_callback(lambda task: self._answered(incarnation, task))
        # Others may wait for the same answer: whoever gives up leaves it to them.
        await asyncio.shield(asking)

    async def _ask(self, incarnation: Incarnation) -> None:
        try:
            await self._coordinator.keep_agent(incarnation)
        except Refusal as refusal:
            if refusal.reason is not Reason.STALE_INCARNATION:
                raise
            self._ended.pop(incarnation, None)
            self._ended[incarnation] = self._clock.monotonic_ms() + ENDED_MS
            if len(self._ended) > ENDED_MAX:
                del self._ended[next(iter(self._ended))]

    def _answered(self, incarnation: Incarnation, task: asyncio.Task[None]) -> None:
        del self._asked[incarnation]
        if not task.cancelled():
            # It counts as seen even if everybody who waited has given up.
            task.exception()


class UnknownIncarnation(Unsettled):
    """The refusal of an incarnation that may be current, but not as far as is known here.

    It is raised before anything was done. Whoever answers the call waits for :meth:`settle` and does it again, once.
    """

    def __init__(self, incarnation: Incarnation, newcomers: Newcomers) -> None:
        agent_id, number = incarnation
        message = f"{agent_id}#{number} is not a current incarnation; open the agent again"
        super().__init__(Reason.STALE_INCARNATION, message)
        self._incarnation = incarnation
        self._newcomers = newcomers

    async def settle(self) -> None:
        """Makes sure; see :meth:`Newcomers.settle`.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        await self._newcomers.settle(self._incarnation)
