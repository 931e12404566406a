"""Extractions as callers ask for them and look at them, and those that follow a turn."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

import structlog

from noosphere.consistency import Reason, Refusal, fingerprint, invalid, too_large

from ..memory.admission import require_writer
from ..memory.core import Core
from ..memory.signals import HeadSignals
from ..memory.types import Call
from ..ports.coordinator import Incarnation
from ..ports.factqueue import BODY_BYTES_MAX, FactQueue, Job
from ..ports.grants import Verb
from ..ports.runtime import Clock
from ..ports.sources import Sources
from .awaited import POLL_SECONDS, WAIT_SECONDS_MAX, Awaited
from .candidate_jobs import group_of
from .extraction import (
    BACKGROUND_PRIORITY,
    EXTRACT_PRIORITY,
    EXTRACTION_JOBS,
    Document,
    ExtractionNote,
    ExtractionState,
    ExtractionWork,
    decode_work,
    encode_work,
    job_key,
)
from .ledger import Ledger, digest
from .pending import Pending, PendingNote
from .requests import request_id, reused
from .scopes import IdKind, make_id, may, require_read, require_write, scope_of, scope_or_own

log = structlog.get_logger(__name__)

DOCUMENT_ID_BYTES_MAX = 256
DOCUMENT_TEXT_BYTES_MAX = 512 * 1024


class ExtractAsked(NamedTuple):
    """What is to be extracted from, a session or a document, for whom, and where it is to be valid."""

    owner: str
    scope: str = ""
    session_id: str = ""
    document: Document | None = None


class Extractions:
    """Takes extractions, and tells what became of them.

    Args:
        core: admits callers.
        ledger: where those stand that have ended.
        queue: where they wait.
        pending: notes them.
        sources: what they read.
        signals: tells when the process shuts down.
        clock: the source of time.
        rng: makes ids for calls without a request id.
        queued: called when there is work.
    """

    def __init__(
        self,
        core: Core,
        ledger: Ledger,
        queue: FactQueue,
        pending: Pending,
        sources: Sources,
        signals: HeadSignals,
        *,
        clock: Clock,
        rng: random.Random,
        queued: Callable[[], None],
    ) -> None:
        self._core = core
        self._ledger = ledger
        self._queue = queue
        self._pending = pending
        self._sources = sources
        self._signals = signals
        self._clock = clock
        self._rng = rng
        self._queued = queued
        self._awaited: Awaited[ExtractionNote] = Awaited()

    async def submit(self, call: Call, asked: ExtractAsked, *, wait: bool) -> ExtractionNote:
        """Queues an extraction; with ``wait`` returns when it has ended, or after 30 s.

        Raises:
            Refusal: INVALID_FIELD, VALUE_TOO_LARGE, PERMISSION_DENIED, SESSION_NOT_FOUND, STALE_INCARNATION,
                REQUEST_ID_REUSED, LIMIT_EXCEEDED, ENGINE_UNAVAILABLE.
        """
        require_writer(call)
        self._core.require_current(call)
        scope = _check(asked)
        require_write(self._core, call, scope, asked.owner)
        agent = call.agent_id
        if asked.session_id:
            await self._core.access.require_in_session(call, asked.session_id, Verb.READ)
            # Whether it is there, and this caller's to see.
            await self._sources.page(agent, asked.session_id, "", 1)
        meaning = b"" if call.request is None else fingerprint("ExtractFacts", *asked)
        job_id = request_id(call, scope, IdKind.JOB, self._rng)
        known = await self._known(job_id, scope)
        if known is None:
            work = ExtractionWork(
                EXTRACTION_JOBS, scope, asked.owner, asked.session_id, asked.document, agent, call.actor, meaning
            )
            await self._put(job_id, work, EXTRACT_PRIORITY)
            known = ExtractionNote(job_id, asked.owner, ExtractionState.QUEUED, meaning=meaning)
        elif known.meaning != meaning:
            raise reused("for another extraction", scope, (await self._ledger.read(scope, ())).view.head)
        if known.state is ExtractionState.QUEUED:
            waits = PendingNote(job_id, asked.owner, call.actor, extraction=True, meaning=meaning)
            await self._pending.note(scope, (waits,))
        return await self._wait(known, scope) if wait else known

    async def after_turn(self, call: Call, session_id: str, turn: int, *, agent: str, owner: str) -> None:
        """Queues the extraction that follows a turn.

        Args:
            call: who has ended the turn.
            session_id: the session.
            turn: the turn that has ended; the same one queues nothing more while its extraction waits.
            agent: whose session it is.
            owner: whose facts are to be learned; for one that the agent, as the caller, may not write for, nothing is.

        Raises:
            Refusal: INVALID_FIELD or VALUE_TOO_LARGE for an owner that is none, LIMIT_EXCEEDED, ENGINE_UNAVAILABLE.
        """
        scope = scope_or_own("", owner)
        if not may(self._core, call._replace(incarnation=Incarnation(agent, 0)), scope, Verb.WRITE):
            log.warning("facts are not extracted for somebody else", agent=agent)
            return
        job_id = make_id(scope, digest("turn", session_id, str(turn)), IdKind.JOB)
        # First, since nothing stays in the ledger of one that has ended; a note without a job is queued once more.
        await self._pending.note(scope, (PendingNote(job_id, owner, extraction=True, session_id=session_id),))
        await self._put(job_id, ExtractionWork(EXTRACTION_JOBS, scope, owner, session_id), BACKGROUND_PRIORITY)

    async def get(self, call: Call, job_id: str) -> ExtractionNote:
        """Returns an extraction that somebody asked for.

        Raises:
            Refusal: INVALID_FIELD, PERMISSION_DENIED, ENTRY_NOT_FOUND, ACKED_WRITES_LOST.
        """
        scope = scope_of(job_id, IdKind.JOB)
        require_read(self._core, call, scope)
        known = await self._known(job_id, scope)
        if known is None:
            await self._ledger.check_presented(call, scope)
            raise Refusal(Reason.ENTRY_NOT_FOUND, f"there is no extraction {job_id!r}, or it ended long ago")
        return known

    def ended(self, note: ExtractionNote) -> None:
        """Wakes whoever waits for an extraction."""
        self._awaited.tell(note.id, note)

    async def _put(self, job_id: str, work: ExtractionWork, priority: int) -> None:
        body = encode_work(work)
        if len(body) > BODY_BYTES_MAX:
            raise too_large("document.text", len(body), BODY_BYTES_MAX, "bytes as JSON")
        await self._queue.put([Job(job_id, priority, body, group_of(work.scope, work.owner))])
        self._queued()

    async def _known(self, job_id: str, scope: str) -> ExtractionNote | None:
        key = job_key(job_id)
        for _ in range(2):
            page = await self._ledger.read(scope, (key,), accepted=True)
            if (note := page.get(key, ExtractionNote)) is not None:
                return note
            (waiting,) = await self._queue.find((job_id,))
            if waiting is not None:
                work = decode_work(waiting.job.body)
                state = ExtractionState.FAILED if waiting.dead else ExtractionState.QUEUED
                return ExtractionNote(
                    job_id, work.owner, state, waiting.reason, attempts=waiting.attempts, meaning=work.meaning
                )
            # It may have ended between the two looks.
        return None

    async def _wait(self, known: ExtractionNote, scope: str) -> ExtractionNote:
        future = self._awaited.future(known.id)
        until_ms = self._clock.monotonic_ms() + WAIT_SECONDS_MAX * 1000
        while known.state is ExtractionState.QUEUED:
            seconds = (until_ms - self._clock.monotonic_ms()) / 1000
            if seconds <= 0 or self._signals.draining:
                break
            await self._clock.wait(future, min(POLL_SECONDS, seconds))
            known = future.result() if future.done() else await self._known(known.id, scope) or known
        return known


def _check(asked: ExtractAsked) -> str:
    """Checks what is asked for; returns its scope."""
    scope = scope_or_own(asked.scope, asked.owner)
    if bool(asked.session_id) == (asked.document is not None):
        raise invalid("source", "must be either a session or a document")
    if asked.document is not None:
        if not asked.document.id.strip():
            raise invalid("document.id", "must not be empty")
        if not asked.document.text.strip():
            raise invalid("document.text", "must not be empty")
        for field, text, bytes_max in (
            ("document.id", asked.document.id, DOCUMENT_ID_BYTES_MAX),
            ("document.text", asked.document.text, DOCUMENT_TEXT_BYTES_MAX),
        ):
            if (size := len(text.encode("utf-8", "surrogatepass"))) > bytes_max:
                raise too_large(field, size, bytes_max)
    return scope
