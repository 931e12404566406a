"""Drains the outboxes: what left working memory to become a fact is handed over, and then removed.

An entry is removed only once whoever takes it has it for good, under an id that the entry alone decides. A crash in
between has it handed over again, under the same id: once in effect. Entries of ephemeral sessions never leave them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog

from noosphere.consistency import Code, Reason, Refusal

from ..ports.candidates import HANDED_MAX, CandidateSink
from ..ports.runtime import Clock
from ..ports.store import NamespaceSummary, StoredEntry
from ..supervision import Troubles
from .draft import Draft, Look
from .evidence import Evidence
from .handing import Handed, Handing
from .keys import NAMESPACES, OUTBOX, KeyRange, is_ephemeral, session_of
from .scribe import BACKGROUND, Intent, Need, Scan, Scribe

log = structlog.get_logger(__name__)

WAITING_MAX = 4_096
"""Most sessions that are known to have something; a round finds the others."""

INTERVAL_MS_MIN = 10_000
REST_MS = 1_000
REST_MS_MAX = 60_000
"""After so long what was refused is handed over again; twice as long after each further refusal."""

ASIDE_MAX = 1_024
"""Most entries that are remembered as refused for what they say."""

_ENTRIES_A_STEP = 32
_PAGE = 256
_LOOKS_MAX = 256
"""Most sessions that one round opens; the others wait for the next."""

_REMEMBERED_MAX = 65_536


class OutboxDrain:
    """Hands over what sessions have in their outboxes.

    Args:
        scribe: reads and writes their records.
        evidence: tells what an entry rests on, and its trust.
        sink: takes candidates.
        clock: the source of time.
        interval_ms: time between two rounds over all sessions, for what was there before the process began.
        leads: whether it is this process that goes over all sessions; each hands over what it knows of.
    """

    def __init__(
        self,
        scribe: Scribe,
        evidence: Evidence,
        sink: CandidateSink,
        *,
        clock: Clock,
        interval_ms: int,
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        self._scribe = scribe
        self._handing = Handing(evidence)
        self._sink = sink
        self._clock = clock
        self._interval_ms = max(interval_ms, INTERVAL_MS_MIN)
        self._leads = leads
        self._due: dict[str, None] = {}
        self._more = asyncio.Event()
        self._empty_at: dict[bytes, int] = {}
        self._aside: dict[tuple[str, str], None] = {}
        scribe.tell_of(OUTBOX, self.nudge)

    def nudge(self, session_id: str) -> None:
        """Notes that a session's outbox may have something. Never waits and never fails."""
        if len(self._due) < WAITING_MAX:
            self._due[session_id] = None
            self._more.set()

    async def run(self) -> None:
        """Works until cancelled: at once over all sessions, then whenever there is something, and in rounds."""
        round_due_ms = self._clock.monotonic_ms()
        troubles = Troubles("handing candidates over")
        failed = 0
        while True:
            try:
                if self._clock.monotonic_ms() >= round_due_ms:
                    if self._leads():
                        await self.round()
                    round_due_ms = self._clock.monotonic_ms() + self._interval_ms
                await self.settle()
            except Exception as error:
                troubles.met(error)
                failed += 1
                await self._clock.sleep(min(REST_MS_MAX, REST_MS << min(failed - 1, 16)) / 1000)
            else:
                troubles.over()
                failed = 0
                await self._wait(round_due_ms - self._clock.monotonic_ms())

    async def round(self) -> None:
        """Looks once at every session that may have something, at most some of them.

        Raises:
            Refusal: ENGINE_UNAVAILABLE, LIMIT_EXCEEDED: nothing is taken at present.
        """
        store = self._scribe.core.store
        if len(self._empty_at) > _REMEMBERED_MAX:
            self._empty_at.clear()
        looks = 0
        cursor = NAMESPACES
        while looks < _LOOKS_MAX:
            page = await store.namespaces(NAMESPACES, cursor, _PAGE)
            for summary in page:
                cursor = summary.ref.name
                session_id = self._in_question(summary)
                if session_id:
                    looks += 1
                    if await self._try(session_id):
                        self._empty_at[summary.ref.storage_id] = summary.head
            await self._clock.sleep(0)
            if len(page) < _PAGE:
                return

    async def settle(self) -> None:
        """Drains every session that is known to have something.

        Raises:
            Refusal: ENGINE_UNAVAILABLE, LIMIT_EXCEEDED: nothing is taken at present; what waits still does.
        """
        while self._due:
            session_id = next(iter(self._due))
            self._more.clear()
            del self._due[session_id]
            try:
                await self._try(session_id)
            except Exception:
                self.nudge(session_id)
                raise

    def _in_question(self, summary: NamespaceSummary) -> str:
        """Returns whose outbox may have something new; empty if none has."""
        session_id = session_of(summary.ref.name) or ""
        if not session_id or summary.deleted:
            return ""
        return "" if self._empty_at.get(summary.ref.storage_id) == summary.head else session_id

    async def _try(self, session_id: str) -> bool:
        """Drains a session; returns whether nothing is left that can be handed over.

        Raises:
            Refusal: nothing is taken at present.
        """
        if is_ephemeral(session_id):
            return True
        try:
            await self._drain(session_id)
        except Refusal as refusal:
            if refusal.reason is Reason.LIMIT_EXCEEDED or refusal.code is Code.UNAVAILABLE:
                raise
            if refusal.reason is not Reason.SESSION_NOT_FOUND:
                log.warning("an outbox could not be drained", session=session_id, reason=refusal.reason)
            return False
        except Exception as error:
            # It must not keep the sessions after it from being drained; the next round comes back to it.
            log.error("an outbox could not be drained", session=session_id, exc_info=error)
            return False
        return True

    async def _drain(self, session_id: str) -> None:
        ref = await self._scribe.living(session_id)
        keys, more = KeyRange(None, None), True
        while more:
            page = await self._scribe.scan(ref, Scan(OUTBOX, _ENTRIES_A_STEP, keys=keys))
            more = page.more
            live = [entry for entry in page.entries if entry.live_until_ms > page.view.now_ms]
            if live:
                await self._hand_over(session_id, live)
            if page.entries:
                keys = KeyRange(page.entries[-1].key, None)
            await asyncio.sleep(0)

    async def _hand_over(self, session_id: str, live: Sequence[StoredEntry]) -> None:
        info = (await self._scribe.peek(session_id)).info
        if info is None:
            return
        entries = [
            await self._handing.entry(session_id, info.owner, entry)
            for entry in live
            if (session_id, entry.key) not in self._aside
        ]
        taken: list[str] = []
        for batch in _batches(entries):
            candidates = [candidate for entry in batch for candidate in entry.candidates]
            try:
                if candidates:
                    await self._sink.take(candidates)
                taken += [entry.key for entry in batch]
            except Refusal as refusal:
                if refusal.reason is Reason.LIMIT_EXCEEDED or refusal.code is Code.UNAVAILABLE:
                    await self._remove(session_id, taken)
                    raise
                taken += await self._one_by_one(session_id, batch)
        await self._remove(session_id, taken)

    async def _one_by_one(self, session_id: str, batch: Sequence[Handed]) -> list[str]:
        """Hands entries over each by itself, so that one that is refused for what it says holds up no other."""
        taken: list[str] = []
        for entry in batch:
            try:
                await self._sink.take(entry.candidates)
                taken.append(entry.key)
            except Refusal as refusal:
                if refusal.reason is Reason.LIMIT_EXCEEDED or refusal.code is Code.UNAVAILABLE:
                    await self._remove(session_id, taken)
                    raise
                log.warning("a candidate was refused and stays", session=session_id, key=entry.key, why=refusal.reason)
                if len(self._aside) >= ASIDE_MAX:
                    self._aside.clear()
                self._aside[session_id, entry.key] = None
        return taken

    async def _remove(self, session_id: str, keys: Sequence[str]) -> None:
        if not keys:
            return

        def decide(look: Look, draft: Draft) -> None:
            for key in keys:
                if look.record(key) is not None:
                    draft.remove(key)

        intent = Intent("drain_outbox", keys=tuple(keys), need=Need.ANY, background=True)
        await self._scribe.write(BACKGROUND, session_id, intent, decide)

    async def _wait(self, at_most_ms: int) -> None:
        """Returns when something is due, or after so long."""
        if not self._due:
            self._more.clear()
        waiting = asyncio.ensure_future(self._more.wait())
        try:
            await self._clock.wait(waiting, max(at_most_ms, 0) / 1000)
        finally:
            waiting.cancel()


def _batches(entries: Sequence[Handed]) -> list[list[Handed]]:
    """Returns entries by hand-overs; one has some hundred bytes to some KiB, and as many values as its item had."""
    batches: list[list[Handed]] = [[]]
    size = 0
    for entry in entries:
        if size + len(entry.candidates) > HANDED_MAX:
            batches.append([])
            size = 0
        batches[-1].append(entry)
        size += len(entry.candidates)
    return batches
