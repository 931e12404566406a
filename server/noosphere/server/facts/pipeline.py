"""The pipeline: decides about one candidate, in seven steps, with a reason for whatever it does.

1. validate  2. sanitise  3. canonicalise  4. deduplicate  5. resolve conflicts  6. retention  7. write

Every round reads what the decision rests on, decides, writes contents and commits; if anything that was read has
changed meanwhile, it decides anew. So identical candidates at once make one fact, and a crash between contents and
commit leaves nothing but orphans. Deciding again about what was decided returns that decision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import structlog

from ..ports.factstore import FactContent, FactStore
from .canonical import canonical
from .contents import content_key
from .deciding import Case, alive, decided, screened, words_apart
from .drafting import Draft
from .fresh import Fresh
from .ledger import (
    ATTEMPTS_MAX,
    KEYS,
    POLICY,
    SECRET,
    SLOTS,
    CandidateNote,
    FactNote,
    Ledger,
    Page,
    candidate_key,
    contended,
    fact_key,
    pending_key,
)
from .near import KnownClaims, Probe, find_near
from .pending import was_lost
from .policies import policy_of
from .suppression import keys_of, secret_of, suppressed
from .types import Candidate, Cardinality, Decision, Policy, Status, Why
from .vectors import Vectors

log = structlog.get_logger(__name__)

_REVIEWED = frozenset({Status.QUARANTINED, Status.REJECTED, Status.DEAD})


class Pipeline:
    """Decides about candidates.

    Args:
        ledger: where decisions are committed.
        store: where claims are kept in words.
        vectors: tells what claims mean.
        claims: what known facts claim.
        decided: hears of every decision that was committed.
    """

    def __init__(
        self,
        ledger: Ledger,
        store: FactStore,
        vectors: Vectors,
        claims: KnownClaims,
        *,
        decided: Callable[[Decision], None],
    ) -> None:
        self._ledger = ledger
        self._store = store
        self._vectors = vectors
        self._claims = claims
        self._fresh = Fresh(ledger, store)
        self._decided = decided

    async def decide(self, candidate: Candidate, meaning: bytes = b"") -> Decision:
        """Decides about a candidate, durably.

        Args:
            candidate: the candidate.
            meaning: the fingerprint of the request that brought it.

        Raises:
            Refusal: ENGINE_UNAVAILABLE, LIMIT_EXCEEDED or CONTENTION; nothing was decided then.
        """
        vector: Sequence[float] | None = None
        embedded = False
        for _ in range(ATTEMPTS_MAX):
            key = candidate_key(candidate.id)
            # Whether it is noted that it waits is checked like the rest: a note made later would never go.
            waits = pending_key(candidate.id)
            page = await self._ledger.read(candidate.scope, (key, waits, POLICY, SECRET), accepted=True)
            note = page.get(key, CandidateNote)
            if note is not None and not _may_decide_again(candidate, note.decision):
                return note.decision
            draft = Draft(candidate, meaning, page.view.now_ms)
            draft.rests_on(page)
            policy = policy_of(page)
            if (refusal := screened(candidate, policy, page.view.now_ms)) is not None:
                decision = await self._finish(page, draft, refusal)
            else:
                if not embedded:
                    # Only of what may become a fact, and once.
                    vector, embedded = await self._vectors.of(candidate.text), True
                decision = await self._weigh(page, draft, policy, vector)
            if decision is not None:
                self._decided(decision)
                return decision
        raise contended(candidate.scope)

    async def give_up(self, candidate: Candidate, reason: str) -> Decision:
        """Records that deciding about a candidate has failed too often."""
        for _ in range(ATTEMPTS_MAX):
            key = candidate_key(candidate.id)
            page = await self._ledger.read(candidate.scope, (key, pending_key(candidate.id)), accepted=True)
            note = page.get(key, CandidateNote)
            if note is not None and not _may_decide_again(candidate, note.decision):
                return note.decision
            draft = Draft(candidate, b"", page.view.now_ms)
            draft.rests_on(page)
            failed = Decision(candidate.id, Status.DEAD, (Why("queue", "failed", reason[:500]),))
            if (decision := await self._finish(page, draft, failed)) is not None:
                self._decided(decision)
                return decision
        raise contended(candidate.scope)

    async def _weigh(self, page: Page, draft: Draft, policy: Policy, vector: Sequence[float] | None) -> Decision | None:
        """Does steps 3 to 7; None if somebody was faster."""
        candidate = draft.candidate
        claim = canonical(
            candidate.owner,
            candidate.scope,
            candidate.text,
            subject=candidate.subject,
            predicate=candidate.predicate,
            object=candidate.object,
            cardinality=candidate.cardinality,
            policy=policy,
        )
        secret = secret_of(page)
        holder_key, slot_key = KEYS + claim.key, SLOTS + claim.slot
        hashes = keys_of(secret, candidate, claim) if secret else ()
        places = (holder_key, *((slot_key,) if claim.slot else ()), *hashes)
        known = await self._ledger.read(candidate.scope, places, accepted=True)
        draft.rests_on(known)
        if secret and (why := suppressed(known, secret, candidate, claim)) is not None:
            return await self._finish(page, draft, Decision(candidate.id, Status.SUPPRESSED, (why,)), keep_words=False)
        now_ms = page.view.now_ms
        holder_id = known.get(holder_key, str) or ""
        slot_ids = (known.get(slot_key, list) or []) if claim.slot else []
        probe = Probe(candidate.scope, candidate.owner, candidate.text, claim, vector)
        near = await find_near(self._store, self._fresh, self._claims, probe, policy, now_ms)
        ids = tuple(dict.fromkeys((*((holder_id,) if holder_id else ()), *slot_ids, *(one.fact_id for one in near))))
        facts = await self._ledger.read(candidate.scope, map(fact_key, ids), accepted=True)
        draft.rests_on(facts)
        notes = {id: note for id in ids if (note := facts.get(fact_key(id), FactNote)) is not None}
        contents = await self._contents(candidate.scope, notes.values(), [one.content for one in near])
        slot = tuple(notes[id] for id in slot_ids if id in contents and alive(notes[id], now_ms))
        case = Case(
            candidate,
            claim,
            policy,
            vector,
            tuple(one for one in near if one.fact_id in contents and alive(notes[one.fact_id], now_ms)),
            notes,
            contents,
            notes.get(holder_id),
            slot,
            {note.id: self._claims.of(contents[note.id], policy).value for note in slot},
            now_ms,
        )
        decision = decided(draft, case)
        done = await self._finish(page, draft, decision, keep_words=words_apart(candidate, decision))
        if done is not None and candidate.cardinality is Cardinality.UNKNOWN:
            # The next claims are compared with it. A cardinality that is only said stands in no words.
            for content in draft.contents:
                if done.version == 1 and content.fact_id == done.fact_id:
                    self._claims.keep(content, policy, claim)
        return done

    async def _contents(
        self, scope: str, notes: Iterable[FactNote], have: Iterable[FactContent]
    ) -> dict[str, FactContent]:
        """Returns the newest words of facts, by id; reads those that are not among what is there already."""
        keys = {content_key(scope, note.id, note.newest) for note in notes}
        found = {content.key: content for content in have if content.key in keys}
        missing = sorted(keys - found.keys())
        read = await self._store.read(missing) if missing else ()
        return {content.fact_id: content for content in (*found.values(), *read) if content is not None}

    async def _finish(
        self, page: Page, draft: Draft, decision: Decision, *, keep_words: bool = True
    ) -> Decision | None:
        decision, mutations = draft.decide(decision, keep_words=keep_words)
        if draft.contents:
            await self._store.write(draft.contents)
        done = await self._ledger.commit(draft.candidate.scope, page.view, draft.checks, mutations)
        return None if done is None else decision


def _may_decide_again(candidate: Candidate, decision: Decision) -> bool:
    """Tells whether a review has reopened a decision, or nobody has decided yet what was lost once."""
    return (bool(candidate.reviewed_by) and decision.status in _REVIEWED) or was_lost(decision)
