"""What forgetting writes to a ledger: a fact goes whole, or only what one producer said for it. Nothing here waits."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from ..ports.factstore import FactContent
from ..ports.store import Mutation
from .contents import OWN_WORD, content_of, decode_body
from .ledger import (
    CANDIDATE_RETENTION_MS,
    FORGOTTEN,
    KEYS,
    SECRET,
    SLOTS,
    VERSIONS_MAX,
    CandidateNote,
    FactNote,
    Page,
    SourceNote,
    Suppression,
    VersionNote,
    candidate_key,
    content_number,
    fact_key,
    pinned_key,
    put,
    remove,
)
from .scopes import digits_of
from .sources import distinct, surety
from .suppression import claim_keys, evidence_key
from .types import BECAME_FACT, Candidate, FactState, Status, Why

FORGOTTEN_WHY = Why("forget", "forgotten", "It was forgotten.")


class Forgotten(msgspec.Struct, frozen=True, array_like=True):
    """What was forgotten in a ledger, as long as words of it may stand elsewhere.

    Attributes:
        fact_id: the fact.
        owner: whose it was.
        contents: the numbers under which the fact store has its words.
        references: what it rested on.
        candidates: the candidates that it came from.
        key: its claim's key.
        slot: its claim's slot.
        time_ms: store time at which it was forgotten.
        with_twins: whether candidates that are kept apart and say the same, or rest on the same, go with it.
    """

    fact_id: str
    owner: str
    contents: tuple[int, ...]
    references: tuple[str, ...]
    candidates: tuple[str, ...]
    key: str
    slot: str
    time_ms: int
    with_twins: bool = False


def forgotten_key(fact_id: str) -> str:
    """Returns where it is noted that a fact was forgotten here."""
    return FORGOTTEN + digits_of(fact_id)


def places_of(note: FactNote) -> tuple[str, ...]:
    """Returns what forgetting a fact rests on, beside the fact's own record."""
    slot = (SLOTS + note.slot,) if note.slot else ()
    return (fact_key(note.id), KEYS + note.key, *slot, SECRET, *map(fact_key, note.contested_by))


def forget(page: Page, note: FactNote, fresh_secret: bytes, *, with_twins: bool = False) -> list[Mutation]:
    """Removes a fact from the ledger, and suppresses what it rested on.

    Args:
        page: with :func:`places_of` read.
        note: the fact.
        fresh_secret: the ledger's secret, if it has none.
        with_twins: whether candidates that are kept apart and say the same go, too.
    """
    now_ms = page.view.now_ms
    secret = page.get(SECRET, bytes) or fresh_secret
    found = [put(SECRET, secret)] if page.get(SECRET, bytes) is None else []
    found += leave(page, note)
    suppressed = [evidence_key(secret, note.owner, source.reference) for source in note.sources]
    suppressed += claim_keys(secret, note.key, note.slot)
    found += [put(key, Suppression(now_ms)) for key in dict.fromkeys(suppressed)]
    gone = Forgotten(
        note.id,
        note.owner,
        tuple(dict.fromkeys(version.content for version in note.versions)),
        tuple(dict.fromkeys(source.reference for source in note.sources)),
        tuple(dict.fromkeys(source.candidate for source in note.sources)),
        note.key,
        note.slot,
        now_ms,
        with_twins,
    )
    found.append(put(forgotten_key(note.id), gone))
    return found


def suppress_candidate(page: Page, secret: bytes, candidate: Candidate) -> list[Mutation]:
    """Suppresses what a candidate that is no fact rests on, and notes that it was forgotten if it was kept apart.

    Args:
        page: with the candidate's note read.
        secret: the ledger's, which the caller writes if it is new.
        candidate: the candidate.
    """
    now_ms, key = page.view.now_ms, candidate_key(candidate.id)
    references = [evidence.reference for evidence in candidate.evidence] or [OWN_WORD + candidate.id]
    found = [
        put(evidence_key(secret, candidate.owner, reference), Suppression(now_ms))
        for reference in dict.fromkeys(references)
    ]
    note = page.get(key, CandidateNote)
    if note is not None and note.content:
        decision = note.decision
        if decision.status not in BECAME_FACT:
            reasons = (*decision.reasons, FORGOTTEN_WHY)
            decision = msgspec.structs.replace(decision, status=Status.SUPPRESSED, reasons=reasons)
        kept = msgspec.structs.replace(note, decision=decision, content=0)
        found.append(put(key, kept, until_ms=now_ms + CANDIDATE_RETENTION_MS))
    return found


def leave(page: Page, note: FactNote) -> list[Mutation]:
    """Removes a fact from everywhere in its ledger."""
    found = [remove(fact_key(note.id))]
    if page.get(KEYS + note.key, str) == note.id:
        found.append(remove(KEYS + note.key))
    if note.slot:
        ids = page.get(SLOTS + note.slot, list) or []
        if note.id in ids:
            left = [id for id in ids if id != note.id]
            found.append(put(SLOTS + note.slot, left) if left else remove(SLOTS + note.slot))
    if note.pinned:
        found.append(remove(pinned_key(note.owner, note.id)))
    for other in note.contested_by:
        contested = page.get(fact_key(other), FactNote)
        if contested is not None and note.id in contested.contested_by:
            left_by = tuple(id for id in contested.contested_by if id != note.id)
            found.append(put(fact_key(other), msgspec.structs.replace(contested, contested_by=left_by)))
    return found


def withdraw(note: FactNote, is_of: Callable[[SourceNote], bool]) -> FactNote:
    """Returns a fact without the sources of one producer, as sure and as trusted as the others make it."""
    left = tuple(source for source in note.sources if not is_of(source))
    taken = tuple(source for source in note.sources if is_of(source))
    return msgspec.structs.replace(
        note,
        sources=left,
        source_count=max(1, note.source_count - len(distinct(left, taken))),
        confidence=surety(left),
        trust=max(source.trust for source in left),
    )


def rewritten(
    note: FactNote, content: FactContent, now_ms: int, *, valid_to_ms: int, recorded_ms: int, replaces: bool
) -> tuple[FactNote, FactContent]:
    """Returns a fact with another version in the same words, and that version's content.

    Args:
        note: the fact, with the state and trust that it is to have.
        content: its newest version's.
        now_ms: store time.
        valid_to_ms: until when it is so.
        recorded_ms: when the version counts as recorded.
        replaces: whether it takes the newest version's place instead of following it.
    """
    newest, body = note.newest, decode_body(content)
    number = newest.number + 1
    said = (note.id, body.text, *map(str, (newest.valid_from_ms, valid_to_ms, note.trust, note.expires_at_ms, now_ms)))
    version = VersionNote(number, content_number(number, *said), recorded_ms, newest.valid_from_ms, valid_to_ms)
    earlier: Sequence[VersionNote] = note.versions[:-1] if replaces else note.versions
    changed = msgspec.structs.replace(note, versions=(*earlier, version)[-VERSIONS_MAX:])
    return changed, content_of(content.scope, changed, version, body, content.vector, now_ms=now_ms)


def revived(note: FactNote) -> FactNote:
    """Returns a superseded fact as a current one."""
    return msgspec.structs.replace(note, state=FactState.CURRENT, superseded_by="")
