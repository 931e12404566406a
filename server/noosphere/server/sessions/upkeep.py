"""What happens to sessions that nobody looks after: idle ones are closed, closed ones are purged.

A round looks at the names of all sessions and only opens those whose time may have come, at most some of them: what
it finds out is remembered until then, in memory, and found out again after a restart.
"""

from __future__ import annotations

from typing import NamedTuple

import structlog

from noosphere.consistency import NEVER_MS, Code, Reason, Refusal

from ..memory.codec import decode_record
from ..ports.runtime import Clock
from ..ports.store import NamespaceRef, NamespaceSummary, StoredEntry
from ..supervision import repeat
from .closing import Closer
from .draft import Look
from .items import all_items
from .keys import CHECKPOINTS, CONTROL, INFO, MESSAGES, META, NAMESPACES, TOOLS, TURNS, session_of
from .purging import Purger
from .retention import Retention
from .scribe import BACKGROUND, Scan, Scribe
from .types import ItemDisposition, SessionStatus

log = structlog.get_logger(__name__)

INTERVAL_MS_MIN = 10_000
_PAGE = 256
_LOOKS_MAX = 256
"""Most sessions that one round opens; the others wait for the next."""

_REMEMBERED_MAX = 65_536
_RETRY_MS = 60 * 60 * 1000
"""How long a session is left alone that could not be purged."""

_TOOLS_MAX = 64


class _Seen(NamedTuple):
    """What was found out about a namespace: when to look again, and at which head that is worth nothing any more."""

    look_again_ms: int
    head: int | None


class SessionUpkeep:
    """Runs rounds over all sessions.

    Args:
        scribe: reads their records.
        closer: closes idle ones.
        purger: purges closed ones.
        retention: lets old checkpoints go.
        clock: the source of time.
        interval_ms: time between two rounds.
    """

    def __init__(
        self,
        scribe: Scribe,
        closer: Closer,
        purger: Purger,
        retention: Retention,
        *,
        clock: Clock,
        interval_ms: int,
    ) -> None:
        self._scribe = scribe
        self._closer = closer
        self._purger = purger
        self._retention = retention
        self._clock = clock
        self._interval_ms = max(interval_ms, INTERVAL_MS_MIN)
        self._seen: dict[bytes, _Seen] = {}

    async def run(self) -> None:
        """Runs rounds until cancelled; a failed one is told of and the next one tries again."""
        await repeat("upkeep of sessions", lambda: self.round(), self._clock, self._interval_ms)

    async def round(self) -> None:
        """Looks once at every session whose time may have come."""
        store = self._scribe.core.store
        if len(self._seen) > _REMEMBERED_MAX:
            self._seen.clear()
        looks = 0
        cursor = NAMESPACES
        while looks < _LOOKS_MAX:
            page = await store.namespaces(NAMESPACES, cursor, _PAGE)
            for summary in page:
                cursor = summary.ref.name
                if not summary.deleted and self._is_due(summary):
                    looks += 1
                    await self._try(summary)
            await self._clock.sleep(0)
            if len(page) < _PAGE:
                return

    def _is_due(self, summary: NamespaceSummary) -> bool:
        seen = self._seen.get(summary.ref.storage_id)
        if seen is None or (seen.head is not None and seen.head != summary.head):
            return True
        return seen.look_again_ms <= self._scribe.core.store.now_ms()

    async def _try(self, summary: NamespaceSummary) -> None:
        ref = summary.ref
        try:
            self._seen[ref.storage_id] = await self._look_at(ref, summary.head)
        except Refusal as refusal:
            if refusal.code is Code.UNAVAILABLE:
                raise
            # It must not keep the sessions after it from being looked at.
            self._seen[ref.storage_id] = _Seen(self._scribe.core.store.now_ms() + _RETRY_MS, None)
            if refusal.reason is not Reason.SESSION_NOT_FOUND:
                log.warning("upkeep of a session refused", namespace=ref.name, reason=refusal.reason)
        except Exception as error:
            self._seen[ref.storage_id] = _Seen(self._scribe.core.store.now_ms() + _RETRY_MS, None)
            log.error("upkeep of a session failed", namespace=ref.name, exc_info=error)

    async def _look_at(self, ref: NamespaceRef, head: int) -> _Seen:
        """Does what is due for a session; returns when to look again."""
        session_id = session_of(ref.name)
        if not session_id:
            return _Seen(NEVER_MS, head)
        look = await self._scribe.peek(session_id, (TURNS, META, CONTROL))
        if look.info is None:
            return _Seen(NEVER_MS, head)
        await self._retention.enforce(session_id)
        checkpoint_ends_ms = await self._retention.ends_ms(session_id)
        if look.info.status is SessionStatus.CLOSED:
            closed = await self._look_at_closed(session_id, look)
            return closed._replace(look_again_ms=min(closed.look_again_ms, checkpoint_ends_ms))
        settings = look.info.settings
        ends_ms = await self._last_activity(ref, look) + settings.idle_timeout_ms
        if ends_ms > look.now_ms:
            return _Seen(min(ends_ms, checkpoint_ends_ms), None)
        await self._closer.close(
            BACKGROUND, session_id, items=ItemDisposition.ARCHIVE, refuse_pending=False, background=True
        )
        log.info("idle session closed", namespace=ref.name)
        return _Seen(look.now_ms + settings.purge_after_ms, None)

    async def _look_at_closed(self, session_id: str, look: Look) -> _Seen:
        info = look.session
        if info.closing is not None and not info.closing.done:
            await self._closer.carry_on(session_id)
        ends_ms = info.closed_ms + info.settings.purge_after_ms
        if ends_ms > look.now_ms:
            return _Seen(ends_ms, None)
        try:
            records = await self._purger.purge(BACKGROUND, session_id, background=True)
        except Refusal as refusal:
            if refusal.reason is not Reason.CHILDREN_OPEN:
                raise
            return _Seen(look.now_ms + _RETRY_MS, None)
        log.info("closed session purged", session=session_id, records=records)
        return _Seen(NEVER_MS, None)

    async def _last_activity(self, ref: NamespaceRef, look: Look) -> int:
        """Returns when a session was last written to, as its records tell."""
        scribe = self._scribe
        times = [look.session.created_ms]
        times += [record.siblings[-1].time_ms for key in (INFO, TURNS, META, CONTROL) if (record := look.record(key))]
        for scan in (
            Scan(MESSAGES, 1, reverse=True),
            Scan(CHECKPOINTS, 1, reverse=True),
            Scan(TOOLS, _TOOLS_MAX, reverse=True),
        ):
            found = await scribe.scan(ref, scan, accepted=True)
            # What retention has removed says nothing about anybody's work.
            times += [_time_of(entry) for entry in found.entries if entry.live_until_ms > look.now_ms]
        if max(times) + look.session.settings.idle_timeout_ms <= look.now_ms:
            async for entry in all_items(scribe.core.store, ref):
                times.append(_time_of(entry))
        return max(times)


def _time_of(entry: StoredEntry) -> int:
    return decode_record(entry.data, entry.revision).siblings[-1].time_ms
