r"""Notes of what waits in a queue that may lose it: so that whatever was taken is decided about, or told to be lost.

A queue that fails over may have lost what it had acknowledged. So whoever has queued something notes it in the ledger,
without its words, before that is acknowledged, and the commit that decides about it removes the note. If the ledger
lost the note, its revision is one that was lost, and whoever presents it is told so. If the note is there and neither
the job nor a decision is, the job was lost: that is then the decision. An extraction that nobody asked for, and nobody
would miss, is queued again: its note says what to read. Jobs are lost with an epoch, so each scope is looked through
once in each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec
import structlog

from ..ports.factqueue import FactQueue, Job
from ..ports.store import Mutation
from .candidate_jobs import group_of
from .extraction import (
    BACKGROUND_PRIORITY,
    EXTRACTION_JOBS,
    ExtractionNote,
    ExtractionState,
    ExtractionWork,
    encode_work,
    job_key,
)
from .ledger import (
    CANDIDATE_RETENTION_MS,
    DECISIONS,
    PENDING,
    SETTLED,
    CandidateNote,
    Ledger,
    Page,
    candidate_key,
    pending_key,
    put,
    remove,
)
from .types import Candidate, Decision, Status, Why

log = structlog.get_logger(__name__)

LOOKED_AT_MAX = 10_000
"""Most notes that one round looks at; the next one goes on from there."""

_PAGE = 128
LOST = Why("queue", "lost", "It was lost in a failover before anybody decided; it may be submitted again.")


class PendingNote(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the ledger says of something that waits.

    Attributes:
        id: of a candidate, or of an extraction.
        owner: whose.
        actor: who submitted it.
        producer: what produced it.
        trust: what the server assigned.
        submitted_ms: store time at which it was submitted.
        reopens_ms: store time of the decision that a review has reopened; 0 for none.
        extraction: whether it is an extraction.
        meaning: of an extraction, the fingerprint of the request that brought it.
        session_id: of an extraction that nobody has asked for, which session is to be read: it can be queued again.
    """

    id: str
    owner: str
    actor: str = ""
    producer: str = ""
    trust: float = 0.0
    submitted_ms: int = 0
    reopens_ms: int = 0
    extraction: bool = False
    meaning: bytes = b""
    session_id: str = ""

    @classmethod
    def of(cls, candidate: Candidate, reopens_ms: int = 0) -> PendingNote:
        """Returns what is noted of a candidate."""
        return cls(
            candidate.id,
            candidate.owner,
            candidate.actor,
            candidate.producer,
            candidate.trust,
            candidate.submitted_ms,
            reopens_ms,
        )

    @property
    def fate(self) -> str:
        """Where it is noted what became of it."""
        return job_key(self.id) if self.extraction else candidate_key(self.id)


class _Settled(msgspec.Struct, frozen=True, array_like=True):
    """How far a scope was looked through: in which epoch, up to which note; to the end if that is empty."""

    epoch: int
    after: str


class _Lost(NamedTuple):
    """What was found to be lost."""

    decisions: tuple[Decision, ...] = ()
    extractions: tuple[ExtractionNote, ...] = ()


def was_lost(decision: Decision) -> bool:
    """Tells whether a candidate was lost before anybody decided about it: it may come again."""
    return decision.status is Status.DEAD and decision.reasons[-1:] == (LOST,)


class Pending:
    """Keeps the notes.

    Args:
        ledger: where they stand.
        queue: where jobs wait.
        decided: hears of candidates that were lost.
        ended: hears of extractions that were lost.
    """

    def __init__(
        self,
        ledger: Ledger,
        queue: FactQueue,
        *,
        decided: Callable[[Decision], None],
        ended: Callable[[ExtractionNote], None],
    ) -> None:
        self._ledger = ledger
        self._queue = queue
        self._decided = decided
        self._ended = ended

    @property
    def needed(self) -> bool:
        """Whether this queue may lose anything."""
        return self._queue.may_lose

    async def note(self, scope: str, notes: Sequence[PendingNote]) -> None:
        """Notes what was queued, at most 100 at once. What was decided meanwhile is not noted.

        Raises:
            Refusal: CONTENTION, ENGINE_UNAVAILABLE.
        """
        if not self.needed:
            return

        def decide(page: Page) -> list[Mutation]:
            mutations: list[Mutation] = []
            for one in notes:
                if page.get(pending_key(one.id), PendingNote) == one or _is_decided(page, one):
                    continue
                if page.entries[one.fate] is not None and not one.reopens_ms:
                    # It was lost, and comes again.
                    mutations.append(remove(one.fate))
                mutations.append(put(pending_key(one.id), one))
            return mutations

        await self._ledger.change(scope, [key for one in notes for key in (pending_key(one.id), one.fate)], decide)

    async def settle(self, scope: str) -> int:
        """Decides about what was lost in a scope, once in each epoch; returns how much that was.

        Raises:
            Refusal: CONTENTION, ENGINE_UNAVAILABLE.
        """
        if not self.needed:
            return 0
        page = await self._ledger.read(scope, (SETTLED,))
        settled = page.get(SETTLED, _Settled)
        epoch, after = page.view.epoch, ""
        if settled is not None and settled.epoch == epoch:
            if not settled.after:
                return 0
            after = settled.after
        lost = looked_at = 0
        while looked_at < LOOKED_AT_MAX:
            found = await self._ledger.scan(scope, PENDING, after=after or None, limit=_PAGE)
            notes = [msgspec.json.decode(entry.data, type=PendingNote) for entry in found.entries]
            jobs = await self._queue.find([one.id for one in notes])
            gone = [one for one, job in zip(notes, jobs, strict=True) if job is None]
            lost += await self._lose(scope, [one for one in gone if not one.session_id], epoch)
            await self._queue_again(scope, [one for one in gone if one.session_id])
            looked_at += len(notes)
            after = found.entries[-1].key if found.more else ""
            if not after:
                break
        if looked_at:
            await self._ledger.change(scope, (SETTLED,), lambda _: (put(SETTLED, _Settled(epoch, after)),))
        if lost:
            log.warning("what waited in the fact queue was lost in a failover", scope=scope, count=lost)
        return lost

    async def _queue_again(self, scope: str, notes: Sequence[PendingNote]) -> None:
        """Queues extractions again that nobody asked for; one that has ended meanwhile finds nothing new to read."""
        works = [(one.id, ExtractionWork(EXTRACTION_JOBS, scope, one.owner, one.session_id)) for one in notes]
        jobs = [Job(id, BACKGROUND_PRIORITY, encode_work(work), group_of(scope, work.owner)) for id, work in works]
        if jobs:
            await self._queue.put(jobs)

    async def _lose(self, scope: str, notes: Sequence[PendingNote], epoch: int) -> int:
        """Decides that jobs were lost whose notes are still there."""
        if not notes:
            return 0
        made: list[_Lost] = [_Lost()]

        def decide(page: Page) -> list[Mutation]:
            made[0] = _Lost()
            if page.view.epoch != epoch:
                # What was not found may be back; the next round looks again.
                return []
            left = [one for one in notes if page.entries[pending_key(one.id)] is not None]
            mutations = [remove(pending_key(one.id)) for one in left]
            lost = [one for one in left if not _is_decided(page, one)]
            until_ms = page.view.now_ms + CANDIDATE_RETENTION_MS
            extractions = tuple(
                ExtractionNote(one.id, one.owner, ExtractionState.FAILED, LOST.explanation, meaning=one.meaning)
                for one in lost
                if one.extraction
            )
            candidates = [_lost_candidate(page, one) for one in lost if not one.extraction]
            made[0] = _Lost(tuple(note.decision for note in candidates), extractions)
            mutations += (put(job_key(note.id), note, until_ms=until_ms) for note in extractions)
            for note in candidates:
                id = note.decision.candidate_id
                mutations.append(put(candidate_key(id), note, until_ms=until_ms))
                mutations.append(put(DECISIONS, id, until_ms=until_ms, rev_slot=True))
            return mutations

        await self._ledger.change(scope, [key for one in notes for key in (pending_key(one.id), one.fate)], decide)
        for decision in made[0].decisions:
            self._decided(decision)
        for note in made[0].extractions:
            self._ended(note)
        return len(made[0].decisions) + len(made[0].extractions)


def _is_decided(page: Page, one: PendingNote) -> bool:
    """Tells whether something was decided about since it was queued."""
    if one.extraction:
        return page.get(one.fate, ExtractionNote) is not None
    note = page.get(one.fate, CandidateNote)
    if note is None or (was_lost(note.decision) and not one.reopens_ms):
        return False
    return note.decision.decided_ms > one.reopens_ms


def _lost_candidate(page: Page, one: PendingNote) -> CandidateNote:
    before = page.get(candidate_key(one.id), CandidateNote)
    now_ms = page.view.now_ms
    if before is not None and one.reopens_ms:
        # What it was before the review it still is, and its words are still kept.
        reasons = (*before.decision.reasons, LOST)
        return msgspec.structs.replace(
            before, decision=msgspec.structs.replace(before.decision, reasons=reasons, decided_ms=now_ms)
        )
    decision = Decision(one.id, Status.DEAD, (LOST,), decided_ms=now_ms)
    return CandidateNote(decision, one.owner, one.actor, one.producer, one.trust, one.submitted_ms)
