"""The sweeper: commits expiry, reaps tombstones, keeps the log within its bounds. Paced and bounded."""

from __future__ import annotations

import structlog

from noosphere.consistency import Code, Refusal

from ..ports.runtime import Clock
from ..ports.store import Changes, NamespaceRef, NamespaceSummary
from ..supervision import repeat
from .core import Core
from .expiry import sweep_keys

log = structlog.get_logger(__name__)

_PAGE = 256
_DUE_MAX = 256
"""Most keys of one namespace in one round; the rest waits for the next, so no namespace starves another."""


class Upkeep:
    """Runs rounds over all namespaces."""

    def __init__(self, core: Core, clock: Clock, interval_ms: int) -> None:
        self._core = core
        self._clock = clock
        self._interval_ms = interval_ms

    async def run(self) -> None:
        """Runs rounds until cancelled; a failed one is told of and the next one tries again."""
        await repeat("upkeep", lambda: self.round(), self._clock, self._interval_ms)

    async def round(self) -> None:
        """Looks once at every namespace."""
        after = ""
        while True:
            page = await self._core.store.namespaces("", after, _PAGE)
            for summary in page:
                after = summary.ref.name
                if not summary.deleted:
                    await self._try(summary)
                await self._clock.sleep(0)
            if len(page) < _PAGE:
                return

    async def _try(self, summary: NamespaceSummary) -> None:
        try:
            await self._look_at(summary)
        except Refusal as refusal:
            if refusal.code is Code.UNAVAILABLE:
                raise
            # It must not keep the namespaces after it from being looked at.
            log.warning("upkeep refused", namespace=summary.ref.name, reason=refusal.reason, message=refusal.message)
        except Exception as error:
            log.error("upkeep failed", namespace=summary.ref.name, exc_info=error)

    async def _look_at(self, summary: NamespaceSummary) -> None:
        ref = summary.ref
        if summary.next_due_ms <= self._core.store.now_ms():
            keys = await self._core.store.due(ref, self._core.store.now_ms(), _DUE_MAX)
            if keys:
                await sweep_keys(self._core, ref, keys)
        if summary.loaded:
            # The log of an idle namespace lives in the journal, which the driver bounds by itself.
            await self._trim_log(ref)

    async def _trim_log(self, ref: NamespaceRef) -> None:
        policy = self._core.rules(ref.name).policy
        stats = await self._core.store.stats(ref)
        if stats.log_count == 0:
            return
        oldest_ms = stats.view.now_ms - policy.log_age_ms_max
        surplus = stats.log_count - policy.log_revisions_max
        surplus_bytes = stats.log_bytes - policy.log_bytes_max
        if surplus <= 0 and surplus_bytes <= 0 and stats.log_first_ms > oldest_ms:
            return
        floor = stats.view.floor
        for _ in range(64):
            result = await self._core.store.changes(ref, floor, _PAGE)
            if not isinstance(result, Changes):
                return
            begun = floor
            for batch in result.batches:
                if surplus <= 0 and surplus_bytes <= 0 and batch.time_ms > oldest_ms:
                    break
                floor = batch.revision
                surplus -= 1
                surplus_bytes -= sum(len(c.key) + len(c.data or b"") + len(c.event) for c in batch.changes)
            if floor > begun:
                await self._core.store.compact(ref, floor)
            if floor == begun or not result.more:
                return
