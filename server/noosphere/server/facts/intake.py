"""How candidates come in: checked, trusted as far as they may be, and queued. They are durable once they are taken."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from noosphere.consistency import NEVER_MS, Reason, Refusal, fingerprint, invalid, too_large

from ..memory.access import OPERATOR_PREFIX
from ..memory.admission import require_writer
from ..memory.core import Core
from ..memory.types import Call
from ..ports.candidates import HandedCandidate
from ..ports.factqueue import FactQueue, Job
from ..ports.grants import Verb
from ..ports.sources import Source, Sources
from .candidate_jobs import CANDIDATE_JOBS, Waiting, candidate_in, decode_waiting, group_of
from .contents import encode_candidate
from .ledger import CandidateNote, Ledger, candidate_key, digest
from .pending import Pending, PendingNote, was_lost
from .requests import request_id, reused
from .scopes import IdKind, make_id, operates, require_write, scope_or_own
from .telling import said_in
from .trust import assign, rests_on_context
from .types import SENSITIVITIES, Candidate, Cardinality, Channel, Evidence, MemoryType

CANDIDATES_MAX = 100
"""Most candidates of one call."""

TEXT_BYTES_MAX = 4 * 1024
OBJECT_BYTES_MAX = 4 * 1024
QUOTE_BYTES_MAX = 1024
NAME_BYTES_MAX = 256
REFERENCE_BYTES_MAX = 512
EVIDENCE_MAX = 32
LONG_CHARS = 4_096
"""Longer evidence is compared with claims in steps."""

HASH_BYTES = 32

DIRECT_PRIORITY = 2
"""Of what somebody asks for in so many words."""

DERIVED_PRIORITY = 6
"""Of what the server itself finds."""


class Estimates(NamedTuple):
    """What a candidate's confidence and importance are if its producer gives none."""

    confidence: float
    importance: float


ESTIMATES = {
    Channel.USER: Estimates(0.9, 0.7),
    Channel.AGENT: Estimates(0.8, 0.6),
    Channel.EXTERNAL: Estimates(0.5, 0.5),
    Channel.INTERNAL: Estimates(0.9, 0.7),
}


class Submission(NamedTuple):
    """A candidate as a caller submits it; see :class:`~noosphere.server.facts.types.Candidate`.

    Attributes:
        owner: whose fact.
        text: the claim in words.
        scope: where it is valid; empty for the owner's own scope.
        subject: what it is about.
        predicate: which property of it.
        object: the property's value, as JSON text.
        memory_type: what kind of memory.
        evidence: what supports it.
        confidence: 0 to 1; None for the channel's default.
        importance: 0 to 1; None for the channel's default.
        channel: how it came in.
        claimed_trust: the trust that the producer claims; None claims none.
        producer: what produced it.
        valid_from_ms: since when it is so; None for the time of its evidence, or else of its submission.
        expires_at_ms: when it ends.
        sensitivity: empty, ``personal`` or ``secret``.
        cardinality: how the predicate's values relate.
        pinned: whether it belongs to the owner's profile.
        context_session: the session in which its producer works; empty for none.
    """

    owner: str
    text: str
    scope: str = ""
    subject: str = ""
    predicate: str = ""
    object: str = ""
    memory_type: MemoryType = MemoryType.SEMANTIC
    evidence: tuple[Evidence, ...] = ()
    confidence: float | None = None
    importance: float | None = None
    channel: Channel = Channel.AGENT
    claimed_trust: float | None = None
    producer: str = ""
    valid_from_ms: int | None = None
    expires_at_ms: int = NEVER_MS
    sensitivity: str = ""
    cardinality: Cardinality = Cardinality.UNKNOWN
    pinned: bool = False
    context_session: str = ""


class Taken(NamedTuple):
    """What was submitted: the candidates' ids in order, and whether an earlier execution is reported."""

    ids: tuple[str, ...]
    scope: str
    replayed: bool = False


class Intake:
    """Takes candidates.

    Args:
        core: admits callers.
        ledger: knows what was decided already.
        queue: where candidates wait.
        pending: notes them.
        sources: what they rest on.
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
        *,
        rng: random.Random,
        queued: Callable[[], None],
    ) -> None:
        self._core = core
        self._ledger = ledger
        self._queue = queue
        self._pending = pending
        self._sources = sources
        self._rng = rng
        self._queued = queued

    async def submit(self, call: Call, submissions: Sequence[Submission]) -> Taken:
        """Checks and queues candidates of one scope, all or none.

        Raises:
            Refusal: INVALID_FIELD or VALUE_TOO_LARGE naming the candidate's field, PERMISSION_DENIED, TRUST_DENIED,
                STALE_INCARNATION, REQUEST_ID_REUSED, ACKED_WRITES_LOST, LIMIT_EXCEEDED, CONTENTION, ENGINE_UNAVAILABLE.
        """
        require_writer(call)
        self._core.require_current(call)
        scope = _check_all(submissions)
        for submission in submissions:
            require_write(self._core, call, scope, submission.owner)
        ids = tuple(request_id(call, scope, IdKind.CANDIDATE, self._rng, at) for at in range(len(submissions)))
        meaning = b"" if call.request is None else fingerprint("SubmitCandidates", *submissions)
        if meaning and await self._known(scope, ids, meaning):
            await self._noted(scope, ids)
            return Taken(ids, scope, replayed=True)
        await self._ledger.check_presented(call, scope)
        now_ms = self._ledger.now_ms
        candidates = [
            await self._candidate(call, id, scope, submission, at, now_ms)
            for at, (id, submission) in enumerate(zip(ids, submissions, strict=True))
        ]
        await self._put(candidates, DIRECT_PRIORITY, meaning)
        return Taken(ids, scope)

    async def take(self, handed: Sequence[HandedCandidate]) -> None:
        """Queues what the server's own parts hand over; see ``CandidateSink``."""
        now_ms = self._ledger.now_ms
        candidates: list[Candidate] = []
        for one in handed[:CANDIDATES_MAX]:
            estimates = ESTIMATES[Channel.INTERNAL]
            candidates.append(
                Candidate(
                    id=make_id(one.owner, digest("handed", one.id), IdKind.CANDIDATE),
                    scope=scope_or_own("", one.owner),
                    owner=one.owner,
                    text=one.text,
                    memory_type=MemoryType(one.memory_type),
                    evidence=tuple(Evidence(reference) for reference in one.evidence[:EVIDENCE_MAX]),
                    confidence=estimates.confidence,
                    importance=estimates.importance if one.importance is None else one.importance,
                    channel=Channel.INTERNAL,
                    trust=one.trust,
                    producer=one.producer,
                    valid_from_ms=one.time_ms,
                    submitted_ms=now_ms,
                )
            )
        known = [await self._decided(candidate) for candidate in candidates]
        fresh = [candidate for candidate, done in zip(candidates, known, strict=True) if not done]
        if fresh:
            await self._put(fresh, DERIVED_PRIORITY, b"")

    async def enqueue(self, candidates: Sequence[Candidate], *, reopens_ms: int = 0) -> None:
        """Queues candidates that another part of this service made or accepted; at most 100.

        Args:
            candidates: of one scope.
            reopens_ms: store time of the decision that a review has reopened; 0 for none.
        """
        await self._put(candidates, DERIVED_PRIORITY, b"", reopens_ms)

    async def _known(self, scope: str, ids: Sequence[str], meaning: bytes) -> bool:
        """Tells whether a request was executed before.

        Raises:
            Refusal: REQUEST_ID_REUSED, if it meant something else.
        """
        first = ids[0]
        page = await self._ledger.read(scope, (candidate_key(first),), accepted=True)
        note = page.get(candidate_key(first), CandidateNote)
        # What was lost may come again.
        earlier: bytes | None = None if note is None or was_lost(note.decision) else note.meaning
        if earlier is None:
            (waiting,) = await self._queue.find((first,))
            earlier = None if waiting is None else decode_waiting(waiting.job.body).meaning
        if earlier is None:
            return False
        if earlier != meaning:
            raise reused("for other candidates", scope, page.view.head)
        return True

    async def _noted(self, scope: str, ids: Sequence[str]) -> None:
        """Notes those of a request that wait: it may not have come that far."""
        if self._pending.needed:
            jobs = await self._queue.find(ids)
            candidates = [candidate_in(one.job.body) for one in jobs if one is not None]
            await self._pending.note(scope, [PendingNote.of(one) for one in candidates if one is not None])

    async def _decided(self, candidate: Candidate) -> bool:
        key = candidate_key(candidate.id)
        page = await self._ledger.read(candidate.scope, (key,), accepted=True)
        note = page.get(key, CandidateNote)
        return note is not None and not was_lost(note.decision)

    async def _candidate(
        self, call: Call, id: str, scope: str, submission: Submission, at: int, now_ms: int
    ) -> Candidate:
        agent = call.agent_id
        where = f"candidates[{at}]"
        if submission.channel is Channel.INTERNAL and not operates(call, Verb.WRITE):
            raise Refusal(
                Reason.TRUST_DENIED,
                f"{where}.channel: INTERNAL is the server's and its operator's ({OPERATOR_PREFIX}…)",
            )
        found: tuple[Source | None, ...] = ()
        if submission.evidence:
            found = await self._sources.find(agent, [evidence.reference for evidence in submission.evidence])
            found = tuple([source if await self._may_see(call, source) else None for source in found])
        for source in found:
            if source is not None and source.trust and len(source.text) > LONG_CHARS:
                # One long message at a time, and others in between.
                said_in(source.text)
                await asyncio.sleep(0)
        context_trust: float | None = None
        if rests_on_context(submission.text, submission.object, found):
            context_trust = await self._context_trust(call, submission, found)
        assigned = assign(
            submission.channel, submission.text, submission.object, submission.evidence, found, context_trust
        )
        trust = assigned.trust
        if submission.claimed_trust is not None:
            if submission.claimed_trust > trust:
                raise Refusal(
                    Reason.TRUST_DENIED,
                    f"{where}.claimed_trust: {submission.claimed_trust} is more than the {trust} that it has. "
                    f"{assigned.explanation}",
                )
            trust = submission.claimed_trust
        evidence = tuple(
            named
            if source is None or named.content_hash
            else msgspec.structs.replace(named, content_hash=source.content_hash)
            for named, source in zip(submission.evidence, found, strict=True)
        )
        # A source that is read late still tells of its own time.
        said_ms = max((source.time_ms for source in found if source is not None), default=now_ms)
        estimates = ESTIMATES[submission.channel]
        return Candidate(
            id=id,
            scope=scope,
            owner=submission.owner,
            text=submission.text,
            subject=submission.subject,
            predicate=submission.predicate,
            object=submission.object,
            memory_type=submission.memory_type,
            evidence=evidence,
            confidence=estimates.confidence if submission.confidence is None else submission.confidence,
            importance=estimates.importance if submission.importance is None else submission.importance,
            channel=submission.channel,
            trust=trust,
            producer=submission.producer,
            actor=call.actor,
            valid_from_ms=said_ms if submission.valid_from_ms is None else submission.valid_from_ms,
            expires_at_ms=submission.expires_at_ms,
            sensitivity=submission.sensitivity,
            cardinality=submission.cardinality,
            pinned=submission.pinned,
            submitted_ms=now_ms,
        )

    async def _context_trust(self, call: Call, submission: Submission, found: Sequence[Source | None]) -> float:
        """Returns the lowest trust of what an agent has seen in its session, and in those that its evidence is from."""
        named = (submission.context_session, *(source.session_id for source in found if source is not None))
        sessions = dict.fromkeys(filter(None, named))
        trusts = [
            await self._sources.context_trust(call.agent_id, session_id)
            if await self._core.access.may_in_session(call, session_id, Verb.READ)
            else 0.0
            for session_id in sessions
        ]
        return min(trusts, default=0.0)

    async def _may_see(self, call: Call, source: Source | None) -> bool:
        """Tells whether the caller may rest on a source: what is not for it to see is not there."""
        return source is None or await self._core.access.may_in_session(call, source.session_id, Verb.READ)

    async def _put(self, candidates: Sequence[Candidate], priority: int, meaning: bytes, reopens_ms: int = 0) -> None:
        jobs = [
            Job(
                candidate.id,
                priority,
                msgspec.json.encode(Waiting(CANDIDATE_JOBS, msgspec.Raw(encode_candidate(candidate)), meaning)),
                group_of(candidate.scope, candidate.owner),
            )
            for candidate in candidates
        ]
        await self._queue.put(jobs)
        self._queued()
        for scope in dict.fromkeys(candidate.scope for candidate in candidates):
            notes = [PendingNote.of(one, reopens_ms) for one in candidates if one.scope == scope]
            await self._pending.note(scope, notes)


def _check_all(submissions: Sequence[Submission]) -> str:
    """Checks the form of candidates; returns their scope."""
    if not submissions:
        raise invalid("candidates", "must not be empty")
    if len(submissions) > CANDIDATES_MAX:
        raise too_large("candidates", len(submissions), CANDIDATES_MAX, "candidates")
    scopes = {_check(submission, f"candidates[{at}]") for at, submission in enumerate(submissions)}
    if len(scopes) > 1:
        raise invalid("candidates.scope", f"all candidates of a call are of one scope, not of {len(scopes)}")
    return scopes.pop()


def _check(submission: Submission, where: str) -> str:
    scope = scope_or_own(submission.scope, submission.owner)
    if not submission.text.strip():
        raise invalid(f"{where}.text", "must not be empty")
    _check_size(f"{where}.text", submission.text, TEXT_BYTES_MAX)
    for field in ("subject", "predicate", "producer"):
        _check_size(f"{where}.{field}", getattr(submission, field), NAME_BYTES_MAX)
    _check_size(f"{where}.object", submission.object, OBJECT_BYTES_MAX)
    if submission.object and not (submission.subject or submission.predicate):
        raise invalid(f"{where}.object", "needs a predicate, whose value it is")
    for field in ("confidence", "importance", "claimed_trust"):
        share = getattr(submission, field)
        if share is not None and not (math.isfinite(share) and 0 <= share <= 1):
            raise invalid(f"{where}.{field}", f"{share} is not from 0 to 1")
    if submission.sensitivity not in ("", *SENSITIVITIES):
        raise invalid(
            f"{where}.sensitivity", f"{submission.sensitivity!r} is neither empty nor one of {', '.join(SENSITIVITIES)}"
        )
    if len(submission.evidence) > EVIDENCE_MAX:
        raise too_large(f"{where}.evidence", len(submission.evidence), EVIDENCE_MAX, "entries")
    for at, evidence in enumerate(submission.evidence):
        if not evidence.reference.strip():
            raise invalid(f"{where}.evidence[{at}].reference", "must not be empty")
        _check_size(f"{where}.evidence[{at}].reference", evidence.reference, REFERENCE_BYTES_MAX)
        _check_size(f"{where}.evidence[{at}].quote", evidence.quote, QUOTE_BYTES_MAX)
        if evidence.content_hash and len(evidence.content_hash) != HASH_BYTES:
            raise invalid(
                f"{where}.evidence[{at}].content_hash",
                f"has {len(evidence.content_hash)} bytes, SHA-256 has {HASH_BYTES}",
            )
    return scope


def _check_size(field: str, text: str, bytes_max: int) -> None:
    if (size := len(text.encode("utf-8", "surrogatepass"))) > bytes_max:
        raise too_large(field, size, bytes_max)
