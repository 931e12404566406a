"""Upkeep of facts: what has ended goes, confidence decays, what says the same becomes one, old events one summary.

A round over a scope first plans, which is all that a dry run does, then carries each change out in one commit of its
own. A change that has become wrong meanwhile is left for the next round; one that fails leaves everything as it was.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import msgspec
import structlog

from noosphere.consistency import Refusal

from ..ports.runtime import Clock
from ..supervision import repeat
from .ledger import UPKEEP, Ledger, put
from .planning import Change, Planner
from .sweeping import DeadJobs, Sweeper

log = structlog.get_logger(__name__)

CHANGES_MAX = 1_000
"""Most changes that a reply lists; all are counted."""

FAILURE_CHARS_MAX = 500
SCOPES_MAX = 1_000
"""Most scopes whose rounds a reply lists."""


class Round(msgspec.Struct, frozen=True, omit_defaults=True):
    """The newest round of a scope.

    Attributes:
        compared_ms: store time before which every fact has been compared with those before it.
        ended_ms: store time at which it ended.
        looked_at: how many facts were looked at.
        changed: how many changes were made, by action.
        failure: why it failed; empty if it did not.
    """

    compared_ms: int
    ended_ms: int = 0
    looked_at: int = 0
    changed: dict[str, int] = msgspec.field(default_factory=dict)
    failure: str = ""


class Report(NamedTuple):
    """What a round did or would do: at most 1,000 changes, and how many facts it looked at."""

    changes: tuple[Change, ...]
    looked_at: int


class ScopeRound(NamedTuple):
    """A scope and its newest round."""

    scope: str
    round: Round


class FactUpkeep:
    """Runs rounds over scopes.

    Args:
        ledger: where decisions stand.
        planner: finds what is to be done.
        sweeper: removes words that no ledger names.
        dead_jobs: removes jobs that were given up long ago.
        resume: goes on with what a crash interrupted in forgetting.
        settle: decides about what the queue has lost.
        clock: the source of time.
        interval_ms: how long to rest between rounds over all scopes.
        has_store: whether there is a fact store; without one only jobs are looked after.
    """

    def __init__(
        self,
        ledger: Ledger,
        planner: Planner,
        sweeper: Sweeper,
        dead_jobs: DeadJobs,
        resume: Callable[[str], Awaitable[int]],
        settle: Callable[[str], Awaitable[int]],
        *,
        clock: Clock,
        interval_ms: int,
        has_store: bool = True,
    ) -> None:
        self._has_store = has_store
        self._ledger = ledger
        self._planner = planner
        self._sweeper = sweeper
        self._dead_jobs = dead_jobs
        self._resume = resume
        self._settle = settle
        self._clock = clock
        self._interval_ms = interval_ms

    async def run(self) -> None:
        """Runs rounds until cancelled; a failed one is told of and recorded, and the next one tries again."""
        await repeat("upkeep of facts", self._look_after_all, self._clock, self._interval_ms)

    async def round(self, scope: str, *, dry_run: bool) -> Report:
        """Looks once at a scope, or at all if none is given.

        Raises:
            Refusal: ENGINE_UNAVAILABLE.
        """
        changes: list[Change] = []
        looked_at = 0
        for one in (scope,) if scope else [found async for found in self._ledger.scopes()]:
            try:
                if not dry_run:
                    await self._settle(one)
                made, count = await self._look_at(one, dry_run)
            except Exception as error:
                if scope or isinstance(error, Refusal):
                    raise
                # It must not keep the scopes after it from being looked at.
                log.error("upkeep of a scope's facts failed", scope=one, exc_info=error)
                continue
            changes += made[: CHANGES_MAX - len(changes)]
            looked_at += count
        if not scope and not dry_run:
            await self._dead_jobs.sweep()
        return Report(tuple(changes), looked_at)

    async def rounds(self, scopes: Sequence[str]) -> tuple[ScopeRound, ...]:
        """Returns the newest rounds of scopes that had one."""
        found: list[ScopeRound] = []
        for scope in scopes[:SCOPES_MAX]:
            newest = await self._newest(scope)
            if newest is not None:
                found.append(ScopeRound(scope, newest))
        return tuple(found)

    async def _look_after_all(self) -> None:
        if self._has_store:
            await self.round("", dry_run=False)
            return
        async for scope in self._ledger.scopes():
            await self._settle(scope)
        await self._dead_jobs.sweep()

    async def _look_at(self, scope: str, dry_run: bool) -> tuple[list[Change], int]:
        earlier = await self._newest(scope)
        since_ms = 0 if earlier is None else earlier.compared_ms
        if dry_run:
            plan, swept = await self._planner.plan(scope, since_ms=since_ms), await self._sweeper.find(scope)
            return [change for step in plan.steps for change in step.changes] + list(swept.changes), plan.looked_at
        changed: Counter[str] = Counter()
        made: list[Change] = []
        try:
            await self._resume(scope)
            plan, swept = await self._planner.plan(scope, since_ms=since_ms), await self._sweeper.find(scope)
            compared_ms = plan.compared_ms
            for step in plan.steps:
                if await step.carry_out():
                    made += step.changes
                    changed.update(change.action for change in step.changes)
                elif any(change.action == "merge" for change in step.changes):
                    # Nothing else finds again what has changed meanwhile.
                    compared_ms = since_ms
                await self._clock.sleep(0)
            await self._sweeper.remove(swept)
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"[:FAILURE_CHARS_MAX]
            # What this round would have compared is compared by the next one.
            failed = Round(since_ms, self._ledger.now_ms, changed=dict(changed), failure=failure)
            with contextlib.suppress(Refusal):
                await self._record(scope, failed)
            raise
        made += swept.changes
        changed.update(change.action for change in swept.changes)
        if changed or plan.fresh or earlier is None or earlier.failure:
            await self._record(scope, Round(compared_ms, self._ledger.now_ms, plan.looked_at, dict(changed)))
        return made, plan.looked_at

    async def _newest(self, scope: str) -> Round | None:
        return (await self._ledger.read(scope, (UPKEEP,))).get(UPKEEP, Round)

    async def _record(self, scope: str, newest: Round) -> None:
        await self._ledger.change(scope, (UPKEEP,), lambda _: (put(UPKEEP, newest),))
