"""Work that waits, or that a worker has, as forgetting finds it: what is meant goes, and its fate is noted first.

With the fate noted, whoever still works on it finds it decided, and writes nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence

import msgspec

from ..ports.factqueue import BATCH_MAX, FactQueue, Job
from ..ports.store import Mutation
from .candidate_jobs import candidate_in, decode_waiting, group_of
from .extraction import ExtractionNote, ExtractionState, decode_work, job_key
from .ledger import (
    CANDIDATE_RETENTION_MS,
    DECISIONS,
    SECRET,
    CandidateNote,
    Ledger,
    Page,
    candidate_key,
    pending_key,
    put,
    remove,
)
from .selecting import Wanted, means
from .suppression import SECRET_BYTES
from .types import Decision, Status
from .unlearning import FORGOTTEN_WHY, suppress_candidate

_JOBS_A_STEP = 32


class WaitingWork:
    """Finds and drops jobs.

    Args:
        ledger: where fates are noted.
        queue: where jobs are.
        entropy: makes secrets.
        decided: hears what became of candidates.
    """

    def __init__(
        self,
        ledger: Ledger,
        queue: FactQueue,
        *,
        entropy: Callable[[int], bytes],
        decided: Callable[[Decision], None],
    ) -> None:
        self._ledger = ledger
        self._queue = queue
        self._entropy = entropy
        self._decided = decided

    async def meant(self, scope: str, wanted: Wanted) -> list[Job]:
        """Finds what a call to forget means: an owner's candidates, and with ``all`` whatever else waits for it."""
        if not wanted.owner or wanted.fact_id:
            return []
        is_meant = means(wanted)
        return [
            job
            async for job in self._jobs(scope, wanted.owner)
            if wanted.all or ((candidate := candidate_in(job.body)) is not None and is_meant(candidate))
        ]

    async def concerned(
        self, scope: str, owners: Iterable[str], references: Sequence[str], words: Sequence[str]
    ) -> list[Job]:
        """Finds jobs that name evidence of what was forgotten, or hold its words."""
        return [
            job
            for owner in sorted(owners)
            async for job in self._jobs(scope, owner)
            if concerns(job.body, references, words)
        ]

    async def drop(self, scope: str, jobs: Sequence[Job]) -> None:
        """Notes that jobs were forgotten, suppresses what their candidates rest on, and removes them."""
        for start in range(0, len(jobs), _JOBS_A_STEP):
            part = jobs[start : start + _JOBS_A_STEP]
            await self._note(scope, part)
            await self._queue.remove(ids=[job.id for job in part])

    async def erase_finished(self, ids: Iterable[str]) -> None:
        """Has what finished jobs said overwritten where the queue's file still has it."""
        # Which job is named makes no difference: whatever is gone is erased with it.
        for id in filter(None, ids):
            await self._queue.remove(ids=(id,))
            return

    async def _note(self, scope: str, jobs: Sequence[Job]) -> None:
        made: list[Decision] = []

        def decide(page: Page) -> list[Mutation]:
            made.clear()
            secret = page.get(SECRET, bytes) or self._entropy(SECRET_BYTES)
            mutations = {SECRET: put(SECRET, secret)}
            for job in jobs:
                mutations |= {mutation.key: mutation for mutation in _fate(page, secret, job, made)}
                if page.entries[waits := pending_key(job.id)] is not None:
                    mutations[waits] = remove(waits)
            return [*mutations.values(), *(_told(decision) for decision in made)]

        keys = [candidate_key(job.id) if _is_candidate(job) else job_key(job.id) for job in jobs]
        await self._ledger.change(scope, (SECRET, *keys, *(pending_key(job.id) for job in jobs)), decide)
        for decision in made:
            self._decided(decision)

    async def _jobs(self, scope: str, owner: str) -> AsyncIterator[Job]:
        """Streams an owner's jobs wherever they are."""
        group, after = group_of(scope, owner), ""
        while True:
            page = await self._queue.members(group, after, BATCH_MAX)
            for one in page:
                after = one.job.id
                yield one.job
            if len(page) < BATCH_MAX:
                return


def _fate(page: Page, secret: bytes, job: Job, made: list[Decision]) -> list[Mutation]:
    now_ms = page.view.now_ms
    until_ms = now_ms + CANDIDATE_RETENTION_MS
    if not _is_candidate(job):
        work = decode_work(job.body)
        if not work.asked or page.get(job_key(job.id), ExtractionNote) is not None:
            return []
        ended = ExtractionNote(job.id, work.owner, ExtractionState.SUPPRESSED, meaning=work.meaning)
        return [put(job_key(job.id), ended, until_ms=until_ms)]
    candidate = candidate_in(job.body)
    assert candidate is not None, "it is one's job"
    found = suppress_candidate(page, secret, candidate)
    if page.get(candidate_key(job.id), CandidateNote) is None:
        decision = Decision(job.id, Status.SUPPRESSED, (FORGOTTEN_WHY,), decided_ms=now_ms)
        note = CandidateNote(
            decision,
            candidate.owner,
            candidate.actor,
            candidate.producer,
            candidate.trust,
            candidate.submitted_ms,
            meaning=decode_waiting(job.body).meaning,
        )
        found.append(put(candidate_key(job.id), note, until_ms=until_ms))
        made.append(decision)
    return found


def _told(decision: Decision) -> Mutation:
    """Has those who watch hear of a decision, and lists have it."""
    until_ms = decision.decided_ms + CANDIDATE_RETENTION_MS
    return put(DECISIONS, decision.candidate_id, until_ms=until_ms, rev_slot=True)


def _is_candidate(job: Job) -> bool:
    return candidate_in(job.body) is not None


def concerns(body: bytes, references: Sequence[str], words: Sequence[str]) -> bool:
    """Tells whether a job or a candidate is about what was forgotten: it names its evidence or holds its words."""
    text = body.decode("utf-8", "replace")
    if any(word in text or msgspec.json.encode(word).decode()[1:-1] in text for word in words):
        return True
    return any(f'"{reference}"' in text for reference in references)
