"""What one decision writes: notes of the ledger and contents of the fact store.

Nothing here waits or reads. Contents are written first, under numbers that only the ledger's commit makes valid.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import msgspec

from noosphere.consistency import NEVER_MS

from ..ports.factstore import FactContent
from ..ports.store import KeyCheck, Mutation
from .contents import OWN_WORD, Body, claim_body, content_of, decode_body, held_content
from .ledger import (
    CANDIDATE_RETENTION_MS,
    DECISIONS,
    KEYS,
    SLOT_FACTS_MAX,
    SLOTS,
    VERSIONS_MAX,
    CandidateNote,
    FactNote,
    Page,
    SourceNote,
    VersionNote,
    candidate_key,
    content_number,
    digest,
    fact_key,
    pending_key,
    pinned_key,
    put,
    remove,
)
from .scopes import make_id
from .sources import CONFIDENCE_MAX, distinct, joined
from .types import Candidate, Claim, Decision, FactState

CONTESTED_MAX = 16
"""Most contradicting facts that a fact names."""


class Draft:
    """Collects what a decision about a candidate writes, and the checks of what it rests on."""

    def __init__(self, candidate: Candidate, meaning: bytes, now_ms: int) -> None:
        self.candidate = candidate
        self.contents: list[FactContent] = []
        self._meaning = meaning
        self._now_ms = now_ms
        self._mutations: dict[str, Mutation] = {}
        self._pages: list[Page] = []

    def rests_on(self, *pages: Page) -> None:
        """Has the commit check everything that was read."""
        self._pages.extend(pages)

    @property
    def checks(self) -> tuple[KeyCheck, ...]:
        """What must be as it was read."""
        return tuple({key: page.check(key) for page in self._pages for key in page.entries}.values())

    def decide(self, decision: Decision, *, keep_words: bool) -> tuple[Decision, tuple[Mutation, ...]]:
        """Records the decision; returns it with its time, and all mutations.

        Args:
            decision: what became of the candidate.
            keep_words: whether its words are kept apart, where a review finds them.
        """
        decision = msgspec.structs.replace(decision, decided_ms=self._now_ms)
        candidate, until_ms, number = self.candidate, self._now_ms + CANDIDATE_RETENTION_MS, 0
        if keep_words:
            number = content_number(1, candidate.id, candidate.text, candidate.reviewed_by)
            self.contents.append(held_content(candidate, number, now_ms=self._now_ms, until_ms=until_ms))
        note = CandidateNote(
            decision,
            candidate.owner,
            candidate.actor,
            candidate.producer,
            candidate.trust,
            candidate.submitted_ms,
            number,
            self._meaning,
        )
        waits = pending_key(candidate.id)
        if any(page.entries.get(waits) is not None for page in self._pages):
            self._add(remove(waits))
        self._add(put(candidate_key(candidate.id), note, until_ms=until_ms))
        self._add(put(DECISIONS, candidate.id, until_ms=until_ms, rev_slot=True))
        return decision, tuple(self._mutations.values())

    def write_fact(
        self,
        claim: Claim,
        vector: Sequence[float] | None,
        *,
        expires_at_ms: int,
        superseded_by: str = "",
        valid_to_ms: int = NEVER_MS,
        contested: Iterable[str] = (),
    ) -> FactNote:
        """Writes a new fact; one that is superseded from the start is history."""
        candidate = self.candidate
        fact_id = make_id(candidate.scope, digest("fact", candidate.id, candidate.reviewed_by))
        version = self._version(1, claim_body(candidate, claim), candidate.valid_from_ms, valid_to_ms, expires_at_ms)
        note = FactNote(
            id=fact_id,
            owner=candidate.owner,
            state=FactState.SUPERSEDED if superseded_by else FactState.CURRENT,
            versions=(version,),
            key=claim.key,
            slot=claim.slot,
            value=digest(claim.value) if claim.value else "",
            predicate=digest(claim.predicate) if claim.predicate else "",
            memory_type=candidate.memory_type,
            trust=candidate.trust,
            confidence=min(candidate.confidence, CONFIDENCE_MAX),
            importance=candidate.importance,
            expires_at_ms=expires_at_ms,
            sources=_sources(candidate),
            source_count=len(distinct((), _sources(candidate))),
            superseded_by=superseded_by,
            contested_by=tuple(contested)[:CONTESTED_MAX],
            pinned=candidate.pinned and not superseded_by,
            decayed_ms=self._now_ms,
        )
        self.contents.append(
            content_of(candidate.scope, note, version, claim_body(candidate, claim), vector, now_ms=self._now_ms)
        )
        self._add(put(fact_key(fact_id), note))
        self._add(put(KEYS + claim.key, fact_id))
        if note.pinned:
            self._add(put(pinned_key(note.owner, fact_id), fact_id))
        return note

    def merge(self, note: FactNote, content: FactContent, *, raises: bool, renews: bool = False) -> FactNote:
        """Adds the candidate's evidence to a fact that says the same.

        Args:
            note: the fact.
            content: its newest version.
            raises: whether the candidate is trusted enough to make the fact surer.
            renews: whether the fact, which others contradict, counts as said anew.
        """
        candidate = self.candidate
        named = _sources(candidate)
        fresh = distinct(note.sources, named)
        sources = joined(note.sources, named, supports=raises)
        trust = max(note.trust, candidate.trust) if raises else note.trust
        confidence = note.confidence
        if raises and fresh:
            confidence = min(CONFIDENCE_MAX, 1 - (1 - confidence) * (1 - candidate.confidence))
        merged = msgspec.structs.replace(
            note,
            trust=trust,
            confidence=confidence,
            importance=max(note.importance, candidate.importance) if raises else note.importance,
            sources=sources,
            source_count=note.source_count + len(fresh if raises else set(fresh).intersection(sources)),
            pinned=note.state is FactState.CURRENT and (note.pinned or (raises and candidate.pinned)),
        )
        newest, before = note.newest, note.versions[:-1]
        if renews:
            newest = self._rewritten(merged, content, newest.valid_to_ms, valid_from_ms=candidate.valid_from_ms)
            before = note.versions
        elif trust != note.trust:
            # The store filters by trust, so it has to know.
            newest = self._rewritten(merged, content, newest.valid_to_ms, recorded_ms=newest.recorded_ms)
        else:
            newest = msgspec.structs.replace(newest, number=newest.number + 1)
        merged = msgspec.structs.replace(merged, versions=(*before, newest)[-VERSIONS_MAX:])
        self._add(put(fact_key(note.id), merged))
        if merged.pinned and not note.pinned:
            self._add(put(pinned_key(note.owner, note.id), note.id))
        return merged

    def supersede(self, note: FactNote, content: FactContent, by: str, from_ms: int) -> None:
        """Ends a fact's validity; it stays as history."""
        valid_to_ms = max(from_ms, note.newest.valid_from_ms)
        version = self._rewritten(note, content, valid_to_ms)
        ended = msgspec.structs.replace(
            note,
            state=FactState.SUPERSEDED,
            versions=(*note.versions, version)[-VERSIONS_MAX:],
            superseded_by=by,
            contested_by=(),
            pinned=False,
        )
        self._add(put(fact_key(note.id), ended))
        if note.pinned:
            self._add(remove(pinned_key(note.owner, note.id)))

    def contest(self, note: FactNote, by: str) -> None:
        """Notes that another fact contradicts one."""
        contested_by = (*note.contested_by, by)[-CONTESTED_MAX:]
        self._add(put(fact_key(note.id), msgspec.structs.replace(note, contested_by=contested_by)))

    def fill_slot(self, slot: str, ids: Sequence[str]) -> None:
        """Says which facts are current in a slot."""
        self._add(put(SLOTS + slot, list(ids[-SLOT_FACTS_MAX:])))

    def _rewritten(
        self,
        note: FactNote,
        content: FactContent,
        valid_to_ms: int,
        *,
        valid_from_ms: int | None = None,
        recorded_ms: int | None = None,
    ) -> VersionNote:
        """Writes another version of a fact, in the same words."""
        number, body = note.newest.number + 1, decode_body(content)
        since_ms = note.newest.valid_from_ms if valid_from_ms is None else valid_from_ms
        version = self._version(number, body, since_ms, valid_to_ms, note.expires_at_ms, trust=note.trust)
        if recorded_ms is not None:
            version = msgspec.structs.replace(version, recorded_ms=recorded_ms)
        self.contents.append(content_of(self.candidate.scope, note, version, body, content.vector, now_ms=self._now_ms))
        return version

    def _version(
        self,
        number: int,
        body: Body,
        valid_from_ms: int,
        valid_to_ms: int,
        expires_at_ms: int,
        *,
        trust: float | None = None,
    ) -> VersionNote:
        candidate = self.candidate
        trust = candidate.trust if trust is None else trust
        said = (candidate.id, body.text, *map(str, (valid_from_ms, valid_to_ms, expires_at_ms, trust, self._now_ms)))
        content = content_number(number, *said)
        return VersionNote(number, content, self._now_ms, valid_from_ms, valid_to_ms)

    def _add(self, mutation: Mutation) -> None:
        # Of two changes of a record the later one was made from the earlier.
        self._mutations[mutation.key] = mutation


def _sources(candidate: Candidate) -> tuple[SourceNote, ...]:
    """Returns the sources that a candidate names; without any, its producer's word is one."""
    agent = candidate.agent
    common = (candidate.trust, candidate.confidence, candidate.producer, candidate.id, candidate.submitted_ms, agent)
    if candidate.evidence:
        return tuple(SourceNote(one.reference, one.content_hash, *common) for one in candidate.evidence)
    # Whoever says the same thing twice is one source.
    speaker = f"{candidate.channel}\0{agent}\0{candidate.producer}"
    return (SourceNote(OWN_WORD + candidate.id, hashlib.sha256(speaker.encode()).digest(), *common),)
