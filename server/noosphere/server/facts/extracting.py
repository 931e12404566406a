"""Extracts: reads sources, asks the extractor what they claim, and submits that as candidates.

A session is read once, from where the last extraction ended, and a candidate's id follows from what it was found in: so
an extraction that is done again adds nothing. What was recalled from memory is not read, nor what was forgotten. Where
extraction fails its sources stay, and a later one begins at the same place; what has failed three times is passed over,
or it would stand in the way for ever.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import structlog

from noosphere.consistency import Reason, Refusal

from ..ports.models import ExtractedClaim, ExtractionSource, Extractor, ExtractorError
from ..ports.sources import REDACTED, Source, Sources
from ..ports.store import Mutation
from .extraction import (
    CANDIDATE_IDS_MAX,
    DOCUMENT,
    ExtractionNote,
    ExtractionState,
    ExtractionWork,
    Progress,
    decode_work,
    job_key,
    progress_key,
)
from .intake import CANDIDATES_MAX, Intake
from .ledger import (
    CANDIDATE_RETENTION_MS,
    SECRET,
    Ledger,
    Page,
    Suppression,
    digest,
    pending_key,
    put,
    remove,
)
from .lines import Lines
from .scopes import IdKind, make_id
from .suppression import EXTRACTOR, evidence_key, owner_key, secret_of
from .trust import EXTERNAL_TRUST
from .types import Candidate, Channel, Evidence, MemoryType
from .workers import ATTEMPTS_MAX, Retry

log = structlog.get_logger(__name__)

PAGE_SOURCES = 64
PAGES_MAX = 256
"""So many pages of a session are read by one extraction; the next one goes on."""

BATCH_CHARS_MAX = 64 * 1024
"""So much is given to an extractor at once; a longer text in pieces."""

FAILURES_MAX = 3
"""What could not be extracted so often is passed over."""

_GONE = frozenset({Reason.SESSION_NOT_FOUND, Reason.NAMESPACE_NOT_FOUND})


class Outcome(NamedTuple):
    """What an extraction has submitted so far, what it cost, and whether anything was read or was left out."""

    candidate_ids: tuple[str, ...] = ()
    model_tokens: int = 0
    read: int = 0
    suppressed: int = 0

    def plus(self, other: Outcome) -> Outcome:
        """Returns both together."""
        ids = (*self.candidate_ids, *other.candidate_ids)
        return Outcome(
            tuple(dict.fromkeys(ids))[:CANDIDATE_IDS_MAX],
            self.model_tokens + other.model_tokens,
            self.read + other.read,
            self.suppressed + other.suppressed,
        )


class Extracting:
    """Does extraction jobs.

    Args:
        ledger: where it is noted how far sessions have been read.
        sources: what is read.
        intake: takes the candidates.
        extractor: finds what texts claim.
        ended: hears of every extraction that has ended.
    """

    def __init__(
        self,
        ledger: Ledger,
        sources: Sources,
        intake: Intake,
        extractor: Extractor,
        *,
        ended: Callable[[ExtractionNote], None],
    ) -> None:
        self._ledger = ledger
        self._sources = sources
        self._intake = intake
        self._extractor = extractor
        self._ended = ended
        self._lines = Lines()

    async def do(self, job_id: str, body: bytes, attempt: int) -> None:
        """Does a job; see ``workers.Handler``.

        Raises:
            Retry: the extractor could not be reached, or had spent its budget.
        """
        work = decode_work(body)
        page = await self._ledger.read(work.scope, (job_key(job_id),), accepted=True)
        if page.get(job_key(job_id), ExtractionNote) is not None:
            return
        try:
            if work.document is not None:
                outcome = await self._document(work, work.document.id, work.document.text)
            else:
                # Side by side two would ask for the same twice.
                async with self._lines.turn(f"{work.scope}\0{work.owner}\0{work.session_id}"):
                    outcome = await self._session(work)
        except ExtractorError as error:
            if error.passing:
                raise Retry(str(error)) from error
            log.warning("an extraction has failed", extractor=self._extractor.name, reason=str(error))
            spent = Outcome(model_tokens=error.model_tokens)
            await self._end(work, job_id, ExtractionState.FAILED, attempt, spent, str(error))
            return
        except Refusal as refusal:
            if refusal.reason not in _GONE:
                raise
            # It was purged or erased meanwhile, and whatever it said must not come back.
            await self._end(work, job_id, ExtractionState.SUPPRESSED, attempt, Outcome(), "")
            return
        nothing_left = outcome.suppressed and not outcome.read
        state = ExtractionState.SUPPRESSED if nothing_left else ExtractionState.DONE
        await self._end(work, job_id, state, attempt, outcome, "")

    async def give_up(self, job_id: str, body: bytes, reason: str) -> None:
        """Records that a job was given up; see ``workers.Handler``."""
        work = decode_work(body)
        page = await self._ledger.read(work.scope, (job_key(job_id),), accepted=True)
        if page.get(job_key(job_id), ExtractionNote) is None:
            await self._end(work, job_id, ExtractionState.FAILED, ATTEMPTS_MAX, Outcome(), reason)

    async def _end(
        self, work: ExtractionWork, job_id: str, state: ExtractionState, attempt: int, outcome: Outcome, failure: str
    ) -> None:
        note = ExtractionNote(
            job_id,
            work.owner,
            state,
            failure[:500],
            outcome.candidate_ids,
            self._extractor.name,
            attempt,
            outcome.model_tokens,
            work.meaning,
        )
        key, waits = job_key(job_id), pending_key(job_id)

        def keep(page: Page) -> Sequence[Mutation]:
            mutations = [remove(waits)] if page.entries[waits] is not None else []
            if work.asked:
                mutations.append(put(key, note, until_ms=page.view.now_ms + CANDIDATE_RETENTION_MS))
            return mutations

        await self._ledger.change(work.scope, (key, waits), keep)
        self._ended(note)

    async def _document(self, work: ExtractionWork, id: str, text: str) -> Outcome:
        hashed = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        source = Source(DOCUMENT + id, text, EXTERNAL_TRUST, "document", "", self._ledger.now_ms, hashed, "")
        return await self._extract(work, (source,))

    async def _session(self, work: ExtractionWork) -> Outcome:
        key = progress_key(work.owner, work.session_id)
        page = await self._ledger.read(work.scope, (key,), accepted=True)
        progress = page.get(key, Progress) or Progress()
        outcome = Outcome()
        for _ in range(PAGES_MAX):
            sources = await self._sources.page(work.agent, work.session_id, progress.position, PAGE_SOURCES)
            if not sources:
                break
            following = sources[-1].position
            try:
                outcome = outcome.plus(await self._extract(work, sources))
            except ExtractorError as error:
                if not error.passing:
                    failures = progress.failures + 1
                    passed = failures >= FAILURES_MAX
                    await self._advance(
                        work, key, Progress(following) if passed else Progress(progress.position, failures)
                    )
                raise
            progress = Progress(following)
            await self._advance(work, key, progress)
        return outcome

    async def _advance(self, work: ExtractionWork, key: str, progress: Progress) -> None:
        def note(page: Page) -> Sequence[Mutation]:
            return () if page.get(key, Progress) == progress else (put(key, progress),)

        await self._ledger.change(work.scope, (key,), note)

    async def _extract(self, work: ExtractionWork, sources: Sequence[Source]) -> Outcome:
        """Extracts from some sources and submits what they claim."""
        teaching = {one.reference: one for one in sources if not one.recalled and one.text.strip()}
        forgotten = await self._forgotten(work, teaching)
        left = {
            reference: source
            for reference, source in teaching.items()
            if reference not in forgotten and REDACTED not in source.text
        }
        outcome = Outcome(read=len(left), suppressed=len(teaching) - len(left))
        for batch in _batches(tuple(left.values())):
            found = await self._extractor.extract(batch, work.owner)
            # It took its time, and what it read may have been forgotten meanwhile.
            named = {claim.reference for claim in found.claims}
            forgotten = await self._forgotten(work, {one: left[one] for one in named if one in left})
            claims = [claim for claim in found.claims if claim.reference not in forgotten]
            ids = await self._submit(work, claims, left)
            outcome = outcome.plus(Outcome(ids, found.model_tokens))
        return outcome

    async def _forgotten(self, work: ExtractionWork, sources: Mapping[str, Source]) -> frozenset[str]:
        """Returns the references on which something rested that was forgotten, or that an owner said before it was."""
        if not sources:
            return frozenset()
        page = await self._ledger.read(work.scope, (SECRET,), accepted=True)
        secret = secret_of(page)
        if not secret:
            return frozenset()
        keys = {reference: evidence_key(secret, work.owner, reference) for reference in sources}
        everything = owner_key(secret, work.owner)
        page = await self._ledger.read(work.scope, (everything, *keys.values()), accepted=True)
        owner = page.get(everything, Suppression)
        until_ms = -1 if owner is None else owner.time_ms
        return frozenset(
            reference
            for reference, key in keys.items()
            if sources[reference].time_ms <= until_ms or page.get(key, Suppression) is not None
        )

    async def _submit(
        self, work: ExtractionWork, claims: Sequence[ExtractedClaim], sources: Mapping[str, Source]
    ) -> tuple[str, ...]:
        candidates = [
            self._candidate(work, claim, source)
            for claim in claims
            # Whatever an extractor says, a claim stands on words that were said.
            if (source := sources.get(claim.reference)) is not None and claim.quote in source.text
        ]
        for start in range(0, len(candidates), CANDIDATES_MAX):
            await self._intake.enqueue(candidates[start : start + CANDIDATES_MAX])
        return tuple(candidate.id for candidate in candidates)

    def _candidate(self, work: ExtractionWork, claim: ExtractedClaim, source: Source) -> Candidate:
        said = digest("extracted", work.owner, source.reference, source.content_hash.hex(), claim.text)
        outside = source.role not in ("user", "assistant", "system")
        return Candidate(
            id=make_id(work.scope, said, IdKind.CANDIDATE),
            scope=work.scope,
            owner=work.owner,
            text=claim.text,
            subject=claim.subject,
            predicate=claim.predicate,
            object=claim.object,
            memory_type=MemoryType(claim.memory_type),
            evidence=(Evidence(source.reference, source.content_hash, claim.quote),),
            confidence=claim.confidence,
            importance=claim.importance,
            channel=Channel.EXTERNAL if outside else Channel.INTERNAL,
            trust=source.trust,
            producer=EXTRACTOR + self._extractor.name,
            actor=work.actor,
            valid_from_ms=source.time_ms,
            submitted_ms=self._ledger.now_ms,
        )


def _batches(sources: Sequence[Source]) -> Iterator[tuple[ExtractionSource, ...]]:
    """Yields what is given to an extractor at once; a text that is too long for that goes on in the next batch.

    What is trusted and what is not are given apart: a model that reads both may do what a page says, and name a user's
    message for it.
    """
    for trust in sorted({source.trust for source in sources}, reverse=True):
        batch: list[ExtractionSource] = []
        room = BATCH_CHARS_MAX
        for source in sources:
            if source.trust != trust:
                continue
            for start in range(0, len(source.text), BATCH_CHARS_MAX):
                part = source.text[start : start + BATCH_CHARS_MAX]
                if len(part) > room:
                    yield tuple(batch)
                    batch, room = [], BATCH_CHARS_MAX
                batch.append(ExtractionSource(source.reference, source.role, part))
                room -= len(part)
        if batch:
            yield tuple(batch)
