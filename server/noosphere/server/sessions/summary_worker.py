"""Makes summaries in the background: rules at once, then a model that takes its time, each with few at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from noosphere.consistency import Code, Refusal

from ..memory.types import Call
from ..ports.runtime import Clock
from .summaries import Summaries
from .summary_bounds import URGENT, Pace, steady
from .types import SessionSettings, TurnOutcome

log = structlog.get_logger(__name__)

WAITING_MAX = 4_096
"""Sessions that wait for rules or for the model; more are left out until their next turn ends."""

RULES_AT_ONCE = 1
MODEL_AT_ONCE = 2
_REST_MS = 30_000
_REST_MS_MAX = 15 * 60_000


class _Waiting:
    """Sessions that wait for something to be done, each once, and never in the hands of two."""

    def __init__(self) -> None:
        self._due: dict[str, bool] = {}
        self._active: set[str] = set()
        self._changed = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def add(self, session_id: str, urgent: bool = False) -> None:
        """Adds a session; it stays urgent if it was. What is beyond the limit is left out."""
        if session_id not in self._due and len(self._due) >= WAITING_MAX:
            log.warning("too many sessions wait for a summary, one is left out", limit=WAITING_MAX)
            return
        self._due[session_id] = urgent or self._due.get(session_id, False)
        self._idle.clear()
        self._changed.set()

    async def serve(self, do: Callable[[str, bool], Awaitable[None]]) -> None:
        """Takes one after the other until cancelled; a refusal is logged, and ends nothing."""
        while True:
            session_id = next((waiting for waiting in self._due if waiting not in self._active), None)
            if session_id is None:
                self._changed.clear()
                await self._changed.wait()
                continue
            urgent = self._due.pop(session_id)
            self._active.add(session_id)
            try:
                await do(session_id, urgent)
            except Refusal as refusal:
                tell = log.warning if refusal.code is Code.UNAVAILABLE else log.debug
                tell("a summary was refused", reason=refusal.reason)
            finally:
                self._active.discard(session_id)
                self._changed.set()
                if not self._due and not self._active:
                    self._idle.set()

    async def idle(self) -> None:
        """Returns once nobody waits and nothing is being done."""
        await self._idle.wait()


class SummaryWorker:
    """Hears at the end of turns, and from contexts without room, that summaries may be due.

    Nobody waits for it. What it has not done when the process ends is due again when the next turn ends.

    Args:
        summaries: makes them.
        clock: tells when a model that failed may be asked again.
    """

    def __init__(self, summaries: Summaries, clock: Clock) -> None:
        self._summaries = summaries
        self._clock = clock
        self._rules = _Waiting()
        self._model = _Waiting()
        self._failures = 0
        self._rests_until_ms = 0

    def nudge(self, session_id: str, *, urgent: bool = False) -> None:
        """Notes that a session may need a summary. Never waits and never fails.

        Args:
            session_id: whose.
            urgent: whether a context had to leave out messages that nothing stands for.
        """
        self._rules.add(session_id, urgent)

    async def after_turn(self, call: Call, session_id: str, turn: int) -> TurnOutcome:
        """Notes that a turn has ended."""
        self.nudge(session_id)
        return TurnOutcome()

    async def run(self) -> None:
        """Works until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(RULES_AT_ONCE):
                group.create_task(self._rules.serve(self._cover))
            for _ in range(MODEL_AT_ONCE if self._summaries.has_model else 0):
                group.create_task(self._model.serve(self._improve))

    async def idle(self) -> None:
        """Returns once everything that was noted is done."""
        await self._rules.idle()
        await self._model.idle()

    async def _cover(self, session_id: str, urgent: bool) -> None:
        made = await self._summaries.cover(session_id, _urgent if urgent else steady)
        if made and self._summaries.has_model:
            self._model.add(session_id)

    async def _improve(self, session_id: str, _: bool) -> None:
        if self._clock.monotonic_ms() < self._rests_until_ms:
            # What rules made stays until the session's next summary is due.
            return
        if await self._summaries.improve(session_id):
            self._failures = 0
            return
        self._failures += 1
        rest_ms = min(_REST_MS_MAX, _REST_MS << min(self._failures - 1, 16))
        self._rests_until_ms = self._clock.monotonic_ms() + rest_ms
        log.warning("the model rests after a failure", failures=self._failures, rest_ms=rest_ms)


def _urgent(_: SessionSettings) -> Pace:
    return URGENT
